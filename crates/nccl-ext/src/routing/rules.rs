//! What a recording must be, beyond its format.

use super::file::File;
use super::recording::{MAX_EXPERTS, Routing, Sizes};
use crate::failure::InputError;

/// Reads the sizes from the metadata.
pub(super) fn sizes(file: &File<'_>) -> Result<Sizes, InputError> {
    let sizes = Sizes {
        ranks: size(file, "ranks")?,
        tokens_per_rank: size(file, "tokens_per_rank")?,
        hidden: size(file, "hidden")?,
        top_k: size(file, "top_k")?,
        experts: size(file, "experts")?,
    };
    let Sizes { ranks, tokens_per_rank, hidden, top_k, experts } = sizes;
    let widest = hidden.max(top_k);
    if ranks.checked_mul(tokens_per_rank).and_then(|rows| rows.checked_mul(widest)).is_none() {
        return Err(file.error(
            "ranks",
            "the number of elements fits 64 bits",
            "a smaller product of ranks, tokens_per_rank and hidden or top_k",
            format!("{ranks} x {tokens_per_rank} x {widest}"),
        ));
    }
    if experts > MAX_EXPERTS {
        let rule = "low latency carries expert ids in 16 bits";
        return Err(file.error("experts", rule, format!("1 to {MAX_EXPERTS}"), experts));
    }
    if !experts.is_multiple_of(ranks) {
        let rule = "experts divide evenly over ranks";
        let expected = format!("a multiple of {ranks}");
        return Err(file.error("experts", rule, expected, experts));
    }
    Ok(sizes)
}

/// A size is 1 or more. No ranks, experts or choices are no recording at all, and with no tokens a
/// verdict would pass without having compared anything.
fn size(file: &File<'_>, key: &'static str) -> Result<usize, InputError> {
    let Some(text) = file.metadata(key) else {
        let rule = "the metadata gives the sizes of the recording";
        return Err(file.error(key, rule, format!("a metadata entry `{key}`"), "none"));
    };
    let number = text.parse::<u32>().ok().filter(|number| *number > 0);
    number.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| {
        let rule = "a size in the metadata is a whole number, and at least 1";
        file.error(key, rule, format!("1 to {}", u32::MAX), format!("{text:?}"))
    })
}

/// Checks every element of the tensors.
pub(super) fn values(routing: &Routing) -> Result<(), InputError> {
    let Sizes { hidden, top_k, experts, .. } = routing.sizes;
    let error = |item, rule, expected: String, found: String| {
        Err(InputError { file: routing.name.clone(), item, rule, expected, found })
    };
    let place =
        |index: usize, width: usize| format!("row {}, column {}", index / width, index % width);
    let finite = "values are finite: a NaN or infinity would hide what else is summed";
    if let Some(at) = routing.tokens.iter().position(|value| !value.is_finite()) {
        let found = format!("{} in {}", routing.tokens[at], place(at, hidden));
        return error("tokens", finite, "finite values".into(), found);
    }
    if let Some(at) = routing.topk_weights.iter().position(|value| !value.is_finite()) {
        let found = format!("{} in {}", routing.topk_weights[at], place(at, top_k));
        return error("topk_weights", finite, "finite values".into(), found);
    }
    let is_id = |id: i64| usize::try_from(id).map_or(id < 0, |id| id < experts);
    if let Some(at) = routing.topk_idx.iter().position(|id| !is_id(*id)) {
        let rule = "an id names an expert, or is negative for none";
        let found = format!("{} in {}", routing.topk_idx[at], place(at, top_k));
        return error("topk_idx", rule, format!("at most {}", experts - 1), found);
    }
    for token in 0..routing.sizes.tokens() {
        let mut ids = routing.ids(token).to_vec();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] >= 0 && pair[0] == pair[1]) {
            let rule = "a row names an expert at most once: low-latency expert-major has one \
                        place for each token of an expert";
            let found = format!("expert {} twice in row {token}", pair[0]);
            return error("topk_idx", rule, "different experts".into(), found);
        }
    }
    Ok(())
}
