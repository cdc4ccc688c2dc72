//! C types and functions of NCCL that both extension libraries use.
//!
//! Enumerations are newtypes over the C integer: a value that this crate does not know stays
//! representable, and is never success.

mod nccl;

pub use nccl::*;

/// Packed FP4: two 4-bit values a byte. NCCL's own header has no name for it; libnccl_ep's does.
#[allow(non_upper_case_globals)]
pub const ncclFloat4x2: ncclDataType_t = ncclDataType_t(12);

impl ncclResult_t {
    /// Whether the call succeeded. `ncclInProgress` is not success.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::ncclSuccess
    }
}
