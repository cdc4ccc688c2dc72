//! Memory for a handle: how much it needs, and what the caller gives.

use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::{DataType, DeviceBufferMut, Result};

#[cfg(doc)]
use crate::Error;
use crate::config::HandleConfig;
use crate::enums::{Layout, TopK};
use crate::group::Group;
use crate::mode::Mode;
use crate::rules;
use crate::rules::handle::{self, MemoryFacts};
use crate::view::{Shape, View};

/// Memory for a handle that the caller gives: bytes, aligned to 256.
pub type HandleMemory = Box<dyn DeviceBufferMut + Send + Sync>;

impl Group {
    /// Bytes that a handle needs, for [`init_handle`](Self::init_handle) with memory of the
    /// caller's. Local.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of handles is broken; and the errors of
    /// [every call](crate#errors).
    #[doc(alias = "ncclEpHandleMemSize")]
    pub fn handle_mem_size(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk: TopK,
    ) -> Result<usize> {
        let shared = &self.shared;
        shared.in_step()?;
        let (_, topk) = self.mode_and_topk(layout, config, topk)?;
        let raw_config = config.to_raw();
        let mut size = 0;
        let _device = shared.comm.activate()?;
        let _calls = shared.comm.lock();
        // SAFETY: the group lives, `size` and the configuration outlive the call, `topk` is
        // positive.
        unsafe {
            shared.call(
                "ncclEpHandleMemSize",
                shared.api.ncclEpHandleMemSize,
                (shared.raw, layout.into(), &raw const raw_config, &raw mut size, topk),
            )?;
        }
        Ok(size)
    }

    /// Resolves and checks what every way to make a handle has in common.
    pub(crate) fn mode_and_topk(
        &self,
        layout: Layout,
        config: &HandleConfig,
        topk: TopK,
    ) -> Result<(Mode, i32)> {
        let (mode, topk) = handle::mode_and_topk(&self.shared.geometry, layout, config, topk)?;
        Ok((mode, i32::try_from(topk).unwrap_or(i32::MAX)))
    }

    pub(crate) fn check_memory(
        &self,
        memory: &mut dyn DeviceBufferMut,
        needed: usize,
    ) -> Result<View> {
        let mut buffer = memory.raw_mut();
        self.shared.comm.check_memory("handle_mem", &buffer)?;
        let facts = MemoryFacts { address: buffer.ptr as usize, bytes: buffer.bytes, needed };
        rules::check(handle::MEMORY, |broken| broken(&facts))?;
        buffer.data_type = DataType::Uint8;
        let shape = Shape::new(&[buffer.bytes]).unwrap_or_default();
        Ok(View { buffer, shape })
    }
}
