//! EP 9.1: the C ABI and argument checks.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod groups;
mod handles;
mod high_throughput;
mod low_latency;
mod raw;
mod tensors;
mod updates;

use std::ptr::{null, null_mut};

use common::*;
use nccl_ep_sys::*;
use nccl_ext_core::Comm;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_cpu::FailureClass;

/// One rank with the sizes of F4.
const ONE: Fixture = Fixture { ranks: 1, ..F4 };

fn create(comm: &Comm, config: &ncclEpGroupConfig_t) -> (ncclResult_t, ncclEpGroup_t) {
    let mut group = null_mut();
    (raw::create_group(&mut group, comm.as_raw(), config), group)
}

fn ht_config() -> ncclEpGroupConfig_t {
    ONE.config(HT, H)
}

fn ll_config(experts: u32) -> ncclEpGroupConfig_t {
    ncclEpGroupConfig_t { num_experts: experts, ..ONE.config(LL, WIDE) }
}
