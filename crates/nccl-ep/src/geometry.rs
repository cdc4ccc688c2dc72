//! The numbers of a group that shapes and limits follow from.

use crate::config::GroupConfig;
use crate::enums::{Algorithm, Layout, OverflowPolicy, Validation, ZeroCopyMode};
use crate::environment::Environment;

/// HT hangs above this many SMs; between 17 and 34 it was seen to work with two ranks only (EP 14).
pub(crate) const HT_SMS_ALWAYS: u64 = 16;
pub(crate) const HT_SMS_TWO_RANKS: u64 = 34;

/// What a group is made of: its numbers follow from it, and the rules of its creation look at it.
pub(crate) struct GroupFacts<'a> {
    pub(crate) config: &'a GroupConfig,
    pub(crate) ranks: u64,
    /// Ranks reachable by load and store.
    pub(crate) lsa: u64,
    /// Streaming multiprocessors of the device.
    pub(crate) device_sms: u64,
    pub(crate) environment: Environment,
}

impl GroupFacts<'_> {
    pub(crate) fn ht(&self) -> bool {
        self.config.algorithm == Algorithm::HighThroughput
    }

    /// SMs that communication kernels use; the environment wins where it is a possible count.
    pub(crate) fn comm_sms(&self) -> u64 {
        let configured = match u64::from(self.config.max_num_sms) {
            0 if self.ht() => HT_SMS_ALWAYS.min(self.device_sms),
            0 => self.device_sms,
            sms => sms,
        };
        self.environment.comm_sms.filter(|sms| *sms <= self.device_sms).unwrap_or(configured)
    }
}

/// How HT expert-major is done inside; decides rounding and some limits (EP 2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmMode {
    LocalPermute,
    LocalDup,
    NvlinkDup,
}

/// A group's numbers, fixed at creation. 64 bits: products of configured values fit.
#[derive(Debug, Clone)]
pub(crate) struct Geometry {
    pub(crate) algorithm: Algorithm,
    pub(crate) ranks: u64,
    pub(crate) lsa: u64,
    pub(crate) experts: u64,
    pub(crate) local_experts: u64,
    /// Most tokens a rank dispatches.
    pub(crate) max_tokens: u64,
    /// HT: rows a rank may receive; in eager mode the internal worst case.
    pub(crate) max_recv: u64,
    pub(crate) eager: bool,
    pub(crate) max_token_bytes: u64,
    pub(crate) group_topk: u64,
    pub(crate) comm_sms: u64,
    pub(crate) rdma_buffer: u64,
    pub(crate) overflow: OverflowPolicy,
    pub(crate) em_mode: EmMode,
    /// Whether updates look at the ids.
    pub(crate) checks_data: bool,
}

/// Sizes of the LL communication buffer in bytes.
pub(crate) struct LlBuffer {
    /// Dispatch send and receive, combine send and receive.
    pub(crate) parts: [u128; 4],
    pub(crate) total: u128,
}

impl Geometry {
    /// From facts that passed the group rules.
    pub(crate) fn new(facts: &GroupFacts<'_>) -> Self {
        let config = facts.config;
        let (ranks, experts) = (facts.ranks, u64::from(config.num_experts));
        let max_tokens = u64::from(config.max_dispatch_tokens_per_rank);
        let group_topk = u64::from(config.num_topk);
        let budget = u64::from(config.max_recv_tokens_per_rank);
        let eager = config.algorithm == Algorithm::HighThroughput && budget == 0;
        let worst = ranks.saturating_mul(max_tokens).saturating_mul(group_topk.max(1));
        Self {
            algorithm: config.algorithm,
            ranks,
            lsa: facts.lsa,
            experts,
            local_experts: experts / ranks,
            max_tokens,
            max_recv: if budget == 0 { worst } else { budget },
            eager,
            max_token_bytes: config.max_token_bytes.into(),
            group_topk,
            comm_sms: facts.comm_sms(),
            rdma_buffer: config.rdma_buffer_size,
            overflow: config.overflow_policy,
            checks_data: config.validation == Validation::Data,
            em_mode: em_mode(facts),
        }
    }

    /// Experts that share one thread block of an LL kernel (EP 4.1).
    fn ll_groups(&self) -> u64 {
        self.experts.div_ceil(self.comm_sms)
    }

    /// Warps an LL kernel launches with (EP 3.2 LL c).
    pub(crate) fn ll_warps(&self) -> u64 {
        let groups = self.ll_groups().max(1);
        groups * (32 / groups)
    }

    /// Most bytes of an LL combine row: what the decoding warps hold (EP 4.4.1).
    pub(crate) fn ll_combine_row_limit(&self) -> u64 {
        1024 * self.ll_warps().saturating_sub(1)
    }

    /// EP 3.4.
    pub(crate) fn ll_buffer(&self, layout: Layout, topk: u64) -> LlBuffer {
        let wide = u128::from;
        let (tokens, bytes) = (wide(self.max_tokens), wide(self.max_token_bytes));
        let (ranks, experts, topk) = (wide(self.ranks), wide(self.experts), wide(topk));
        let expert_major = layout == Layout::ExpertMajor;
        let entry = if expert_major { 2 } else { 8 };
        let header = (4 + entry * topk).next_multiple_of(16);
        let combine_row = bytes + 4 * (bytes / 256);
        let dispatch_send = tokens * (header + bytes);
        let dispatch_recv = ranks * dispatch_send;
        let combine_send = if expert_major { experts } else { ranks } * tokens * combine_row;
        let combine_recv = tokens * combine_row * topk;
        let slot = (dispatch_send + dispatch_recv).max(combine_send + combine_recv);
        LlBuffer {
            parts: [dispatch_send, dispatch_recv, combine_send, combine_recv],
            total: 2 * slot + 2 * (4 * experts).next_multiple_of(128),
        }
    }
}

/// EP 2.4: the environment first, then zero-copy.
fn em_mode(facts: &GroupFacts<'_>) -> EmMode {
    let zero_copy = facts.config.zero_copy == ZeroCopyMode::On;
    match facts.environment {
        environment if environment.nvlink_dup => EmMode::NvlinkDup,
        environment if environment.local_dup => EmMode::LocalDup,
        _ if zero_copy && facts.lsa < facts.ranks => EmMode::NvlinkDup,
        _ if zero_copy => EmMode::LocalDup,
        _ => EmMode::LocalPermute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(config: &GroupConfig, ranks: u64) -> Geometry {
        let environment = Environment::default();
        Geometry::new(&GroupFacts { config, ranks, lsa: ranks, device_sms: 132, environment })
    }

    /// EP vectors A25 and A26: bytes an explicit buffer must have.
    #[test]
    fn ll_buffer_sizes_of_the_vectors() {
        let config =
            GroupConfig::new().num_experts(4).max_dispatch_tokens_per_rank(4).max_token_bytes(1024);
        let geometry = geometry(&config, 2);
        assert_eq!(geometry.ll_buffer(Layout::ExpertMajor, 2).total, 50176);
        assert_eq!(geometry.ll_buffer(Layout::RankMajor, 2).total, 33536);
    }

    /// EP 3.2 LL c lists the launched warps for 1 to 14 experts a block.
    #[test]
    fn ll_warps_by_experts_a_block() {
        let expected = [32, 32, 30, 32, 30, 30, 28, 32, 27, 30, 22, 24, 26, 28];
        for (groups, warps) in (1..).zip(expected) {
            let config = GroupConfig::new().num_experts(132 * groups).max_token_bytes(1);
            assert_eq!(geometry(&config, 1).ll_warps(), warps, "{groups} experts a block");
        }
    }
}
