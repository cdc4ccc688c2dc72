//! Dispatch, experts, combine: on every pair of algorithm and layout, and proved.
//!
//! ```text
//! cpu      ranks as threads of this process
//! native   ranks as processes, a GPU each: launched, met and read back by files
//! rank     what one rank does, whatever it runs on
//! verdict  oracle, counters and the CPU backend against what the ranks gave back
//! report   the facts; table  for people
//! ```

mod cpu;
mod experts;
mod ht_expert_major;
mod ht_flat;
mod limits;
mod ll_expert_major;
mod ll_rank_major;
pub mod native;
mod outcome;
mod pair;
mod rank;
mod received;
mod report;
mod speed;
mod table;
mod verdict;

pub use outcome::{Outcome, Speed, Time};
pub use pair::{PAIRS, Pair, named};
pub use rank::{Rank, Round};
pub use received::Received;
pub use report::{PairReport, Report};

use nccl_ext_core::{Backend, Comm, Error, MemorySpace};

use crate::failure::Failure;
use crate::routing::Routing;

/// How the demo runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Inverts a byte that one rank received, between dispatch and combine: the verdict must fail.
    pub corrupt: bool,
    /// The pairs to run.
    pub pairs: Vec<&'static Pair>,
    /// Rounds before the timed ones.
    pub warm_up: usize,
    /// Rounds whose times count.
    pub rounds: usize,
    /// Whether calls are timed alone, too.
    pub speed: bool,
    /// GiB that the CPU backend may take for received rows, all ranks together.
    pub cpu_gib: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            corrupt: false,
            pairs: PAIRS.iter().collect(),
            warm_up: 1,
            rounds: 5,
            speed: false,
            cpu_gib: limits::CPU_GIB,
        }
    }
}

/// Runs the pairs on the CPU backend, with ranks as threads.
///
/// # Errors
/// [`Failure`] when the routing breaks a rule of the demo or of the API, or a call fails. A result
/// that is wrong is no error but a verdict in the report.
pub fn run(routing: &Routing, options: &Options) -> Result<Report, Failure> {
    limits::check_cpu(routing, options)?;
    let pair = |pair: &&'static Pair| {
        let outcomes = cpu::run_pair(pair, routing, options)?;
        Ok(PairReport::new(pair, routing, options, &outcomes, None))
    };
    let pairs: Result<_, Failure> = options.pairs.iter().map(pair).collect();
    Ok(Report::new(nccl_ext_cpu::backend(), routing, options, pairs?))
}

/// One rank's part in one pair, on whatever backend the communicator is of.
///
/// # Errors
/// What the calls report.
pub fn run_rank(
    comm: Comm,
    pair: &Pair,
    routing: &Routing,
    options: &Options,
) -> Result<Outcome, Error> {
    let outcome = {
        let rank = Rank::new(&comm, routing, options)?;
        let rounds = (pair.run)(&rank)?;
        let speed = options.speed.then(|| speed::measure(&rank, pair)).transpose()?;
        Outcome { rounds, speed, seen: Vec::new() }
    };
    comm.destroy()?;
    Ok(outcome)
}

/// What there is to say of a backend in one line.
fn backend_line(backend: Backend) -> String {
    let libraries = backend.libraries().iter().map(|library| match &library.path {
        Some(path) => format!("{} {} ({})", library.name, library.version, path.display()),
        None => format!("{} {}", library.name, library.version),
    });
    let libraries = libraries.collect::<Vec<_>>().join(" and ");
    let name = backend.name();
    match backend.memory() {
        MemorySpace::Host => {
            format!("{name} (ranks are threads, memory is the host's), standing in for {libraries}")
        }
        MemorySpace::Device => format!("{name} (a process and a GPU for each rank), {libraries}"),
    }
}
