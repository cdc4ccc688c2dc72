//! The ids of an update: what is looked at, when, and what the library gets to see.

use nccl_ext_core::ids::{IdCopies, IdRules, IdSource, Repeated};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Error, Result, Stream, Use};

use super::Handle;
use crate::enums::Validation;
use crate::geometry::EmMode;
use crate::group::SharedGroup;
use crate::mode::Mode;
use crate::rules;
use crate::rules::data::{self, DataFacts, Ids};
use crate::view::View;

/// Whether the library gets ids that were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// A copy of them, without those that would corrupt memory.
    At,
    /// The caller's own.
    Trusted,
}

/// Memory for the copies of a handle's ids, and what an id may be.
pub(super) fn copies(group: &SharedGroup, mode: Mode, topk: u32) -> Result<IdCopies> {
    let geometry = &group.geometry;
    // Room for each expert once a token (EP 4.2); both copies listed with their weights (EP 4.3); one
    // copy with one of the weights (EP 4.6).
    let repeated = match mode {
        Mode::LowLatencyExpertMajor => Repeated::Dropped,
        Mode::LowLatencyRankMajor => Repeated::Allowed,
        Mode::HighThroughputFlat | Mode::HighThroughputExpertMajor => Repeated::Counted,
    };
    let limited = mode == Mode::HighThroughputExpertMajor && geometry.em_mode == EmMode::LocalDup;
    let crowds = limited && topk > nccl_ext_core::ids::MOST_OF_A_RANK;
    let rank_experts = u32::try_from(geometry.local_experts).unwrap_or(u32::MAX);
    let rules = IdRules {
        experts: geometry.experts,
        topk,
        repeated,
        rank_experts: if crowds { rank_experts } else { 0 },
    };
    IdCopies::new(group.comm.device(), geometry.max_tokens, rules)
}

/// Memory of the host for ids, where they are looked at there and lie on a device.
pub(super) fn on_host(group: &SharedGroup, topk: u32) -> Result<Box<[u8]>> {
    let synchronous = group.comm.backend().memory().is_synchronous();
    if group.validation != Validation::Data || synchronous {
        return Ok(Box::default());
    }
    let bytes = group.geometry.max_tokens.saturating_mul(topk.into()).saturating_mul(8);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut ids = Vec::new();
    ids.try_reserve_exact(bytes).map_err(|_| Error::Native {
        call: "allocation of memory for expert ids",
        code: ncclResult_t::ncclSystemError,
        detail: format!("{bytes} bytes are not to be had for Validation::Data"),
    })?;
    ids.resize(bytes, 0);
    Ok(ids.into_boxed_slice())
}

impl Handle {
    /// Copies the ids of an update, on the stream, and looks at them there; on the host first, where
    /// the group validates data. Gives the tensor of the copy.
    pub(crate) fn copy_ids(
        &mut self,
        topk_idx: &View,
        indices: Use<'_>,
        stream: Stream<'_>,
    ) -> Result<View> {
        let size = topk_idx.data_type().size();
        let elements = topk_idx.shape.elements().unwrap_or(0);
        let (bytes, wide, tokens) = (elements.saturating_mul(size), size == 8, topk_idx.rows());
        let validates = self.group.validation == Validation::Data && elements > 0;
        let synchronous = self.group.comm.backend().memory().is_synchronous();
        let source = IdSource { ptr: topk_idx.buffer.ptr, wide, tokens };
        if validates && synchronous {
            // SAFETY: a tensor lies inside its buffer, which is borrowed, and host memory.
            let ids = unsafe { std::slice::from_raw_parts(topk_idx.buffer.ptr.cast(), bytes) };
            check_ids(&self.group, self.mode, self.topk, Ids { bytes: ids, wide })?;
        }
        let (group, copies) = (&self.group, &mut self.ids);
        if validates && !synchronous {
            let ids = self.host_ids.get_mut(..bytes).unwrap_or_default();
            // SAFETY: the tensor holds the bytes, and its buffer is borrowed.
            Use::around(stream, &[indices], || unsafe {
                group.comm.device().copy_to_host(source.ptr, ids, stream)
            })?;
            check_ids(group, self.mode, self.topk, Ids { bytes: ids, wide })?;
        }
        let _device = group.comm.activate()?;
        let _calls = group.comm.lock();
        // SAFETY: as many ids as the rules of updates allow, for which there is memory, in a tensor
        // whose owner keeps it valid until enqueued work is done. The group's order puts the copy
        // after the calls that read the one before.
        let copy = group.enqueue(stream, &[indices], || unsafe {
            match self.host_ids.get_mut(..bytes).filter(|_| validates && !synchronous) {
                Some(ids) => copies.copy_from_host(ids, wide, tokens, stream),
                None => copies.copy(&group.comm, source, stream),
            }
        })?;
        let mut view = *topk_idx;
        (view.buffer.ptr, view.buffer.bytes) = (copy, bytes);
        Ok(view)
    }
}

/// The rules of what ids say.
fn check_ids(group: &SharedGroup, mode: Mode, topk: u64, ids: Ids<'_>) -> Result<()> {
    let facts = DataFacts { geometry: &group.geometry, mode, topk: topk as usize, ids };
    rules::check(data::DATA, |broken| broken(&facts))
}
