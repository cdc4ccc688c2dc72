//! Configurations and the C structures that they fill.

use nccl_ep_sys::{
    ncclEpCombineConfig_t, ncclEpDispatchConfig_t, ncclEpGroupConfig_t, ncclEpHandleConfig_t,
};
use nccl_ext_core::binding_struct;

use crate::enums::{
    Algorithm, DispatchQuantizationRecipe, OverflowPolicy, PassDir, Validation, ZeroCopyMode,
};

binding_struct! {
    /// What a group is made for. Every rank gives the same values.
    #[doc(alias = "ncclEpGroupConfig_t")]
    pub struct GroupConfig => ncclEpGroupConfig_t {
        /// How tokens travel.
        pub algorithm: Algorithm = Algorithm::LowLatency => algorithm,
        /// Experts of the model, over all ranks. A multiple of the number of ranks; rank `r` owns
        /// the `r`-th block.
        pub num_experts: u32 = 0 => num_experts,
        /// Most tokens per rank in one dispatch.
        pub max_dispatch_tokens_per_rank: u32 = 0 => max_dispatch_tokens_per_rank,
        /// HT: most rows per rank that one dispatch receives. 0 is eager: the caller sizes outputs
        /// by `recv_total_counter`.
        pub max_recv_tokens_per_rank: u32 = 0 => max_recv_tokens_per_rank,
        /// Most bytes of one token row, scales included.
        pub max_token_bytes: u32 = 0 => max_token_bytes,
        /// LL: bytes of the communication buffer. 0 allocates at the first handle and grows.
        pub rdma_buffer_size: u64 = 0 => rdma_buffer_size,
        /// Queue pairs per rank; 0 is automatic.
        pub num_qp_per_rank: u32 = 0 => num_qp_per_rank,
        /// Channels; 0 is automatic. The library does not use it yet.
        pub num_channels: u32 = 0 => num_channels,
        /// Most streaming multiprocessors; 0 is automatic (HT 16, LL all).
        pub max_num_sms: u32 = 0 => max_num_sms,
        /// LL: keep a mask of active ranks. A rank that times out is then masked; without a mask
        /// the device traps.
        pub enable_mask: bool = false => enable_mask,
        /// LL: nanoseconds until a wait gives up; 0 is the library's default (about 100 s). Rounded
        /// up to whole milliseconds; the library truncates, so less than 1 ms would disable it.
        pub timeout_ns: u64 = 0,
        /// Whether rows are written straight into registered windows of the peers.
        pub zero_copy: ZeroCopyMode = ZeroCopyMode::Auto => zero_copy,
        /// HT: what happens above the receive budget.
        pub overflow_policy: OverflowPolicy = OverflowPolicy::Auto => overflow_policy,
        /// Largest top-k of the group's handles; 0: no limit. Eager HT expert-major needs it, and
        /// [`TopK::Auto`](crate::TopK::Auto) stands for it.
        pub num_topk: u32 = 0 => num_topk,
        /// How much is checked before the library is called. Ranks may differ.
        pub validation: Validation = Validation::Host,
    }
}

binding_struct! {
    /// What a handle is made for.
    #[doc(alias = "ncclEpHandleConfig_t")]
    pub struct HandleConfig => ncclEpHandleConfig_t {
        /// HT expert-major: rows of each expert's zone are padded to a multiple of this power of
        /// two; 0 and 1 do not pad. Other layouts ignore it.
        pub dispatch_output_per_expert_alignment: usize = 0
            => dispatch_output_per_expert_alignment,
    }
}

binding_struct! {
    /// How one dispatch runs.
    #[doc(alias = "ncclEpDispatchConfig_t")]
    pub struct DispatchConfig => ncclEpDispatchConfig_t {
        /// Direction; backward is HT only.
        pub pass_direction: PassDir = PassDir::Fwd => pass_direction,
        /// Whether tokens are quantized.
        pub quantization_recipe: DispatchQuantizationRecipe = DispatchQuantizationRecipe::None
            => quant_recipe,
    }
}

binding_struct! {
    /// How one combine runs.
    #[doc(alias = "ncclEpCombineConfig_t")]
    pub struct CombineConfig => ncclEpCombineConfig_t {
        /// Direction; backward is HT only.
        pub pass_direction: PassDir = PassDir::Fwd => pass_direction,
    }
}

const MILLISECOND: u64 = 1_000_000;

/// The time-out that the library will not truncate to something shorter (EP 2.3).
pub(crate) fn whole_milliseconds(timeout_ns: u64) -> u64 {
    timeout_ns.div_ceil(MILLISECOND).saturating_mul(MILLISECOND)
}

#[cfg(test)]
mod tests {
    use nccl_ext_core::binding::BindingStruct;

    use super::*;

    #[test]
    fn every_field_reaches_its_c_field() {
        let config = GroupConfig::new()
            .algorithm(Algorithm::HighThroughput)
            .num_experts(8)
            .max_dispatch_tokens_per_rank(4)
            .max_recv_tokens_per_rank(32)
            .max_token_bytes(1024)
            .rdma_buffer_size(1 << 33)
            .num_qp_per_rank(3)
            .num_channels(5)
            .max_num_sms(16)
            .enable_mask(true)
            .zero_copy(ZeroCopyMode::On)
            .overflow_policy(OverflowPolicy::Drop)
            .num_topk(2);
        let raw = config.to_raw();
        assert_eq!((raw.size, raw.magic, raw.version), (112, 0xC00F_FFEE, 2));
        assert_eq!((raw.algorithm.0, raw.num_experts), (1, 8));
        assert_eq!((raw.max_dispatch_tokens_per_rank, raw.max_recv_tokens_per_rank), (4, 32));
        assert_eq!((raw.max_token_bytes, raw.rdma_buffer_size), (1024, 1 << 33));
        assert_eq!((raw.num_qp_per_rank, raw.num_channels, raw.max_num_sms), (3, 5, 16));
        assert_eq!((raw.enable_mask, raw.zero_copy.0, raw.overflow_policy.0), (1, 2, 2));
        assert_eq!(raw.num_topk, 2);
        let raw = HandleConfig::new().dispatch_output_per_expert_alignment(16).to_raw();
        assert_eq!(raw.dispatch_output_per_expert_alignment, 16);
        assert_eq!(DispatchConfig::new().pass_direction(PassDir::Bwd).to_raw().pass_direction.0, 1);
        assert_eq!(CombineConfig::new().pass_direction(PassDir::Bwd).to_raw().pass_direction.0, 1);
    }

    #[test]
    fn timeouts_round_up_to_whole_milliseconds() {
        assert_eq!(whole_milliseconds(0), 0);
        assert_eq!(whole_milliseconds(1), 1_000_000);
        assert_eq!(whole_milliseconds(999_999), 1_000_000);
        assert_eq!(whole_milliseconds(7_999_999), 8_000_000);
        assert_eq!(whole_milliseconds(u64::MAX), u64::MAX);
    }
}
