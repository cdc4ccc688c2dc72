//! Page-locked host memory.

use core::ffi::{c_uint, c_void};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::Mutex;

use nccl_ext_core::driver::CuResult;

use super::common::{OUT_OF_MEMORY, store};
use crate::lock::lock;

const ALIGN: usize = 4096;

static ALLOCATED: Mutex<BTreeMap<usize, Layout>> = Mutex::new(BTreeMap::new());

/// Whether the bytes are page-locked, so that copies of them may run later.
pub(super) fn is_pinned(address: usize, bytes: usize) -> bool {
    let allocated = lock(&ALLOCATED);
    let found = allocated.range(..=address).next_back();
    found.is_some_and(|(start, layout)| {
        layout.size().checked_sub(address - start).is_some_and(|left| bytes <= left)
    })
}

pub(super) unsafe extern "C" fn alloc(
    memory: *mut *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> CuResult {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), ALIGN) else { return OUT_OF_MEMORY };
    // SAFETY: the size is not zero.
    let made = unsafe { std::alloc::alloc_zeroed(layout) };
    if made.is_null() {
        return OUT_OF_MEMORY;
    }
    lock(&ALLOCATED).insert(made.expose_provenance(), layout);
    // SAFETY: the C contract of cuMemHostAlloc.
    unsafe { store(memory, made.cast()) }
}

pub(super) unsafe extern "C" fn free(memory: *mut c_void) -> CuResult {
    let Some(layout) = lock(&ALLOCATED).remove(&memory.addr()) else {
        return CuResult::INVALID_VALUE;
    };
    // SAFETY: it was allocated with this layout, and removing it made this call the only one to free it.
    unsafe { std::alloc::dealloc(memory.cast(), layout) };
    CuResult::SUCCESS
}
