//! Groups: what they keep, creation, destruction.

mod check;
mod lifetime;
mod meeting;
mod object;

pub(super) use lifetime::{create, destroy};
pub(super) use object::{Group, View, shared};
