//! The stream of a rank's calls, and waiting for what they leave to it.

use std::cell::RefCell;
use std::ptr::null_mut;

use nccl_ext_core::raw::{cudaStream_t, ncclResult_t};
use nccl_ext_core::{Comm, Device, Error, OwnedStream};
use nccl_ext_cpu::backend;

use super::SUCCESS;

/// A rank whose calls return before their work is done.
struct Deferred {
    stream: OwnedStream,
    device: Device,
    has_failed: bool,
    failure: Option<Error>,
}

thread_local! {
    static DEFERRED: RefCell<Option<Deferred>> = const { RefCell::new(None) };
}

struct Forget;

impl Drop for Forget {
    fn drop(&mut self) {
        DEFERRED.with_borrow_mut(Option::take);
    }
}

/// Gives this thread's calls a stream of their own while `body` runs. Each waits for its work.
///
/// # Panics
/// If there is no stream.
pub fn on_stream<T>(comm: &Comm, body: impl FnOnce() -> T) -> T {
    let stream = OwnedStream::new(comm).unwrap();
    let deferred = Deferred { stream, device: comm.into(), has_failed: false, failure: None };
    DEFERRED.with_borrow_mut(|slot| *slot = Some(deferred));
    let _forget = Forget;
    body()
}

/// The stream of this thread's calls.
pub fn stream() -> cudaStream_t {
    DEFERRED.with_borrow(|slot| slot.as_ref().map_or(null_mut(), |d| d.stream.stream().as_raw()))
}

/// Waits for the work of a call that has returned `code`; the code of both.
pub fn done(code: ncclResult_t) -> ncclResult_t {
    DEFERRED.with_borrow_mut(|slot| {
        let Some(deferred) = slot else { return code };
        if code != SUCCESS {
            // Some calls are refused after they have given the stream work, which uses what the
            // caller is about to drop.
            let refusal = (backend().hooks().unwrap().take_error)();
            deferred.has_failed |= deferred.stream.stream().synchronize(deferred.device).is_err();
            deferred.failure = refusal;
            return code;
        }
        let Err(error) = deferred.stream.stream().synchronize(deferred.device) else {
            deferred.failure = None;
            return code;
        };
        let code = code_of(&error);
        (deferred.has_failed, deferred.failure) = (true, Some(error));
        code
    })
}

/// Whether work of this thread's calls has failed, after which its stream does nothing.
pub(super) fn has_failed() -> bool {
    DEFERRED.with_borrow(|slot| slot.as_ref().is_some_and(|deferred| deferred.has_failed))
}

/// What the last wait failed with; it is taken once.
pub(super) fn take_failure() -> Option<Error> {
    DEFERRED.with_borrow_mut(|slot| slot.as_mut()?.failure.take())
}

fn code_of(error: &Error) -> ncclResult_t {
    match error {
        Error::Native { code, .. } => *code,
        Error::Timeout { .. } => ncclResult_t::ncclTimeout,
        Error::PeerFailed { .. } => ncclResult_t::ncclRemoteError,
        _ => ncclResult_t::ncclUnhandledCudaError,
    }
}
