//! Giving a handle the routing of a step.

use std::sync::Arc;

use nccl_ext_core::{DeviceBuffer, Refused, Result, Stream};

use super::Handle;
use super::layout_info::LayoutInfoDescriptors;
use super::snapshot::HandleState;
#[cfg(doc)]
use crate::Error;
use crate::args::LayoutInfo;
use crate::enums::{DispatchQuantizationRecipe, Validation};
use crate::mode::Mode;
use crate::rules;
use crate::rules::data::{self, DataFacts, Ids};
use crate::rules::tensors::extents::Sizes;
use crate::rules::tensors::{Call, Slot, TensorFacts};
use crate::rules::update::{self, UpdateFacts};
use crate::step::{Indices, Step};
use crate::tensor::{Descriptor, Tensor, View};

impl Handle {
    /// Gives the handle the routing of the next step: `topk_idx` is `[tokens, top-k]` of int32 or
    /// int64 global expert ids, negative for no expert.
    ///
    /// The step borrows handle and indices, which must stay as they are until its last combine.
    /// HT: every rank calls it, and `layout_info` may ask for counters. LL: local.
    ///
    /// Ids are checked only under [`Validation::Data`](crate::Validation::Data). Without it the
    /// caller must give valid ids: the library corrupts device memory for an id that is no
    /// expert's, and in low-latency expert-major for an id that stands twice in a row.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of updates is broken; and the errors of
    /// [every call](crate#errors).
    #[doc(alias = "ncclEpUpdateHandle")]
    pub fn update<'a>(
        &'a mut self,
        topk_idx: Tensor<'a>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'a>> {
        let tokens = self.native_update(topk_idx.view(), layout_info, stream)?;
        Ok(Step::new(self, tokens, Indices::borrowed()))
    }

    /// Gives the handle its next routing and moves it into the step, with a share of the indices:
    /// a step that can live in a struct. [`Step::into_handle`] gives the handle back.
    ///
    /// # Errors
    /// The errors of [`update`](Self::update), each with the handle.
    pub fn update_shared<B>(
        mut self,
        topk_idx: Arc<B>,
        shape: [usize; 2],
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'static, Self>, Refused<Self>>
    where
        B: DeviceBuffer + Send + Sync + 'static,
    {
        let tokens = Tensor::new(&*topk_idx, &shape)
            .and_then(|tensor| self.native_update(tensor.view(), layout_info, stream));
        match tokens {
            Ok(tokens) => Ok(Step::new(self, tokens, Indices::shared(topk_idx))),
            Err(error) => Err(Refused::kept(error, self)),
        }
    }

    pub(super) fn native_update(
        &mut self,
        topk_idx: &View,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<usize> {
        self.group.in_step()?;
        self.group.close_round(self.id);
        let updated = self.try_update(topk_idx, layout_info, stream);
        // An HT update is a collective, an LL update is not.
        if self.mode.is_high_throughput() { self.group.collective(updated) } else { updated }
    }

    fn try_update(
        &mut self,
        topk_idx: &View,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<usize> {
        let tokens = self.check_update(topk_idx, layout_info.as_deref())?;
        self.check_ids(topk_idx, stream)?;
        self.state = None; // until the library has prepared the new one
        let mut descriptor = Descriptor::empty();
        let mut info = LayoutInfoDescriptors::empty();
        // Low latency takes layout information at dispatch only (EP 3.5.1).
        let info = info.bind(layout_info.filter(|_| self.mode.is_high_throughput()));
        let _device = self.group.comm.activate()?;
        let calls = self.group.comm.lock();
        // SAFETY: the handle lives, all pointers outlive the call, the tensors passed the rules and
        // their memory stays valid until enqueued work is done.
        let updated = unsafe {
            let topk_idx = descriptor.bind(Some(topk_idx)).cast_const();
            self.group.call(
                "ncclEpUpdateHandle",
                self.group.api.ncclEpUpdateHandle,
                (self.raw, topk_idx, info, stream.as_raw()),
            )
        };
        drop(calls);
        updated?;
        self.note_update(topk_idx, tokens);
        Ok(tokens)
    }

    /// Remembers what handle memory does not hold.
    pub(super) fn note_update(&mut self, topk_idx: &View, num_tokens: usize) {
        let (num_topk, topk_idx_datatype) = (self.topk as usize, topk_idx.data_type());
        self.state = Some(HandleState { num_tokens, num_topk, topk_idx_datatype });
    }

    /// The rules of an update; gives the number of tokens.
    pub(super) fn check_update(
        &self,
        topk_idx: &View,
        info: Option<&LayoutInfo<'_>>,
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
        self.group.check_tensors(&facts)?;
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

    /// The rules of what the indices say, where the group validates data.
    pub(super) fn check_ids(&mut self, topk_idx: &View, stream: Stream<'_>) -> Result<()> {
        if self.group.validation != Validation::Data || topk_idx.shape.contains(&0) {
            return Ok(());
        }
        let group = &self.group;
        let size = topk_idx.data_type().size();
        let bytes = topk_idx.shape.elements().unwrap_or(0).saturating_mul(size);
        let bytes: &[u8] = if group.comm.backend().memory().is_synchronous() {
            // SAFETY: a tensor lies inside its buffer, which is borrowed, and host memory.
            unsafe { std::slice::from_raw_parts(topk_idx.buffer.ptr.cast(), bytes) }
        } else {
            let copy = self.ids.get_mut(..bytes).unwrap_or_default();
            // SAFETY: the tensor holds the bytes, and its buffer is borrowed.
            unsafe { group.comm.copy_to_host(topk_idx.buffer.ptr, copy, stream)? };
            copy
        };
        let facts = DataFacts {
            geometry: &group.geometry,
            mode: self.mode,
            topk: self.topk as usize,
            ids: Ids { bytes, wide: size == 8 },
        };
        rules::check(data::DATA, |broken| broken(&facts))
    }
}
