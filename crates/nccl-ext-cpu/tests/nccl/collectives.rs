//! Collectives.

use std::ptr::null_mut;

use nccl_ext_core::raw::{ncclDataType_t, ncclRedOp_t};
use nccl_ext_core::{Comm, Element, Reduction, Stream, bf16, f16};
use nccl_ext_cpu::{FailureClass, backend};
use nccl_ext_test::cpu::ep::{assert_ok, assert_refused};
use nccl_ext_test::cpu::*;

#[test]
fn all_gather_in_rank_order_and_in_place() {
    every_rank(4, |comm| {
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
        assert_ok(unsafe { gather(send.cast(), recv, 2, uint64, raw, null_mut()) });
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
    assert_ok(unsafe { all_reduce(buffer, buffer, send.len(), data_type, op, raw, null_mut()) });
    // SAFETY: elements have no padding, and the slice is read as long as it is borrowed.
    let bytes = |data: &[T]| unsafe {
        std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)).to_vec()
    };
    assert_eq!(bytes(&out), bytes(&again));
    out
}

#[test]
fn all_reduce_of_every_type_and_operation() {
    every_rank(3, |comm| {
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
    every_rank(3, |comm| {
        let value = bf16::from_f32([256.0, 1.0, 1.0][comm.rank()]);
        assert_eq!(reduce(comm, &[value], Reduction::Sum), [bf16::from_f32(258.0)]);
        // In fp32 the order shows: (1e8 + -1e8) + 1 is 1, any other order is 0 or 8.
        let value = [1e8_f32, -1e8, 1.0][comm.rank()];
        assert_eq!(reduce(comm, &[value], Reduction::Sum), [1.0]);
    });
}

#[test]
fn broadcast_from_every_root() {
    every_rank(3, |comm| {
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
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
    });
}

#[test]
fn what_collectives_refuse() {
    every_rank(1, |comm| {
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
        assert_refused(gather(buffer, buffer, 1, ncclDataType_t(13), raw), INVALID_ARGUMENT, ret);
        assert_refused(gather(null_mut(), buffer, 1, int32, raw), INVALID_ARGUMENT, ret);
        assert_refused(gather(buffer, null_mut(), 1, int32, raw), INVALID_ARGUMENT, ret);
        assert_refused(gather(buffer, buffer, usize::MAX / 2, int32, raw), INVALID_ARGUMENT, ret);
        assert_refused(gather(buffer, buffer, 1, int32, null_mut()), INVALID_ARGUMENT, ret);
        assert_ok(gather(null_mut(), null_mut(), 0, int32, raw));
        // SAFETY: the communicator is live, and the buffer has more than one element; what is not
        // offered is refused.
        let reduce = |data_type, op| unsafe {
            (api.ncclAllReduce)(buffer, buffer, 1, data_type, op, raw, null_mut())
        };
        assert_refused(reduce(int32, ncclRedOp_t::ncclAvg), INVALID_ARGUMENT, ret);
        assert_refused(
            reduce(ncclDataType_t::ncclFloat8e4m3, ncclRedOp_t::ncclSum),
            INVALID_ARGUMENT,
            ret,
        );
        // Not offered.
        // SAFETY: the function is not offered and reads nothing.
        let code = unsafe { (api.ncclSend)(buffer, 1, int32, 0, raw, null_mut()) };
        assert_eq!(code, INVALID_USAGE);
        let error = take_error().unwrap();
        assert!(error.to_string().starts_with("ncclSend is not offered"), "{error}");
    });
}
