//! Allocations, windows and buffers.

use std::ptr::null_mut;

use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Buffer, Reduction, Stream};
use nccl_ext_cpu::{FailureClass, backend};
use nccl_ext_test::cpu::ep::{assert_ok, assert_refused};
use nccl_ext_test::cpu::*;

#[test]
fn memory_is_aligned_and_freed_once() {
    let api = backend().nccl();
    for size in [0, 1, 4097] {
        let mut memory = null_mut();
        // SAFETY: `memory` can be written.
        assert_ok(unsafe { (api.ncclMemAlloc)(&mut memory, size) });
        assert_eq!(memory.addr() % 256, 0);
        // SAFETY: the allocation has `size` bytes.
        unsafe { memory.cast::<u8>().write_bytes(1, size) };
        // SAFETY: the memory is of the call above, and not used again.
        assert_ok(unsafe { (api.ncclMemFree)(memory) });
        // SAFETY: what is no live allocation is looked up, not read, and refused.
        assert_refused(
            unsafe { (api.ncclMemFree)(memory) },
            INVALID_ARGUMENT,
            FailureClass::Return,
        );
    }
    // SAFETY: freeing null is allowed.
    assert_ok(unsafe { (api.ncclMemFree)(null_mut()) });
    let mut memory = null_mut();
    // SAFETY: `memory` can be written.
    let code = unsafe { (api.ncclMemAlloc)(&mut memory, usize::MAX) };
    assert_eq!(code, ncclResult_t::ncclSystemError);
}

#[test]
fn windows_know_their_memory() {
    every_rank(2, |comm| {
        let api = backend().nccl();
        let mut data = [0_u8; 64];
        let (mut handle, buffer) = (null_mut(), data.as_mut_ptr().cast());
        let raw = comm.as_raw();
        // SAFETY: the communicator is live, and `data` has 64 bytes and outlives the window.
        assert_ok(unsafe { (api.ncclCommWindowRegister)(raw, buffer, 64, &mut handle, 0) });
        let mut pointer = null_mut();
        // SAFETY: communicator and window are live, and `pointer` can be written.
        assert_ok(unsafe { (api.ncclWinGetUserPtr)(raw, handle, &mut pointer) });
        assert_eq!(pointer, buffer);
        // SAFETY: communicator and window are live.
        assert_ok(unsafe { (api.ncclCommWindowDeregister)(raw, handle) });
        // SAFETY: a window that is no more is looked up, not read, and refused.
        let code = unsafe { (api.ncclWinGetUserPtr)(raw, handle, &mut pointer) };
        assert_refused(code, INVALID_ARGUMENT, FailureClass::UndefinedBehaviour);
        // SAFETY: as above.
        let code = unsafe { (api.ncclCommWindowDeregister)(raw, handle) };
        assert_refused(code, INVALID_ARGUMENT, FailureClass::UndefinedBehaviour);
    });
}

#[test]
fn buffers_of_the_core_crate_work() {
    every_rank(2, |comm| {
        let data: Vec<_> = (0..100).map(|i| i as f32).collect();
        let buffer = Buffer::from_slice(comm, &data).unwrap();
        assert_eq!(buffer.to_vec(Stream::DEFAULT).unwrap(), data);
        let mut sum = Buffer::<f32>::zeroed(comm, 100).unwrap();
        comm.all_reduce(&buffer, &mut sum, Reduction::Sum, Stream::DEFAULT).unwrap();
        let doubled: Vec<_> = data.iter().map(|x| 2.0 * x).collect();
        assert_eq!(sum.to_vec(Stream::DEFAULT).unwrap(), doubled);
    });
}
