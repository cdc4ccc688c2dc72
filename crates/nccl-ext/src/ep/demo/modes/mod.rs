//! What the demo does in each mode of the library.

mod ht_expert_major;
mod ht_flat;
mod ll_expert_major;
mod ll_rank_major;

use nccl_ep::{Comm, Mode, Result, bf16};

use super::options::Options;
use super::outcome::Outcome;
use super::rank::{Rank, Round};
use super::speed;
use crate::oracle::{self, Counts, Zones};
use crate::routing::Routing;

/// How a rank runs a mode, and what must come out.
pub(super) struct ModeRun {
    mode: Mode,
    /// Whether received rows have an order that the library promises.
    pub(super) ordered: bool,
    /// Runs all rounds on one rank.
    run: fn(&Rank<'_>) -> Result<Vec<Round>>,
    /// The combined tokens of all ranks.
    pub(super) combined: fn(&Routing) -> Vec<bf16>,
    /// What each rank receives.
    pub(super) received: fn(&Routing, usize) -> Zones,
    /// Rows and counters.
    pub(super) counts: fn(&Routing) -> Counts,
}

impl ModeRun {
    pub(super) fn of(mode: Mode) -> Self {
        match mode {
            Mode::LowLatencyExpertMajor => Self {
                mode,
                ordered: false,
                run: ll_expert_major::run,
                combined: |routing| oracle::ll_expert_major(routing, oracle::expert_output),
                received: oracle::ll_expert_arrivals,
                counts: oracle::by_expert,
            },
            Mode::LowLatencyRankMajor => Self {
                mode,
                ordered: false,
                run: ll_rank_major::run,
                combined: |routing| oracle::ll_rank_major(routing, oracle::weighted_sum),
                received: oracle::ll_source_arrivals,
                counts: oracle::by_source,
            },
            Mode::HighThroughputFlat => Self {
                mode,
                ordered: true,
                run: ht_flat::run,
                combined: |routing| oracle::ht_flat(routing, oracle::weighted_sum),
                received: oracle::ht_rank_arrivals,
                counts: oracle::by_rank,
            },
            Mode::HighThroughputExpertMajor => Self {
                mode,
                ordered: true,
                run: ht_expert_major::run,
                combined: ht_expert_major_combined,
                received: oracle::ht_expert_arrivals,
                counts: oracle::by_expert,
            },
        }
    }

    /// One rank's part, on whatever backend the communicator is of.
    ///
    /// # Errors
    /// What the calls report.
    pub(super) fn on_rank(
        &self,
        comm: Comm,
        routing: &Routing,
        options: &Options,
    ) -> Result<Outcome> {
        let outcome = {
            let rank = Rank::new(&comm, routing, options)?;
            let rounds = (self.run)(&rank)?;
            let speed = options.speed.then(|| speed::measure(&rank, self.mode)).transpose()?;
            Outcome { rounds, speed, seen: Vec::new() }
        };
        comm.destroy()?;
        Ok(outcome)
    }
}

/// The caller weights each row; in which steps they are added depends on how the library works
/// inside, which the environment can choose.
fn ht_expert_major_combined(routing: &Routing) -> Vec<bf16> {
    let row = |value, (expert, weight), h| weight * oracle::expert_output(value, expert, h);
    let dup = std::env::var("NCCL_EP_HT_EM_NVLINK_DUP").unwrap_or_default();
    if matches!(&*dup.to_ascii_lowercase(), "1" | "on" | "true") {
        oracle::ht_expert_major_once(routing, row)
    } else {
        oracle::ht_expert_major(routing, row)
    }
}
