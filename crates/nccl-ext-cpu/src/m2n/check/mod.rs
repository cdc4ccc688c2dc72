//! What a call refuses: bounds and memory, limits of a transport, tiles that overlap, ranks that
//! were asked for different transfers.

pub(super) mod agreement;
pub(super) mod bounds;
pub(super) mod limits;
pub(super) mod ranges;
