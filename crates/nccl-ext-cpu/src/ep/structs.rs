//! Reading the caller's structures (EP 1.4).

use nccl_ep_sys::{NCCL_EP_MAGIC, VersionedStruct};

use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// A structure that must be given.
///
/// # Safety
/// `given` is NULL or points to as many bytes as its `size` field says.
pub(super) unsafe fn required<T: VersionedStruct>(given: *const T, name: &str) -> Outcome<T> {
    // SAFETY: this function's contract.
    unsafe { optional(given, name)? }.ok_or_else(|| Refusal::null(FailureClass::Return, name))
}

/// A structure that may be NULL.
///
/// # Safety
/// As [`required`].
pub(super) unsafe fn optional<T: VersionedStruct>(
    given: *const T,
    name: &str,
) -> Outcome<Option<T>> {
    if given.is_null() {
        return Ok(None);
    }
    let head: *const u32 = given.cast();
    // SAFETY: the first field of every versioned structure is its size.
    let size = unsafe { head.read_unaligned() } as usize;
    require(size >= T::V1_SIZE, || {
        let expected = format_args!("size >= {}", T::V1_SIZE).to_string();
        let rule = "the structure starts with its size and magic";
        Refusal::argument(FailureClass::Return, name, rule, expected, format_args!("size {size}"))
    })?;
    // SAFETY: the size says that the second field, the magic, is there.
    let magic = unsafe { head.add(1).read_unaligned() };
    require(magic == NCCL_EP_MAGIC, || {
        let expected = format_args!("magic {NCCL_EP_MAGIC:#x}").to_string();
        let rule = "the structure starts with its size and magic";
        let found = format_args!("magic {magic:#x}").to_string();
        Refusal::argument(FailureClass::Return, name, rule, expected, found)
    })?;
    let defaults = T::init();
    let mut value = defaults;
    let bytes = size.min(size_of::<T>());
    let (from, to): (*const u8, *mut u8) = (given.cast(), (&raw mut value).cast());
    // SAFETY: the caller gave `size` bytes. The structures consist of integers, raw pointers and
    // optional functions, for which any bytes that a C caller can write are valid.
    unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
    // Size and magic are the library's own again: the caller's may be a larger structure's.
    // SAFETY: both are two `u32` fields long at least.
    unsafe { core::ptr::copy_nonoverlapping((&raw const defaults).cast::<u8>(), to, 8) };
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use nccl_ep_sys::{VersionedStruct, ncclEpGroupConfig_t, ncclEpTensorAllocConfig_t};

    use super::*;

    #[test]
    fn v1_sizes_leave_later_fields_at_their_defaults() {
        let given = ncclEpGroupConfig_t { size: 96, num_topk: 7, num_experts: 5, ..init() };
        // SAFETY: `given` has at least 96 bytes.
        let read = unsafe { required(&given, "config") }.unwrap();
        assert_eq!((read.size, read.num_experts, read.num_topk), (112, 5, 0));
    }

    #[test]
    fn sizes_are_checked_before_magic_and_larger_ones_are_cut() {
        let short = ncclEpGroupConfig_t { size: 95, magic: 1, ..init() };
        // SAFETY: as above.
        let refusal = unsafe { required(&short, "config") }.unwrap_err();
        assert!(refusal.to_error("f").to_string().contains("size 95"));
        let larger = [16_u32, NCCL_EP_MAGIC, 0xDEAD, 0xBEEF];
        // SAFETY: 16 bytes are there.
        let read = unsafe { required(larger.as_ptr().cast::<ncclEpTensorAllocConfig_t>(), "c") };
        assert_eq!(read.unwrap().size, 8);
    }

    fn init() -> ncclEpGroupConfig_t {
        ncclEpGroupConfig_t::init()
    }
}
