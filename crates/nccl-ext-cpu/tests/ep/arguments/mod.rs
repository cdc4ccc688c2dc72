//! EP 9.1: the C ABI and argument checks.

mod groups;
mod handles;
mod high_throughput;
mod low_latency;
mod masks;
mod raw_calls;
mod tensors;
mod updates;

use std::ptr::{null, null_mut};

use nccl_ep_sys::*;
use nccl_ext_core::Element;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

/// One rank with the sizes of F4.
const ONE: Fixture = Fixture { ranks: 1, ..F4 };

/// A tensor of default values.
fn tensor<T: Element>(sizes: &[usize]) -> Option<TestTensor<T>> {
    Some(TestTensor::filled(sizes, T::default()))
}

fn ht_config() -> ncclEpGroupConfig_t {
    ONE.config(HIGH_THROUGHPUT, HT_HIDDEN)
}

fn ll_config(experts: u32) -> ncclEpGroupConfig_t {
    ncclEpGroupConfig_t { num_experts: experts, ..ONE.config(LOW_LATENCY, LL_HIDDEN) }
}
