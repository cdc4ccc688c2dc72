//! What a stream of ours is made of. It lives as long as somebody remembers it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::backend::MemorySpace;
use crate::device::Device;
use crate::driver::CuResult;
use crate::error::{Error, Result};
use crate::raw::cudaStream_t;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: core::ffi::c_uint = 1;

pub(crate) struct StreamObject {
    /// NULL on host backends, which ignore streams.
    raw: cudaStream_t,
    device: Device,
    number: u64,
    /// Nobody can enqueue anything any more.
    released: AtomicBool,
    /// Why nobody waits for its work any more.
    abandoned: OnceLock<Arc<Error>>,
}

// SAFETY: CUDA streams may be used from any thread.
unsafe impl Send for StreamObject {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for StreamObject {}

impl StreamObject {
    pub(super) fn new(device: Device) -> Result<Self> {
        const NAME: &str = "cuStreamCreate";
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let backend = device.backend();
        let mut raw = core::ptr::null_mut();
        if backend.memory() == MemorySpace::Device {
            let _current = device.activate()?;
            let call = backend.driver_function(backend.driver().stream_create, NAME)?;
            // SAFETY: `raw` outlives the call; the device's context is current.
            backend.check_driver(NAME, unsafe { call(&mut raw, NON_BLOCKING) })?;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (released, abandoned) = (AtomicBool::new(false), OnceLock::new());
        Ok(Self { raw, device, number, released, abandoned })
    }

    pub(crate) fn as_raw(&self) -> cudaStream_t {
        self.raw
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its owner is gone.
    pub(super) fn release(&self) {
        self.released.store(true, Ordering::Release);
    }

    /// Whether its owner is gone.
    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Nobody shall wait for its work any more.
    pub(crate) fn abandon(&self, cause: &Arc<Error>) {
        let _ = self.abandoned.set(Arc::clone(cause)); // the first cause stays
    }

    /// Why nobody shall wait for its work.
    pub(crate) fn abandoned(&self) -> Option<&Arc<Error>> {
        self.abandoned.get()
    }
}

impl Drop for StreamObject {
    #[doc(alias = "cuStreamDestroy_v2")]
    fn drop(&mut self) {
        let Some(call) = self.device.backend().driver().stream_destroy else { return };
        if self.raw.is_null() {
            return;
        }
        let current = self.device.activate();
        // SAFETY: the stream was made here and is given up once; the driver frees it when its work
        // is done.
        let code = unsafe { call(self.raw) };
        if current.is_err() || code != CuResult::SUCCESS {
            tracing::error!(code = code.0, "a CUDA stream was leaked");
        }
    }
}
