//! What the demo found out; as JSON it is all of this.

use std::time::Duration;

use nccl_ep::{Backend, MemorySpace, Mode, bf16};
use serde::Serialize;

use super::expected::Expected;
use super::options::Options;
use super::outcome::{Outcome, Speed};
use super::rank::Round;
use super::verdict;
use crate::info::Library;
use crate::oracle;
use crate::routing::{Routing, Sizes};

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    tool: &'static str,
    version: &'static str,
    backend: BackendReport,
    pub(super) input: Input,
    /// Set when a fault was injected.
    pub(super) fault_injected: bool,
    warm_up_rounds: usize,
    timed_rounds: usize,
    #[serde(rename = "pairs")]
    pub(super) modes: Vec<ModeReport>,
    pub(super) notes: Vec<Note>,
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

/// What there is to say of one mode.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ModeReport {
    #[serde(rename = "pair")]
    pub(super) mode: String,
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
    /// Largest `|combined - oracle|` of all rounds.
    pub(super) largest_difference: f64,
    values_compared: usize,
    /// Against the CPU backend; none when this is the CPU backend.
    pub(super) cpu: Option<CpuReport>,
    /// Of the slowest rank.
    pub(super) speed: Option<Speed>,
    /// What ranks had to tell.
    pub(super) seen: Vec<String>,
    pub(super) verdict: &'static str,
    pub(super) problems: Vec<String>,
}

/// Note on a run whose work is put off.
const DEFERRED_NOTES: [Note; 1] = [Note {
    column: "deferred",
    meaning: "work ran after its call had returned; every use of memory had an order, else an error \
              would stand here; the times say nothing, since the seed delays the work",
}];

/// The comparison with the CPU backend.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CpuReport {
    /// Received rows and combined bytes: `equal`, `different` or `not compared`.
    pub(super) result: &'static str,
    /// How received rows were compared.
    rows: &'static str,
    /// Why nothing was compared.
    pub(super) reason: Option<String>,
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
                  file, and the rows of the first round are those that the file sends",
    },
];

/// Notes on what only a run on GPUs has.
pub(super) const NATIVE_NOTES: [Note; 2] = [
    Note {
        column: "GPU, host",
        meaning: "microseconds a call of the slowest rank, apart from the verdict's rounds: 50 \
                  calls enqueued between two events on a stream, and the median of the calls \
                  themselves",
    },
    Note {
        column: "CPU backend",
        meaning: "received rows (high throughput: in order; low latency: as multisets of each \
                  expert or source rank) and combined bytes, compared with the same run there",
    },
];

impl ModeReport {
    /// `cpu` is what the CPU backend made of it, or why that was not asked.
    pub(super) fn new(
        mode: Mode,
        routing: &Routing,
        options: &Options,
        outcomes: &[Outcome],
        cpu: Option<Result<&[Outcome], String>>,
    ) -> Self {
        let expected = Expected::new(mode, routing);
        let mut problems = verdict::problems(routing, outcomes, &expected);
        let cpu = cpu.map(|cpu| {
            let rows = if expected.ordered { "in order" } else { "as multisets" };
            let (result, reason) = match cpu {
                Ok(cpu) => {
                    let different = verdict::cpu_problems(outcomes, cpu, expected.ordered);
                    let result = if different.is_empty() { "equal" } else { "different" };
                    problems.extend(different);
                    (result, None)
                }
                Err(reason) => ("not compared", Some(reason)),
            };
            CpuReport { result, rows, reason }
        });
        let last = outcomes.iter().filter_map(|outcome| outcome.rounds.last());
        let rows_received: Vec<_> = last.clone().map(|round| round.rows).collect();
        let row_bytes = (routing.sizes.hidden * size_of::<bf16>()) as u64;
        let results: Vec<_> = last.flat_map(|round| round.combined.iter().copied()).collect();
        let rounds = options.warm_up + options.rounds;
        Self {
            mode: mode.to_string(),
            algorithm: mode.algorithm().to_string(),
            layout: mode.layout().to_string(),
            rows_received_min: rows_received.iter().copied().min().unwrap_or(0),
            rows_received_max: rows_received.iter().copied().max().unwrap_or(0),
            bytes_moved: 2 * row_bytes * rows_received.iter().map(|rows| *rows as u64).sum::<u64>(),
            rows_received,
            dispatch_seconds: median_of_slowest(options, outcomes, |round| round.dispatch),
            combine_seconds: median_of_slowest(options, outcomes, |round| round.combine),
            distance_to_f64: oracle::distance(routing, &results),
            largest_difference: largest_difference(&expected.combined, outcomes),
            values_compared: expected.combined.len() * rounds,
            cpu,
            speed: outcomes.iter().filter_map(|outcome| outcome.speed).reduce(Speed::slower),
            seen: outcomes.iter().flat_map(|outcome| outcome.seen.iter().cloned()).collect(),
            verdict: if problems.is_empty() { "pass" } else { "fail" },
            problems,
        }
    }
}

/// The largest difference from the oracle in any round of any rank.
fn largest_difference(expected: &[bf16], outcomes: &[Outcome]) -> f64 {
    let per_rank = expected.len() / outcomes.len().max(1);
    let ranks = outcomes.iter().zip(expected.chunks(per_rank.max(1)));
    let rounds = ranks.flat_map(|(outcome, expected)| {
        let rounds = outcome.rounds.iter();
        rounds.map(|round| oracle::largest_difference(&round.combined, expected))
    });
    let larger = |a: f64, b: f64| if b.is_nan() || b > a { b } else { a };
    rounds.fold(0.0, larger)
}

/// A collective takes as long as its slowest rank; the median over the timed rounds, in seconds.
fn median_of_slowest(
    options: &Options,
    outcomes: &[Outcome],
    time: impl Fn(&Round) -> Duration,
) -> f64 {
    let slowest = |number: usize| {
        let ranks = outcomes.iter().filter_map(|outcome| outcome.rounds.get(number));
        ranks.map(&time).max()
    };
    let timed = options.warm_up..options.warm_up + options.rounds;
    let mut times: Vec<_> = timed.filter_map(slowest).collect();
    times.sort();
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64)
}

impl Report {
    pub(super) fn new(
        backend: Backend,
        routing: &Routing,
        options: &Options,
        modes: Vec<ModeReport>,
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
            warm_up_rounds: options.warm_up,
            timed_rounds: options.rounds,
            passed: modes.iter().all(|mode| mode.problems.is_empty()),
            modes,
            notes: match (options.deferred, backend.memory()) {
                (Some(_), _) => [&NOTES[..], &DEFERRED_NOTES].concat(),
                (None, MemorySpace::Host) => NOTES.to_vec(),
                (None, MemorySpace::Device) => [&NOTES[..], &NATIVE_NOTES].concat(),
            },
            header: backend_line(backend, options.deferred),
        }
    }

    /// Whether every mode passed.
    pub(super) fn passed(&self) -> bool {
        self.passed
    }

    /// One JSON object and a line break.
    pub(super) fn json(&self) -> String {
        crate::output::json(self)
    }
}

/// What there is to say of a backend in one line.
fn backend_line(backend: Backend, deferred: Option<u64>) -> String {
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
        MemorySpace::Device if deferred.is_some() => format!(
            "{name} (ranks are threads, work runs after its call, seed {}), standing in for \
             {libraries}",
            deferred.unwrap_or(0)
        ),
        MemorySpace::Device => format!("{name} (a process and a GPU for each rank), {libraries}"),
    }
}
