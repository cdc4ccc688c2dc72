//! Calls of the M2N table, and what they move.
//!
//! - [`TensorSide`], [`OwnedDescriptor`]: one side of a reshard, and the C structures of it.
//! - [`CanaryTile`], [`RankTiles`]: memory that tells when something was written beside it.
//! - [`ReshardCase`]: a reshard, with an oracle for its result that slices a global tensor.

mod case;
mod descriptor;
mod side;
mod tile;

pub use case::{RankTiles, ReshardCase, pattern_byte};
pub use descriptor::OwnedDescriptor;
pub use side::{REPLICATE, TensorSide};
pub use tile::{CANARY, CanaryTile};

use std::ffi::CStr;
use std::ptr::{null, null_mut, without_provenance_mut};

use nccl_ext_core::Error;
use nccl_ext_core::raw::{ncclComm_t, ncclResult_t};
use nccl_ext_cpu::{FailureClass, backend, last_refusal};
use nccl_m2n_sys::{M2nApi, ncclDistTensor_t};

use super::{SUCCESS, done, stream, take_error};

pub fn api() -> &'static M2nApi {
    backend().extension::<M2nApi>().unwrap()
}

/// The text of this thread's last M2N error.
pub fn last_text() -> String {
    // SAFETY: the function returns a string that lives until the thread's next call.
    unsafe { CStr::from_ptr((api().ncclM2nGetLastError)()) }.to_str().unwrap().to_owned()
}

#[track_caller]
pub fn assert_ok(code: ncclResult_t) {
    assert_eq!(code, SUCCESS, "{}", last_text());
}

/// The call was refused, in the vendor's library with this class, and its text has these words.
#[track_caller]
pub fn assert_refused(
    code: ncclResult_t,
    expected: ncclResult_t,
    class: FailureClass,
    words: &[&str],
) {
    let text = last_text();
    assert_eq!(code, expected, "{text}");
    assert_eq!(last_refusal(), Some(class), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is not in `{text}`");
    }
    let Some(Error::Native { code: inside, detail, .. }) = take_error() else { panic!("{text}") };
    assert_eq!(inside, expected);
    assert!(detail.starts_with(&text), "{detail}");
}

/// A reshard with the default handle on the stream of this thread's calls.
///
/// # Safety
/// The communicator is live; what descriptors of a call that is not refused point to is live until
/// the call, or the group that it is in, ends.
pub unsafe fn reshard(
    comm: ncclComm_t,
    src: *const ncclDistTensor_t,
    dst: *const ncclDistTensor_t,
) -> ncclResult_t {
    // SAFETY: the caller's contract.
    done(unsafe { (api().ncclReshard)(null_mut(), comm, src, dst, stream()) })
}

/// A handle's token.
pub fn init_handle() -> usize {
    let mut handle = null_mut();
    // SAFETY: `handle` can be written, and no configuration is a valid one.
    assert_ok(unsafe { (api().ncclM2nInit)(&mut handle, null()) });
    handle.addr()
}

/// 0 is the default handle.
pub fn finalize_handle(token: usize) {
    // SAFETY: a handle is a token: the library looks it up, and does not read it.
    assert_ok(unsafe { (api().ncclM2nFinalize)(without_provenance_mut(token)) });
}

pub fn group_start() {
    // SAFETY: the function has no arguments.
    assert_ok(unsafe { (api().ncclM2nGroupStart)() });
}

pub fn group_end() -> ncclResult_t {
    // SAFETY: the function has no arguments; buffers of queued calls are the test's.
    done(unsafe { (api().ncclM2nGroupEnd)() })
}
