//! Recorded reshards.

use std::ops::Range;
use std::sync::Arc;

use nccl_ext_core::{Error, Stream, Use};

use crate::layout::Layout;
use crate::plan::Conditions;
use crate::rules::group::MOST_ENTRIES;
use crate::runtime::{CommState, Runtime};
use crate::settings::CopyAlgorithm;

/// One recorded reshard.
pub(super) struct Entry<'env> {
    pub(super) runtime: &'env Runtime,
    pub(super) comm_state: Arc<CommState>,
    /// Source and destination.
    pub(super) layouts: (Layout, Layout),
    /// The memory that it uses on this rank: source and destination.
    pub(super) tiles: [Option<Range<usize>>; 2],
    /// The same as uses.
    pub(super) uses: [Use<'env>; 2],
    pub(super) stream: Stream<'env>,
    /// The error that this rank alone has with it.
    pub(super) failed: Option<Error>,
}

/// `cudaStreamLegacy`, which NULL means too.
const LEGACY_STREAM: usize = 1;

/// What the library fuses has this in common: handle, communicator and stream, where the default
/// stream has two names (M2N 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FusionKey {
    handle: usize,
    comm: usize,
    stream: usize,
}

impl Entry<'_> {
    pub(super) fn fusion_key(&self) -> FusionKey {
        FusionKey {
            handle: self.runtime.handle.addr(),
            comm: self.comm_state.address(),
            stream: Some(self.stream.as_raw().addr())
                .filter(|at| *at != LEGACY_STREAM)
                .unwrap_or(0),
        }
    }

    /// What its communicator's calls are planned under.
    pub(super) fn conditions(&self) -> &Conditions {
        &self.comm_state.conditions
    }
}

/// An error with the number of its entry.
pub(super) fn entry_error(index: usize, error: Error) -> Error {
    Error::Entry { index, error: Arc::new(error) }
}

/// Whether the library fuses entries of one key at all.
pub(super) fn may_fuse(conditions: &Conditions) -> bool {
    let settings = &conditions.settings;
    settings.copy_algorithm == CopyAlgorithm::Pack && settings.split_comm != Some(true)
}

/// Whether the library fuses so many entries of one key (M2N 2.6).
pub(super) fn fuses(conditions: &Conditions, entries: usize) -> bool {
    may_fuse(conditions) && (2..=MOST_ENTRIES).contains(&entries)
}
