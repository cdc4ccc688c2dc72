//! Other platforms: no guard.

use super::foreign::Foreign;

pub(super) const KIND: &str = "none";

/// # Safety
/// As for the call, which no exception leaves.
#[inline]
pub(super) unsafe fn call<F: Foreign>(
    function: F,
    arguments: F::Arguments,
) -> Result<F::Output, String> {
    // SAFETY: this function's own contract.
    Ok(unsafe { function.plain(arguments) })
}
