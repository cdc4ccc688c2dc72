//! Texts of C.

/// A C text, copied; empty for NULL.
///
/// # Safety
/// `text` is NULL or points to a NUL-terminated text that stays during the call.
#[must_use]
pub unsafe fn text(text: *const core::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: this function's contract.
    unsafe { core::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
