//! What the demo found out; as JSON it is all of this.

use serde::Serialize;

use super::cases::{Case, RANKS, Skipped, Work};
use super::model::Model;
use super::rank::{Issue, Outcome, ROUNDS};
use crate::info::Library;

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    tool: &'static str,
    version: &'static str,
    backend: &'static str,
    pub(super) libraries: Vec<Library>,
    pub(super) input: Input,
    pub(super) ranks: usize,
    rounds: usize,
    /// Set when a fault was injected.
    pub(super) fault_injected: bool,
    pub(super) cases: Vec<CaseReport>,
    passed: bool,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Input {
    pub(super) file: String,
    pub(super) tensors: usize,
    pub(super) bytes: usize,
}

/// A case, issued in one way.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CaseReport {
    pub(super) case: &'static str,
    pub(super) what: &'static str,
    /// `calls` or `group`.
    pub(super) issued: &'static str,
    /// Tensors that were resharded.
    pub(super) tensors: usize,
    /// Those that both sides cut.
    pub(super) sharded: usize,
    /// Tensors that the source cannot cut: each of its ranks has all.
    pub(super) replicated_at_source: Vec<String>,
    /// Tensors that the destination cannot cut.
    pub(super) replicated_at_destination: Vec<String>,
    pub(super) skipped: Vec<Skipped>,
    /// Bytes that destination ranks received in a round.
    pub(super) bytes_moved: usize,
    /// Of the slowest rank, in the last round.
    pub(super) seconds: f64,
    /// In all rounds.
    pub(super) bytes_compared: usize,
    pub(super) bytes_wrong: usize,
    pub(super) verdict: &'static str,
    pub(super) problems: Vec<String>,
}

impl CaseReport {
    pub(super) fn new(
        case: &Case,
        issue: Issue,
        works: &[Work<'_>],
        skipped: Vec<Skipped>,
        outcomes: &[Outcome],
    ) -> Self {
        let moved = |work: &Work<'_>| {
            work.destination.layout.local_bytes() * work.destination.layout.mesh().size()
        };
        let bytes_moved: usize = works.iter().map(moved).sum();
        let bytes_compared = outcomes.iter().map(|outcome| outcome.compared).sum();
        let bytes_wrong = outcomes.iter().map(|outcome| outcome.wrong).sum();
        let mut problems = Vec::new();
        for (rank, outcome) in outcomes.iter().enumerate() {
            if let Some(first) = &outcome.first {
                problems.push(format!(
                    "rank {rank}: {} of {} bytes differ; first byte {} of {}, expected {:#04x}, \
                     found {:#04x}",
                    outcome.wrong,
                    outcome.compared,
                    first.byte,
                    first.tensor,
                    first.expected,
                    first.found,
                ));
            }
        }
        // A verdict over bytes that nobody looked at would mean nothing.
        if bytes_compared != bytes_moved * ROUNDS || bytes_compared == 0 {
            let expected = bytes_moved * ROUNDS;
            problems.push(format!("{bytes_compared} of {expected} bytes were compared"));
        }
        let names = |whole: fn(&Work<'_>) -> bool| {
            let works = works.iter().filter(|work| whole(work));
            works.map(|work| work.tensor.name.clone()).collect::<Vec<_>>()
        };
        let cut = |work: &&Work<'_>| !work.source.whole && !work.destination.whole;
        Self {
            case: case.name,
            what: case.what,
            issued: if issue == Issue::Calls { "calls" } else { "group" },
            tensors: works.len(),
            sharded: works.iter().filter(cut).count(),
            replicated_at_source: names(|work| work.source.whole),
            replicated_at_destination: names(|work| work.destination.whole),
            skipped,
            bytes_moved,
            seconds: outcomes.iter().map(|it| it.time.as_secs_f64()).fold(0.0, f64::max),
            bytes_compared,
            bytes_wrong,
            verdict: if problems.is_empty() && bytes_wrong == 0 { "pass" } else { "fail" },
            problems,
        }
    }
}

impl Report {
    pub(super) fn new(model: &Model, fault_injected: bool, cases: Vec<CaseReport>) -> Self {
        let backend = nccl_ext_cpu::backend();
        Self {
            tool: "nccl-ext",
            version: env!("CARGO_PKG_VERSION"),
            backend: backend.name(),
            libraries: Library::all(backend),
            input: Input {
                file: model.file.clone(),
                tensors: model.tensors.len(),
                bytes: model.bytes(),
            },
            ranks: RANKS,
            rounds: ROUNDS,
            fault_injected,
            passed: cases.iter().all(|case| case.verdict == "pass"),
            cases,
        }
    }

    /// Whether every case passed.
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
