//! What a high-throughput handle learns with each update.

use super::placement::Placement;
use super::routes::Routes;

#[derive(Default)]
pub(crate) struct HighThroughput {
    /// The number of the update on the communicator's line, the same on all ranks; 0 before the
    /// first and after one that failed.
    pub(super) update: u64,
    pub(super) routes: Routes,
    pub(super) placement: Placement,
    /// Room for the image that goes to the caller's handle memory.
    pub(super) image: Vec<u64>,
}
