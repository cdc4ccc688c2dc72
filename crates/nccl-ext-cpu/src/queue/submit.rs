//! Giving a stream work.

use nccl_ext_core::raw::cudaStream_t;

use crate::refusal::Outcome;

/// Whether a world's calls are complete when they return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deferral {
    Never,
}

/// Runs `work` after everything that was submitted to the stream before it. `call` is the C function.
///
/// What `work` returns is this function's result where calls are complete when they return; else
/// it belongs to the communicator.
pub(crate) fn submit(
    deferral: Deferral,
    _stream: cudaStream_t,
    _call: &'static str,
    work: impl FnOnce() -> Outcome + Send + 'static,
) -> Outcome {
    match deferral {
        Deferral::Never => work(),
    }
}
