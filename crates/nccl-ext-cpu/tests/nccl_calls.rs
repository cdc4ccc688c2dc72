//! The NCCL and driver subset.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::ffi::CStr;
use std::ptr::null_mut;

use common::*;
use nccl_ext_core::driver::CuResult;
use nccl_ext_core::raw::{
    NCCL_API_MAGIC, ncclCommProperties, ncclDataType_t, ncclRedOp_t, ncclResult_t,
};
use nccl_ext_core::{Buffer, Comm, Element, MemorySpace, Reduction, Stream, Version, bf16, f16};
use nccl_ext_cpu::{FailureClass, backend};

#[test]
fn the_backend_says_what_it_is() {
    let backend = backend();
    assert_eq!((backend.name(), backend.memory()), ("cpu", MemorySpace::Host));
    let version = |name| backend.library(name).map(|library| library.version);
    assert_eq!(version("libnccl.so.2"), Some(Version::new(2, 30, 7)));
    assert_eq!(version("libnccl_ep.so.0"), Some(Version::new(0, 2, 0)));
    assert!(backend.libraries().iter().all(|library| library.path.is_none()));
    assert_eq!(backend, nccl_ext_cpu::backend());
    let mut code = 0;
    // SAFETY: `code` can be written.
    ok(unsafe { (backend.nccl().ncclGetVersion)(&mut code) });
    assert_eq!(code, 23007);
}

#[test]
fn all_gather_in_rank_order_and_in_place() {
    ranks(4, |comm| {
        let mut all = [0_u64; 8];
        let mine = [comm.rank() as u64, 10 + comm.rank() as u64];
        comm.all_gather(&mine, &mut all, Stream::DEFAULT).unwrap();
        assert_eq!(all, [0, 10, 1, 11, 2, 12, 3, 13]);
        let mut all = [0_u64; 8];
        all[2 * comm.rank()..][..2].copy_from_slice(&mine);
        // SAFETY: two of the eight elements a rank, for four ranks.
        let send = unsafe { all.as_ptr().add(2 * comm.rank()) };
        let gather = backend().nccl().ncclAllGather;
        let (uint64, raw) = (ncclDataType_t::ncclUint64, comm.as_raw());
        let recv = all.as_mut_ptr().cast();
        // SAFETY: the communicator is live, and `all` has two elements for each of its ranks, of
        // which the rank sends its own.
        ok(unsafe { gather(send.cast(), recv, 2, uint64, raw, null_mut()) });
        assert_eq!(all, [0, 10, 1, 11, 2, 12, 3, 13]);
    });
}

fn reduce<T: Element>(comm: &Comm, send: &[T], reduction: Reduction) -> Vec<T> {
    let mut out = vec![T::default(); send.len()];
    comm.all_reduce(send, &mut out, reduction, Stream::DEFAULT).unwrap();
    // In place.
    let mut again = send.to_vec();
    let op = ncclRedOp_t(reduction as u32);
    let all_reduce = backend().nccl().ncclAllReduce;
    let buffer = again.as_mut_ptr().cast();
    let (data_type, raw) = (T::DATA_TYPE.as_raw(), comm.as_raw());
    // SAFETY: the communicator is live, and `again` has as many elements as `send`, of its type.
    ok(unsafe { all_reduce(buffer, buffer, send.len(), data_type, op, raw, null_mut()) });
    // SAFETY: elements have no padding, and the slice is read as long as it is borrowed.
    let bytes = |data: &[T]| unsafe {
        std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)).to_vec()
    };
    assert_eq!(bytes(&out), bytes(&again));
    out
}

#[test]
fn all_reduce_of_every_type_and_operation() {
    ranks(3, |comm| {
        let r = comm.rank() as i32 + 1;
        let values = [r, -r, 5, 7 * r, 0];
        let expected = [
            (Reduction::Sum, [6, -6, 15, 42, 0]),
            (Reduction::Product, [6, -6, 125, 2058, 0]),
            (Reduction::Max, [3, -1, 5, 21, 0]),
            (Reduction::Min, [1, -3, 5, 7, 0]),
        ];
        for (reduction, expected) in expected {
            assert_eq!(reduce(comm, &values, reduction), expected);
            assert_eq!(reduce(comm, &values.map(i64::from), reduction), expected.map(i64::from));
            let floats = values.map(|x| x as f32);
            assert_eq!(reduce(comm, &floats, reduction), expected.map(|x| x as f32));
            assert_eq!(reduce(comm, &values.map(f64::from), reduction), expected.map(f64::from));
            let half = reduce(comm, &floats.map(f16::from_f32), reduction);
            assert_eq!(half, expected.map(|x| f16::from_f32(x as f32)));
            let brain = reduce(comm, &floats.map(bf16::from_f32), reduction);
            assert_eq!(brain, expected.map(|x| bf16::from_f32(x as f32)));
        }
        let bytes = reduce(comm, &[100_u8, 200], Reduction::Sum);
        assert_eq!(bytes, [44, 88], "integers wrap");
        assert_eq!(reduce(comm, &[-100_i8], Reduction::Sum), [-44]);
        assert_eq!(reduce(comm, &[u32::MAX, 2], Reduction::Max), [u32::MAX, 2]);
        assert_eq!(reduce(comm, &[u64::MAX - 1], Reduction::Min), [u64::MAX - 1]);
        assert_eq!(reduce::<f32>(comm, &[], Reduction::Sum), []);
    });
}

#[test]
fn narrow_floats_are_summed_in_fp32_in_rank_order() {
    ranks(3, |comm| {
        let value = bf16::from_f32([256.0, 1.0, 1.0][comm.rank()]);
        assert_eq!(reduce(comm, &[value], Reduction::Sum), [bf16::from_f32(258.0)]);
        // In fp32 the order shows: (1e8 + -1e8) + 1 is 1, any other order is 0 or 8.
        let value = [1e8_f32, -1e8, 1.0][comm.rank()];
        assert_eq!(reduce(comm, &[value], Reduction::Sum), [1.0]);
    });
}

#[test]
fn broadcast_from_every_root() {
    ranks(3, |comm| {
        for root in 0..3 {
            let mut data = [comm.rank() as i32; 5];
            comm.broadcast(&mut data, root, Stream::DEFAULT).unwrap();
            assert_eq!(data, [root as i32; 5]);
        }
        let broadcast = backend().nccl().ncclBroadcast;
        let (int32, raw) = (ncclDataType_t::ncclInt32, comm.as_raw());
        let mut data = [0_i32];
        let recv = data.as_mut_ptr().cast();
        // SAFETY: the communicator is live, and `data` has one element; a root that does not exist
        // is refused.
        let code = unsafe { broadcast(recv, recv, 1, int32, 3, raw, null_mut()) };
        refused(code, ARGUMENT, FailureClass::Return);
    });
}

#[test]
fn what_collectives_refuse() {
    ranks(1, |comm| {
        let api = backend().nccl();
        let (mut data, raw) = ([0_i32; 4], comm.as_raw());
        let buffer: *mut std::ffi::c_void = data.as_mut_ptr().cast();
        let int32 = ncclDataType_t::ncclInt32;
        // SAFETY: the pointers are of four elements or null; null, a type or a size that cannot be
        // is refused before it is used.
        let gather = |send, recv, count, data_type, comm| unsafe {
            (api.ncclAllGather)(send, recv, count, data_type, comm, null_mut())
        };
        let ret = FailureClass::Return;
        refused(gather(buffer, buffer, 1, ncclDataType_t(13), raw), ARGUMENT, ret);
        refused(gather(null_mut(), buffer, 1, int32, raw), ARGUMENT, ret);
        refused(gather(buffer, null_mut(), 1, int32, raw), ARGUMENT, ret);
        refused(gather(buffer, buffer, usize::MAX / 2, int32, raw), ARGUMENT, ret);
        refused(gather(buffer, buffer, 1, int32, null_mut()), ARGUMENT, ret);
        ok(gather(null_mut(), null_mut(), 0, int32, raw));
        // SAFETY: the communicator is live, and the buffer has more than one element; what is not
        // offered is refused.
        let reduce = |data_type, op| unsafe {
            (api.ncclAllReduce)(buffer, buffer, 1, data_type, op, raw, null_mut())
        };
        refused(reduce(int32, ncclRedOp_t::ncclAvg), ARGUMENT, ret);
        refused(reduce(ncclDataType_t::ncclFloat8e4m3, ncclRedOp_t::ncclSum), ARGUMENT, ret);
        // Not offered.
        // SAFETY: the function is not offered and reads nothing.
        let code = unsafe { (api.ncclSend)(buffer, 1, int32, 0, raw, null_mut()) };
        assert_eq!(code, USAGE);
        let error = error().unwrap();
        assert!(error.to_string().starts_with("ncclSend is not offered"), "{error}");
    });
}

#[test]
fn questions_about_a_communicator() {
    ranks(3, |comm| {
        let api = backend().nccl();
        let mut numbers = [-1; 3];
        let [count, rank, device] = &mut numbers;
        // SAFETY: the communicator is live, and the number can be written.
        ok(unsafe { (api.ncclCommCount)(comm.as_raw(), count) });
        // SAFETY: the communicator is live, and the number can be written.
        ok(unsafe { (api.ncclCommUserRank)(comm.as_raw(), rank) });
        // SAFETY: the communicator is live, and the number can be written.
        ok(unsafe { (api.ncclCommCuDevice)(comm.as_raw(), device) });
        assert_eq!(numbers, [3, comm.rank() as i32, 0]);
        refused(
            // SAFETY: the communicator is live, and the null pointer is refused.
            unsafe { (api.ncclCommCount)(comm.as_raw(), null_mut()) },
            ARGUMENT,
            FailureClass::Return,
        );
        // SAFETY: the communicator is live.
        let team = unsafe { (api.ncclTeamLsa)(comm.as_raw()) };
        assert_eq!((team.nRanks, team.rank, team.stride), (3, comm.rank() as i32, 1));
        let mut state = ncclResult_t(99);
        // SAFETY: the communicator is live, and `state` can be written.
        ok(unsafe { (api.ncclCommGetAsyncError)(comm.as_raw(), &mut state) });
        assert_eq!(state, OK);
        let mut properties = ncclCommProperties {
            size: size_of::<ncclCommProperties>(),
            magic: NCCL_API_MAGIC,
            ..Default::default()
        };
        // SAFETY: the communicator is live, and the structure begins with its true size.
        ok(unsafe { (api.ncclCommQueryProperties)(comm.as_raw(), &mut properties) });
        assert_eq!((properties.nRanks, properties.rank), (3, comm.rank() as i32));
        assert_eq!((properties.nLsaTeams, properties.deviceApiSupport), (1, true));
        properties.magic = 0;
        // SAFETY: as above; the wrong magic is refused.
        let code = unsafe { (api.ncclCommQueryProperties)(comm.as_raw(), &mut properties) };
        refused(code, ARGUMENT, FailureClass::Return);
    });
}

#[test]
fn errors_have_a_text() {
    let api = backend().nccl();
    // SAFETY: the function takes any code and returns a string that is static.
    let text = |code| unsafe { CStr::from_ptr((api.ncclGetErrorString)(code)) }.to_str().unwrap();
    assert_eq!(text(OK), "no error");
    assert_eq!(text(ncclResult_t(1234)), "unknown result code");
    let mut size = 0;
    // SAFETY: the null communicator is refused.
    assert_eq!(unsafe { (api.ncclCommCount)(null_mut(), &mut size) }, ARGUMENT);
    // SAFETY: the string lives until the thread's next error, which is after its last use.
    let last = unsafe { CStr::from_ptr((api.ncclGetLastError)(null_mut())) };
    assert!(last.to_str().unwrap().contains("`comm`"), "{last:?}");
}

#[test]
fn groups_of_calls_change_nothing_but_are_balanced() {
    let api = backend().nccl();
    // SAFETY: the function has no arguments.
    ok(unsafe { (api.ncclGroupStart)() });
    // SAFETY: the function has no arguments.
    ok(unsafe { (api.ncclGroupEnd)() });
    // SAFETY: the function has no arguments.
    refused(unsafe { (api.ncclGroupEnd)() }, USAGE, FailureClass::Return);
}

#[test]
fn memory_is_aligned_and_freed_once() {
    let api = backend().nccl();
    for size in [0, 1, 4097] {
        let mut memory = null_mut();
        // SAFETY: `memory` can be written.
        ok(unsafe { (api.ncclMemAlloc)(&mut memory, size) });
        assert_eq!(memory.addr() % 256, 0);
        // SAFETY: the allocation has `size` bytes.
        unsafe { memory.cast::<u8>().write_bytes(1, size) };
        // SAFETY: the memory is of the call above, and not used again.
        ok(unsafe { (api.ncclMemFree)(memory) });
        // SAFETY: what is no live allocation is looked up, not read, and refused.
        refused(unsafe { (api.ncclMemFree)(memory) }, ARGUMENT, FailureClass::Return);
    }
    // SAFETY: freeing null is allowed.
    ok(unsafe { (api.ncclMemFree)(null_mut()) });
    let mut memory = null_mut();
    // SAFETY: `memory` can be written.
    let code = unsafe { (api.ncclMemAlloc)(&mut memory, usize::MAX) };
    assert_eq!(code, ncclResult_t::ncclSystemError);
}

#[test]
fn windows_know_their_memory() {
    ranks(2, |comm| {
        let api = backend().nccl();
        let mut data = [0_u8; 64];
        let (mut handle, buffer) = (null_mut(), data.as_mut_ptr().cast());
        let raw = comm.as_raw();
        // SAFETY: the communicator is live, and `data` has 64 bytes and outlives the window.
        ok(unsafe { (api.ncclCommWindowRegister)(raw, buffer, 64, &mut handle, 0) });
        let mut pointer = null_mut();
        // SAFETY: communicator and window are live, and `pointer` can be written.
        ok(unsafe { (api.ncclWinGetUserPtr)(raw, handle, &mut pointer) });
        assert_eq!(pointer, buffer);
        // SAFETY: communicator and window are live.
        ok(unsafe { (api.ncclCommWindowDeregister)(raw, handle) });
        // SAFETY: a window that is no more is looked up, not read, and refused.
        let code = unsafe { (api.ncclWinGetUserPtr)(raw, handle, &mut pointer) };
        refused(code, ARGUMENT, FailureClass::UndefinedBehaviour);
        // SAFETY: as above.
        let code = unsafe { (api.ncclCommWindowDeregister)(raw, handle) };
        refused(code, ARGUMENT, FailureClass::UndefinedBehaviour);
    });
}

#[test]
fn buffers_of_the_core_crate_work() {
    ranks(2, |comm| {
        let data: Vec<_> = (0..100).map(|i| i as f32).collect();
        let buffer = Buffer::from_slice(comm, &data).unwrap();
        assert_eq!(buffer.to_vec(Stream::DEFAULT).unwrap(), data);
        let mut sum = Buffer::<f32>::zeroed(comm, 100).unwrap();
        comm.all_reduce(&buffer, &mut sum, Reduction::Sum, Stream::DEFAULT).unwrap();
        let doubled: Vec<_> = data.iter().map(|x| 2.0 * x).collect();
        assert_eq!(sum.to_vec(Stream::DEFAULT).unwrap(), doubled);
    });
}

#[test]
fn the_driver_has_one_device_of_132_sms() {
    let driver = backend().driver();
    let mut value = 0;
    // SAFETY: `value` can be written.
    assert_eq!(unsafe { driver.device_count.unwrap()(&mut value) }, CuResult::SUCCESS);
    assert_eq!(value, 1);
    assert_eq!(nccl_ext_core::device::sm_count(backend(), 0).unwrap(), 132);
    assert!(nccl_ext_core::device::sm_count(backend(), 1).is_err());
    let (mut kind, byte) = (0_u32, 0_u8);
    let call = driver.pointer_attribute.unwrap();
    let address = (&raw const byte).addr() as u64;
    // SAFETY: attribute 2 is of 32 bits, as `kind` is, and the address is only looked at.
    assert_eq!(unsafe { call((&raw mut kind).cast(), 2, address) }, CuResult::SUCCESS);
    assert_eq!(kind, 1);
    assert!(driver.event_create.is_none());
}
