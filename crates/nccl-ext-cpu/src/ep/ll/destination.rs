//! Where a rank receives: what the work of a call needs, also when it is done later.

use nccl_ext_core::DataType;

use crate::ep::staging::RowShape;
use crate::ep::tensor::TopK;

/// Where a rank receives the rows of a dispatch.
#[derive(Clone, Copy)]
pub(super) struct DispatchDestination {
    pub(super) shape: RowShape,
    /// NULL without scales.
    pub(super) scales: *mut u8,
    pub(super) outputs: Outputs,
}

#[derive(Clone, Copy)]
pub(super) enum Outputs {
    ExpertMajor { rows: *mut u8, counters: *mut i32 },
    RankMajor(RankMajor),
}

#[derive(Clone, Copy)]
pub(super) struct RankMajor {
    pub(super) rows: *mut u8,
    pub(super) weights: *mut f32,
    pub(super) ids: *mut i32,
    /// NULL when the caller does not want them.
    pub(super) counters: *mut i32,
    /// Whether received ids are global.
    pub(super) global: bool,
    /// Rows, and scales, that lie in a window: there the senders write (EP 4.14).
    pub(super) direct_rows: bool,
    pub(super) direct_scales: bool,
}

impl Outputs {
    pub(super) fn is_expert_major(&self) -> bool {
        matches!(self, Self::ExpertMajor { .. })
    }
}

// SAFETY: the caller keeps the outputs valid until the operation is complete, from whatever
// thread that is called.
unsafe impl Send for DispatchDestination {}

/// Where a rank puts its sums.
#[derive(Clone, Copy)]
pub(super) struct CombineDestination {
    pub(super) out: *mut u8,
    pub(super) hidden: usize,
    pub(super) topk: usize,
    pub(super) data_type: DataType,
    /// Expert-major only.
    pub(super) weights: *const f32,
    pub(super) expert_major: bool,
    /// The table of the last update.
    pub(super) ids: TopK,
}

// SAFETY: the caller keeps output and weights valid until the operation is complete, from
// whatever thread that is called.
unsafe impl Send for CombineDestination {}
