//! Extents and element types, as rows say them and a call makes numbers of them.

use nccl_ext_core::DataType;

use crate::geometry::Geometry;

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

/// What an extent is a number of.
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

/// Element types that a tensor may have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Types {
    /// bf16, fp16 or fp32.
    Token,
    SameAsTokens,
    Float32,
    Int32,
    Int64,
    Int32OrInt64,
    /// What the recipe `Fwd` carries: floats of 32 to 4 bits.
    AnyFloat,
    /// What scales may be of.
    Scale,
    SameAsScales,
}

/// A list of this type only.
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

impl<'a> Sizes<'a> {
    /// Of a handle, without tensors.
    pub(crate) fn new(geometry: &'a Geometry, topk: u64) -> Self {
        Self {
            geometry,
            topk,
            tokens: 0,
            hidden: 0,
            token_type: DataType::Bfloat16,
            scale_width: 0,
            scale_type: DataType::Float32,
            out_rows: 0,
            step_rows: 0,
        }
    }

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
