//! The error type of all crates of this workspace.

mod display;
mod loading;
mod refused;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use self::display::result_name;
pub use self::loading::{CudaSide, JitVariable, LoadAttempt};
pub use self::refused::Refused;
use crate::raw::ncclResult_t;
use crate::version::Version;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who gets an error of a collective call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The error is a function of what all ranks share: every rank gets it, nobody waits.
    Uniform,
    /// One rank knows: token counts, buffers, capture state, allocation failures. Its peers would
    /// wait for a rank that never comes, so the group is [`Error::Diverged`] afterwards.
    Local,
}

/// Everything that can go wrong.
///
/// A message names the argument, the rule, what was expected and what was found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// No candidate for a library could be opened.
    Load {
        /// Name of the library.
        library: &'static str,
        /// Every place tried, in order.
        attempts: Vec<LoadAttempt>,
    },
    /// A library lacks functions that these crates need.
    MissingSymbols {
        /// All missing names.
        symbols: Vec<&'static str>,
        /// The file that lacks them.
        library: PathBuf,
        /// Its version, where one can be asked for.
        found: Option<Version>,
        /// The version that has them.
        needs: Version,
    },
    /// A library is older than the oldest version that works.
    TooOld {
        /// Name of the library.
        library: &'static str,
        /// Its version.
        found: Version,
        /// The oldest accepted version.
        needs: Version,
        /// Where it lies.
        path: PathBuf,
    },
    /// A library does not go with the driver, the compiler or the choice of another CUDA major.
    CudaMajorMismatch {
        /// The library's file.
        library: PathBuf,
        /// The CUDA major that it is built for.
        built_for: u32,
        /// What it does not go with.
        against: CudaSide,
        /// The CUDA major of that.
        found: u32,
    },
    /// The process holds more than one NCCL, so that calls of one communicator would reach both.
    MultipleNccl {
        /// The files, the one that these crates would call first.
        paths: Vec<PathBuf>,
    },
    /// The library compiles kernels at run time, and would find no compiler.
    NvccNotFound {
        /// Name of the library.
        library: &'static str,
        /// The variable that names the compiler.
        variable: &'static str,
        /// Every place that the library looks at, in its order.
        tried: Vec<LoadAttempt>,
    },
    /// The library compiles kernels at run time, and would not find what that takes.
    JitEnvironment {
        /// Name of the library.
        library: &'static str,
        /// Each variable that is missing or wrong.
        missing: Vec<JitVariable>,
    },
    /// An argument breaks a rule. Nothing was called. Only a rule makes it, by
    /// [`RuleInfo::broken`](crate::rules::RuleInfo::broken).
    #[non_exhaustive]
    Invalid {
        /// The rule's name: `group.experts-divide`.
        name: &'static str,
        /// The argument or configuration field.
        argument: &'static str,
        /// The rule, in words.
        rule: &'static str,
        /// What would have been accepted.
        expected: String,
        /// What was given.
        found: String,
        /// Whether every rank gets this error.
        scope: Scope,
    },
    /// A sharded dimension does not divide over the ranks that share it.
    Uneven {
        /// The dimension, from 0.
        dim: usize,
        /// Its global extent, in elements.
        size: usize,
        /// The shards that it is cut into.
        parts: usize,
    },
    /// A transfer plan leaves a destination byte out, writes it twice or takes it from the wrong
    /// place.
    Coverage {
        /// The rank whose tile is wrong.
        rank: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// Ranks were asked for different work.
    DigestMismatch {
        /// The first rank that differs from rank 0.
        rank: usize,
        /// Where, with both values.
        first_difference: String,
    },
    /// One entry of a group is wrong. Nothing of the group was issued.
    Entry {
        /// The entry's number in the order of recording, from 0.
        index: usize,
        /// What is wrong with it.
        error: Arc<Error>,
    },
    /// The object is in use: live handles, an open round, other owners.
    Busy {
        /// What was asked for.
        what: &'static str,
        /// What stands in the way, and what ends it.
        reason: String,
    },
    /// A native call returned an error code.
    Native {
        /// The C function.
        call: &'static str,
        /// What it returned.
        code: ncclResult_t,
        /// The library's own words, read right after the call.
        detail: String,
    },
    /// A C++ exception left a native call, and [`crate::guard`] caught it.
    Exception {
        /// The C function.
        call: &'static str,
        /// The exception's own text, or its type where it has none.
        what: String,
    },
    /// A CUDA driver call returned an error code.
    Driver {
        /// The C function.
        call: &'static str,
        /// Its `CUresult`.
        code: u32,
        /// The driver's name for it.
        detail: String,
    },
    /// An earlier [`Scope::Local`] error left this rank behind its peers; the group is lost.
    Diverged {
        /// The error that did it.
        cause: Arc<Error>,
    },
    /// An earlier C++ exception, trap or fail-stop error left native objects in a state that nobody
    /// knows.
    Poisoned {
        /// What did it.
        cause: Arc<Error>,
    },
    /// Another rank failed, so the collective cannot finish.
    PeerFailed {
        /// The rank that failed first.
        rank: usize,
        /// Its error.
        error: Arc<Error>,
    },
    /// A rank panicked or gave up its communicator while others still needed it.
    RankGone {
        /// In whose words: what the rank was doing.
        reason: String,
    },
    /// Ranks did not arrive, or work was not done, in time.
    Timeout {
        /// The operation that waited.
        phase: &'static str,
        /// The ranks that had not arrived; empty where nobody knows whom the work waits for.
        ranks: Vec<usize>,
        /// How long it waited.
        waited: Duration,
    },
    /// Two uses of the same bytes, one of them a write, have no order: neither a stream, nor an
    /// event, a wait or a collective puts one before the other. Only the deferred CPU backend sees
    /// it; on a GPU the result would be anything.
    #[non_exhaustive]
    Race {
        /// The use that found the other one.
        second: Box<RacingUse>,
        /// The use that was there before.
        first: Box<RacingUse>,
        /// The allocation.
        buffer: String,
        /// Bytes of the allocation that both use.
        bytes: std::ops::Range<usize>,
    },
    /// Expert ids that the library must not see, or of which combine loses a weight. The call was
    /// made all the same, so that the rank stays in step with its peers: ids that would corrupt
    /// memory were replaced by -1 first.
    Ids {
        /// How many.
        count: u64,
        /// The token of the first of them.
        token: usize,
        /// Its place among the token's choices.
        choice: usize,
    },
    /// The loaded library, or this platform, does not have the feature.
    Unsupported {
        /// What was asked for.
        feature: &'static str,
        /// Which library or backend was asked.
        library: String,
        /// What it has.
        found: String,
        /// What would have it.
        needs: String,
    },
}

/// One of two uses that have no order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RacingUse {
    /// The call that uses the bytes.
    pub call: &'static str,
    /// Its stream or host thread.
    pub stream: String,
    /// Whether it writes.
    pub writes: bool,
}

impl RacingUse {
    /// A use by `call` on `stream`.
    #[must_use]
    pub fn new(call: &'static str, stream: String, writes: bool) -> Self {
        Self { call, stream, writes }
    }
}

impl Error {
    /// A race between two uses of some bytes of a buffer.
    #[must_use]
    pub fn race(
        first: RacingUse,
        second: RacingUse,
        buffer: String,
        bytes: std::ops::Range<usize>,
    ) -> Self {
        Self::Race { first: Box::new(first), second: Box::new(second), buffer, bytes }
    }

    /// Whether every rank of a collective gets this error, or this rank alone.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match self {
            Self::Invalid { scope, .. } => *scope,
            Self::Entry { error, .. } => error.scope(),
            Self::Load { .. }
            | Self::MissingSymbols { .. }
            | Self::TooOld { .. }
            | Self::CudaMajorMismatch { .. }
            | Self::MultipleNccl { .. }
            | Self::NvccNotFound { .. }
            | Self::JitEnvironment { .. }
            | Self::Native { .. }
            | Self::Exception { .. }
            | Self::Driver { .. }
            | Self::Busy { .. }
            | Self::Race { .. }
            | Self::Ids { .. }
            | Self::RankGone { .. }
            | Self::Poisoned { .. }
            | Self::Diverged { .. } => Scope::Local,
            Self::PeerFailed { .. }
            | Self::Timeout { .. }
            | Self::Unsupported { .. }
            | Self::Uneven { .. }
            | Self::Coverage { .. }
            | Self::DigestMismatch { .. } => Scope::Uniform,
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Diverged { cause } | Self::Poisoned { cause } => Some(&**cause),
            Self::PeerFailed { error, .. } | Self::Entry { error, .. } => Some(&**error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::rules::{RuleInfo, Violation};

    fn invalid(scope: Scope) -> Error {
        let rule = "experts divide evenly over ranks";
        let info = RuleInfo::new("group.experts-divide", "num_experts", rule, "EP 2.1", scope);
        info.broken(Violation::new("a multiple of 3", 256))
    }

    #[test]
    fn messages_name_argument_rule_expected_and_found() {
        assert_eq!(
            invalid(Scope::Uniform).to_string(),
            "`num_experts`: experts divide evenly over ranks; expected a multiple of 3, found 256"
        );
        let second = RacingUse::new("ncclReduce", "stream 4 of rank 1".into(), false);
        let first = RacingUse::new("ncclAllGather", "stream 3 of rank 1".into(), true);
        assert_eq!(
            Error::race(first, second, "512 bytes of rank 1".into(), 64..128).to_string(),
            "ncclReduce reads bytes 64..128 of 512 bytes of rank 1 on stream 4 of rank 1, \
             ncclAllGather writes them on stream 3 of rank 1, and nothing orders the two; use one \
             stream, or let the second wait for an event of the first"
        );
        assert_eq!(
            Error::Ids { count: 3, token: 7, choice: 1 }.to_string(),
            "`topk_idx`: 3 expert ids are out of range, stand twice in their row or are too many of \
             one rank, the first at token 7, choice 1; the call was made without those that would \
             corrupt memory; mend the router, or find them with Validation::Data"
        );
        let timeout =
            Error::Timeout { phase: "dispatch", ranks: vec![1, 3], waited: Duration::from_secs(2) };
        assert_eq!(
            timeout.to_string(),
            "dispatch: no sign of ranks 1, 3 within 2s; does every rank make this call?"
        );
        let (phase, waited) = ("waiting for an event", Duration::from_millis(5));
        assert_eq!(
            Error::Timeout { phase, ranks: vec![], waited }.to_string(),
            "waiting for an event: not done within 5ms; it goes on, and what it uses must be kept; is \
             every peer alive and in the same call? Comm::abort gives up"
        );
    }

    #[test]
    fn scope_follows_the_rule_and_causes_are_sources() {
        assert_eq!(invalid(Scope::Uniform).scope(), Scope::Uniform);
        assert_eq!(invalid(Scope::Local).scope(), Scope::Local);
        let peer = Error::PeerFailed { rank: 2, error: Arc::new(invalid(Scope::Local)) };
        assert!(peer.source().is_some_and(|e| e.to_string().contains("num_experts")));
    }

    #[test]
    fn uneven_dimensions_come_with_slices_that_are_even() {
        let uneven = |size, parts| Error::Uneven { dim: 0, size, parts }.to_string();
        assert_eq!(
            uneven(5, 4),
            "dimension 0 of 5 elements does not divide over 4 shards; move 0..4 (1 a shard) and \
             4..5 (replicated) separately, or pad it to 8"
        );
        assert_eq!(
            uneven(2, 3),
            "dimension 0 of 2 elements does not divide over 3 shards; pad it to 3"
        );
        assert!(uneven(2, 0).ends_with("there must be at least one"));
    }

    #[test]
    fn an_entry_has_the_scope_of_its_error() {
        let error = Arc::new(invalid(Scope::Local));
        let entry = Error::Entry { index: 2, error };
        assert_eq!(entry.scope(), Scope::Local);
        assert!(entry.to_string().starts_with("entry 2 of the group: `num_experts`: "));
        assert!(entry.source().is_some());
    }

    #[test]
    fn unknown_codes_are_shown_and_not_success() {
        let code = ncclResult_t(77);
        assert!(!code.is_success());
        let error = Error::Native { call: "ncclBroadcast", code, detail: String::new() };
        assert_eq!(error.to_string(), "ncclBroadcast returned unknown (77)");
    }
}
