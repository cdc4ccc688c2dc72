//! What the demo found out; as JSON it is all of this.

use std::time::Duration;

use nccl_ep::{Backend, bf16};
use serde::Serialize;

use super::pair::Pair;
use super::rank::Round;
use super::{Options, TIMED, WARM_UP, backend_line, verdict};
use crate::info::Library;
use crate::oracle;
use crate::routing::{Routing, Sizes};

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    tool: &'static str,
    version: &'static str,
    backend: BackendReport,
    pub(super) input: Input,
    /// Set when a fault was injected.
    pub(super) fault_injected: bool,
    warm_up_rounds: usize,
    timed_rounds: usize,
    pub(super) pairs: Vec<PairReport>,
    pub(super) notes: [Note; 5],
    passed: bool,
    #[serde(skip)]
    pub(super) header: String,
}

#[derive(Debug, Clone, Serialize)]
struct BackendReport {
    name: &'static str,
    libraries: Vec<Library>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) embedded: bool,
    pub(super) ranks: usize,
    pub(super) tokens_per_rank: usize,
    pub(super) hidden: usize,
    pub(super) data_type: &'static str,
    pub(super) top_k: usize,
    pub(super) experts: usize,
    expert_load_min: usize,
    expert_load_max: usize,
}

/// One pair of algorithm and layout.
#[derive(Debug, Clone, Serialize)]
pub struct PairReport {
    pub(super) pair: &'static str,
    algorithm: String,
    layout: String,
    /// Rows that each rank received in the last round.
    rows_received: Vec<usize>,
    pub(super) rows_received_min: usize,
    pub(super) rows_received_max: usize,
    pub(super) bytes_moved: u64,
    pub(super) dispatch_seconds: f64,
    pub(super) combine_seconds: f64,
    pub(super) distance_to_f64: f64,
    values_compared: usize,
    pub(super) verdict: &'static str,
    pub(super) problems: Vec<String>,
}

/// What a column of the table holds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Note {
    pub(super) column: &'static str,
    pub(super) meaning: &'static str,
}

pub(super) const NOTES: [Note; 5] = [
    Note {
        column: "rows/rank",
        meaning: "fewest and most rows a rank received; checked against the routing, and so are \
                  the library's counters",
    },
    Note {
        column: "moved",
        meaning: "token rows that dispatch delivers and combine takes back, all ranks, rows to \
                  oneself too; no weights, ids, headers",
    },
    Note {
        column: "dispatch, combine",
        meaning: "wall time of the slowest rank, from when all are there; median of the timed \
                  rounds, after one to warm up",
    },
    Note {
        column: "to f64",
        meaning: "largest distance from exact arithmetic, over the sum of magnitudes; one \
                  rounding to bf16 is up to 3.9e-3",
    },
    Note {
        column: "verdict",
        meaning: "pass: every value of every round has the bits that the oracle computes from the \
                  file",
    },
];

impl PairReport {
    pub(super) fn new(pair: &Pair, routing: &Routing, rounds: &[Vec<Round>]) -> Self {
        let combined = (pair.combined)(routing);
        let counts = (pair.counts)(routing);
        let problems = verdict::problems(routing, rounds, &combined, &counts);
        let last = rounds.iter().filter_map(|rounds| rounds.last());
        let rows_received: Vec<_> = last.clone().map(|round| round.rows).collect();
        let row_bytes = (routing.sizes.hidden * size_of::<bf16>()) as u64;
        let results: Vec<_> = last.flat_map(|round| round.combined.iter().copied()).collect();
        Self {
            pair: pair.name,
            algorithm: pair.algorithm.to_string(),
            layout: pair.layout.to_string(),
            rows_received_min: rows_received.iter().copied().min().unwrap_or(0),
            rows_received_max: rows_received.iter().copied().max().unwrap_or(0),
            bytes_moved: 2 * row_bytes * rows_received.iter().map(|rows| *rows as u64).sum::<u64>(),
            rows_received,
            dispatch_seconds: median_of_slowest(rounds, |round| round.dispatch),
            combine_seconds: median_of_slowest(rounds, |round| round.combine),
            distance_to_f64: oracle::distance(routing, &results),
            values_compared: combined.len() * (WARM_UP + TIMED),
            verdict: if problems.is_empty() { "pass" } else { "fail" },
            problems,
        }
    }
}

/// A collective takes as long as its slowest rank; the median over the timed rounds, in seconds.
fn median_of_slowest(rounds: &[Vec<Round>], time: impl Fn(&Round) -> Duration) -> f64 {
    let slowest = |number: usize| {
        let ranks = rounds.iter().filter_map(|rounds| rounds.get(number));
        ranks.map(&time).max()
    };
    let mut times: Vec<_> = (WARM_UP..WARM_UP + TIMED).filter_map(slowest).collect();
    times.sort();
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64)
}

impl Report {
    pub(super) fn new(
        backend: Backend,
        routing: &Routing,
        options: Options,
        pairs: Vec<PairReport>,
    ) -> Self {
        let Sizes { ranks, tokens_per_rank, hidden, top_k, experts } = routing.sizes;
        let loads = routing.loads();
        Self {
            tool: "nccl-ext",
            version: env!("CARGO_PKG_VERSION"),
            backend: BackendReport { name: backend.name(), libraries: Library::all(backend) },
            input: Input {
                name: routing.name.clone(),
                embedded: routing.embedded,
                ranks,
                tokens_per_rank,
                hidden,
                data_type: "bf16",
                top_k,
                experts,
                expert_load_min: loads.iter().copied().min().unwrap_or(0),
                expert_load_max: loads.iter().copied().max().unwrap_or(0),
            },
            fault_injected: options.corrupt,
            warm_up_rounds: WARM_UP,
            timed_rounds: TIMED,
            passed: pairs.iter().all(|pair| pair.problems.is_empty()),
            pairs,
            notes: NOTES,
            header: backend_line(backend),
        }
    }

    /// Whether every pair passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.passed
    }

    /// One JSON object and a line break.
    #[must_use]
    pub fn json(&self) -> String {
        crate::output::json(self)
    }
}
