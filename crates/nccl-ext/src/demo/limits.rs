//! What the demo can run, beyond what a recording may be.

use crate::failure::InputError;
use crate::routing::{Routing, Sizes};

/// Ranks are threads of this process.
const MAX_RANKS: usize = 256;

/// Low-latency expert-major has room for every token at every expert, whether it comes or not.
const MAX_ROWS_BYTES: u128 = 2 << 30;

/// Refuses what would use up the machine.
pub(super) fn check(routing: &Routing) -> Result<(), InputError> {
    let Sizes { ranks, tokens_per_rank, hidden, experts, .. } = routing.sizes;
    let error = |item, rule, expected: String, found: String| {
        Err(InputError { file: routing.name.clone(), item, rule, expected, found })
    };
    if ranks > MAX_RANKS {
        let rule = "the ranks of the demo are threads of one process";
        return error("ranks", rule, format!("at most {MAX_RANKS}"), ranks.to_string());
    }
    let factors = [experts, ranks, max_tokens(routing), hidden, 2];
    let bytes = factors.iter().fold(1_u128, |bytes, factor| bytes.saturating_mul(*factor as u128));
    if bytes > MAX_ROWS_BYTES {
        let rule = "low-latency expert-major has room for every token at every expert: experts x \
                    ranks x tokens_per_rank x hidden x 2 bytes in all";
        let found = format!("{experts} x {ranks} x {tokens_per_rank} x {hidden} x 2 = {bytes}");
        return error("experts", rule, format!("at most {MAX_ROWS_BYTES} bytes"), found);
    }
    Ok(())
}

/// Tokens that the group is made for. High throughput reads its maps in fours, so that tokens times
/// ranks must be a multiple of 4; a rank may dispatch fewer.
pub(super) fn max_tokens(routing: &Routing) -> usize {
    routing.sizes.tokens_per_rank.next_multiple_of(4)
}
