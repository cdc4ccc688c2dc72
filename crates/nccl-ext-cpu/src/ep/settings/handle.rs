//! A handle's settings.

use nccl_ep_sys::ncclEpLayout_t;

use super::group::Algorithm;
use crate::refusal::{FailureClass, Outcome, Refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    ExpertMajor,
    RankMajor,
    Flat,
}

impl Layout {
    pub(crate) fn as_raw(self) -> ncclEpLayout_t {
        match self {
            Self::ExpertMajor => ncclEpLayout_t::NCCL_EP_LAYOUT_EXPERT_MAJOR,
            Self::RankMajor => ncclEpLayout_t::NCCL_EP_LAYOUT_RANK_MAJOR,
            Self::Flat => ncclEpLayout_t::NCCL_EP_LAYOUT_FLAT,
        }
    }
}

/// What a handle was created for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandleSettings {
    pub(crate) layout: Layout,
    pub(crate) topk: usize,
    /// Rows that each expert's zone is a multiple of; at most 1 is none.
    pub(crate) alignment: usize,
}

impl HandleSettings {
    pub(crate) fn is_expert_major(&self) -> bool {
        self.layout == Layout::ExpertMajor
    }
}

/// The layout of a C value, if the algorithm has it.
pub(crate) fn known_layout(algorithm: Algorithm, layout: ncclEpLayout_t) -> Outcome<Layout> {
    match (algorithm, layout) {
        (_, ncclEpLayout_t::NCCL_EP_LAYOUT_EXPERT_MAJOR) => Ok(Layout::ExpertMajor),
        (Algorithm::LowLatency, ncclEpLayout_t::NCCL_EP_LAYOUT_RANK_MAJOR) => Ok(Layout::RankMajor),
        (Algorithm::HighThroughput, ncclEpLayout_t::NCCL_EP_LAYOUT_FLAT) => Ok(Layout::Flat),
        (algorithm, other) => {
            let expected = match algorithm {
                Algorithm::LowLatency => "EXPERT_MAJOR (1) or RANK_MAJOR (2)",
                Algorithm::HighThroughput => "EXPERT_MAJOR (1) or FLAT (3)",
            };
            let rule = "the algorithm has the layout";
            Err(Refusal::argument(FailureClass::Throw, "layout", rule, expected, other.0))
        }
    }
}
