//! The tensors of each call, by name.

use nccl_ext_core::Use;

use crate::enums::ExpertIdKind;
use crate::rules::tensor_row::Slot;
use crate::tensor::{Tensor, TensorMut};
use crate::view::View;

macro_rules! bundle {
    (
        $(#[$meta:meta])*
        pub struct $name:ident<$life:lifetime>;
        required { $(#[$tokens_meta:meta])* tokens: $tokens_ty:ty }
        optional { $($(#[$field_meta:meta])* $field:ident: $ty:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Debug)]
        #[non_exhaustive]
        pub struct $name<$life> {
            $(#[$tokens_meta])*
            pub tokens: $tokens_ty,
            $($(#[$field_meta])* pub $field: Option<$ty>,)*
        }

        impl<$life> $name<$life> {
            /// With the tokens only; the setters add the rest.
            #[must_use]
            pub fn new(tokens: $tokens_ty) -> Self {
                Self { tokens, $($field: None,)* }
            }

            $($(#[$field_meta])*
            #[must_use]
            pub fn $field(mut self, tensor: $ty) -> Self {
                self.$field = Some(tensor);
                self
            })*
        }
    };
}

bundle! {
    /// Tensors that a dispatch reads.
    #[doc(alias = "ncclEpDispatchInputs_t")]
    pub struct DispatchInputs<'a>;
    required {
        /// `[tokens, hidden]` of bf16, fp16 or fp32.
        tokens: Tensor<'a>
    }
    optional {
        /// `[tokens, top-k]` fp32 routing weights. Required by all layouts but LL expert-major,
        /// which takes them at combine.
        topk_weights: Tensor<'a>,
        /// `[tokens, scales per token]`, only for [`DispatchQuantizationRecipe::Fwd`].
        ///
        /// [`DispatchQuantizationRecipe::Fwd`]: crate::DispatchQuantizationRecipe::Fwd
        scales: Tensor<'a>,
    }
}

bundle! {
    /// Tensors that a dispatch writes. [`Handle::recv_spec`](crate::Handle::recv_spec) gives the
    /// shapes.
    #[doc(alias = "ncclEpDispatchOutputs_t")]
    pub struct DispatchOutputs<'a>;
    required {
        /// Received rows: LL expert-major `[local experts, ranks * max tokens, hidden]`, LL
        /// rank-major `[ranks, max tokens, hidden]`, HT `[rows, hidden]`.
        tokens: TensorMut<'a>
    }
    optional {
        /// Received weights, fp32: LL rank-major `[ranks, max tokens, top-k]`, HT flat
        /// `[rows, top-k]`, HT expert-major `[rows]`.
        topk_weights: TensorMut<'a>,
        /// Received expert ids: LL rank-major `[ranks, max tokens, top-k]` int32, HT flat
        /// `[rows, top-k]` int64. Rows past the count hold no tokens.
        topk_idx: TensorMut<'a>,
        /// Received scales, row by row as the tokens, only for
        /// [`DispatchQuantizationRecipe::Fwd`]: the tokens' shape with scales per token as last
        /// extent.
        ///
        /// [`DispatchQuantizationRecipe::Fwd`]: crate::DispatchQuantizationRecipe::Fwd
        scales: TensorMut<'a>,
    }
}

bundle! {
    /// Tensors that a combine reads: expert outputs, in the layout of the dispatch.
    #[doc(alias = "ncclEpCombineInputs_t")]
    pub struct CombineInputs<'a>;
    required {
        /// Expert outputs. For all layouts but LL expert-major the caller has multiplied each row
        /// with its weight (and for LL rank-major and HT flat summed over local experts).
        tokens: Tensor<'a>
    }
    optional {
        /// HT backward: weight gradients, flat `[rows, top-k]`, expert-major `[rows]`, fp32.
        topk_weights: Tensor<'a>,
        /// LL expert-major: `[tokens, top-k]` fp32 routing weights, applied by the library. In C
        /// this input is called `ncclEpCombineOutputs_t::topk_weights`.
        routing_weights: Tensor<'a>,
    }
}

bundle! {
    /// Tensors that a combine writes.
    #[doc(alias = "ncclEpCombineOutputs_t")]
    pub struct CombineOutputs<'a>;
    required {
        /// `[tokens, hidden]` of the input's type, in the order of the dispatched tokens.
        tokens: TensorMut<'a>
    }
    optional {
        /// HT backward: `[tokens, top-k]` fp32 weight gradients.
        topk_weights: TensorMut<'a>,
    }
}

/// Counters that the library writes: HT at update, LL at dispatch.
#[derive(Debug, Default)]
#[non_exhaustive]
#[doc(alias = "ncclEpLayoutInfo_t")]
pub struct LayoutInfo<'a> {
    /// Rows of each local expert, `[local experts]`: LL expert-major int32 (required), HT flat
    /// int32, HT expert-major int32 or int64 with padding counted.
    pub expert_counters: Option<TensorMut<'a>>,
    /// LL rank-major: tokens from each source rank, `[ranks]` int32.
    pub src_rank_counters: Option<TensorMut<'a>>,
    /// HT expert-major: where each local expert's zone begins, `[local experts]`.
    pub expert_offsets: Option<TensorMut<'a>>,
    /// HT: rows in all, `[1]` int32 or int64, before any are dropped.
    pub recv_total_counter: Option<TensorMut<'a>>,
    /// Numbering of received expert ids.
    pub recv_topk_idx_kind: ExpertIdKind,
}

impl<'a> LayoutInfo<'a> {
    /// Nothing asked for, local ids.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`expert_counters`](Self::expert_counters).
    #[must_use]
    pub fn expert_counters(mut self, tensor: TensorMut<'a>) -> Self {
        self.expert_counters = Some(tensor);
        self
    }

    /// Sets [`src_rank_counters`](Self::src_rank_counters).
    #[must_use]
    pub fn src_rank_counters(mut self, tensor: TensorMut<'a>) -> Self {
        self.src_rank_counters = Some(tensor);
        self
    }

    /// Sets [`expert_offsets`](Self::expert_offsets).
    #[must_use]
    pub fn expert_offsets(mut self, tensor: TensorMut<'a>) -> Self {
        self.expert_offsets = Some(tensor);
        self
    }

    /// Sets [`recv_total_counter`](Self::recv_total_counter).
    #[must_use]
    pub fn recv_total_counter(mut self, tensor: TensorMut<'a>) -> Self {
        self.recv_total_counter = Some(tensor);
        self
    }

    /// Sets [`recv_topk_idx_kind`](Self::recv_topk_idx_kind).
    #[must_use]
    pub fn recv_topk_idx_kind(mut self, kind: ExpertIdKind) -> Self {
        self.recv_topk_idx_kind = kind;
        self
    }
}

impl LayoutInfo<'_> {
    /// The tensor of a slot of the layout information; `None` for every other slot.
    pub(crate) fn view(&self, slot: Slot) -> Option<&View> {
        match slot {
            Slot::LiExpertCounters => view_mut(&self.expert_counters),
            Slot::LiSrcRankCounters => view_mut(&self.src_rank_counters),
            Slot::LiExpertOffsets => view_mut(&self.expert_offsets),
            Slot::LiRecvTotal => view_mut(&self.recv_total_counter),
            _ => None,
        }
    }
}

impl<'a> LayoutInfo<'a> {
    /// The uses of its tensors' memory.
    pub(crate) fn uses(&self) -> [Use<'a>; 4] {
        [
            use_mut(&self.expert_counters),
            use_mut(&self.src_rank_counters),
            use_mut(&self.expert_offsets),
            use_mut(&self.recv_total_counter),
        ]
    }
}

/// The uses of no layout information.
pub(crate) const NO_COUNTERS: [Use<'static>; 4] = [Use::NONE; 4];

pub(crate) fn view<'v>(tensor: &'v Option<Tensor<'_>>) -> Option<&'v View> {
    tensor.as_ref().map(Tensor::view)
}

pub(crate) fn view_mut<'v>(tensor: &'v Option<TensorMut<'_>>) -> Option<&'v View> {
    tensor.as_ref().map(TensorMut::view)
}

pub(crate) fn use_of<'a>(tensor: &Option<Tensor<'a>>) -> Use<'a> {
    tensor.as_ref().map_or(Use::NONE, Tensor::as_use)
}

pub(crate) fn use_mut<'a>(tensor: &Option<TensorMut<'a>>) -> Use<'a> {
    tensor.as_ref().map_or(Use::NONE, TensorMut::as_use)
}
