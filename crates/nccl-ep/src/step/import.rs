//! Making a handle of memory that an update has prepared.

use nccl_ep_sys::ImportApi;
use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::{Error, Result, Stream, Use};

use super::Step;
use crate::config::HandleConfig;
use crate::enums::{Layout, TopK};
use crate::group::Group;
use crate::handle::{Handle, HandleMemory, HandleState};
use crate::rules;
use crate::rules::import::{ImportFacts, RULES};
use crate::tensor::Descriptor;

impl Group {
    /// Binds handle memory that an update has prepared, or a copy of it, to a new handle, which
    /// dispatches and combines with that routing at once. Local; high throughput only.
    ///
    /// The group must have the configuration of the one that prepared the memory. The call waits until
    /// earlier uses of the memory are done; of memory without
    /// [`usage`](nccl_ext_core::DeviceBuffer::usage) the caller waits before.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of imports or handles is broken. [`Error::Unsupported`] when
    /// the library cannot import;
    /// [`HandleSnapshot::restore_collective`](crate::HandleSnapshot::restore_collective) works
    /// there. [`Error::Native`] from the CPU backend for foreign or damaged memory. And the errors
    /// of [every call](crate#errors).
    pub fn import_handle(
        &self,
        layout: Layout,
        config: &HandleConfig,
        state: &HandleState,
        handle_mem: HandleMemory,
    ) -> Result<Step<'static, Handle>> {
        let shared = &self.shared;
        shared.in_step()?;
        let facts = ImportFacts {
            algorithm: shared.geometry.algorithm,
            max_tokens: shared.geometry.max_tokens,
            tokens: state.num_tokens as u64,
            data_type: state.topk_idx_datatype,
        };
        rules::check(RULES, |broken| broken(&facts))?;
        let topk = u32::try_from(state.num_topk).unwrap_or(u32::MAX);
        let (mode, topk) = self.mode_and_topk(layout, config, TopK::N(topk))?;
        let api = shared.comm.backend().extension::<ImportApi>().map_err(|_| {
            let library = shared.comm.backend().library(nccl_ep_sys::LIBRARY);
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
        let mut handle = self.handle_of(null, mode, config, topk, Some(handle_mem))?;
        let tokens = u32::try_from(state.num_tokens).unwrap_or(u32::MAX);
        let _device = shared.comm.activate()?;
        let calls = shared.comm.lock();
        // The memory is read in the call itself, and an update or a copy may still be on its way.
        if let Some(usage) = handle.memory_usage() {
            let stream = Stream::DEFAULT;
            let wait = || stream.synchronize(&shared.comm);
            shared.comm.enqueue(stream, &[Use::read(Some(usage))], wait)?;
        }
        // SAFETY: the group lives, all pointers outlive the call, the memory stays with the handle.
        let imported = unsafe {
            shared.call(
                "ncclExtImportHandle",
                api.ncclExtImportHandle,
                (
                    &raw mut handle.raw,
                    shared.raw,
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
        Ok(Step::new(handle, state.num_tokens))
    }
}
