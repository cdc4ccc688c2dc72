//! What a rank does in each mode of the library.

mod ht_expert_major;
mod ht_flat;
mod ll_expert_major;
mod ll_rank_major;

use nccl_ep::{Comm, Mode, Result};

use super::options::Options;
use super::outcome::Outcome;
use super::rank::Rank;
use super::speed;
use crate::routing::Routing;

/// One rank's part in a mode, on whatever backend the communicator is of.
///
/// # Errors
/// What the calls report.
pub(super) fn run(mode: Mode, comm: Comm, routing: &Routing, options: &Options) -> Result<Outcome> {
    let outcome = {
        let rank = Rank::new(&comm, routing, options)?;
        let rounds = match mode {
            Mode::LowLatencyExpertMajor => ll_expert_major::run(&rank)?,
            Mode::LowLatencyRankMajor => ll_rank_major::run(&rank)?,
            Mode::HighThroughputFlat => ht_flat::run(&rank)?,
            Mode::HighThroughputExpertMajor => ht_expert_major::run(&rank)?,
        };
        let speed = options.speed.then(|| speed::measure(&rank, mode)).transpose()?;
        Outcome { rounds, speed, seen: Vec::new() }
    };
    comm.destroy()?;
    Ok(outcome)
}
