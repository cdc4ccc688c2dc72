//! Making handles.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nccl_ep_sys::ncclEpHandle_t;
use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::{Result, Stream};

use super::layout_info::LayoutInfoDescriptors;
use super::{Handle, HandleMemory};
#[cfg(doc)]
use crate::Error;
use crate::args::LayoutInfo;
use crate::config::HandleConfig;
use crate::enums::{Algorithm, Layout, TopK, Validation};
use crate::group::Group;
use crate::mode::Mode;
use crate::rules;
use crate::rules::stream::{self, StreamFacts};
use crate::step::{Indices, Step};
use crate::tensor::{Descriptor, Tensor};

impl Group {
    /// Makes a handle without routing. `memory` is the caller's, of at least
    /// [`handle_mem_size`](Self::handle_mem_size) bytes; without it the library allocates.
    ///
    /// For low latency with an automatic buffer size every rank calls it, in the same order.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of handles is broken, such as too little
    /// memory; and the errors of [every call](crate#errors).
    #[doc(alias = "ncclEpInitHandle")]
    pub fn init_handle(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk: TopK,
        memory: Option<HandleMemory>,
    ) -> Result<Handle> {
        let shared = &self.shared;
        shared.in_step()?;
        let made = self.init(layout, config, topk, memory);
        if shared.grows_with_handles() { shared.collective(made) } else { made }
    }

    fn init(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk: TopK,
        memory: Option<HandleMemory>,
    ) -> Result<Handle> {
        let shared = &self.shared;
        let (mode, topk) = self.mode_and_topk(layout, config, topk)?;
        let mut memory = memory;
        let view = match &mut memory {
            None => None,
            Some(memory) => {
                let needed = self.handle_mem_size(layout, config, TopK::N(topk.unsigned_abs()))?;
                Some(self.check_memory(&mut **memory, needed)?)
            }
        };
        let raw_config = config.to_raw();
        let mut descriptor = Descriptor::empty();
        let mut raw = core::ptr::null_mut();
        let _device = shared.comm.activate()?;
        let calls = shared.comm.lock();
        // SAFETY: the group lives, all pointers outlive the call, the memory stays with the handle.
        let made = unsafe {
            let memory = descriptor.bind(view.as_ref()).cast_const();
            shared.call(
                "ncclEpInitHandle",
                shared.api.ncclEpInitHandle,
                (&raw mut raw, shared.raw, layout.into(), &raw const raw_config, topk, memory),
            )
        };
        drop(calls);
        // Owns what was made also when the call failed late: it can be destroyed (EP 3.2).
        let handle = self.handle(raw, mode, config, topk, memory);
        made?;
        shared.had_handle.store(true, Ordering::Release);
        Ok(handle)
    }

    /// Makes a handle and gives it the first step's routing, in one call of every rank.
    ///
    /// # Errors
    /// The errors of [`init_handle`](Self::init_handle) and [`Handle::update`], and
    /// [`Error::Invalid`] while the stream is being captured into a graph.
    #[doc(alias = "ncclEpCreateHandle")]
    pub fn create_handle<'a>(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk_idx: Tensor<'a>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'a, Handle>> {
        let shared = &self.shared;
        shared.in_step()?;
        let made = self.first_step(layout, config, topk_idx, layout_info, stream);
        let high = shared.geometry.algorithm == Algorithm::HighThroughput;
        if high || shared.grows_with_handles() { shared.collective(made) } else { made }
    }

    fn first_step<'a>(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk_idx: Tensor<'a>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'a, Handle>> {
        let shared = &self.shared;
        let width = topk_idx.shape().get(1).copied().unwrap_or(0);
        let topk = u32::try_from(width).unwrap_or(u32::MAX);
        let (mode, topk) = self.mode_and_topk(layout, config, TopK::N(topk))?;
        let mut handle = self.handle(core::ptr::null_mut(), mode, config, topk, None);
        let tokens = handle.check_update(topk_idx.view(), layout_info.as_deref())?;
        handle.check_ids(topk_idx.view(), stream)?;
        let facts = StreamFacts { capturing: stream.is_capturing(&shared.comm)? };
        rules::check(stream::CREATE_HANDLE, |broken| broken(&facts))?;

        let raw_config = config.to_raw();
        let mut descriptor = Descriptor::empty();
        let mut info = LayoutInfoDescriptors::empty();
        let info = info.bind(layout_info.filter(|_| handle.mode.is_high_throughput()));
        let _device = shared.comm.activate()?;
        let calls = shared.comm.lock();
        // SAFETY: the group lives, all pointers outlive the call, the tensors passed the rules.
        let made = unsafe {
            shared.call(
                "ncclEpCreateHandle",
                shared.api.ncclEpCreateHandle,
                (
                    &raw mut handle.raw,
                    shared.raw,
                    layout.into(),
                    descriptor.bind(Some(topk_idx.view())).cast_const(),
                    info,
                    &raw const raw_config,
                    stream.as_raw(),
                ),
            )
        };
        drop(calls);
        made?;
        shared.had_handle.store(true, Ordering::Release);
        handle.note_update(topk_idx.view(), tokens);
        Ok(Step::new(handle, tokens, Indices::borrowed()))
    }

    pub(super) fn handle(
        &self,
        raw: ncclEpHandle_t,
        mode: Mode,
        config: &HandleConfig,
        topk: i32,
        memory: Option<HandleMemory>,
    ) -> Handle {
        let shared = &self.shared;
        let on_device = !shared.comm.backend().memory().is_synchronous();
        let ids = if shared.validation == Validation::Data && on_device {
            let ids = shared.geometry.max_tokens.saturating_mul(topk.unsigned_abs().into());
            vec![0; usize::try_from(ids.saturating_mul(8)).unwrap_or(0)]
        } else {
            Vec::new()
        };
        Handle {
            group: Arc::clone(shared),
            raw,
            mode,
            topk: topk.unsigned_abs().into(),
            id: self.shared.new_handle_id(),
            config: config.clone(),
            state: None,
            ids,
            memory,
        }
    }
}
