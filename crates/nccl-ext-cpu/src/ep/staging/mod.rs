//! What low-latency ranks show each other, and copies of it for peers that come late.

mod bank;
mod source;

pub(super) use bank::Staging;
pub(super) use source::{CombineSource, DispatchSource, RowShape};
