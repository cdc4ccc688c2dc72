//! The buffers of a collective.

use nccl_ext_core::DataType;

/// One rank's buffers, and what must be equal everywhere.
#[derive(Clone, Copy)]
pub(super) struct Buffers {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    pub(super) count: usize,
    pub(super) data_type: DataType,
    /// The root of a broadcast, the operation of a reduction.
    pub(super) parameter: u64,
}
