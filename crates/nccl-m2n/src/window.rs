//! Windows, which the library takes and does not use yet.

use std::marker::PhantomData;

use nccl_ext_core::raw::ncclWindow_t;

/// A borrowed NCCL window.
///
/// The library drops it and does what it does without one (M2N 1.1): nothing depends on it yet.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "ncclWindow_t")]
pub struct Window<'a> {
    raw: ncclWindow_t,
    owner: PhantomData<&'a ()>,
}

// SAFETY: a window is a handle that the library drops; nothing is read through it.
unsafe impl Send for Window<'_> {}
// SAFETY: as above.
unsafe impl Sync for Window<'_> {}

impl Window<'static> {
    /// No window.
    pub const NONE: Self = Self { raw: core::ptr::null_mut(), owner: PhantomData };
}

impl Window<'_> {
    /// Wraps a window that something else owns.
    ///
    /// # Safety
    /// `raw` is NULL or a window of the communicator of the call, which lives for the chosen
    /// lifetime and until the work enqueued through the result is done.
    #[must_use]
    pub const unsafe fn from_raw(raw: ncclWindow_t) -> Self {
        Self { raw, owner: PhantomData }
    }

    /// The C handle.
    #[must_use]
    pub const fn as_raw(self) -> ncclWindow_t {
        self.raw
    }
}
