//! libnccl_m2n's table.
//!
//! A call checks its arguments in the vendor's order, shows its transfers to all ranks of the
//! communicator, whether they are in a mesh or not, and every destination rank copies its tiles from
//! the sources' memory. What a rank can find wrong alone is the call's result; the rest is work of the
//! stream, and complete when the call returns unless the world is a deferred one.
//!
//! The model is PACK, the default transport, on one NVLink domain of all ranks (M2N 3.6, 3.9),
//! with its limits and its choice of source replicas. Calls that need a device-controlled network
//! on real machines (reversed meshes, fused groups, one-rank copies, DIRECT, PIPE) work. What
//! staging only a GPU has (slots, streams, windows, capture, poisoned lanes) does not exist here.
//!
//! Where the vendor's library moves wrong bytes or waits for ever, all ranks get
//! `ncclInvalidArgument`, with [`FailureClass::UndefinedBehaviour`](crate::FailureClass) on the
//! side: global shapes that differ, ranks that ask for different transfers, and what one rank alone
//! has found wrong (its buffers). A rank whose own descriptors or handle are bad returns at once,
//! as it does there.
//!
//! # Rooms
//!
//! Arrows go one way; `cargo xtask modules` checks it. Bottom to top, each may name what stands
//! before it:
//!
//! ```text
//! fault  last_error  environment    refusals and their words; settings
//! descriptor       the caller's descriptors, and the transfer in normal form
//! plan             who feeds whom, which bytes
//! published        what a rank shows to the others
//! progress  epoch  work that streams were given, and the settings that it was given under
//! check            everything that is refused
//! meeting          where ranks meet, agree and fetch their tiles
//! call             handles, single reshards, groups
//! mod.rs           the table
//! ```

mod call;
mod check;
mod descriptor;
mod environment;
mod epoch;
mod fault;
mod last_error;
mod meeting;
mod plan;
mod progress;
mod published;

use core::ffi::{CStr, c_char};

use nccl_ext_core::raw::{cudaStream_t, ncclComm_t, ncclResult_t, ncclWindow_t};
use nccl_m2n_sys::{
    M2nApi, NCCL_M2N_VERSION_CODE, ncclDistTensor_t, ncclM2nConfig_t, ncclM2nHandle_t,
};

use self::call::single::Request;
use self::call::{group, runtime, single};
use self::descriptor::RawTensor;
use self::fault::{BrokenRule, Fault, require};
use self::meeting::Caller;
use crate::entry::{Scope, entry};
use crate::refusal::last_text;

/// The version whose behaviour this is.
pub(crate) const VERSION: i32 = NCCL_M2N_VERSION_CODE.cast_signed();

pub(crate) const TABLE: M2nApi = M2nApi {
    ncclM2nInit: init,
    ncclM2nFinalize: finalize,
    ncclM2nGetLastError: get_last_error,
    ncclM2nGroupStart: group_start,
    ncclM2nGroupEnd: group_end,
    ncclM2nGroupAbort: group_abort,
    ncclReshardWithWindow: reshard_with_window,
    ncclReshard: reshard,
};

/// Runs the body of the C function `name`; the last error is its own from here on.
fn call(name: &'static str, body: impl FnOnce(&Scope) -> Result<(), Fault>) -> ncclResult_t {
    last_error::clear();
    let code = entry(name, |scope| {
        body(scope).map_err(|fault| {
            last_error::set(&fault.text);
            fault.into_refusal(name)
        })
    });
    if code != ncclResult_t::ncclSuccess && last_error::is_empty() {
        // A panic of this crate: its words are elsewhere.
        // SAFETY: the text is this thread's, terminated, and not changed meanwhile.
        last_error::set(&unsafe { CStr::from_ptr(last_text()) }.to_string_lossy());
    }
    code
}

unsafe extern "C" fn init(
    handle: *mut ncclM2nHandle_t,
    config: *const ncclM2nConfig_t,
) -> ncclResult_t {
    call("ncclM2nInit", |_| {
        // SAFETY: the C contract.
        unsafe { runtime::init(handle, config) }.map_err(Fault::from)
    })
}

unsafe extern "C" fn finalize(handle: ncclM2nHandle_t) -> ncclResult_t {
    call("ncclM2nFinalize", |_| {
        require(!group::is_active(), || {
            let rule = "handles are finalized outside of groups";
            let found = "an active group on this thread";
            BrokenRule::new("ncclM2nFinalize", "group", rule, "no active group", found)
        })?;
        runtime::finalize(handle).map_err(Fault::from)
    })
}

unsafe extern "C" fn get_last_error() -> *const c_char {
    last_error::pointer()
}

unsafe extern "C" fn group_start() -> ncclResult_t {
    call("ncclM2nGroupStart", |_| {
        group::start();
        Ok(())
    })
}

unsafe extern "C" fn group_end() -> ncclResult_t {
    call("ncclM2nGroupEnd", |scope| {
        // SAFETY: the C contract: who recorded promised it for each request.
        unsafe { group::end(scope) }
    })
}

unsafe extern "C" fn group_abort() -> ncclResult_t {
    call("ncclM2nGroupAbort", |_| {
        group::abort();
        Ok(())
    })
}

/// Runs or records a request.
///
/// # Safety
/// The C contract of `ncclReshard`.
unsafe fn request(
    name: &'static str,
    handle: ncclM2nHandle_t,
    comm: ncclComm_t,
    src: *const ncclDistTensor_t,
    dst: *const ncclDistTensor_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    call(name, |scope| {
        // SAFETY: this function's contract.
        let (src, dst) = unsafe { (RawTensor::read(src), RawTensor::read(dst)) };
        let request = Request { handle, comm, src, dst, stream };
        if group::is_active() {
            return group::record(request).map_err(Fault::from);
        }
        // SAFETY: this function's contract.
        unsafe { single::reshard(scope, &request, Caller::Single(name)) }
    })
}

/// The window is ignored, as by the vendor's library.
unsafe extern "C" fn reshard_with_window(
    handle: ncclM2nHandle_t,
    comm: ncclComm_t,
    _window: ncclWindow_t,
    src: *const ncclDistTensor_t,
    dst: *const ncclDistTensor_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    // SAFETY: the C contract.
    unsafe { request("ncclReshardWithWindow", handle, comm, src, dst, stream) }
}

unsafe extern "C" fn reshard(
    handle: ncclM2nHandle_t,
    comm: ncclComm_t,
    src: *const ncclDistTensor_t,
    dst: *const ncclDistTensor_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    // SAFETY: the C contract.
    unsafe { request("ncclReshard", handle, comm, src, dst, stream) }
}
