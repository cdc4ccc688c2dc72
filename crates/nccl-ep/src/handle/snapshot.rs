//! Copies of prepared handles.

use nccl_ext_core::{Buffer, DataType, Error, Result, Stream};

use super::{Handle, HandleMemory};
use crate::args::LayoutInfo;
use crate::config::HandleConfig;
use crate::enums::{Layout, TopK};
use crate::group::Group;
use crate::rules;
use crate::rules::snapshot::{RULES, SnapshotFacts};
use crate::step::{Indices, Step};
use crate::tensor::Tensor;

/// State that handle memory does not hold. With it, a copy of prepared memory becomes a handle
/// again.
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
    /// The state that the memory does not hold.
    #[must_use]
    pub fn state(&self) -> HandleState {
        self.state
    }

    /// Makes a handle with the snapshot's routing. Local: no peer takes part.
    ///
    /// # Errors
    /// The errors of [`Group::import_handle`].
    pub fn restore(self, group: &Group) -> Result<Step<'static, Handle>> {
        let Self { layout, config, state, memory } = self;
        group.import_handle(layout, &config, &state, Box::new(memory))
    }

    /// Makes a handle in the snapshot's memory and prepares it again from the routing indices, for
    /// libraries that cannot import. Every rank calls it.
    ///
    /// # Errors
    /// The errors of [`Group::init_handle`] and [`Handle::update`].
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
    /// State of the last update that the handle's memory does not hold; `None` before an update.
    #[must_use]
    pub fn state(&self) -> Option<HandleState> {
        self.state
    }

    /// Copies a prepared handle, after the stream's earlier work. The handle must live in memory
    /// of the caller's; high throughput only.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a low-latency handle, for one without an update, or for one whose
    /// memory is the library's. [`Error::Driver`] when the copy fails.
    pub fn snapshot(&self, stream: Stream<'_>) -> Result<HandleSnapshot> {
        let facts = SnapshotFacts {
            algorithm: self.mode.algorithm(),
            prepared: self.state.is_some(),
            own_memory: self.memory.is_some(),
        };
        rules::check(RULES, |broken| broken(&facts))?;
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
