//! A group's settings: what AUTO stands for.

use std::time::Duration;

use nccl_ep_sys::{ncclEpGroupConfig_t, ncclEpOverflowPolicy_t, ncclEpZeroCopyMode_t};

use crate::driver::SM_COUNT;
use crate::ep::environment::Environment;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    LowLatency,
    HighThroughput,
}

/// How expert-major rows travel on high throughput (EP 2.4). It decides the rounding of combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmMode {
    LocalPermute,
    LocalDup,
    NvlinkDup,
}

/// A group's configuration with every AUTO resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) algorithm: Algorithm,
    pub(crate) ranks: usize,
    pub(crate) experts: usize,
    pub(crate) local_experts: usize,
    pub(crate) max_tokens: usize,
    /// Rows a rank can receive; in eager mode the worst case.
    pub(crate) max_recv: u64,
    pub(crate) eager: bool,
    pub(crate) max_token_bytes: usize,
    /// 0 lets the buffer grow with its handles.
    pub(crate) rdma_buffer_size: u64,
    pub(crate) comm_sms: u32,
    pub(crate) zero_copy_on: bool,
    pub(crate) drop: bool,
    /// 0 when not given.
    pub(crate) num_topk: usize,
    pub(crate) em_mode: EmMode,
    pub(crate) mask: bool,
    /// How long a rank of a group with masks waits for another.
    pub(crate) timeout: Duration,
}

/// EP 2.2.
pub(crate) fn resolve(
    ranks: usize,
    algorithm: Algorithm,
    config: &ncclEpGroupConfig_t,
    environment: &Environment,
) -> Settings {
    let high = algorithm == Algorithm::HighThroughput;
    let experts = config.num_experts as usize;
    let max_tokens = config.max_dispatch_tokens_per_rank as usize;
    let all_tokens = (ranks as u64).saturating_mul(max_tokens as u64);
    let zero_copy_on = config.zero_copy == ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON;
    let comm_sms = match (config.max_num_sms, high) {
        (0, true) => 16,
        (0, false) => SM_COUNT,
        (given, _) => given,
    };
    // Compared before it is narrowed (EP 7.1).
    let override_sms = environment.comm_sms.and_then(|sms| u32::try_from(sms).ok());
    let override_sms = override_sms.filter(|sms| (1..=SM_COUNT).contains(sms));
    let max_recv = match (config.max_recv_tokens_per_rank, high) {
        (0, true) => all_tokens.saturating_mul(u64::from(config.num_topk.max(1))),
        (0, false) => all_tokens,
        (given, _) => u64::from(given),
    };
    Settings {
        algorithm,
        ranks,
        experts,
        local_experts: experts / ranks,
        max_tokens,
        max_recv,
        eager: high && config.max_recv_tokens_per_rank == 0,
        max_token_bytes: config.max_token_bytes as usize,
        rdma_buffer_size: config.rdma_buffer_size,
        comm_sms: override_sms.unwrap_or(comm_sms),
        zero_copy_on,
        drop: high && config.overflow_policy == ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP,
        num_topk: config.num_topk as usize,
        em_mode: if environment.nvlink_dup {
            EmMode::NvlinkDup
        } else if environment.local_dup || zero_copy_on {
            EmMode::LocalDup
        } else {
            EmMode::LocalPermute
        },
        mask: config.enable_mask != 0,
        timeout: timeout(config.timeout_ns, environment),
    }
}

/// EP 2.3. Parts of a millisecond are cut off, so that less than one is no time at all.
fn timeout(nanoseconds: u64, environment: &Environment) -> Duration {
    match (environment.timeout_ms, nanoseconds) {
        (Some(given), _) if given > 0 => Duration::from_millis(given),
        (_, 0) => Duration::from_secs(100),
        (_, given) => Duration::from_millis(given / 1_000_000),
    }
}

#[cfg(test)]
impl Settings {
    /// A low-latency group of nothing in particular.
    pub(crate) fn for_tests(max_token_bytes: usize) -> Self {
        Self {
            algorithm: Algorithm::LowLatency,
            ranks: 1,
            experts: 1,
            local_experts: 1,
            max_tokens: 1,
            max_recv: 1,
            eager: false,
            max_token_bytes,
            rdma_buffer_size: 0,
            comm_sms: SM_COUNT,
            zero_copy_on: false,
            drop: false,
            num_topk: 0,
            em_mode: EmMode::LocalPermute,
            mask: false,
            timeout: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use nccl_ep_sys::VersionedStruct as _;

    use super::*;

    #[test]
    fn an_override_of_the_sms_counts_within_the_device() {
        let sms = |comm_sms| {
            let environment = Environment { comm_sms: Some(comm_sms), ..Environment::default() };
            let config = ncclEpGroupConfig_t { num_experts: 4, ..ncclEpGroupConfig_t::init() };
            resolve(2, Algorithm::LowLatency, &config, &environment).comm_sms
        };
        assert_eq!([16, u64::from(SM_COUNT)].map(sms), [16, SM_COUNT]);
        let ignored = [0, u64::from(SM_COUNT) + 1, (1 << 32) + 16, u64::MAX];
        assert_eq!(ignored.map(sms), [SM_COUNT; 4]);
    }

    #[test]
    fn time_outs_are_whole_milliseconds() {
        let none = Environment::default();
        let ms = Duration::from_millis;
        assert_eq!(timeout(0, &none), Duration::from_secs(100));
        assert_eq!(timeout(999_999, &none), ms(0));
        assert_eq!(timeout(7_999_999, &none), ms(7));
        let given = |timeout_ms| Environment { timeout_ms: Some(timeout_ms), ..none };
        assert_eq!(timeout(7_000_000, &given(1234)), ms(1234));
        assert_eq!(timeout(7_000_000, &given(0)), ms(7));
    }
}
