//! The mask of active ranks of a low-latency group, and its error flag (EP 6.2).

use nccl_ext_core::{DeviceBufferMut, Result, Stream};

use crate::group::{Group, Inner};
use crate::rules;
use crate::rules::mask::{MaskBufferFacts, MaskFacts, QUERY, RULES};
use crate::rules::stream::{MASK_UPDATE, StreamFacts};

impl Group {
    /// Writes this rank's view of who takes part into `mask`, `[ranks]` int32: 1 active, 0 masked.
    /// Local; needs [`enable_mask`](crate::GroupConfig::enable_mask).
    ///
    /// # Errors
    /// [`Error::Invalid`] without a mask or for a tensor of another kind, and what the library
    /// reports.
    #[doc(alias = "ncclEpMaskQuery")]
    pub fn mask_query<B>(&self, mask: &mut B, stream: Stream<'_>) -> Result<()>
    where
        B: DeviceBufferMut + ?Sized,
    {
        let inner = &self.inner;
        inner.in_step()?;
        let mask = mask.raw_mut();
        inner.comm.check_memory("mask_status", &mask)?;
        let facts = MaskBufferFacts {
            data_type: mask.data_type,
            entries: (mask.bytes / mask.data_type.size()) as u64,
            ranks: inner.geometry.ranks,
        };
        rules::check(QUERY, |broken| broken(&facts))?;
        self.check_mask(inner.comm.size(), true)?;
        let _device = inner.comm.activate()?;
        let _calls = inner.comm.lock();
        // SAFETY: the group lives, and the buffer holds an entry a rank.
        unsafe {
            inner.call(
                "ncclEpMaskQuery",
                inner.api.ncclEpMaskQuery,
                (inner.raw, mask.ptr.cast(), stream.as_raw()),
            )
        }
    }

    /// Sets this rank's view of who takes part, one entry a rank: nothing is sent to, awaited from
    /// or combined of ranks that are not active. Local: the others are not told. Waits for the
    /// copy to the device.
    ///
    /// # Errors
    /// As [`mask_query`](Self::mask_query); [`Error::Invalid`] while the stream is being captured
    /// into a graph.
    #[doc(alias = "ncclEpMaskUpdate")]
    pub fn mask_update(&self, active: &[bool], stream: Stream<'_>) -> Result<()> {
        let inner = &self.inner;
        inner.in_step()?;
        self.check_mask(active.len(), true)?;
        let facts = StreamFacts { capturing: stream.is_capturing(&inner.comm)? };
        rules::check(MASK_UPDATE, |broken| broken(&facts))?;
        let mask: Vec<i32> = active.iter().map(|active| i32::from(*active)).collect();
        let updated = {
            let _device = inner.comm.activate()?;
            let _calls = inner.comm.lock();
            // SAFETY: the group lives; the mask stays until the copy is done, below, also when the
            // call fails after it enqueued the copy.
            unsafe {
                inner.call(
                    "ncclEpMaskUpdate",
                    inner.api.ncclEpMaskUpdate,
                    (inner.raw, mask.as_ptr(), stream.as_raw()),
                )
            }
        };
        let done = stream.synchronize(&inner.comm);
        updated.and(done)
    }

    /// Makes all ranks active again and forgets their signals. Every rank that takes part calls
    /// it, with no round open; waits for the device.
    ///
    /// It is no barrier between ranks that had masked each other: put one of the application's
    /// after it. A rank can come back only if the ranks' counts of calls agree in parity (EP 6.2).
    ///
    /// # Errors
    /// As [`mask_query`](Self::mask_query); [`Error::Invalid`] before the first handle, since there
    /// is no buffer yet; [`Error::Busy`] while a round is open.
    #[doc(alias = "ncclEpMaskClean")]
    pub fn mask_clean(&self, stream: Stream<'_>) -> Result<()> {
        let inner = &self.inner;
        inner.in_step()?;
        self.check_mask(inner.comm.size(), false)?;
        let _round = inner.open_round(Inner::CLEAN)?;
        let _device = inner.comm.activate()?;
        let _calls = inner.comm.lock();
        // SAFETY: the group lives.
        unsafe {
            inner.call("ncclEpMaskClean", inner.api.ncclEpMaskClean, (inner.raw, stream.as_raw()))
        }
    }

    /// Whether a wait timed out since the flag was last cleared. Local; does not wait.
    ///
    /// # Errors
    /// As [`mask_query`](Self::mask_query).
    #[doc(alias = "ncclEpGetAsyncError")]
    pub fn get_async_error(&self) -> Result<bool> {
        let inner = &self.inner;
        inner.in_step()?;
        self.check_mask(inner.comm.size(), true)?;
        let mut error = 0;
        let _device = inner.comm.activate()?;
        let _calls = inner.comm.lock();
        // SAFETY: the group lives, and `error` outlives the call.
        unsafe {
            inner.call(
                "ncclEpGetAsyncError",
                inner.api.ncclEpGetAsyncError,
                (inner.raw, &raw mut error),
            )?;
        }
        Ok(error != 0)
    }

    /// Clears the flag of [`get_async_error`](Self::get_async_error); the mask stays. Local.
    ///
    /// # Errors
    /// As [`mask_query`](Self::mask_query).
    #[doc(alias = "ncclEpErrorClear")]
    pub fn error_clear(&self) -> Result<()> {
        let inner = &self.inner;
        inner.in_step()?;
        self.check_mask(inner.comm.size(), true)?;
        let _device = inner.comm.activate()?;
        let _calls = inner.comm.lock();
        // SAFETY: the group lives.
        unsafe { inner.call("ncclEpErrorClear", inner.api.ncclEpErrorClear, (inner.raw,)) }
    }

    /// The rules of mask calls; `local` for all but the clean.
    fn check_mask(&self, entries: usize, local: bool) -> Result<()> {
        let inner = &self.inner;
        let facts = MaskFacts {
            geometry: &inner.geometry,
            enabled: inner.mask,
            entries: entries as u64,
            local,
            handles: inner.had_handle(),
        };
        rules::check(RULES, |broken| broken(&facts))
    }
}
