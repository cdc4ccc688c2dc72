//! Joining a communicator.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::end::End;
use super::{Comm, Inner};
use crate::backend::Backend;
use crate::device::Device;
use crate::error::Result;
use crate::order::LastUse;
use crate::raw::{ncclComm_t, ncclResult_t, ncclUniqueId};
use crate::rules::{self, comm};

/// What all ranks of a new communicator must share.
#[doc(alias = "ncclUniqueId")]
#[derive(Clone, Copy)]
pub struct UniqueId(ncclUniqueId);

impl UniqueId {
    /// Bytes of an identifier.
    pub const BYTES: usize = size_of::<ncclUniqueId>();

    /// Makes a new one; one rank does this and sends it to the others.
    ///
    /// # Errors
    /// [`Error::Native`](crate::Error::Native) with what NCCL reports.
    #[doc(alias = "ncclGetUniqueId")]
    pub fn new(backend: Backend) -> Result<Self> {
        let mut id = ncclUniqueId { internal: [0; Self::BYTES] };
        // SAFETY: `id` outlives the call.
        let code = unsafe { (backend.nccl().ncclGetUniqueId)(&mut id) };
        // SAFETY: no communicator is given.
        unsafe { backend.check("ncclGetUniqueId", code, core::ptr::null_mut())? };
        Ok(Self(id))
    }

    /// The bytes, to be sent to other processes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.internal.map(|byte| byte as u8)
    }

    /// An identifier from the bytes of another process.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(ncclUniqueId { internal: bytes.map(|byte| byte as core::ffi::c_char) })
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(..)")
    }
}

impl Comm {
    /// Joins a communicator of `size` ranks as `rank`. Every rank calls it; all block until all
    /// are there.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a rank outside `0..size`; what the backend
    /// reports, such as [`Error::Timeout`](crate::Error::Timeout) from the CPU backend when a rank
    /// never comes.
    #[doc(alias = "ncclCommInitRank")]
    pub fn init_rank(backend: Backend, size: usize, id: &UniqueId, rank: usize) -> Result<Self> {
        let facts = comm::JoinFacts { rank, size };
        rules::check(comm::JOIN, |broken| broken(&facts))?;
        let (index, count) = facts.as_c().unwrap_or((-1, 0)); // never, after the check
        let mut raw = core::ptr::null_mut();
        // SAFETY: `raw` outlives the call.
        let code = unsafe { (backend.nccl().ncclCommInitRank)(&mut raw, count, id.0, index) };
        // SAFETY: no communicator exists yet.
        unsafe { backend.check("ncclCommInitRank", code, core::ptr::null_mut())? };
        // SAFETY: a fresh communicator of this backend that nobody else has.
        unsafe { Self::from_raw(backend, raw) }
    }

    /// As [`init_rank`](Self::init_rank), on that device: it is made current for the call, and the
    /// caller's again afterwards. Backends whose ranks are threads choose the device themselves.
    ///
    /// # Errors
    /// As [`init_rank`](Self::init_rank) and [`Device::activate`].
    pub fn init_rank_on(device: Device, size: usize, id: &UniqueId, rank: usize) -> Result<Self> {
        let _device = device.activate()?;
        Self::init_rank(device.backend(), size, id, rank)
    }

    /// Takes over a communicator made by other means, such as a C++ part of the program.
    ///
    /// # Safety
    /// `raw` is a live communicator of `backend` that is not used, aborted or destroyed by anyone
    /// else from here on.
    ///
    /// # Errors
    /// [`Error::Native`](crate::Error::Native) when it cannot be asked for rank, size and device.
    pub unsafe fn from_raw(backend: Backend, raw: ncclComm_t) -> Result<Self> {
        let nccl = backend.nccl();
        let ask = |call: &'static str,
                   function: unsafe extern "C" fn(ncclComm_t, *mut i32) -> ncclResult_t|
         -> Result<i32> {
            let mut value = 0;
            // SAFETY: the communicator lives by this function's contract.
            let code = unsafe { function(raw, &mut value) };
            // SAFETY: as above.
            unsafe { backend.check(call, code, raw)? };
            Ok(value)
        };
        let size = ask("ncclCommCount", nccl.ncclCommCount)?;
        let rank = ask("ncclCommUserRank", nccl.ncclCommUserRank)?;
        let ordinal = ask("ncclCommCuDevice", nccl.ncclCommCuDevice)?;
        let device = Device::new(backend, ordinal);
        Ok(Self(Arc::new(Inner {
            raw,
            rank: rank.max(0).unsigned_abs() as usize,
            size: size.max(0).unsigned_abs() as usize,
            device,
            calls: Mutex::new(()),
            end: End::new(),
            last_use: Arc::new(LastUse::new(device)),
            last_collective: LastUse::new(device),
        })))
    }
}
