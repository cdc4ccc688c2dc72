//! What errors say.

use std::fmt;

use super::{CudaSide, Error, LoadAttempt};
use crate::raw::ncclResult_t;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load { library, attempts } => {
                write!(f, "{library} was not found; tried ")?;
                list(f, attempts)
            }
            Self::MissingSymbols { symbols, library, found, needs } => {
                write!(f, "{} ", library.display())?;
                if let Some(found) = found {
                    write!(f, "(version {found}) ")?;
                }
                write!(f, "lacks {}; version {needs} has them", symbols.join(", "))
            }
            Self::TooOld { library, found, needs, path } => write!(
                f,
                "{library} at {} is version {found}; {needs} or newer is needed",
                path.display()
            ),
            Self::CudaMajorMismatch { library, built_for, against, found } => {
                write!(f, "{} is built for CUDA {built_for}, but ", library.display())?;
                match against {
                    CudaSide::Driver { path } => write!(
                        f,
                        "the driver {} supports none newer than CUDA {found}; update the driver, \
                         or choose libraries with NCCL_EXTENSIONS_CUDA={found}",
                        path.display()
                    ),
                    CudaSide::Nvcc { path, variable } => write!(
                        f,
                        "the compiler that it would start, {}, is of CUDA {found}; name one of \
                         CUDA {built_for} with {variable}, or choose libraries with \
                         NCCL_EXTENSIONS_CUDA={found}",
                        path.display()
                    ),
                    CudaSide::Choice { by } => write!(
                        f,
                        "CUDA {found} was chosen by {by}; stage libraries of CUDA {found}, or \
                         choose {built_for}"
                    ),
                }
            }
            Self::MultipleNccl { paths } => {
                write!(f, "the process holds {} NCCLs: ", paths.len())?;
                for (i, path) in paths.iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, path.display())?;
                }
                f.write_str(
                    "; a communicator of one is garbage to the other, so let all parts of the \
                     program use the same file (NCCL_LIBRARY names it; LD_PRELOAD and \
                     LD_LIBRARY_PATH may bring another)",
                )
            }
            Self::NvccNotFound { library, variable, tried } => {
                write!(f, "nvcc was not found, which {library} compiles its kernels with; tried ")?;
                list(f, tried)?;
                write!(f, "; install a CUDA toolkit or set {variable}")
            }
            Self::JitEnvironment { library, missing } => {
                write!(f, "{library} would not find what it compiles its kernels from: ")?;
                for (i, variable) in missing.iter().enumerate() {
                    write!(f, "{}{variable}", if i == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
            Self::Invalid { argument, rule, expected, found, .. } => {
                write!(f, "`{argument}`: {rule}; expected {expected}, found {found}")
            }
            Self::Uneven { dim, size, parts } => {
                write!(
                    f,
                    "dimension {dim} of {size} elements does not divide over {parts} shards"
                )?;
                uneven_advice(f, *size, *parts)
            }
            Self::Coverage { rank, problem } => {
                write!(f, "the plan does not fill the tile of rank {rank}: {problem}")
            }
            Self::DigestMismatch { rank, first_difference } => write!(
                f,
                "rank {rank} asks for other work than rank 0: {first_difference}; give every rank \
                 the same calls in the same order"
            ),
            Self::Entry { index, error } => write!(f, "entry {index} of the group: {error}"),
            Self::Busy { what, reason } => write!(f, "{what} is busy: {reason}"),
            Self::Native { call, code, detail } => {
                write!(f, "{call} returned {} ({})", result_name(*code), code.0)?;
                if !detail.is_empty() {
                    write!(f, ": {detail}")?;
                }
                Ok(())
            }
            Self::Exception { call, what } => write!(f, "{call} threw an exception: {what}"),
            Self::Driver { call, code, detail } if detail.is_empty() => {
                write!(f, "{call} failed with CUresult {code}")
            }
            Self::Driver { call, code, detail } => write!(f, "{call} failed: {detail} ({code})"),
            Self::Diverged { cause } => write!(
                f,
                "the group is out of step with its peers since an earlier error ({cause}); create \
                 a new communicator and group"
            ),
            Self::Poisoned { cause } => write!(
                f,
                "unusable since an earlier failure ({cause}); create a new communicator and start \
                 over"
            ),
            Self::PeerFailed { rank, error } => write!(f, "rank {rank} failed: {error}"),
            Self::RankGone { reason } => f.write_str(reason),
            Self::Race { first, second, buffer, bytes } => {
                let verb = |writes| if writes { "writes" } else { "reads" };
                write!(
                    f,
                    "{} {} bytes {}..{} of {buffer} on {}, {} {} them on {}, and nothing orders the \
                     two; use one stream, or let the second wait for an event of the first",
                    second.call,
                    verb(second.writes),
                    bytes.start,
                    bytes.end,
                    second.stream,
                    first.call,
                    verb(first.writes),
                    first.stream,
                )
            }
            Self::Ids { count, token, choice } => write!(
                f,
                "`topk_idx`: {count} expert ids are out of range, stand twice in their row or are too \
                 many of one rank, the first at token {token}, choice {choice}; the call was made \
                 without those that would corrupt memory; mend the router, or find them with \
                 Validation::Data"
            ),
            Self::Timeout { phase, ranks, waited } if ranks.is_empty() => write!(
                f,
                "{phase}: not done within {waited:?}; it goes on, and what it uses must be kept; is \
                 every peer alive and in the same call? Comm::abort gives up"
            ),
            Self::Timeout { phase, ranks, waited } => {
                write!(f, "{phase}: no sign of rank")?;
                if ranks.len() != 1 {
                    f.write_str("s")?;
                }
                for (i, rank) in ranks.iter().enumerate() {
                    write!(f, "{} {rank}", if i == 0 { "" } else { "," })?;
                }
                write!(f, " within {waited:?}; does every rank make this call?")
            }
            Self::Unsupported { feature, library, found, needs } => {
                write!(f, "{feature} is not offered by {library} ({found}); it needs {needs}")
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, attempts: &[LoadAttempt]) -> fmt::Result {
    if attempts.is_empty() {
        return f.write_str("nothing: give a path or set its variable");
    }
    for (i, attempt) in attempts.iter().enumerate() {
        let separator = if i == 0 { "" } else { "; " };
        let LoadAttempt { origin, candidate, reason } = attempt;
        write!(f, "{separator}{} ({origin}): {reason}", candidate.display())?;
    }
    Ok(())
}

/// What to do with a dimension that does not divide.
fn uneven_advice(f: &mut fmt::Formatter<'_>, size: usize, parts: usize) -> fmt::Result {
    let Some(rest) = size.checked_rem(parts) else {
        return f.write_str("; there must be at least one");
    };
    let even = size - rest;
    if even > 0 {
        let part = even / parts;
        write!(f, "; move 0..{even} ({part} a shard) and {even}..{size} (replicated) separately")?;
    }
    match even.checked_add(parts) {
        Some(padded) => write!(f, "{} pad it to {padded}", if even > 0 { ", or" } else { ";" }),
        None => Ok(()),
    }
}

/// The C name of a result code; codes that this crate does not know are `unknown`.
#[must_use]
pub fn result_name(code: ncclResult_t) -> &'static str {
    match code {
        ncclResult_t::ncclSuccess => "ncclSuccess",
        ncclResult_t::ncclUnhandledCudaError => "ncclUnhandledCudaError",
        ncclResult_t::ncclSystemError => "ncclSystemError",
        ncclResult_t::ncclInternalError => "ncclInternalError",
        ncclResult_t::ncclInvalidArgument => "ncclInvalidArgument",
        ncclResult_t::ncclInvalidUsage => "ncclInvalidUsage",
        ncclResult_t::ncclRemoteError => "ncclRemoteError",
        ncclResult_t::ncclInProgress => "ncclInProgress",
        ncclResult_t::ncclTimeout => "ncclTimeout",
        _ => "unknown",
    }
}
