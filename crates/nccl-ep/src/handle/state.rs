//! Prepared handles: taking a copy of the routing, and binding it to a handle again.

use nccl_ep_sys::ImportApi;
use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::{Buffer, DataType, Error, Result, Stream};

use super::{Handle, HandleMemory};
use crate::args::LayoutInfo;
use crate::config::HandleConfig;
use crate::enums::{Layout, TopK};
use crate::group::Group;
use crate::rules;
use crate::rules::import::{self, ImportFacts};
use crate::rules::snapshot::{self, SnapshotFacts};
use crate::step::{Indices, Step};
use crate::tensor::{Descriptor, Tensor};

/// What handle memory does not hold: with it, a copy of prepared memory becomes a handle again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HandleState {
    /// Tokens that this rank dispatches.
    pub num_tokens: usize,
    /// Experts each token is sent to.
    pub num_topk: usize,
    /// Element type of the routing indices, int32 or int64.
    pub topk_idx_datatype: DataType,
}

/// A copy of a prepared high-throughput handle.
#[derive(Debug)]
pub struct HandleSnapshot {
    layout: Layout,
    config: HandleConfig,
    state: HandleState,
    memory: Buffer<u8>,
}

impl HandleSnapshot {
    /// What the memory does not hold.
    #[must_use]
    pub fn state(&self) -> HandleState {
        self.state
    }

    /// Makes a handle with the snapshot's routing. Local: no peer takes part.
    ///
    /// # Errors
    /// As [`Group::import_handle`].
    pub fn restore(self, group: &Group) -> Result<Step<'static, Handle>> {
        let Self { layout, config, state, memory } = self;
        group.import_handle(layout, &config, &state, Box::new(memory))
    }

    /// Makes a handle in the snapshot's memory and prepares it again from the routing indices, for
    /// libraries that cannot import. Every rank calls it.
    ///
    /// # Errors
    /// As [`Group::init_handle`] and [`Handle::update`].
    pub fn restore_collective<'a>(
        self,
        group: &Group,
        topk_idx: Tensor<'a>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'a, Handle>> {
        let topk = TopK::N(u32::try_from(self.state.num_topk).unwrap_or(u32::MAX));
        let memory: HandleMemory = Box::new(self.memory);
        let mut handle = group.init_handle(self.layout, &self.config, topk, Some(memory))?;
        let tokens = handle.native_update(topk_idx.view(), layout_info, stream)?;
        Ok(Step::new(handle, tokens, Indices::borrowed()))
    }
}

impl Handle {
    /// What the last update said that the handle's memory does not hold; `None` before an update.
    #[must_use]
    pub fn state(&self) -> Option<HandleState> {
        self.state
    }

    /// Copies a prepared handle, after the stream's earlier work. The handle must live in memory
    /// of the caller's; high throughput only.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a low-latency handle, one without an update, or one whose memory is
    /// the library's; what the driver reports of the copy.
    pub fn snapshot(&self, stream: Stream<'_>) -> Result<HandleSnapshot> {
        let facts = SnapshotFacts {
            algorithm: self.mode.algorithm(),
            prepared: self.state.is_some(),
            own_memory: self.memory.is_some(),
        };
        rules::check(snapshot::RULES, |broken| broken(&facts))?;
        let (Some(state), Some(memory)) = (self.state, &self.memory) else {
            return Err(Error::Unsupported {
                feature: "a snapshot of this handle",
                library: "this crate".into(),
                found: "no prepared memory".into(),
                needs: "an update in memory of the caller's".into(),
            });
        };
        let source = memory.raw();
        let mut copy = Buffer::<u8>::zeroed(&self.group.comm, source.bytes)?;
        copy.copy_from(&**memory, stream)?;
        Ok(HandleSnapshot {
            layout: self.layout(),
            config: self.config.clone(),
            state,
            memory: copy,
        })
    }
}

impl Group {
    /// Binds handle memory that an update has prepared, or a copy of it, to a new handle, which
    /// dispatches and combines with that routing at once. Local; high throughput only.
    ///
    /// The group must have the configuration of the one that prepared the memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule is broken, [`Error::Unsupported`] when the library cannot
    /// import ([`HandleSnapshot::restore_collective`] works there), and what the library reports:
    /// the CPU backend refuses foreign and damaged memory.
    pub fn import_handle(
        &self,
        layout: Layout,
        config: &HandleConfig,
        state: &HandleState,
        handle_mem: HandleMemory,
    ) -> Result<Step<'static, Handle>> {
        let inner = &self.inner;
        inner.in_step()?;
        let facts = ImportFacts {
            algorithm: inner.geometry.algorithm,
            max_tokens: inner.geometry.max_tokens,
            tokens: state.num_tokens as u64,
            data_type: state.topk_idx_datatype,
        };
        rules::check(import::RULES, |broken| broken(&facts))?;
        let topk = u32::try_from(state.num_topk).unwrap_or(u32::MAX);
        let (mode, topk) = self.checked(layout, config, TopK::N(topk))?;
        let api = inner.comm.backend().extension::<ImportApi>().map_err(|_| {
            let library = inner.comm.backend().library(nccl_ep_sys::LIBRARY);
            Error::Unsupported {
                feature: "importing a handle",
                library: nccl_ep_sys::LIBRARY.into(),
                found: library.map_or_else(String::new, |library| library.version.to_string()),
                needs: "a newer version; HandleSnapshot::restore_collective works with this one"
                    .into(),
            }
        })?;
        let mut handle_mem = handle_mem;
        let size = self.handle_mem_size(layout, config, TopK::N(topk.unsigned_abs()))?;
        let view = self.check_memory(&mut *handle_mem, size)?;
        let raw_config = config.to_raw();
        let mut descriptor = Descriptor::empty();
        let null = core::ptr::null_mut();
        let mut handle = self.handle(null, mode, config, topk, Some(handle_mem));
        let tokens = u32::try_from(state.num_tokens).unwrap_or(u32::MAX);
        let _device = inner.comm.activate()?;
        let calls = inner.comm.lock();
        // SAFETY: the group lives, all pointers outlive the call, the memory stays with the handle.
        let imported = unsafe {
            inner.call(
                "ncclExtImportHandle",
                api.ncclExtImportHandle,
                (
                    &raw mut handle.raw,
                    inner.raw,
                    layout.into(),
                    &raw const raw_config,
                    tokens,
                    topk,
                    state.topk_idx_datatype.as_raw(),
                    descriptor.bind(Some(&view)).cast_const(),
                ),
            )
        };
        drop(calls);
        imported?;
        handle.state = Some(*state);
        Ok(Step::new(handle, state.num_tokens, Indices::borrowed()))
    }
}
