//! A backend that only pretends, for the tests of this crate.

use core::ffi::{c_int, c_void};

use crate::backend::{BackendBuilder, Hooks};
use crate::driver::{CuContext, CuDevice, CuResult, DriverApi, MEMORY_HOST};
use crate::raw::{NcclApi, cudaStream_t, ncclComm_t, ncclResult_t};
use crate::{Backend, Comm, MemorySpace};

unsafe extern "C" fn one(_comm: ncclComm_t, to: *mut c_int) -> ncclResult_t {
    // SAFETY: the contract of ncclCommCount and its like.
    unsafe { to.write(1) };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn abort(_comm: ncclComm_t) -> ncclResult_t {
    ncclResult_t::ncclSuccess
}

/// Memory that is never freed.
unsafe extern "C" fn allocate(ptr: *mut *mut c_void, bytes: usize) -> ncclResult_t {
    let memory: &mut [u8] = Box::leak(vec![0; bytes].into_boxed_slice());
    // SAFETY: the contract of ncclMemAlloc.
    unsafe { ptr.write(memory.as_mut_ptr().cast()) };
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn keep(_ptr: *mut c_void) -> ncclResult_t {
    ncclResult_t::ncclSuccess
}

unsafe extern "C" fn fill(_to: u64, _value: u8, _bytes: usize, _stream: cudaStream_t) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn retain(context: *mut CuContext, _device: CuDevice) -> CuResult {
    // SAFETY: the contract of cuDevicePrimaryCtxRetain.
    unsafe { context.write(core::ptr::null_mut()) };
    CuResult::SUCCESS
}

unsafe extern "C" fn current(context: *mut CuContext) -> CuResult {
    // SAFETY: the contract of cuCtxGetCurrent.
    unsafe { context.write(core::ptr::null_mut()) };
    CuResult::SUCCESS
}

/// All memory is the host's.
unsafe extern "C" fn attribute(value: *mut c_void, _attribute: i32, _pointer: u64) -> CuResult {
    // SAFETY: the contract of cuPointerGetAttribute for the kind of memory.
    unsafe { value.cast::<u32>().write(MEMORY_HOST) };
    CuResult::SUCCESS
}

/// A builder with as much of NCCL and of the driver as this crate's own tests call.
fn builder(memory: MemorySpace) -> BackendBuilder {
    let nccl = NcclApi {
        ncclCommCount: one,
        ncclCommUserRank: one,
        ncclCommCuDevice: one,
        ncclCommAbort: abort,
        ncclMemAlloc: allocate,
        ncclMemFree: keep,
        ..NcclApi::UNAVAILABLE
    };
    let driver = DriverApi {
        primary_context_retain: Some(retain),
        context_get: Some(current),
        pointer_attribute: Some(attribute),
        fill: Some(fill),
        ..DriverApi::NONE
    };
    Backend::builder("stub", memory).nccl(nccl).driver(driver)
}

/// The only rank of a communicator of a backend of its own.
pub(crate) fn comm(memory: MemorySpace) -> Comm {
    comm_of(builder(memory))
}

/// As [`comm`] on host memory, of a backend with these hooks.
pub(crate) fn comm_with(hooks: Hooks) -> Comm {
    comm_of(builder(MemorySpace::Host).hooks(hooks))
}

fn comm_of(builder: BackendBuilder) -> Comm {
    // SAFETY: the tables keep the contracts as far as the tests call them, and the communicator is
    // whatever the table makes of a pointer that it ignores.
    unsafe { Comm::from_raw(builder.build(), core::ptr::null_mut()) }.unwrap()
}
