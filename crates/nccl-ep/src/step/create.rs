//! Making a handle with the routing of its first step.

use std::sync::atomic::Ordering;

use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::{Result, Stream};

use super::Step;
#[cfg(doc)]
use crate::Error;
use crate::args::{LayoutInfo, NO_COUNTERS};
use crate::config::HandleConfig;
use crate::enums::{Algorithm, Layout, TopK};
use crate::group::Group;
use crate::handle::{Handle, LayoutInfoDescriptors};
use crate::rules;
use crate::rules::stream::{CREATE_HANDLE, StreamFacts};
use crate::tensor::{Descriptor, Tensor};

impl Group {
    /// Makes a handle and gives it the first step's routing, in one call of every rank.
    ///
    /// # Errors
    /// The errors of [`init_handle`](Self::init_handle) and [`Handle::update`], and
    /// [`Error::Invalid`] while the stream is being captured into a graph.
    #[doc(alias = "ncclEpCreateHandle")]
    pub fn create_handle(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk_idx: Tensor<'_>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'static, Handle>> {
        let shared = &self.shared;
        shared.in_step()?;
        let _round = shared.round_of_creation()?;
        let made = self.first_step(layout, config, topk_idx, layout_info, stream);
        let high = shared.geometry.algorithm == Algorithm::HighThroughput;
        if high || shared.grows_with_handles() { shared.collective(made) } else { made }
    }

    fn first_step(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk_idx: Tensor<'_>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'static, Handle>> {
        let shared = &self.shared;
        let width = topk_idx.shape().get(1).copied().unwrap_or(0);
        let topk = u32::try_from(width).unwrap_or(u32::MAX);
        let (mode, topk) = self.mode_and_topk(layout, config, TopK::N(topk))?;
        let mut handle = self.handle_of(core::ptr::null_mut(), mode, config, topk, None)?;
        let tokens = handle.check_update(topk_idx.view(), layout_info.as_deref(), stream)?;
        let facts = StreamFacts { capturing: stream.is_capturing(&shared.comm)? };
        rules::check(CREATE_HANDLE, |broken| broken(&facts))?;
        let topk_idx = handle.copy_ids(topk_idx.view(), topk_idx.as_use(), stream)?;

        let [a, b, c, d] = layout_info.as_deref().map_or(NO_COUNTERS, LayoutInfo::uses);
        let raw_config = config.to_raw();
        let mut descriptor = Descriptor::empty();
        let mut info = LayoutInfoDescriptors::empty();
        let info = info.bind(layout_info.filter(|_| handle.mode.is_high_throughput()));
        let _device = shared.comm.activate()?;
        let calls = shared.comm.lock();
        // SAFETY: the group lives, all pointers outlive the call, the tensors passed the rules.
        let call = || unsafe {
            shared.call(
                "ncclEpCreateHandle",
                shared.api.ncclEpCreateHandle,
                (
                    &raw mut handle.raw,
                    shared.raw,
                    layout.into(),
                    descriptor.bind(Some(&topk_idx)).cast_const(),
                    info,
                    &raw const raw_config,
                    stream.as_raw(),
                ),
            )
        };
        let made = shared.enqueue(stream, &[handle.ids.as_use(), a, b, c, d], call);
        drop(calls);
        made?;
        shared.had_handle.store(true, Ordering::Release);
        handle.note_update(&topk_idx, tokens);
        Ok(Step::new(handle, tokens))
    }
}
