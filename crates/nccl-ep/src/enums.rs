//! The choices of the API, and how they map to C.

use std::fmt;

use nccl_ep_sys::{
    ncclEpAlgorithm_t, ncclEpDispQuant_t, ncclEpExpertIdKind_t, ncclEpLayout_t,
    ncclEpOverflowPolicy_t, ncclEpPassDir_t, ncclEpZeroCopyMode_t,
};

macro_rules! c_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident => $raw:ident $raw_alias:literal, default $default:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $c:ident $alias:literal, $text:literal;)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[doc(alias = $raw_alias)]
        pub enum $name {
            $($(#[$variant_meta])* #[doc(alias = $alias)] $variant,)+
        }

        impl $name {
            /// Every choice, in the order of its C value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        }

        impl From<$name> for $raw {
            fn from(value: $name) -> Self {
                match value { $($name::$variant => Self::$c,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)+ })
            }
        }
    };
}

c_enum! {
    /// How tokens travel. A group has one.
    pub enum Algorithm => ncclEpAlgorithm_t "ncclEpAlgorithm_t", default LowLatency {
        /// Low latency (LL): direct sends, made for decoding with few tokens.
        LowLatency = NCCL_EP_ALGO_LOW_LATENCY "NCCL_EP_ALGO_LOW_LATENCY", "low latency";
        /// High throughput (HT): bulk exchange, made for prefill and training.
        HighThroughput = NCCL_EP_ALGO_HIGH_THROUGHPUT "NCCL_EP_ALGO_HIGH_THROUGHPUT", "high throughput";
    }
}

c_enum! {
    /// How received tokens lie in the output. A handle has one. (In `nccl-m2n` a `Layout` says how
    /// a tensor is distributed over ranks.)
    ///
    /// `NCCL_EP_LAYOUT_UNSET` has no counterpart: no call accepts it.
    pub enum Layout => ncclEpLayout_t "ncclEpLayout_t", default ExpertMajor {
        /// Grouped by local expert: LL `[local experts, ranks * max tokens, hidden]`, HT zones of
        /// one `[rows, hidden]` tensor.
        ExpertMajor = NCCL_EP_LAYOUT_EXPERT_MAJOR "NCCL_EP_LAYOUT_EXPERT_MAJOR", "expert-major";
        /// LL only: grouped by source rank, `[ranks, max tokens, hidden]`.
        RankMajor = NCCL_EP_LAYOUT_RANK_MAJOR "NCCL_EP_LAYOUT_RANK_MAJOR", "rank-major";
        /// HT only: one row a token, `[rows, hidden]`, by source rank and token.
        Flat = NCCL_EP_LAYOUT_FLAT "NCCL_EP_LAYOUT_FLAT", "flat";
    }
}

c_enum! {
    /// Direction of a pass. Backward is HT only.
    pub enum PassDir => ncclEpPassDir_t "ncclEpPassDir_t", default Fwd {
        /// Forward.
        Fwd = NCCL_EP_FWD_PASS "NCCL_EP_FWD_PASS", "forward";
        /// Backward.
        Bwd = NCCL_EP_BWD_PASS "NCCL_EP_BWD_PASS", "backward";
    }
}

c_enum! {
    /// What happens when a rank would receive more tokens than its budget (HT).
    pub enum OverflowPolicy => ncclEpOverflowPolicy_t "ncclEpOverflowPolicy_t", default Auto {
        /// The library's choice: trap.
        Auto = NCCL_EP_OVERFLOW_AUTO "NCCL_EP_OVERFLOW_AUTO", "auto";
        /// The device traps; its context is lost.
        Trap = NCCL_EP_OVERFLOW_TRAP "NCCL_EP_OVERFLOW_TRAP", "trap";
        /// What does not fit is dropped and contributes nothing.
        Drop = NCCL_EP_OVERFLOW_DROP "NCCL_EP_OVERFLOW_DROP", "drop";
    }
}

c_enum! {
    /// Whether rows are written straight into the peers' registered windows.
    pub enum ZeroCopyMode => ncclEpZeroCopyMode_t "ncclEpZeroCopyMode_t", default Auto {
        /// Windows are used where tensors have them.
        Auto = NCCL_EP_ZERO_COPY_AUTO "NCCL_EP_ZERO_COPY_AUTO", "auto";
        /// Staging buffers always exist.
        Off = NCCL_EP_ZERO_COPY_OFF "NCCL_EP_ZERO_COPY_OFF", "off";
        /// No staging: tensors must be windows.
        On = NCCL_EP_ZERO_COPY_ON "NCCL_EP_ZERO_COPY_ON", "on";
    }
}

c_enum! {
    /// Numbering of received expert ids.
    pub enum ExpertIdKind => ncclEpExpertIdKind_t "ncclEpExpertIdKind_t", default Auto {
        /// The library's choice: local.
        Auto = NCCL_EP_EXPERT_ID_AUTO "NCCL_EP_EXPERT_ID_AUTO", "auto";
        /// Ids of the receiving rank, `0..local experts`.
        Local = NCCL_EP_EXPERT_ID_LOCAL "NCCL_EP_EXPERT_ID_LOCAL", "local";
        /// Ids of the whole model, `0..experts`.
        Global = NCCL_EP_EXPERT_ID_GLOBAL "NCCL_EP_EXPERT_ID_GLOBAL", "global";
    }
}

c_enum! {
    /// Quantization of a dispatch.
    ///
    /// `NCCL_EP_DISP_QUANT_DS_FP8E3M4` has no counterpart yet.
    pub enum DispatchQuantizationRecipe => ncclEpDispQuant_t "ncclEpDispQuant_t", default None {
        /// Moves bf16, fp16 or fp32 rows as they are.
        None = NCCL_EP_DISP_QUANT_NONE "NCCL_EP_DISP_QUANT_NONE", "none";
        /// Moves rows that the caller has quantized, and their scales beside them.
        Fwd = NCCL_EP_DISP_QUANT_FWD "NCCL_EP_DISP_QUANT_FWD", "forward";
    }
}

/// Experts a token is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TopK {
    /// The group's [`num_topk`](crate::GroupConfig::num_topk).
    #[default]
    Auto,
    /// This many.
    N(u32),
}

/// How much a group checks before it calls the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Validation {
    /// What the host knows: shapes, types, counts, limits.
    #[default]
    Host,
    /// Also what lies on the device: each update copies the routing indices back and checks them,
    /// and pointers must be device memory. Costs a synchronization per update. The library itself
    /// corrupts memory for an id that is out of range.
    Data,
}
