//! Handles: what they keep, creation, the caller's memory, destruction.

mod create;
mod memory;
mod object;

pub(super) use create::{check, init, prepare};
pub(super) use memory::memory_size;
pub(super) use object::{Ready, destroy, hand_out, live};
