//! Handles: the routing of one step, and what it needs in memory.

use std::fmt;
use std::sync::Arc;

use nccl_ep_sys::{ncclEpHandle_t, ncclEpLayoutInfo_t};
use nccl_ext_core::binding::{BindingStruct, VersionedStruct};
use nccl_ext_core::{
    DataType, DeviceBuffer, DeviceBufferMut, Error, Refused, Result, Scope, Stream,
};

use crate::args::{LayoutInfo, view_mut};
use crate::config::HandleConfig;
use crate::enums::{Layout, PassDir, TopK};
use crate::group::{Group, Inner};
use crate::rules::call::{self, Facts};
use crate::rules::handle::HANDLE_MEM_ALIGNMENT;
use crate::rules::tensors::{self, Call, Place, Sizes, Slot};
use crate::rules::{self};
use crate::step::{Indices, Step};
use crate::tensor::{Descriptor, Tensor, View};

/// Memory for a handle that the caller gives: bytes, aligned to 256.
pub type HandleMemory = Box<dyn DeviceBufferMut + Send + Sync>;

/// Routing state of a group, for one layout and top-k.
///
/// [`update`](Self::update) gives it the routing of a step. Dropping it is local.
#[doc(alias = "ncclEpHandle_t")]
pub struct Handle {
    pub(crate) group: Arc<Inner>,
    pub(crate) raw: ncclEpHandle_t,
    pub(crate) place: Place,
    pub(crate) topk: u64,
    pub(crate) id: usize,
    layout: Layout,
    /// Kept as long as the native handle, which borrows it.
    memory: Option<HandleMemory>,
}

// SAFETY: the library's handle is not tied to a thread; every native call on it holds the
// communicator's lock.
unsafe impl Send for Handle {}
// SAFETY: as above; `&Handle` offers no native call.
unsafe impl Sync for Handle {}

impl Group {
    /// Makes a handle without routing. `memory` is the caller's, of at least
    /// [`handle_mem_size`](Self::handle_mem_size) bytes; without it the library allocates.
    ///
    /// For low latency with an automatic buffer size every rank calls it, in the same order.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule is broken, and what the library reports.
    #[doc(alias = "ncclEpInitHandle")]
    pub fn init_handle(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk: TopK,
        memory: Option<HandleMemory>,
    ) -> Result<Handle> {
        let inner = &self.inner;
        inner.in_step()?;
        let topk = self.checked_topk(layout, config, topk)?;
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
        let _device = inner.comm.activate()?;
        let calls = inner.comm.lock();
        // SAFETY: the group lives, all pointers outlive the call, the memory stays with the handle.
        let made = unsafe {
            let memory = descriptor.bind(view.as_ref()).cast_const();
            inner.call(
                "ncclEpInitHandle",
                inner.api.ncclEpInitHandle,
                (&raw mut raw, inner.raw, layout.into(), &raw const raw_config, topk, memory),
            )
        };
        drop(calls);
        // Owns what was made also when the call failed late: it can be destroyed (EP 3.2).
        let handle = self.handle(raw, layout, topk, memory);
        made.map(|()| handle)
    }

    /// Makes a handle and gives it the first step's routing, in one call of every rank.
    ///
    /// # Errors
    /// As [`init_handle`](Self::init_handle) and [`Handle::update`]; [`Error::Invalid`] while the
    /// stream is being captured into a graph.
    #[doc(alias = "ncclEpCreateHandle")]
    pub fn create_handle<'a>(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk_idx: Tensor<'a>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'a, Handle>> {
        let inner = &self.inner;
        inner.in_step()?;
        let width = topk_idx.shape().get(1).copied().unwrap_or(0);
        let topk = u32::try_from(width).unwrap_or(u32::MAX);
        let topk = self.checked_topk(layout, config, TopK::N(topk))?;
        let mut handle = self.handle(core::ptr::null_mut(), layout, topk, None);
        let tokens = handle.check_update(topk_idx.view(), layout_info.as_deref());
        let tokens = handle.settle_update(tokens)?;
        refuse_capture(inner, stream)?;

        let raw_config = config.to_raw();
        let mut descriptor = Descriptor::empty();
        let mut info = InfoDescriptors::empty();
        let info = info.bind(layout_info.filter(|_| handle.place_is_ht()));
        let _device = inner.comm.activate()?;
        let calls = inner.comm.lock();
        // SAFETY: the group lives, all pointers outlive the call, the tensors passed the rules.
        let made = unsafe {
            inner.call(
                "ncclEpCreateHandle",
                inner.api.ncclEpCreateHandle,
                (
                    &raw mut handle.raw,
                    inner.raw,
                    layout.into(),
                    descriptor.bind(Some(topk_idx.view())).cast_const(),
                    info,
                    &raw const raw_config,
                    stream.as_raw(),
                ),
            )
        };
        drop(calls);
        handle.settle_update(made)?;
        Ok(Step::new(handle, tokens, Indices::borrowed()))
    }

    fn handle(
        &self,
        raw: ncclEpHandle_t,
        layout: Layout,
        topk: i32,
        memory: Option<HandleMemory>,
    ) -> Handle {
        Handle {
            group: Arc::clone(&self.inner),
            raw,
            place: Place::new(self.inner.geometry.algorithm, layout),
            topk: topk.unsigned_abs().into(),
            id: self.inner.new_handle_id(),
            layout,
            memory,
        }
    }

    fn check_memory(&self, memory: &mut dyn DeviceBufferMut, needed: usize) -> Result<View> {
        let mut buffer = memory.raw_mut();
        self.inner.comm.check_memory("handle_mem", &buffer)?;
        let aligned = (buffer.ptr as usize).is_multiple_of(HANDLE_MEM_ALIGNMENT);
        if buffer.ptr.is_null() || buffer.bytes < needed || !aligned {
            return Err(Error::Invalid {
                argument: "handle_mem",
                rule: "handle memory has the queried size and an alignment of 256 bytes",
                expected: format!("{needed} bytes at a multiple of {HANDLE_MEM_ALIGNMENT}"),
                found: format!("{} bytes at {:p}", buffer.bytes, buffer.ptr),
                scope: Scope::Local,
            });
        }
        buffer.data_type = DataType::Uint8;
        let shape = crate::tensor::Shape::new(&[buffer.bytes]).unwrap_or_default();
        Ok(View { buffer, shape })
    }
}

/// A captured graph replays addresses, and making a handle allocates.
fn refuse_capture(group: &Inner, stream: Stream<'_>) -> Result<()> {
    if stream.is_capturing(&group.comm)? {
        return Err(Error::Invalid {
            argument: "stream",
            rule: "handles are not made inside a graph capture",
            expected: "a stream that is not being captured".into(),
            found: "a capturing stream".into(),
            scope: Scope::Local,
        });
    }
    Ok(())
}

impl Handle {
    /// Gives the handle the routing of the next step: `topk_idx` is `[tokens, top-k]` of int32 or
    /// int64 global expert ids, negative for no expert.
    ///
    /// The step borrows handle and indices, which must stay as they are until its last combine.
    /// HT: every rank calls it, and `layout_info` may ask for counters. LL: local.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule is broken, [`Error::Diverged`], and what the library reports.
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

    /// As [`update`](Self::update) with shared indices: the step owns the handle and a share of
    /// the indices, so it can live in a struct. [`Step::into_handle`] gives the handle back.
    ///
    /// # Errors
    /// As [`update`](Self::update), with the handle.
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

    fn native_update(
        &mut self,
        topk_idx: &View,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<usize> {
        self.group.in_step()?;
        let tokens = self.check_update(topk_idx, layout_info.as_deref());
        let tokens = self.settle_update(tokens)?;
        let mut descriptor = Descriptor::empty();
        let mut info = InfoDescriptors::empty();
        // Low latency takes layout information at dispatch only (EP 3.5.1).
        let info = info.bind(layout_info.filter(|_| self.place_is_ht()));
        let device = self.group.comm.activate();
        let _device = self.settle_update(device)?;
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
        self.settle_update(updated)?;
        Ok(tokens)
    }

    /// The rules of an update; gives the number of tokens.
    fn check_update(&self, topk_idx: &View, info: Option<&LayoutInfo<'_>>) -> Result<usize> {
        let geometry = &self.group.geometry;
        let counters = info.map(|info| {
            [
                view_mut(&info.expert_counters),
                view_mut(&info.expert_offsets),
                view_mut(&info.recv_total_counter),
                view_mut(&info.src_rank_counters),
            ]
        });
        let [expert_counters, expert_offsets, recv_total, src_rank] = counters.unwrap_or_default();
        let sizes = Sizes {
            geometry,
            topk: self.topk,
            tokens: 0,
            hidden: 0,
            token_type: topk_idx.data_type(),
            out_rows: 0,
            step_rows: 0,
        };
        tensors::check(Call::Update, self.place, &self.group.comm, &sizes, |slot| match slot {
            Slot::TopkIdx => Some(topk_idx),
            Slot::LiExpertCounters => expert_counters,
            Slot::LiExpertOffsets => expert_offsets,
            Slot::LiRecvTotal => recv_total,
            Slot::LiSrcRankCounters => src_rank,
            _ => None,
        })?;
        // Flat counters are written by a kernel of their own (EP 3.5.2).
        let em = self.place == Place::HtExpertMajor;
        let facts = Facts {
            geometry,
            place: self.place,
            pass: PassDir::Fwd,
            topk: self.topk,
            rows: Some(topk_idx),
            out_tokens: None,
            out_weights: None,
            counters: [expert_counters.filter(|_| em), expert_offsets, recv_total],
        };
        rules::check(call::UPDATE, |broken| broken(&facts))?;
        Ok(topk_idx.shape.first().copied().unwrap_or(0))
    }

    /// An HT update is a collective, an LL update is not.
    fn settle_update<T>(&self, result: Result<T>) -> Result<T> {
        if self.place_is_ht() { self.group.collective(result) } else { result }
    }

    pub(crate) fn place_is_ht(&self) -> bool {
        matches!(self.place, Place::HtFlat | Place::HtExpertMajor)
    }

    /// The layout it was made for.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Experts each token is sent to.
    #[must_use]
    pub fn num_topk(&self) -> usize {
        self.topk as usize
    }

    /// Frees the native handle and gives back the caller's memory. Local.
    ///
    /// # Errors
    /// What the library reports.
    #[doc(alias = "ncclEpHandleDestroy")]
    pub fn destroy(mut self) -> Result<Option<HandleMemory>> {
        self.free()?;
        Ok(self.memory.take())
    }

    fn free(&mut self) -> Result<()> {
        let raw = std::mem::replace(&mut self.raw, core::ptr::null_mut());
        if raw.is_null() {
            return Ok(());
        }
        let _device = self.group.comm.activate()?;
        let _calls = self.group.comm.lock();
        // SAFETY: a live handle of a live group, given up here. Library memory is freed by a
        // synchronising free, the caller's by its owner after enqueued work.
        unsafe {
            let function = self.group.api.ncclEpHandleDestroy;
            self.group.call("ncclEpHandleDestroy", function, (raw,))
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            tracing::error!(%error, "an EP handle was leaked");
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("layout", &self.layout)
            .field("topk", &self.topk)
            .finish_non_exhaustive()
    }
}

/// C layout information on the stack of the call that uses it.
pub(crate) struct InfoDescriptors {
    raw: ncclEpLayoutInfo_t,
    tensors: [Descriptor; 4],
}

impl InfoDescriptors {
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
