//! Streams' work: when it runs, and which bytes it uses.
//!
//! A C function checks its arguments on the calling thread and submits the rest. In a world whose
//! calls are complete when they return, that runs at once.

mod submit;
mod uses;

pub(crate) use submit::{Deferral, submit};
pub(crate) use uses::{read, write};
