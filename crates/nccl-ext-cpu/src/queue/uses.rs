//! Which bytes the running work uses.

use crate::refusal::Outcome;

/// The running work is about to read these bytes.
#[expect(clippy::unnecessary_wraps, reason = "deferred work is refused bytes that race")]
pub(crate) fn read(_from: *const u8, _bytes: usize) -> Outcome {
    Ok(())
}

/// The running work is about to write these bytes.
#[expect(clippy::unnecessary_wraps, reason = "deferred work is refused bytes that race")]
pub(crate) fn write(_to: *mut u8, _bytes: usize) -> Outcome {
    Ok(())
}
