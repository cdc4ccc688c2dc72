//! Groups: recording and execution (M2N 4.3). Each thread has its own.

use std::cell::RefCell;

use nccl_ext_core::raw::ncclResult_t;
use nccl_m2n_sys::{NCCL_M2N_API_VERSION, ncclDistTensor_t, ncclMesh_t};

use super::fused::{self, Fused};
use super::runtime;
use super::single::{self, Request};
use crate::entry::Scope;
use crate::m2n::descriptor::Header;
use crate::m2n::environment::CopyAlgorithm;
use crate::m2n::fault::{BrokenRule, Fault, require};
use crate::m2n::meeting::Caller;
use crate::m2n::published::EntryFailure;

/// A bucket with more entries goes one by one.
const MOST_FUSED: usize = 4096;

/// CUDA's name for the legacy default stream, which NULL is as well.
const LEGACY_STREAM: usize = 1;

/// The group that a thread is recording.
#[derive(Default)]
struct Recording {
    depth: usize,
    /// The first refusal while recording: it is what every later call of the group returns.
    latched: Option<BrokenRule>,
    entries: Vec<Request>,
}

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// Whether calls of this thread are recorded.
pub(crate) fn is_active() -> bool {
    RECORDING.with_borrow(Option::is_some)
}

pub(crate) fn start() {
    RECORDING.with_borrow_mut(|group| {
        let group = group.get_or_insert_default();
        group.depth = group.depth.saturating_add(1);
    });
}

/// Discards every level.
pub(crate) fn abort() {
    RECORDING.take();
}

/// Records a request in the active group.
pub(crate) fn record(request: Request) -> Result<(), BrokenRule> {
    RECORDING.with_borrow_mut(|group| {
        let Some(group) = group else { return Ok(()) };
        if group.latched.is_none() {
            group.latched = check_headers(&request).err();
        }
        if let Some(rule) = &group.latched {
            return Err(rule.clone());
        }
        group.entries.push(request);
        Ok(())
    })
}

/// What must hold for a descriptor to be copied. Everything else is looked at when the group ends.
fn check_headers(request: &Request) -> Result<(), BrokenRule> {
    let sides = [("source", &request.src), ("destination", &request.dst)];
    for (side, tensor) in sides {
        let Some(tensor) = tensor else { continue };
        check_header::<ncclDistTensor_t>(side, "tensor", tensor.header)?;
        if let Some(mesh) = &tensor.mesh {
            check_header::<ncclMesh_t>(side, "mesh", mesh.header)?;
        }
    }
    Ok(())
}

fn check_header<T>(side: &str, what: &str, header: Header) -> Result<(), BrokenRule> {
    let Header { size, version } = header;
    let (needed, argument) = (size_of::<T>(), format!("{side} {what} descriptor"));
    require(size >= needed, || {
        let rule = "the descriptor has the size of this library's";
        BrokenRule::new("ncclM2n group", &argument, rule, needed, format_args!("size {size}"))
    })?;
    require(version == NCCL_M2N_API_VERSION, || {
        let rule = "the ABI version is this library's";
        BrokenRule::new("ncclM2n group", &argument, rule, NCCL_M2N_API_VERSION, version)
    })
}

/// Closes one level; the outermost runs what was recorded.
///
/// # Safety
/// The C contract of `ncclReshard` for each recorded request.
pub(crate) unsafe fn end(scope: &Scope) -> Result<(), Fault> {
    let group = RECORDING.with_borrow_mut(|slot| match slot {
        None => Err(BrokenRule::new(
            "ncclM2nGroupEnd",
            "group",
            "an end closes a group of the same thread",
            "an active group",
            "none",
        )
        .with_code(ncclResult_t::ncclInvalidUsage)),
        Some(group) if group.depth > 1 => {
            group.depth -= 1;
            Ok(None)
        }
        Some(_) => Ok(slot.take()),
    })?;
    let Some(Recording { latched, entries, .. }) = group else { return Ok(()) };
    if let Some(rule) = latched {
        return Err(rule.into());
    }
    let count = entries.len();
    for bucket in buckets(entries) {
        // SAFETY: this function's contract.
        let result = unsafe { run(scope, &bucket, count) };
        result.map_err(|EntryFailure { index, why }| why.of_entry(index, count))?;
    }
    Ok(())
}

/// Entries by handle, communicator and stream, in the order of their first.
fn buckets(entries: Vec<Request>) -> Vec<Vec<(usize, Request)>> {
    let mut buckets: Vec<(_, Vec<(usize, Request)>)> = Vec::new();
    for (index, request) in entries.into_iter().enumerate() {
        let stream = request.stream;
        let stream = if stream.is_null() { LEGACY_STREAM } else { stream.addr() };
        let key = (request.handle, request.comm, stream);
        match buckets.iter_mut().find(|(other, _)| *other == key) {
            Some((_, bucket)) => bucket.push((index, request)),
            None => buckets.push((key, vec![(index, request)])),
        }
    }
    buckets.into_iter().map(|(_, bucket)| bucket).collect()
}

/// Runs a bucket of a group of `count` entries, all of it on one stream.
///
/// # Safety
/// As [`end`].
unsafe fn run(
    scope: &Scope,
    bucket: &[(usize, Request)],
    count: usize,
) -> Result<(), EntryFailure<Fault>> {
    let whole = bucket.iter().all(|(_, request)| request.src.is_some() && request.dst.is_some());
    let fusible = whole
        && (2..=MOST_FUSED).contains(&bucket.len())
        && runtime::peek_algorithm() == CopyAlgorithm::Pack;
    if fusible {
        // SAFETY: this function's contract.
        match unsafe { fused::run(scope, bucket, count)? } {
            Fused::Done => return Ok(()),
            Fused::OneByOne => {}
        }
    }
    for &(index, ref request) in bucket {
        let caller = Caller::Entry { index, count };
        // SAFETY: this function's contract.
        unsafe { single::reshard(scope, request, caller) }.map_err(EntryFailure::at(index))?;
    }
    Ok(())
}
