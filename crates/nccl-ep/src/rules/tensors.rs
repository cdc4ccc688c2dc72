//! Rules of single tensors: presence, shape and element type of each, by call and layout
//! (EP 3.5.2, 4.2, 4.3, 4.4.1, 4.5, 4.8.1, 4.17). What a rank hands over only that rank knows, so
//! all of them are errors of one rank. The same rows give [`RecvSpec`](crate::RecvSpec).

use std::fmt::Write as _;

use nccl_ext_core::{DataType, Result, Scope};

use super::{RuleInfo, violation};
use crate::enums::{DispatchQuantizationRecipe as Recipe, PassDir, Validation};
use crate::geometry::Geometry;
use crate::group::Inner;
use crate::mode::Mode;
use crate::tensor::View;

/// A call that takes tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Update,
    Dispatch(PassDir),
    Combine(PassDir),
}

/// A tensor of a call. `Li` is the layout information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    TopkIdx,
    InTokens,
    InWeights,
    OutTokens,
    OutWeights,
    OutIdx,
    RoutingWeights,
    LiExpertCounters,
    LiSrcRankCounters,
    LiExpertOffsets,
    LiRecvTotal,
    InScales,
    OutScales,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Required,
    Optional,
    Forbidden,
}

/// One extent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dim {
    Is(Extent),
    AtLeast(Extent),
    /// Any width: the call's hidden size is read here.
    Hidden,
    /// Any width: the call's scales a token are read here.
    Scales,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Extent {
    Tokens,
    TopK,
    LocalExperts,
    Ranks,
    MaxTokens,
    RanksTimesMaxTokens,
    Hidden,
    /// Rows a rank may receive; 0 when the caller sizes them itself (eager).
    RecvRows,
    /// As `RecvRows`, or the rows of the output tokens when eager.
    OutRows,
    /// Rows that this step's dispatch was given for its output.
    StepRows,
    /// Rows of this call's output tokens.
    TokenRows,
    ScaleWidth,
    One,
    Zero,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Types {
    /// bf16, fp16 or fp32.
    Token,
    SameAsTokens,
    Float32,
    Int32,
    Int64,
    Int32OrInt64,
    /// What the forwarding recipe carries: floats of 32 to 4 bits.
    AnyFloat,
    /// What scales may be of.
    Scale,
    SameAsScales,
}

/// The type alone, as a list.
fn only(data_type: DataType) -> &'static [DataType] {
    let at = DataType::ALL.iter().position(|other| *other == data_type);
    at.and_then(|at| DataType::ALL.get(at..=at)).unwrap_or_default()
}

impl Types {
    pub(crate) fn accepted(self, sizes: &Sizes<'_>) -> &'static [DataType] {
        use DataType::{Bfloat16, Float4x2, Float8E4m3, Float8E5m2, Float16, Float32, Uint8};
        match self {
            Self::Token => &[Bfloat16, Float16, Float32],
            Self::SameAsTokens => only(sizes.token_type),
            Self::AnyFloat => &[Float32, Float16, Bfloat16, Float8E4m3, Float8E5m2, Float4x2],
            Self::Scale => &[Float32, Float16, Bfloat16, Float8E4m3, Float8E5m2, Uint8],
            Self::SameAsScales => only(sizes.scale_type),
            Self::Float32 => &[DataType::Float32],
            Self::Int32 => &[DataType::Int32],
            Self::Int64 => &[DataType::Int64],
            Self::Int32OrInt64 => &[DataType::Int32, DataType::Int64],
        }
    }
}

/// The numbers that extents are made of.
pub(crate) struct Sizes<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) topk: u64,
    /// Tokens that this rank dispatches in this step.
    pub(crate) tokens: u64,
    /// Width and type of this call's token rows.
    pub(crate) hidden: u64,
    pub(crate) token_type: DataType,
    /// Width and type of this call's scale rows.
    pub(crate) scale_width: u64,
    pub(crate) scale_type: DataType,
    /// Rows of this call's output tokens.
    pub(crate) out_rows: u64,
    /// Rows that this step's dispatch was given.
    pub(crate) step_rows: u64,
}

impl Sizes<'_> {
    pub(crate) fn extent(&self, extent: Extent) -> u64 {
        let geometry = self.geometry;
        match extent {
            Extent::Tokens => self.tokens,
            Extent::TopK => self.topk,
            Extent::LocalExperts => geometry.local_experts,
            Extent::Ranks => geometry.ranks,
            Extent::MaxTokens => geometry.max_tokens,
            Extent::RanksTimesMaxTokens => geometry.ranks.saturating_mul(geometry.max_tokens),
            Extent::Hidden => self.hidden,
            Extent::RecvRows if geometry.eager => 0,
            Extent::OutRows if geometry.eager => self.out_rows,
            Extent::RecvRows | Extent::OutRows => geometry.max_recv,
            Extent::StepRows => self.step_rows,
            Extent::TokenRows => self.out_rows,
            Extent::ScaleWidth => self.scale_width,
            Extent::One => 1,
            Extent::Zero => 0,
        }
    }
}

/// One row: what one tensor of one call must be in some modes.
pub(crate) struct TensorRule {
    pub(crate) info: RuleInfo,
    pub(crate) call: Call,
    pub(crate) modes: &'static [Mode],
    pub(crate) slot: Slot,
    pub(crate) need: Need,
    pub(crate) dims: &'static [Dim],
    pub(crate) types: Types,
    /// The recipe it is for; `None` for all.
    pub(crate) recipe: Option<Recipe>,
}

impl TensorRule {
    pub(crate) fn is_for(&self, call: Call, mode: Mode, recipe: Recipe) -> bool {
        self.call == call
            && self.modes.contains(&mode)
            && self.recipe.is_none_or(|own| own == recipe)
    }

    fn fits(&self, view: &View, sizes: &Sizes<'_>) -> bool {
        self.types.accepted(sizes).contains(&view.data_type())
            && view.shape.len() == self.dims.len()
            && self.dims.iter().zip(view.shape.iter()).all(|(dim, given)| match *dim {
                Dim::Is(extent) => *given as u64 == sizes.extent(extent),
                Dim::AtLeast(extent) => *given as u64 >= sizes.extent(extent),
                Dim::Hidden | Dim::Scales => true,
            })
    }

    fn expected(&self, sizes: &Sizes<'_>) -> String {
        let mut text = String::from("[");
        for (i, dim) in self.dims.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            let _ = match *dim {
                Dim::Is(extent) => write!(text, "{separator}{}", sizes.extent(extent)),
                Dim::AtLeast(extent) => write!(text, "{separator}>={}", sizes.extent(extent)),
                Dim::Hidden => write!(text, "{separator}hidden"),
                Dim::Scales => write!(text, "{separator}scales"),
            };
        }
        text.push_str("] of ");
        for (i, data_type) in self.types.accepted(sizes).iter().enumerate() {
            let _ = write!(text, "{}{data_type}", if i == 0 { "" } else { " or " });
        }
        text
    }
}

/// Checks every tensor of a call against the table, and that its memory is the backend's.
pub(crate) fn check<'v>(
    call: Call,
    mode: Mode,
    recipe: Recipe,
    group: &Inner,
    sizes: &Sizes<'_>,
    tensor: impl Fn(Slot) -> Option<&'v View>,
) -> Result<()> {
    for rule in TABLE.iter().filter(|rule| rule.is_for(call, mode, recipe)) {
        let broken = match (rule.need, tensor(rule.slot)) {
            (Need::Required, None) => violation(rule.expected(sizes), "none"),
            (Need::Forbidden, Some(view)) => {
                violation("none", format_args!("{:?} of {}", view.shape, view.data_type()))
            }
            (_, None) => None,
            (_, Some(view)) => {
                group.comm.check_memory(rule.info.argument, &view.buffer)?;
                if group.validation == Validation::Data && !view.shape.contains(&0) {
                    group.comm.check_device_pointer(rule.info.argument, &view.buffer)?;
                }
                if rule.fits(view, sizes) {
                    None
                } else {
                    let found = format!("{:?} of {}", view.shape, view.data_type());
                    violation(rule.expected(sizes), found)
                }
            }
        };
        if let Some(broken) = broken {
            return Err(rule.info.broken(broken));
        }
    }
    Ok(())
}

const LL_EM: &[Mode] = &[Mode::LowLatencyExpertMajor];
const LL_RM: &[Mode] = &[Mode::LowLatencyRankMajor];
const LL: &[Mode] = &[Mode::LowLatencyExpertMajor, Mode::LowLatencyRankMajor];
const FLAT: &[Mode] = &[Mode::HighThroughputFlat];
const HT_EM: &[Mode] = &[Mode::HighThroughputExpertMajor];
const HT: &[Mode] = &[Mode::HighThroughputFlat, Mode::HighThroughputExpertMajor];
const ALL: &[Mode] = Mode::ALL;
/// All but low-latency expert-major.
const WEIGHTED: &[Mode] =
    &[Mode::LowLatencyRankMajor, Mode::HighThroughputFlat, Mode::HighThroughputExpertMajor];

macro_rules! tensors {
    (@recipe) => { None };
    (@recipe $recipe:ident) => { Some(Recipe::$recipe) };
    ($(
        $name:literal on $argument:literal in $call:expr, $modes:ident:
            $slot:ident $need:ident [$($dim:expr),*] $types:ident,
            $rule:literal ($source:literal) $(when $recipe:ident)?;
    )+) => {
        /// All rows.
        pub(crate) static TABLE: &[TensorRule] = &[$(TensorRule {
            info: RuleInfo::new($name, $argument, $rule, $source, Scope::Local),
            call: $call,
            modes: $modes,
            slot: Slot::$slot,
            need: Need::$need,
            dims: &[$($dim),*],
            types: Types::$types,
            recipe: tensors!(@recipe $($recipe)?),
        },)+];
    };
}

use Call::{Combine, Dispatch, Update};
use Dim::{AtLeast, Hidden, Is};
use Extent::{
    LocalExperts, MaxTokens, One, OutRows, Ranks, RanksTimesMaxTokens, RecvRows, StepRows, TopK,
};
use PassDir::{Bwd, Fwd};

tensors! {
    "update.topk-idx" on "topk_idx" in Update, ALL:
        TopkIdx Required [AtLeast(Extent::Zero), Is(TopK)] Int32OrInt64,
        "routing is [tokens, top-k] of integers" ("EP 3.5");
    "update.ll-expert-counters" on "layout_info.expert_counters" in Update, LL:
        LiExpertCounters Forbidden [] Int32,
        "low latency takes layout information at dispatch" ("EP 3.5.1");
    "update.ll-src-rank-counters" on "layout_info.src_rank_counters" in Update, LL:
        LiSrcRankCounters Forbidden [] Int32,
        "low latency takes layout information at dispatch" ("EP 3.5.1");
    "update.ll-expert-offsets" on "layout_info.expert_offsets" in Update, LL:
        LiExpertOffsets Forbidden [] Int32,
        "low latency has no expert offsets" ("EP 3.5.1");
    "update.ll-recv-total" on "layout_info.recv_total_counter" in Update, LL:
        LiRecvTotal Forbidden [] Int32,
        "low latency has no receive total" ("EP 3.5.1");
    "update.flat-expert-counters" on "layout_info.expert_counters" in Update, FLAT:
        LiExpertCounters Optional [AtLeast(LocalExperts)] Int32,
        "flat counts each local expert's tokens in int32" ("EP 3.5.2");
    "update.em-expert-counters" on "layout_info.expert_counters" in Update, HT_EM:
        LiExpertCounters Optional [AtLeast(LocalExperts)] Int32OrInt64,
        "expert-major counts each local expert's padded rows" ("EP 3.5.2");
    "update.flat-expert-offsets" on "layout_info.expert_offsets" in Update, FLAT:
        LiExpertOffsets Forbidden [] Int32,
        "flat has no zones, so nothing would be written" ("EP 3.5.2");
    "update.em-expert-offsets" on "layout_info.expert_offsets" in Update, HT_EM:
        LiExpertOffsets Optional [AtLeast(LocalExperts)] Int32OrInt64,
        "expert-major writes where each local expert's zone begins" ("EP 3.5.2");
    "update.ht-recv-total" on "layout_info.recv_total_counter" in Update, HT:
        LiRecvTotal Optional [AtLeast(One)] Int32OrInt64,
        "the receive total is one integer" ("EP 3.5.2");
    "update.ht-src-rank-counters" on "layout_info.src_rank_counters" in Update, HT:
        LiSrcRankCounters Forbidden [] Int32,
        "only low-latency rank-major counts source ranks" ("EP 3.5.2");

    "dispatch.tokens" on "inputs.tokens" in Dispatch(Fwd), ALL:
        InTokens Required [Is(Extent::Tokens), Hidden] Token,
        "tokens are [tokens of the update, hidden]" ("EP 4.0, 4.2") when None;
    "dispatch.quantized-tokens" on "inputs.tokens" in Dispatch(Fwd), ALL:
        InTokens Required [Is(Extent::Tokens), Hidden] AnyFloat,
        "quantised tokens are [tokens of the update, hidden]" ("EP 5.2 #2") when Fwd;
    "dispatch.no-scales" on "inputs.scales" in Dispatch(Fwd), ALL:
        InScales Forbidden [] Float32,
        "without a recipe there are no scales" ("EP 4.0") when None;
    "dispatch.no-out-scales" on "outputs.scales" in Dispatch(Fwd), ALL:
        OutScales Forbidden [] Float32,
        "without a recipe no scales are received" ("EP 4.0") when None;
    "dispatch.scales" on "inputs.scales" in Dispatch(Fwd), ALL:
        InScales Required [Is(Extent::Tokens), Dim::Scales] Scale,
        "scales are [tokens, scales a token]" ("EP 5.2 #6") when Fwd;
    "dispatch.ll-em-out-scales" on "outputs.scales" in Dispatch(Fwd), LL_EM:
        OutScales Required [Is(LocalExperts), Is(RanksTimesMaxTokens), Is(Extent::ScaleWidth)]
        SameAsScales,
        "received scales follow received tokens slot by slot" ("EP 5.2 #8") when Fwd;
    "dispatch.ll-rm-out-scales" on "outputs.scales" in Dispatch(Fwd), LL_RM:
        OutScales Required [Is(Ranks), Is(MaxTokens), Is(Extent::ScaleWidth)] SameAsScales,
        "received scales follow received tokens slot by slot" ("EP 5.2 #8") when Fwd;
    "dispatch.ht-out-scales" on "outputs.scales" in Dispatch(Fwd), HT:
        OutScales Required [Is(Extent::TokenRows), Is(Extent::ScaleWidth)] SameAsScales,
        "received scales have as many rows as received tokens" ("EP 5.2 #8") when Fwd;
    "dispatch.em-weights" on "inputs.topk_weights" in Dispatch(Fwd), LL_EM:
        InWeights Forbidden [] Float32,
        "low-latency expert-major takes routing weights at combine" ("EP 4.2");
    "dispatch.weights" on "inputs.topk_weights" in Dispatch(Fwd), WEIGHTED:
        InWeights Required [Is(Extent::Tokens), Is(TopK)] Float32,
        "routing weights are [tokens, top-k]" ("EP 4.3, 4.5 #9");
    "dispatch.ll-em-out-tokens" on "outputs.tokens" in Dispatch(Fwd), LL_EM:
        OutTokens Required [Is(LocalExperts), Is(RanksTimesMaxTokens), Is(Extent::Hidden)] SameAsTokens,
        "low-latency expert-major receives [local experts, ranks x max tokens, hidden]" ("EP 4.2");
    "dispatch.ll-rm-out-tokens" on "outputs.tokens" in Dispatch(Fwd), LL_RM:
        OutTokens Required [Is(Ranks), Is(MaxTokens), Is(Extent::Hidden)] SameAsTokens,
        "low-latency rank-major receives [ranks, max tokens, hidden]" ("EP 4.3");
    "dispatch.ht-out-tokens" on "outputs.tokens" in Dispatch(Fwd), HT:
        OutTokens Required [AtLeast(RecvRows), Is(Extent::Hidden)] SameAsTokens,
        "high throughput receives [rows of the budget or more, hidden]" ("EP 4.5 #7");
    "dispatch.ll-em-out-weights" on "outputs.topk_weights" in Dispatch(Fwd), LL_EM:
        OutWeights Forbidden [] Float32,
        "low-latency expert-major receives no weights" ("EP 4.2");
    "dispatch.ll-rm-out-weights" on "outputs.topk_weights" in Dispatch(Fwd), LL_RM:
        OutWeights Required [Is(Ranks), Is(MaxTokens), Is(TopK)] Float32,
        "low-latency rank-major receives weights [ranks, max tokens, top-k]" ("EP 4.3");
    "dispatch.flat-out-weights" on "outputs.topk_weights" in Dispatch(Fwd), FLAT:
        OutWeights Required [AtLeast(OutRows), Is(TopK)] Float32,
        "flat receives weights [rows, top-k], as many rows as tokens may" ("EP 4.5 #19");
    "dispatch.ht-em-out-weights" on "outputs.topk_weights" in Dispatch(Fwd), HT_EM:
        OutWeights Required [AtLeast(OutRows)] Float32,
        "high-throughput expert-major receives one weight a row" ("EP 4.5 #21");
    "dispatch.ll-em-out-idx" on "outputs.topk_idx" in Dispatch(Fwd), LL_EM:
        OutIdx Forbidden [] Int32,
        "low-latency expert-major receives no indices" ("EP 4.2");
    "dispatch.ll-rm-out-idx" on "outputs.topk_idx" in Dispatch(Fwd), LL_RM:
        OutIdx Required [Is(Ranks), Is(MaxTokens), Is(TopK)] Int32,
        "low-latency rank-major receives int32 indices [ranks, max tokens, top-k]" ("EP 4.3");
    "dispatch.flat-out-idx" on "outputs.topk_idx" in Dispatch(Fwd), FLAT:
        OutIdx Required [AtLeast(OutRows), Is(TopK)] Int64,
        "flat receives int64 indices [rows, top-k], as many rows as tokens may" ("EP 4.5 #20");
    "dispatch.ht-em-out-idx" on "outputs.topk_idx" in Dispatch(Fwd), HT_EM:
        OutIdx Forbidden [] Int64,
        "high-throughput expert-major receives no indices" ("EP 4.5 #20");
    "dispatch.ll-em-expert-counters" on "layout_info.expert_counters" in Dispatch(Fwd), LL_EM:
        LiExpertCounters Required [Is(LocalExperts)] Int32,
        "low-latency expert-major counts each local expert's rows in int32" ("EP 4.2");
    "dispatch.ll-rm-expert-counters" on "layout_info.expert_counters" in Dispatch(Fwd), LL_RM:
        LiExpertCounters Forbidden [] Int32,
        "low-latency rank-major counts by source rank" ("EP 4.3");
    "dispatch.ht-expert-counters" on "layout_info.expert_counters" in Dispatch(Fwd), HT:
        LiExpertCounters Forbidden [] Int32,
        "high throughput takes counters at update" ("EP 4.17");
    "dispatch.ll-em-src-rank-counters" on "layout_info.src_rank_counters" in Dispatch(Fwd), LL_EM:
        LiSrcRankCounters Forbidden [] Int32,
        "low-latency expert-major counts by expert" ("EP 4.2");
    "dispatch.ll-rm-src-rank-counters" on "layout_info.src_rank_counters" in Dispatch(Fwd), LL_RM:
        LiSrcRankCounters Optional [Is(Ranks)] Int32,
        "low-latency rank-major counts each source rank's tokens in int32" ("EP 4.3");
    "dispatch.ht-src-rank-counters" on "layout_info.src_rank_counters" in Dispatch(Fwd), HT:
        LiSrcRankCounters Forbidden [] Int32,
        "only low-latency rank-major counts source ranks" ("EP 4.17");
    "dispatch.expert-offsets" on "layout_info.expert_offsets" in Dispatch(Fwd), ALL:
        LiExpertOffsets Forbidden [] Int32,
        "expert offsets are written at update, if at all" ("EP 4.17");
    "dispatch.recv-total" on "layout_info.recv_total_counter" in Dispatch(Fwd), ALL:
        LiRecvTotal Forbidden [] Int32,
        "the receive total is written at update, if at all" ("EP 4.17");

    "dispatch.bwd-tokens" on "inputs.tokens" in Dispatch(Bwd), HT:
        InTokens Required [Is(Extent::Tokens), Hidden] Token,
        "gradients are [tokens of the update, hidden]" ("EP 4.9") when None;
    "dispatch.bwd-quantized-tokens" on "inputs.tokens" in Dispatch(Bwd), HT:
        InTokens Required [Is(Extent::Tokens), Hidden] AnyFloat,
        "quantised gradients are [tokens of the update, hidden]" ("EP 5.2 #2") when Fwd;
    "dispatch.bwd-no-scales" on "inputs.scales" in Dispatch(Bwd), HT:
        InScales Forbidden [] Float32,
        "without a recipe there are no scales" ("EP 4.0") when None;
    "dispatch.bwd-no-out-scales" on "outputs.scales" in Dispatch(Bwd), HT:
        OutScales Forbidden [] Float32,
        "without a recipe no scales are received" ("EP 4.0") when None;
    "dispatch.bwd-scales" on "inputs.scales" in Dispatch(Bwd), HT:
        InScales Required [Is(Extent::Tokens), Dim::Scales] Scale,
        "scales are [tokens, scales a token]" ("EP 5.2 #6") when Fwd;
    "dispatch.bwd-out-scales" on "outputs.scales" in Dispatch(Bwd), HT:
        OutScales Required [Is(Extent::TokenRows), Is(Extent::ScaleWidth)] SameAsScales,
        "received scales have as many rows as received tokens" ("EP 5.2 #8") when Fwd;
    "dispatch.bwd-weights" on "inputs.topk_weights" in Dispatch(Bwd), HT:
        InWeights Forbidden [] Float32, "a backward dispatch moves no weights" ("EP 4.5 #11");
    "dispatch.bwd-out-tokens" on "outputs.tokens" in Dispatch(Bwd), HT:
        OutTokens Required [AtLeast(RecvRows), Is(Extent::Hidden)] SameAsTokens,
        "a backward dispatch receives [rows of the budget or more, hidden]" ("EP 4.9");
    "dispatch.bwd-out-weights" on "outputs.topk_weights" in Dispatch(Bwd), HT:
        OutWeights Forbidden [] Float32, "a backward dispatch receives no weights" ("EP 4.5 #11");
    "dispatch.bwd-expert-counters" on "layout_info.expert_counters" in Dispatch(Bwd), HT:
        LiExpertCounters Forbidden [] Int32, "a backward dispatch counts nothing" ("EP 4.9");
    "dispatch.bwd-src-rank-counters" on "layout_info.src_rank_counters" in Dispatch(Bwd), HT:
        LiSrcRankCounters Forbidden [] Int32, "a backward dispatch counts nothing" ("EP 4.9");
    "dispatch.bwd-expert-offsets" on "layout_info.expert_offsets" in Dispatch(Bwd), HT:
        LiExpertOffsets Forbidden [] Int32, "a backward dispatch counts nothing" ("EP 4.9");
    "dispatch.bwd-recv-total" on "layout_info.recv_total_counter" in Dispatch(Bwd), HT:
        LiRecvTotal Forbidden [] Int32, "a backward dispatch counts nothing" ("EP 4.9");
    "dispatch.bwd-out-idx" on "outputs.topk_idx" in Dispatch(Bwd), HT:
        OutIdx Forbidden [] Int64, "a backward dispatch receives no indices" ("EP 4.5 #11");

    "combine.ll-em-tokens" on "inputs.tokens" in Combine(Fwd), LL_EM:
        InTokens Required [Is(LocalExperts), Is(RanksTimesMaxTokens), Hidden] Token,
        "low-latency expert-major combines [local experts, ranks x max tokens, hidden]"
        ("EP 4.4.1");
    "combine.ll-rm-tokens" on "inputs.tokens" in Combine(Fwd), LL_RM:
        InTokens Required [Is(Ranks), Is(MaxTokens), Hidden] Token,
        "low-latency rank-major combines [ranks, max tokens, hidden]" ("EP 4.4.1");
    "combine.ht-tokens" on "inputs.tokens" in Combine(Fwd), HT:
        InTokens Required [AtLeast(StepRows), Hidden] Token,
        "high throughput combines as many rows as the dispatch received" ("EP 4.8.1");
    "combine.weights" on "inputs.topk_weights" in Combine(Fwd), ALL:
        InWeights Forbidden [] Float32,
        "a forward combine takes no received weights" ("EP 4.8.1 #6");
    "combine.out-tokens" on "outputs.tokens" in Combine(Fwd), ALL:
        OutTokens Required [Is(Extent::Tokens), Is(Extent::Hidden)] SameAsTokens,
        "combined tokens are [tokens of the update, hidden], of the input's type" ("EP 4.4.1");
    "combine.ll-em-routing-weights" on "inputs.routing_weights" in Combine(Fwd), LL_EM:
        RoutingWeights Required [Is(Extent::Tokens), Is(TopK)] Float32,
        "low-latency expert-major applies the routing weights [tokens, top-k]" ("EP 4.4.1");
    "combine.routing-weights" on "inputs.routing_weights" in Combine(Fwd), WEIGHTED:
        RoutingWeights Forbidden [] Float32,
        "here the caller applies the routing weights before combine" ("EP 4.17");
    "combine.out-weights" on "outputs.topk_weights" in Combine(Fwd), ALL:
        OutWeights Forbidden [] Float32,
        "only a backward combine gives weight gradients" ("EP 4.8.1");

    "combine.bwd-tokens" on "inputs.tokens" in Combine(Bwd), HT:
        InTokens Required [AtLeast(StepRows), Hidden] Token,
        "a backward combine takes as many rows as were received" ("EP 4.8.6");
    "combine.bwd-flat-weights" on "inputs.topk_weights" in Combine(Bwd), FLAT:
        InWeights Required [AtLeast(StepRows), Is(TopK)] Float32,
        "flat weight gradients are [rows, top-k]" ("EP 4.8.1 #5");
    "combine.bwd-em-weights" on "inputs.topk_weights" in Combine(Bwd), HT_EM:
        InWeights Required [AtLeast(StepRows)] Float32,
        "expert-major weight gradients are one a row" ("EP 4.8.1 #5");
    "combine.bwd-out-tokens" on "outputs.tokens" in Combine(Bwd), HT:
        OutTokens Required [Is(Extent::Tokens), Is(Extent::Hidden)] SameAsTokens,
        "combined gradients are [tokens of the update, hidden]" ("EP 4.8.6");
    "combine.bwd-out-weights" on "outputs.topk_weights" in Combine(Bwd), HT:
        OutWeights Required [Is(Extent::Tokens), Is(TopK)] Float32,
        "weight gradients come back as [tokens, top-k]" ("EP 4.8.1 #3");
    "combine.bwd-routing-weights" on "inputs.routing_weights" in Combine(Bwd), HT:
        RoutingWeights Forbidden [] Float32,
        "a backward combine applies no routing weights" ("EP 4.8.6");
}
