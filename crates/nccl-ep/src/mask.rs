//! The mask of active ranks of a low-latency group, and its error flag (EP 6.2).

use nccl_ext_core::{DeviceBufferMut, Result, Stream, Use};

#[cfg(doc)]
use crate::Error;
use crate::group::Group;
use crate::rules;
use crate::rules::mask::{MaskBufferFacts, MaskFacts, QUERY, RULES};
use crate::rules::stream::{MASK_UPDATE, StreamFacts};

impl Group {
    /// Writes this rank's view of who takes part into `mask`, `[ranks]` int32: 1 active, 0 masked.
    /// Local; needs [`enable_mask`](crate::GroupConfig::enable_mask).
    ///
    /// # Errors
    /// [`Error::Invalid`] without a mask in the group, or for a buffer that
    /// is not one int32 per rank; and the errors of [every call](crate#errors).
    #[doc(alias = "ncclEpMaskQuery")]
    pub fn mask_query<B>(&self, mask: &mut B, stream: Stream<'_>) -> Result<()>
    where
        B: DeviceBufferMut + ?Sized,
    {
        let shared = &self.shared;
        shared.in_step()?;
        let (mask, uses) = (mask.raw_mut(), [Use::write(mask.usage())]);
        shared.comm.check_memory("mask_status", &mask)?;
        shared.comm.check_stream(stream)?;
        let facts = MaskBufferFacts {
            data_type: mask.data_type,
            entries: (mask.bytes / mask.data_type.size()) as u64,
            ranks: shared.geometry.ranks,
        };
        rules::check(QUERY, |broken| broken(&facts))?;
        self.check_mask(shared.comm.size(), true)?;
        let _device = shared.comm.activate()?;
        let _calls = shared.comm.lock();
        // SAFETY: the group lives, and the buffer holds an entry a rank.
        shared.enqueue(stream, &uses, || unsafe {
            shared.call(
                "ncclEpMaskQuery",
                shared.api.ncclEpMaskQuery,
                (shared.raw, mask.ptr.cast(), stream.as_raw()),
            )
        })
    }

    /// Sets this rank's view of who takes part, one entry per rank. Dispatch and combine skip
    /// inactive ranks. Local: the others are not told. Waits for the copy to the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a mask in the group, for another number of
    /// entries, or while the stream is being captured into a graph; and the errors of
    /// [every call](crate#errors).
    #[doc(alias = "ncclEpMaskUpdate")]
    pub fn mask_update(&self, active: &[bool], stream: Stream<'_>) -> Result<()> {
        let shared = &self.shared;
        shared.in_step()?;
        self.check_mask(active.len(), true)?;
        let facts = StreamFacts { capturing: stream.is_capturing(&shared.comm)? };
        rules::check(MASK_UPDATE, |broken| broken(&facts))?;
        let mask: Vec<i32> = active.iter().map(|active| i32::from(*active)).collect();
        let updated = {
            let _device = shared.comm.activate()?;
            let _calls = shared.comm.lock();
            // SAFETY: the group lives; the mask stays until the copy is done, below, also when the
            // call fails after it enqueued the copy.
            shared.enqueue(stream, &[], || unsafe {
                shared.call(
                    "ncclEpMaskUpdate",
                    shared.api.ncclEpMaskUpdate,
                    (shared.raw, mask.as_ptr(), stream.as_raw()),
                )
            })
        };
        let done = stream.synchronize(&shared.comm);
        updated.and(done)
    }

    /// Makes all ranks active again and forgets their signals. Every rank that takes part calls
    /// it, with no round open; waits for the device.
    ///
    /// Not a barrier: synchronize the ranks yourself afterwards. A rank can come back only if it
    /// has made as many low-latency calls as the others, or an even number more or less (EP 6.2).
    ///
    /// # Errors
    /// [`Error::Invalid`] without a mask in the group, or before the first
    /// handle of a group without [`rdma_buffer_size`](crate::GroupConfig::rdma_buffer_size), since
    /// there is no buffer yet. [`Error::Busy`] while a round is open. And the
    /// errors of [every call](crate#errors).
    #[doc(alias = "ncclEpMaskClean")]
    pub fn mask_clean(&self, stream: Stream<'_>) -> Result<()> {
        let shared = &self.shared;
        shared.in_step()?;
        self.check_mask(shared.comm.size(), false)?;
        shared.comm.check_stream(stream)?;
        let _round = shared.keep_rounds_out()?;
        let _device = shared.comm.activate()?;
        let _calls = shared.comm.lock();
        // SAFETY: the group lives.
        shared.enqueue(stream, &[], || unsafe {
            shared.call(
                "ncclEpMaskClean",
                shared.api.ncclEpMaskClean,
                (shared.raw, stream.as_raw()),
            )
        })
    }

    /// Whether a wait timed out since the flag was last cleared. Local; does not wait.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a mask in the group; and the errors of
    /// [every call](crate#errors).
    #[doc(alias = "ncclEpGetAsyncError")]
    pub fn get_async_error(&self) -> Result<bool> {
        let shared = &self.shared;
        shared.in_step()?;
        self.check_mask(shared.comm.size(), true)?;
        let mut error = 0;
        let _device = shared.comm.activate()?;
        let _calls = shared.comm.lock();
        // SAFETY: the group lives, and `error` outlives the call.
        unsafe {
            shared.call(
                "ncclEpGetAsyncError",
                shared.api.ncclEpGetAsyncError,
                (shared.raw, &raw mut error),
            )?;
        }
        Ok(error != 0)
    }

    /// Clears the flag of [`get_async_error`](Self::get_async_error); the mask stays. Local.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a mask in the group; and the errors of
    /// [every call](crate#errors).
    #[doc(alias = "ncclEpErrorClear")]
    pub fn error_clear(&self) -> Result<()> {
        let shared = &self.shared;
        shared.in_step()?;
        self.check_mask(shared.comm.size(), true)?;
        let _device = shared.comm.activate()?;
        let _calls = shared.comm.lock();
        // SAFETY: the group lives.
        unsafe { shared.call("ncclEpErrorClear", shared.api.ncclEpErrorClear, (shared.raw,)) }
    }

    /// The rules of mask calls; `local` for all but the clean.
    fn check_mask(&self, entries: usize, local: bool) -> Result<()> {
        let shared = &self.shared;
        let facts = MaskFacts {
            geometry: &shared.geometry,
            enabled: shared.mask,
            entries: entries as u64,
            local,
            handles: shared.had_handle(),
        };
        rules::check(RULES, |broken| broken(&facts))
    }
}
