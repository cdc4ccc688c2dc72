//! Calls in one piece or in two.

use nccl_ep_sys::{VersionedStruct, ncclEpCompleteConfig_t};
use nccl_ext_core::{Result, Stream, Use};

use crate::handle::Handle;

/// How a call runs: what happens between its halves, if it has two.
pub(super) trait Stage {
    /// What comes of it.
    type Output;
    /// Whether the first half only sends.
    const SEND_ONLY: u32;

    /// Runs after the first half; includes the second, which has the same uses.
    fn finish(self, handle: &Handle, uses: &[Use<'_>], stream: Stream<'_>) -> Result<Self::Output>;
}

/// All in one call.
pub(super) struct Whole;

impl Stage for Whole {
    type Output = ();
    const SEND_ONLY: u32 = 0;

    fn finish(self, _: &Handle, _: &[Use<'_>], _: Stream<'_>) -> Result<()> {
        Ok(())
    }
}

/// Sends, then this, then waits for what the peers sent.
pub(super) struct Staged<F>(pub(super) F);

impl<T, F: FnOnce() -> T> Stage for Staged<F> {
    type Output = T;
    const SEND_ONLY: u32 = 1;

    fn finish(self, handle: &Handle, uses: &[Use<'_>], stream: Stream<'_>) -> Result<T> {
        let pending = Pending { handle, uses, stream };
        let output = (self.0)();
        std::mem::forget(pending);
        complete(handle, uses, stream)?;
        Ok(output)
    }
}

/// A first half without its second. Dropped only when the work between them panics: the peers
/// wait for the second half, and the library holds pointers into frames that are going.
struct Pending<'a> {
    handle: &'a Handle,
    uses: &'a [Use<'a>],
    stream: Stream<'a>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let completed = complete(self.handle, self.uses, self.stream);
        if let Err(error) = self.handle.group.collective(completed) {
            tracing::error!(%error, "a staged call was not completed after a panic");
        }
    }
}

fn complete(handle: &Handle, uses: &[Use<'_>], stream: Stream<'_>) -> Result<()> {
    let group = &handle.group;
    let config = ncclEpCompleteConfig_t::init();
    let _device = group.comm.activate()?;
    let _calls = group.comm.lock();
    // SAFETY: the handle lives, the configuration outlives the call, and what the first half
    // pointed to is still in its caller's frame. The library ignores this stream and uses the
    // first half's, which is borrowed until now (EP 6.1).
    group.enqueue(stream, uses, || unsafe {
        group.call(
            "ncclEpComplete",
            group.api.ncclEpComplete,
            (handle.raw, &raw const config, stream.as_raw()),
        )
    })
}
