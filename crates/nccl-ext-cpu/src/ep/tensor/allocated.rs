//! Descriptors that `ncclEpTensorAlloc` made.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use nccl_ep_sys::{VersionedStruct, ncclEpTensor_t, ncclEpTensorAllocConfig_t};
use nccl_ext_core::raw::ncclDataType_t;

use crate::ep::structs;
use crate::lock::lock;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// The cookie of descriptors that [`alloc`] made.
pub(super) const ALLOCATED_MAGIC: u32 = 0xBEEF_BEEF;

/// Live allocated descriptors by address, each with its size array and length. Looking them up
/// here means never to read in front of a descriptor that only claims to be one.
static ALLOCATED: Mutex<BTreeMap<usize, Sizes>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Sizes {
    first: *mut usize,
    len: usize,
}

// SAFETY: the array belongs to the descriptor of the entry, which any thread may destroy.
unsafe impl Send for Sizes {}

fn allocated() -> MutexGuard<'static, BTreeMap<usize, Sizes>> {
    lock(&ALLOCATED)
}

/// Whether a descriptor with the allocated cookie is one, and has the sizes that it was given.
pub(super) fn is_intact(descriptor: *const ncclEpTensor_t, sizes: *const usize) -> bool {
    allocated().get(&descriptor.addr()).is_some_and(|entry| entry.first.cast_const() == sizes)
}

/// # Safety
/// The C contract of `ncclEpTensorAlloc`.
pub(crate) unsafe fn alloc(
    out: *mut *mut ncclEpTensor_t,
    ndim: u32,
    datatype: ncclDataType_t,
    sizes: *const usize,
    config: *const ncclEpTensorAllocConfig_t,
) -> Outcome {
    // SAFETY: this function's contract.
    unsafe { structs::optional(config, "config")? };
    let class = FailureClass::Return;
    require(!out.is_null(), || Refusal::null(class, "tensor"))?;
    require(!sizes.is_null(), || Refusal::null(class, "sizes"))?;
    require(ndim > 0, || Refusal::argument(class, "ndim", "a tensor has extents", ">= 1", 0))?;
    let len = ndim as usize;
    // SAFETY: the contract: the caller gives `ndim` sizes.
    let copy: Box<[usize]> = (0..len).map(|i| unsafe { sizes.add(i).read_unaligned() }).collect();
    let first = Box::into_raw(copy).cast::<usize>();
    let magic = ALLOCATED_MAGIC;
    let tensor = ncclEpTensor_t { magic, ndim, datatype, sizes: first, ..ncclEpTensor_t::init() };
    let tensor = Box::into_raw(Box::new(tensor));
    allocated().insert(tensor.addr(), Sizes { first, len });
    // SAFETY: the contract: writable.
    unsafe { out.write(tensor) };
    Ok(())
}

/// # Safety
/// The C contract of `ncclEpTensorDestroy`.
pub(crate) unsafe fn destroy(tensor: *mut ncclEpTensor_t) -> Outcome {
    if tensor.is_null() {
        return Ok(());
    }
    let mut allocated = allocated();
    // What is not in the table is not read at all: it may be static, foreign or already freed.
    let entry = allocated.get(&tensor.addr()).copied().ok_or_else(|| {
        Refusal::argument(
            FailureClass::Return,
            "tensor",
            "the descriptor came from ncclEpTensorAlloc and is destroyed once",
            "such a descriptor",
            "another",
        )
    })?;
    // SAFETY: the table says that the descriptor lives.
    let descriptor = unsafe { &*tensor };
    let intact = descriptor.size as usize >= size_of::<ncclEpTensor_t>()
        && descriptor.magic == ALLOCATED_MAGIC
        && descriptor.sizes == entry.first;
    require(intact, || {
        Refusal::argument(
            FailureClass::Return,
            "tensor",
            "size, magic and the sizes pointer of an allocated descriptor never change",
            "the descriptor as it was allocated",
            "a changed one",
        )
    })?;
    allocated.remove(&tensor.addr());
    drop(allocated);
    // SAFETY: both came out of boxes in `alloc`, and removing the entry made this call the only
    // one to free them.
    unsafe {
        drop(Box::from_raw(core::ptr::slice_from_raw_parts_mut(entry.first, entry.len)));
        drop(Box::from_raw(tensor));
    }
    Ok(())
}
