//! Making a handle of a copy.

use nccl_ext_core::{Result, Stream};

use super::Step;
use crate::args::LayoutInfo;
use crate::enums::TopK;
use crate::group::Group;
use crate::handle::{Handle, HandleMemory, HandleSnapshot, Looked};
use crate::tensor::Tensor;

impl HandleSnapshot {
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
    pub fn restore_collective(
        self,
        group: &Group,
        topk_idx: Tensor<'_>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'static, Handle>> {
        let topk = TopK::N(u32::try_from(self.state.num_topk).unwrap_or(u32::MAX));
        let memory: HandleMemory = Box::new(self.memory);
        let mut handle = group.init_handle(self.layout, &self.config, topk, Some(memory))?;
        let (ids, indices) = (topk_idx.view(), topk_idx.as_use());
        let tokens = handle.native_update(ids, indices, Looked::At, layout_info, stream)?;
        Ok(Step::new(handle, tokens))
    }
}
