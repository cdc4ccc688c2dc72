//! Structures of the Itanium C++ ABI.

use core::ffi::{c_char, c_int, c_void};

/// `_Unwind_Exception`: what all languages' exceptions start with. In C++ the object that was
/// thrown follows it.
#[repr(C, align(16))]
pub(super) struct Exception {
    pub(super) class: u64,
    pub(super) cleanup: Option<unsafe extern "C" fn(c_int, *mut Exception)>,
    pub(super) unwinder: [usize; 2],
}

/// `std::type_info`.
#[repr(C)]
pub(super) struct TypeInfo {
    pub(super) methods: *const *const c_void,
    pub(super) name: *const c_char,
}
