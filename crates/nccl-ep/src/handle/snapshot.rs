//! Copies of prepared handles.

use nccl_ext_core::{Buffer, DataType, Error, Result, Stream};

use super::Handle;
use crate::config::HandleConfig;
use crate::enums::Layout;
use crate::rules;
use crate::rules::snapshot::{RULES, SnapshotFacts};

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
    pub(crate) layout: Layout,
    pub(crate) config: HandleConfig,
    pub(crate) state: HandleState,
    pub(crate) memory: Buffer<u8>,
}

impl HandleSnapshot {
    /// The state that the memory does not hold.
    #[must_use]
    pub fn state(&self) -> HandleState {
        self.state
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
        self.group.comm.check_stream(stream)?;
        let _device = self.group.comm.activate()?;
        let calls = self.group.comm.lock();
        self.group.enqueue(stream, &[], || copy.copy_from(&**memory, stream))?;
        drop(calls);
        Ok(HandleSnapshot {
            layout: self.layout(),
            config: self.config.clone(),
            state,
            memory: copy,
        })
    }
}
