//! Calls of the EP table, and ranks that make them.
//!
//! - [`TestTensor`], [`TestGroup`], [`TestHandle`], [`DispatchCall`], [`CombineCall`]: C objects with
//!   the memory that they point to.
//! - [`Fixture`]: the routings of EP 9.0.
//! - [`HighThroughputRank`], [`LowLatencyRank`]: a group and an updated handle on one rank.
//! - [`masks`], [`scales`], [`import`]: what the tests of these add.

mod combine_call;
mod device;
mod dispatch_call;
mod fixture;
mod group;
mod high_throughput;
pub mod import;
mod low_latency;
pub mod masks;
pub mod scales;
mod tensor;

pub use combine_call::CombineCall;
pub use device::{DeviceRank, DeviceTensor};
pub use dispatch_call::DispatchCall;
pub use fixture::{F4, F4K2, Fixture, G2};
pub use group::{TestGroup, TestHandle, complete, group_config, update_handle};
pub use high_throughput::{HT_HIDDEN, HighThroughputRank, PublishedCounters, Received};
pub use low_latency::{LL_HIDDEN, LowLatencyRank, LowLatencyReceived};
pub use tensor::{
    CANARY, TestTensor, descriptor_or_null, int64_ids, register_window, row_values, uniform_rows,
};

use nccl_ep_sys::{EpApi, ncclEpAlgorithm_t, ncclEpLayout_t, ncclEpZeroCopyMode_t};
use nccl_ext_core::Error;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_cpu::{FailureClass, backend, last_refusal};

use super::{SUCCESS, take_error};

pub const HIGH_THROUGHPUT: ncclEpAlgorithm_t = ncclEpAlgorithm_t::NCCL_EP_ALGO_HIGH_THROUGHPUT;
pub const LOW_LATENCY: ncclEpAlgorithm_t = ncclEpAlgorithm_t::NCCL_EP_ALGO_LOW_LATENCY;
pub const EXPERT_MAJOR: ncclEpLayout_t = ncclEpLayout_t::NCCL_EP_LAYOUT_EXPERT_MAJOR;
pub const RANK_MAJOR: ncclEpLayout_t = ncclEpLayout_t::NCCL_EP_LAYOUT_RANK_MAJOR;
pub const FLAT: ncclEpLayout_t = ncclEpLayout_t::NCCL_EP_LAYOUT_FLAT;
/// The layouts of low latency.
pub const LOW_LATENCY_LAYOUTS: [(&str, ncclEpLayout_t); 2] =
    [("expert-major", EXPERT_MAJOR), ("rank-major", RANK_MAJOR)];
/// The layouts of high throughput.
pub const HIGH_THROUGHPUT_LAYOUTS: [(&str, ncclEpLayout_t); 2] =
    [("FLAT", FLAT), ("expert-major", EXPERT_MAJOR)];
pub const ZERO_COPY_ON: ncclEpZeroCopyMode_t = ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON;

pub fn api() -> &'static EpApi {
    backend().extension::<EpApi>().unwrap()
}

/// # Panics
/// If the call failed, with its error.
#[track_caller]
pub fn assert_ok(code: ncclResult_t) {
    if code != SUCCESS {
        panic!("{}: {}", code.0, take_error().map_or_else(String::new, |e| e.to_string()));
    }
}

/// The call was refused with this code, in the vendor's library with this class, and says why.
///
/// # Panics
/// If not.
#[track_caller]
pub fn assert_refused(code: ncclResult_t, expected: ncclResult_t, class: FailureClass) {
    let error = take_error();
    assert_eq!(code, expected, "{error:?}");
    assert_eq!(last_refusal(), Some(class), "{error:?}");
    let Some(Error::Native { code: inside, detail, .. }) = error else { panic!("{error:?}") };
    assert_eq!(inside, expected);
    assert!(detail.contains("expected") && detail.contains("found"), "{detail}");
}
