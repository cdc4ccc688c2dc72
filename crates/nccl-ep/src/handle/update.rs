//! The native update of a handle, and its checks.

use nccl_ext_core::{Result, Stream, Use};

use super::Handle;
use super::ids::Looked;
use super::layout_info::LayoutInfoDescriptors;
use super::snapshot::HandleState;
use crate::args::{LayoutInfo, NO_COUNTERS};
use crate::enums::DispatchQuantizationRecipe;
use crate::mode::Mode;
use crate::rules;
use crate::rules::tensor_row::extents::Sizes;
use crate::rules::tensor_row::{Call, Slot};
use crate::rules::tensors::TensorFacts;
use crate::rules::update::{self, UpdateFacts};
use crate::tensor::Descriptor;
use crate::view::View;

impl Handle {
    pub(crate) fn native_update(
        &mut self,
        topk_idx: &View,
        indices: Use<'_>,
        looked_at: Looked,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<usize> {
        self.group.in_step()?;
        self.group.close_round(self.id);
        let updated = self.try_update(topk_idx, indices, looked_at, layout_info, stream);
        // An HT update is a collective, an LL update is not.
        if self.mode.is_high_throughput() { self.group.collective(updated) } else { updated }
    }

    fn try_update(
        &mut self,
        topk_idx: &View,
        indices: Use<'_>,
        looked_at: Looked,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<usize> {
        let tokens = self.check_update(topk_idx, layout_info.as_deref(), stream)?;
        let copied = match looked_at {
            Looked::At => Some(self.copy_ids(topk_idx, indices, stream)?),
            Looked::Trusted => None,
        };
        let indices = if copied.is_some() { self.ids.as_use() } else { indices };
        let topk_idx = copied.as_ref().unwrap_or(topk_idx);
        let [a, b, c, d] = layout_info.as_deref().map_or(NO_COUNTERS, LayoutInfo::uses);
        self.state = None; // until the library has prepared the new one
        let mut descriptor = Descriptor::empty();
        let mut info = LayoutInfoDescriptors::empty();
        // Low latency takes layout information at dispatch only (EP 3.5.1).
        let info = info.bind(layout_info.filter(|_| self.mode.is_high_throughput()));
        let _device = self.group.comm.activate()?;
        let calls = self.group.comm.lock();
        // SAFETY: the handle lives, all pointers outlive the call, the tensors passed the rules and
        // their memory stays valid until enqueued work is done.
        let call = || unsafe {
            let topk_idx = descriptor.bind(Some(topk_idx)).cast_const();
            self.group.call(
                "ncclEpUpdateHandle",
                self.group.api.ncclEpUpdateHandle,
                (self.raw, topk_idx, info, stream.as_raw()),
            )
        };
        let uses = [indices, a, b, c, d, self.memory_use()];
        let updated = self.group.enqueue(stream, &uses, call);
        drop(calls);
        updated?;
        self.note_update(topk_idx, tokens);
        Ok(tokens)
    }

    /// Remembers what handle memory does not hold.
    pub(crate) fn note_update(&mut self, topk_idx: &View, num_tokens: usize) {
        let (num_topk, topk_idx_datatype) = (self.topk as usize, topk_idx.data_type());
        self.state = Some(HandleState { num_tokens, num_topk, topk_idx_datatype });
    }

    /// The rules of an update; gives the number of tokens.
    pub(crate) fn check_update(
        &self,
        topk_idx: &View,
        info: Option<&LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<usize> {
        let geometry = &self.group.geometry;
        let counter = |slot| info.and_then(|info| info.view(slot));
        let sizes = Sizes { token_type: topk_idx.data_type(), ..Sizes::new(geometry, self.topk) };
        let facts = TensorFacts {
            call: Call::Update,
            mode: self.mode,
            recipe: DispatchQuantizationRecipe::None,
            sizes: &sizes,
            tensor: &|slot| if slot == Slot::TopkIdx { Some(topk_idx) } else { counter(slot) },
        };
        self.group.check_tensors(&facts, stream)?;
        // Flat counters are written by a kernel of their own (EP 3.5.2).
        let expert_major = self.mode == Mode::HighThroughputExpertMajor;
        let counters = [
            counter(Slot::LiExpertCounters).filter(|_| expert_major),
            counter(Slot::LiExpertOffsets),
            counter(Slot::LiRecvTotal),
        ];
        let facts = UpdateFacts { geometry, topk_idx, counters };
        rules::check(update::RULES, |broken| broken(&facts))?;
        Ok(topk_idx.rows() as usize)
    }
}
