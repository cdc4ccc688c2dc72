//! Handles, and the settings that live as long as any of them: an epoch (M2N 2.8, 4.1).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use nccl_m2n_sys::{NCCL_M2N_API_MAGIC, ncclM2nConfig_t, ncclM2nHandle_t};

use crate::lock::lock;
use crate::m2n::environment::{CopyAlgorithm, Environment};
use crate::m2n::epoch::Epoch;
use crate::m2n::fault::{BrokenRule, require};

/// What the whole process shares. It is locked for a look-up, never while ranks meet.
struct Runtime {
    /// Tokens are counted from 1 and never come again.
    issued: usize,
    live: BTreeSet<usize>,
    /// Whether the handle behind NULL is live.
    default: bool,
    /// What the first live handle read. An epoch lasts until no handle lives.
    epoch: Option<Arc<Epoch>>,
}

static RUNTIME: Mutex<Runtime> =
    Mutex::new(Runtime { issued: 0, live: BTreeSet::new(), default: false, epoch: None });

impl Runtime {
    fn epoch(&mut self) -> Arc<Epoch> {
        Arc::clone(self.epoch.get_or_insert_with(|| Arc::new(Epoch::begin())))
    }

    /// Ends the epoch when no handle lives; the one that has ended.
    fn release(&mut self) -> Option<Arc<Epoch>> {
        let in_use = self.default || !self.live.is_empty();
        if in_use { None } else { self.epoch.take() }
    }
}

/// # Safety
/// `out` is NULL or writable; `config` is NULL or a configuration as the C API describes it.
pub(crate) unsafe fn init(
    out: *mut ncclM2nHandle_t,
    config: *const ncclM2nConfig_t,
) -> Result<(), BrokenRule> {
    const API: &str = "ncclM2nInit";
    require(!out.is_null(), || {
        BrokenRule::new(API, "handle", "the pointer is not NULL", "a pointer", "NULL")
    })?;
    // SAFETY: this function's contract.
    unsafe { out.write(core::ptr::null_mut()) };
    if !config.is_null() {
        // SAFETY: the contract: the structure starts with its size.
        let size = unsafe { (&raw const (*config).size).read() };
        let needed = size_of::<ncclM2nConfig_t>();
        require(size == needed, || {
            let rule = "the size is that of this library's structure";
            BrokenRule::new(API, "config size", rule, needed, size)
        })?;
        // SAFETY: it is as large as this library's structure. Another version is accepted with
        // the same layout, and no CTA count matters here (M2N 1.4).
        let magic = unsafe { (&raw const (*config).magic).read() };
        require(magic == NCCL_M2N_API_MAGIC, || {
            let (expected, found) = (format!("{NCCL_M2N_API_MAGIC:#x}"), format!("{magic:#x}"));
            let rule = "the structure was made by its initialiser";
            BrokenRule::new(API, "config magic", rule, expected, found)
        })?;
    }
    let mut runtime = lock(&RUNTIME);
    runtime.epoch();
    runtime.issued += 1;
    let token = runtime.issued;
    runtime.live.insert(token);
    drop(runtime);
    // SAFETY: this function's contract.
    unsafe { out.write(core::ptr::without_provenance_mut(token)) };
    Ok(())
}

/// Local here: there is nothing that ranks would have to give up together. The end of the epoch
/// waits for what streams were given under it (M2N 4.1).
pub(crate) fn finalize(handle: ncclM2nHandle_t) -> Result<(), BrokenRule> {
    let mut runtime = lock(&RUNTIME);
    if handle.is_null() {
        runtime.default = false;
    } else {
        let known = runtime.live.remove(&handle.addr());
        require(known, || unknown("ncclM2nFinalize", handle))?;
    }
    let ended = runtime.release();
    drop(runtime);
    if let Some(epoch) = ended {
        epoch.wait();
    }
    Ok(())
}

/// The settings behind a handle; NULL creates the default one (check 26 of M2N 2.1).
pub(crate) fn acquire(api: &str, handle: ncclM2nHandle_t) -> Result<Arc<Epoch>, BrokenRule> {
    let mut runtime = lock(&RUNTIME);
    if handle.is_null() {
        runtime.default = true;
    } else {
        require(runtime.live.contains(&handle.addr()), || unknown(api, handle))?;
    }
    Ok(runtime.epoch())
}

/// The copy algorithm of the settings that [`acquire`] would give.
///
/// The vendor's library takes its built-in ones where no epoch has begun, so that ranks of one
/// process may disagree and hang (M2N 4.3).
pub(crate) fn peek_algorithm() -> CopyAlgorithm {
    let epoch = lock(&RUNTIME).epoch.clone();
    epoch.map_or_else(|| Environment::read().algorithm, |epoch| epoch.environment.algorithm)
}

fn unknown(api: &str, handle: ncclM2nHandle_t) -> BrokenRule {
    let rule = "the handle was initialized and not finalized since";
    BrokenRule::new(api, "handle", rule, "a live handle", format_args!("{handle:p}"))
}
