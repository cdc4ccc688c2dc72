//! Making handles.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nccl_ep_sys::ncclEpHandle_t;
use nccl_ext_core::Result;
use nccl_ext_core::binding::BindingStruct;

use super::{Handle, HandleMemory, ids};
#[cfg(doc)]
use crate::Error;
use crate::config::HandleConfig;
use crate::enums::{Layout, TopK};
use crate::group::Group;
use crate::mode::Mode;
use crate::tensor::Descriptor;

impl Group {
    /// Makes a handle without routing. `memory` is the caller's, of at least
    /// [`handle_mem_size`](Self::handle_mem_size) bytes; without it the library allocates.
    ///
    /// For low latency with an automatic buffer size every rank calls it, in the same order.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of handles is broken, such as too little
    /// memory; [`Error::Busy`] while a round is open in a low-latency group with an automatic buffer
    /// size, which may grow; and the errors of [every call](crate#errors).
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
        let _round = shared.round_of_creation()?;
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
        let null = core::ptr::null_mut();
        // Owns what is made also when the call fails late: it can be destroyed (EP 3.2).
        let mut handle = self.handle_of(null, mode, config, topk, memory)?;
        let _device = shared.comm.activate()?;
        let calls = shared.comm.lock();
        // SAFETY: the group lives, all pointers outlive the call, the memory stays with the handle.
        let made = unsafe {
            let memory = descriptor.bind(view.as_ref()).cast_const();
            let raw = &raw mut handle.raw;
            shared.call(
                "ncclEpInitHandle",
                shared.api.ncclEpInitHandle,
                (raw, shared.raw, layout.into(), &raw const raw_config, topk, memory),
            )
        };
        drop(calls);
        made?;
        shared.had_handle.store(true, Ordering::Release);
        Ok(handle)
    }

    /// A handle that owns `raw`, with memory for ids.
    pub(crate) fn handle_of(
        &self,
        raw: ncclEpHandle_t,
        mode: Mode,
        config: &HandleConfig,
        topk: i32,
        memory: Option<HandleMemory>,
    ) -> Result<Handle> {
        let shared = &self.shared;
        let topk = topk.unsigned_abs();
        Ok(Handle {
            group: Arc::clone(shared),
            raw,
            mode,
            topk: topk.into(),
            id: shared.new_handle_id(),
            config: config.clone(),
            state: None,
            host_ids: ids::on_host(shared, topk)?,
            memory,
            ids: Box::new(ids::copies(shared, mode, topk)?),
        })
    }
}
