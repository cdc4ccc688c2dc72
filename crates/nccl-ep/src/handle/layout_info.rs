//! C layout information.

use nccl_ep_sys::{VersionedStruct, ncclEpLayoutInfo_t};

use crate::args::{LayoutInfo, view_mut};
use crate::tensor::Descriptor;

/// C layout information on the stack of the call that uses it.
pub(crate) struct LayoutInfoDescriptors {
    raw: ncclEpLayoutInfo_t,
    tensors: [Descriptor; 4],
}

impl LayoutInfoDescriptors {
    pub(crate) fn empty() -> Self {
        Self {
            raw: ncclEpLayoutInfo_t::init(),
            tensors: std::array::from_fn(|_| Descriptor::empty()),
        }
    }

    pub(crate) fn bind(&mut self, info: Option<&mut LayoutInfo<'_>>) -> *const ncclEpLayoutInfo_t {
        let Some(info) = info else { return core::ptr::null() };
        let [counters, src_rank, offsets, total] = &mut self.tensors;
        self.raw.expert_counters = counters.bind(view_mut(&info.expert_counters));
        self.raw.src_rank_counters = src_rank.bind(view_mut(&info.src_rank_counters));
        self.raw.expert_offsets = offsets.bind(view_mut(&info.expert_offsets));
        self.raw.recv_total_counter = total.bind(view_mut(&info.recv_total_counter));
        self.raw.recv_topk_idx_kind = info.recv_topk_idx_kind.into();
        &self.raw
    }
}
