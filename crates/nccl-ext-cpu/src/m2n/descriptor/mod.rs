//! The caller's descriptors: a copy of them, and the transfer that they describe.

mod describe;
mod raw;
mod transfer;

pub(super) use describe::describe;
pub(super) use raw::{Header, RawTensor, TENSOR_DIMS};
pub(super) use transfer::{Layout, Side, Transfer};
