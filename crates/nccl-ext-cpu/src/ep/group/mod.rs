//! Groups: what they keep, creation, destruction.

mod buffers;
mod check;
mod growth;
mod lifetime;
mod meeting;
mod object;

pub(super) use buffers::Uses;
pub(super) use lifetime::{create, destroy};
pub(super) use object::{Group, View, shared};
