//! What a rank must provide to receive, from the validation table.

use nccl_ext_core::DataType;

use crate::enums::{DispatchQuantizationRecipe, PassDir};
use crate::handle::Handle;
use crate::mode::Mode;
use crate::rules::tensor_row::extents::{Dim, Sizes};
use crate::rules::tensor_row::{Call, Need, Slot, TensorRule};
use crate::rules::tensors;
use crate::view::Shape;

/// Whether a tensor must be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It must be given.
    Required,
    /// It may be given.
    Optional,
    /// It must not be given.
    Forbidden,
}

/// One tensor of a dispatch.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TensorSpec {
    /// Its name, as errors say it: `outputs.tokens`.
    pub name: &'static str,
    /// Whether it must be given.
    pub presence: Presence,
    /// Its extents; the smallest allowed where more are accepted. Empty when forbidden.
    pub shape: Shape,
    /// Whether the first extent may be larger (HT receive rows; the caller's own count when
    /// eager).
    pub more_rows: bool,
    /// The element types it may have.
    pub data_types: &'static [DataType],
}

/// Every tensor that a forward dispatch without a quantization recipe writes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecvSpec {
    /// Received tokens.
    pub tokens: TensorSpec,
    /// Received weights.
    pub topk_weights: TensorSpec,
    /// Received expert ids.
    pub topk_idx: TensorSpec,
    /// Counts by local expert.
    pub expert_counters: TensorSpec,
    /// Counts by source rank.
    pub src_rank_counters: TensorSpec,
}

impl Handle {
    /// The tensors that a forward dispatch of `hidden` elements of `data_type` a token writes.
    ///
    /// `None` only if the table has no row for a tensor, which its tests rule out.
    #[must_use]
    pub fn recv_spec(&self, hidden: usize, data_type: DataType) -> Option<RecvSpec> {
        let sizes = Sizes {
            hidden: hidden as u64,
            token_type: data_type,
            ..Sizes::new(&self.group.geometry, self.topk)
        };
        RecvSpec::new(self.mode, &sizes)
    }
}

impl RecvSpec {
    pub(crate) fn new(mode: Mode, sizes: &Sizes<'_>) -> Option<Self> {
        let spec = |slot| {
            let (call, recipe) = (Call::Dispatch(PassDir::Fwd), DispatchQuantizationRecipe::None);
            let rule = tensors::row(call, mode, recipe, slot)?;
            Some(tensor_spec(rule, sizes))
        };
        Some(Self {
            tokens: spec(Slot::OutTokens)?,
            topk_weights: spec(Slot::OutWeights)?,
            topk_idx: spec(Slot::OutIdx)?,
            expert_counters: spec(Slot::LiExpertCounters)?,
            src_rank_counters: spec(Slot::LiSrcRankCounters)?,
        })
    }
}

pub(crate) fn tensor_spec(rule: &TensorRule, sizes: &Sizes<'_>) -> TensorSpec {
    let mut extents = [0; crate::view::MAX_DIMS];
    let mut more_rows = false;
    for (extent, dim) in extents.iter_mut().zip(rule.dims) {
        *extent = match *dim {
            Dim::Is(is) => sizes.extent(is) as usize,
            Dim::AtLeast(least) => {
                more_rows = true;
                sizes.extent(least) as usize
            }
            Dim::Hidden => sizes.hidden as usize,
            Dim::Scales => sizes.scale_width as usize,
        };
    }
    TensorSpec {
        name: rule.info.argument,
        presence: match rule.need {
            Need::Required => Presence::Required,
            Need::Optional => Presence::Optional,
            Need::Forbidden => Presence::Forbidden,
        },
        shape: extents.get(..rule.dims.len()).and_then(Shape::new).unwrap_or_default(),
        more_rows,
        data_types: rule.types.accepted(sizes),
    }
}
