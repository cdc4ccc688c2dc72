//! Tensors as the library gets them.

use nccl_ep_sys::{VersionedStruct, ncclEpTensor_t};

use crate::view::{MAX_DIMS, View};

/// A C descriptor on the stack of the call that uses it.
pub(crate) struct Descriptor {
    tensor: ncclEpTensor_t,
    extents: [usize; MAX_DIMS],
}

impl Descriptor {
    pub(crate) fn empty() -> Self {
        Self { tensor: ncclEpTensor_t::init(), extents: [0; MAX_DIMS] }
    }

    /// Describes `view` and gives the pointer to hand over, NULL for none. The pointer is good as
    /// long as the descriptor neither moves nor is used again.
    pub(crate) fn bind(&mut self, view: Option<&View>) -> *mut ncclEpTensor_t {
        let Some(view) = view else { return core::ptr::null_mut() };
        self.extents = view.shape.padded();
        self.tensor.ndim = view.shape.len() as u32;
        self.tensor.datatype = view.buffer.data_type.as_raw();
        self.tensor.data = view.buffer.ptr;
        self.tensor.sizes = self.extents.as_mut_ptr();
        &mut self.tensor
    }
}
