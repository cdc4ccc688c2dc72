//! What the demo can run, beyond what a recording may be.

use nccl_ep::Mode;

use super::options::Options;
use crate::failure::InputError;
use crate::routing::{Routing, Sizes};

/// Ranks are threads of this process.
const MAX_RANKS: usize = 256;

/// Room for received rows on one GPU.
const MAX_GPU_ROWS_BYTES: u128 = 32 << 30;

/// Refuses what would use up this machine.
pub(super) fn check_cpu(routing: &Routing, options: &Options) -> Result<(), InputError> {
    let ranks = routing.sizes.ranks;
    if ranks > MAX_RANKS {
        let rule = "the ranks of the demo are threads of one process";
        let (expected, found) = (format!("at most {MAX_RANKS}"), ranks.to_string());
        return Err(error(routing, "ranks", rule, expected, found));
    }
    options.modes.iter().try_for_each(|mode| fits_cpu(routing, *mode, options.cpu_gib))
}

/// Whether the CPU backend has room for this mode.
fn fits_cpu(routing: &Routing, mode: Mode, gib: usize) -> Result<(), InputError> {
    let Room { item, rule, factors } = Room::new(routing, mode);
    check(routing, item, rule, &factors, (gib as u128) << 30)
}

/// Whether a GPU has room for a rank of this mode.
pub(super) fn fits_gpu(routing: &Routing, mode: Mode) -> Result<(), InputError> {
    let Room { item, factors, .. } = Room::new(routing, mode);
    let rule = "a GPU has room for the rows that one rank may receive, of all ranks' bytes";
    let limit = MAX_GPU_ROWS_BYTES.saturating_mul(routing.sizes.ranks as u128);
    check(routing, item, rule, &factors, limit)
}

fn check(
    routing: &Routing,
    item: &'static str,
    rule: &'static str,
    factors: &[usize],
    limit: u128,
) -> Result<(), InputError> {
    let bytes = factors.iter().fold(2_u128, |bytes, factor| bytes.saturating_mul(*factor as u128));
    if bytes <= limit {
        return Ok(());
    }
    let factors: Vec<_> = factors.iter().map(usize::to_string).collect();
    let found = format!("{} x 2 = {bytes}", factors.join(" x "));
    Err(error(routing, item, rule, format!("at most {limit} bytes"), found))
}

/// Elements of received rows that there must be room for on all ranks together.
struct Room {
    item: &'static str,
    rule: &'static str,
    factors: Vec<usize>,
}

impl Room {
    fn new(routing: &Routing, mode: Mode) -> Self {
        let Sizes { ranks, hidden, top_k, experts, .. } = routing.sizes;
        let tokens = max_tokens(routing);
        match mode {
            Mode::LowLatencyExpertMajor => Self {
                item: "experts",
                rule: "low-latency expert-major has room for every token at every expert: experts \
                       x ranks x tokens_per_rank x hidden x 2 bytes in all",
                factors: vec![experts, ranks, tokens, hidden],
            },
            Mode::HighThroughputExpertMajor => Self {
                item: "top_k",
                rule: "high-throughput expert-major has a row for each choice of a token: ranks x \
                       tokens_per_rank x top_k x hidden x 2 bytes in all",
                factors: vec![ranks, tokens, top_k, hidden],
            },
            Mode::LowLatencyRankMajor | Mode::HighThroughputFlat => Self {
                item: "ranks",
                rule: "every rank has room for every token: ranks x ranks x tokens_per_rank x \
                       hidden x 2 bytes in all",
                factors: vec![ranks, ranks, tokens, hidden],
            },
        }
    }
}

fn error(
    routing: &Routing,
    item: &'static str,
    rule: &'static str,
    expected: String,
    found: String,
) -> InputError {
    InputError::new(&routing.name, item, rule, expected, found)
}

/// Tokens that the group is made for. High throughput reads its maps in fours, so that tokens times
/// ranks must be a multiple of 4; a rank may dispatch fewer.
pub(super) fn max_tokens(routing: &Routing) -> usize {
    routing.sizes.tokens_per_rank.next_multiple_of(4)
}
