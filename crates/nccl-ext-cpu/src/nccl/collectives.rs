//! All-gather, all-reduce and broadcast.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use nccl_ext_core::DataType;
use nccl_ext_core::raw::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t};

use super::buffers::Buffers;
use super::comm::member;
use super::reduce;
use crate::entry::entry;
use crate::queue;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{Descriptor, KEYS, Member, SequenceId};

/// Gives the stream a collective's work. NCCL puts those of a communicator in the order of their
/// calls, whatever their streams.
fn submit(
    member: Arc<Member>,
    stream: cudaStream_t,
    call: &'static str,
    work: impl FnOnce(&Member) -> Outcome + Send + 'static,
) -> Outcome {
    let (order, deferral) = (Arc::clone(member.collectives()), member.deferral());
    queue::submit_in_order(&order, deferral, stream, call, move || work(&member))
}

macro_rules! operations {
    ($($ty:ident = $name:literal, $parameter:literal;)+) => {$(
        #[derive(Clone, Copy)]
        struct $ty(Buffers);
        // SAFETY: the peers' threads use the buffers anyway, as `Descriptor` says.
        unsafe impl Send for $ty {}
        // SAFETY: the peers read `send` and write `recv` as the C function says, and both are
        // valid until it returns.
        unsafe impl Descriptor for $ty {
            const NAME: &'static str = $name;
            const KEY: [&'static str; KEYS] = ["count", "datatype", $parameter, "", "", ""];
            fn key(&self) -> [u64; KEYS] {
                let Buffers { count, data_type, parameter, .. } = self.0;
                [count as u64, data_type as u64, parameter, 0, 0, 0]
            }
        }
    )+};
}

operations! {
    AllGather = "ncclAllGather", "";
    AllReduce = "ncclAllReduce", "op";
    Broadcast = "ncclBroadcast", "root";
}

/// Checks what all three have in common.
///
/// # Safety
/// `comm` is NULL or live.
unsafe fn prepare(
    comm: ncclComm_t,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: ncclDataType_t,
    sends: impl FnOnce(usize) -> bool,
) -> Outcome<(Arc<Member>, Buffers)> {
    // SAFETY: this function's contract.
    let member = unsafe { member(comm)? };
    let class = FailureClass::Return;
    let data_type = DataType::from_raw(data_type).ok_or_else(|| {
        Refusal::argument(class, "datatype", "the type is known", "0 to 12", data_type.0)
    })?;
    let bytes = count.checked_mul(data_type.size()).and_then(|n| n.checked_mul(member.size()));
    require(bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()), || {
        Refusal::argument(class, "count", "the buffers fit the address space", "fewer", count)
    })?;
    let sends = sends(member.rank());
    require(count == 0 || !(send.is_null() && sends), || Refusal::null(class, "sendbuff"))?;
    require(count == 0 || !recv.is_null(), || Refusal::null(class, "recvbuff"))?;
    let buffers = Buffers { send: send.cast(), recv: recv.cast(), count, data_type, parameter: 0 };
    Ok((member, buffers))
}

/// Copies unless source and destination are the same place, which NCCL allows.
///
/// # Safety
/// Both hold `bytes` bytes and are the same or do not overlap.
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes > 0 && from != to.cast_const() {
        // SAFETY: this function's contract.
        unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

pub(super) unsafe extern "C" fn all_gather(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: ncclDataType_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry("ncclAllGather", |scope| {
        // SAFETY: the C contract of ncclAllGather.
        let (member, buffers) = unsafe { prepare(comm, send, recv, count, data_type, |_| true)? };
        scope.enter(&member);
        let bytes = count * buffers.data_type.size();
        let all = AllGather(buffers);
        submit(member, stream, "ncclAllGather", move |member| {
            let AllGather(Buffers { send, recv, .. }) = all;
            queue::read(send, bytes)?;
            queue::write(recv, bytes * member.size())?;
            member.collective(SequenceId::COMM, &all, |peers, _| {
                for (rank, peer) in peers.iter().enumerate() {
                    // SAFETY: the receive buffer has room for every rank's part; a part is this
                    // rank's own send buffer or nobody's.
                    unsafe { copy(peer.0.send, recv.add(rank * bytes), bytes) };
                }
            })
        })
    })
}

pub(super) unsafe extern "C" fn broadcast(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry("ncclBroadcast", |scope| {
        let is_root = |rank: usize| usize::try_from(root) == Ok(rank);
        // SAFETY: the C contract of ncclBroadcast.
        let (member, mut buffers) =
            unsafe { prepare(comm, send, recv, count, data_type, is_root)? };
        scope.enter(&member);
        let root = usize::try_from(root).ok().filter(|&root| root < member.size());
        let root = root.ok_or_else(|| {
            let expected = format_args!("0 to {}", member.size() - 1).to_string();
            let rule = "the root is one of the ranks";
            Refusal::argument(FailureClass::Return, "root", rule, expected, "another")
        })?;
        buffers.parameter = root as u64;
        let bytes = count * buffers.data_type.size();
        let all = Broadcast(buffers);
        submit(member, stream, "ncclBroadcast", move |member| {
            let Broadcast(Buffers { send, recv, .. }) = all;
            if member.rank() == root {
                queue::read(send, bytes)?;
            }
            queue::write(recv, bytes)?;
            member.collective(SequenceId::COMM, &all, |peers, _| {
                // SAFETY: both hold `count` elements; in place on the root they are the same.
                unsafe { copy(peers[root].0.send, recv, bytes) };
            })
        })
    })
}

pub(super) unsafe extern "C" fn all_reduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    data_type: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry("ncclAllReduce", |scope| {
        // SAFETY: the C contract of ncclAllReduce.
        let (member, mut buffers) =
            unsafe { prepare(comm, send, recv, count, data_type, |_| true)? };
        scope.enter(&member);
        buffers.parameter = u64::from(op.0);
        let reduction = reduce::kernel(buffers.data_type, op)?;
        // Each rank reduces its share of the elements for everybody: the work is spread, and in
        // place nobody reads what another rank has already overwritten.
        let (rank, size) = (member.rank(), member.size());
        let share = count.div_ceil(size);
        let (begin, end) = ((rank * share).min(count), ((rank + 1) * share).min(count));
        let all = AllReduce(buffers);
        submit(member, stream, "ncclAllReduce", move |member| {
            let AllReduce(Buffers { send, recv, count, data_type, .. }) = all;
            queue::read(send, count * data_type.size())?;
            queue::write(recv, count * data_type.size())?;
            member.collective(SequenceId::COMM, &all, |peers, _| {
                let peers: Vec<_> = peers.iter().map(|peer| peer.0).collect();
                // SAFETY: every buffer holds `count` elements of the type; the shares of two ranks
                // do not overlap.
                unsafe { reduction(&peers, begin..end) };
            })
        })
    })
}
