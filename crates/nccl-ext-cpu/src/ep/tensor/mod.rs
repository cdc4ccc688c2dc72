//! Tensors of the caller (EP 1.6): descriptors, the ones that this library allocates, and tables of
//! expert ids.

mod allocated;
mod descriptor;
mod topk;

pub(super) use allocated::{alloc, destroy};
pub(super) use descriptor::{Tensor, WindowOnly};
pub(super) use topk::TopK;
