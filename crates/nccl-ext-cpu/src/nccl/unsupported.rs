//! Calls that this backend does not offer.

use core::ffi::{c_int, c_void};

use nccl_ext_core::raw::{cudaStream_t, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclResult_t};

use crate::entry::entry;
use crate::refusal::Refusal;

/// A call that this backend does not offer.
fn unsupported(call: &'static str) -> ncclResult_t {
    entry(call, |_| Err(Refusal::unsupported(call, ncclResult_t::ncclInvalidUsage)))
}

pub(super) unsafe extern "C" fn comm_split(
    _comm: ncclComm_t,
    _color: c_int,
    _key: c_int,
    _new: *mut ncclComm_t,
    _config: *mut ncclConfig_t,
) -> ncclResult_t {
    unsupported("ncclCommSplit")
}

pub(super) unsafe extern "C" fn send(
    _buffer: *const c_void,
    _count: usize,
    _data_type: ncclDataType_t,
    _peer: c_int,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    unsupported("ncclSend")
}

pub(super) unsafe extern "C" fn recv(
    _buffer: *mut c_void,
    _count: usize,
    _data_type: ncclDataType_t,
    _peer: c_int,
    _comm: ncclComm_t,
    _stream: cudaStream_t,
) -> ncclResult_t {
    unsupported("ncclRecv")
}
