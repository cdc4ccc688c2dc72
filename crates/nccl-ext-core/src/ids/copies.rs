//! The memory that ids are copied to, and who copies them.

use core::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;

use super::kernel;
use super::report::{IdReport, Wrong};
use super::{IdCheck, IdCheckApi, IdRules};
use crate::backend::MemorySpace;
use crate::buffer::Buffer;
use crate::comm::Comm;
use crate::device::Device;
use crate::driver::CuFunction;
use crate::error::{Error, Result};
use crate::memory::DeviceBuffer;
use crate::order::LastUse;
use crate::raw::ncclResult_t;
use crate::stream::Stream;
use crate::usage::Use;

/// Ids to be copied: `[tokens, top-k]` integers of a backend's memory.
#[derive(Debug, Clone, Copy)]
pub struct IdSource {
    /// The first id.
    pub ptr: *const c_void,
    /// Whether ids are 64 bits wide, else 32.
    pub wide: bool,
    /// Rows.
    pub tokens: u64,
}

/// Memory for copies of ids, one at a time, and for what is found wrong with them.
pub struct IdCopies {
    memory: ManuallyDrop<Memory>,
    report: Report,
    /// Of the memory and the report. It also keeps a wait from lasting for ever once the work was
    /// abandoned.
    last_use: LastUse,
    by: By,
    device: Device,
    rules: IdRules,
    /// Of the reports, what was told already.
    told: u64,
    told_total: u64,
}

/// Where copies lie.
enum Memory {
    /// Reserved and never given a length: it is written and read through its pointer only.
    Host(Vec<u64>),
    /// The kernel's words first, then the copy.
    Device(Buffer<u8>),
}

/// Memory that the device writes and the host reads.
enum Report {
    /// Page-locked.
    Pinned(*const IdReport),
    Plain(*mut IdReport),
    /// To be made when it is needed.
    None,
}

/// Who copies.
#[derive(Clone, Copy)]
enum By {
    Loop,
    Table(&'static IdCheckApi),
    Kernel(CuFunction),
    /// A kernel that could not be loaded: the next copy tries again and says why.
    Nobody,
}

// SAFETY: streams, kernels and page-locked memory have no thread of their own; the host writes the
// fields through `&mut` only.
unsafe impl Send for IdCopies {}
// SAFETY: `&IdCopies` reads plain fields.
unsafe impl Sync for IdCopies {}

impl IdCopies {
    /// Bytes before the copy: the kernel's words, and as many more as keep the copy aligned as an
    /// allocation is. The copy itself takes 8 bytes an id.
    pub const HEAD_BYTES: u32 = 256;

    fn bytes(tokens: u64, topk: u32) -> Option<u64> {
        let ids = tokens.checked_mul(u64::from(topk))?.checked_mul(8)?;
        ids.checked_add(Self::HEAD_BYTES.into())
    }

    /// Allocates memory for at most `tokens` rows, and loads what looks at them. That nothing can be
    /// loaded shows when ids are copied.
    ///
    /// # Errors
    /// [`Error::Native`] when there is no memory, and what the driver reports.
    pub fn new(device: Device, tokens: u64, rules: IdRules) -> Result<Self> {
        let bytes = Self::bytes(tokens, rules.topk).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.unwrap_or(usize::MAX);
        let host = device.backend().memory() == MemorySpace::Host;
        let memory = if host {
            let mut words = Vec::new();
            words.try_reserve_exact(bytes / 8).map_err(|_| no_memory(bytes))?;
            Memory::Host(words)
        } else {
            Memory::Device(Buffer::zeroed(device, bytes)?)
        };
        let by = match device.backend().extension::<IdCheckApi>() {
            Ok(table) => By::Table(table),
            Err(_) if host => By::Loop,
            Err(_) => By::Nobody,
        };
        let report = match by {
            By::Nobody => Report::None,
            _ => Report::Plain(Box::into_raw(Box::default())),
        };
        let memory = ManuallyDrop::new(memory);
        let last_use = LastUse::new(device);
        let mut copies =
            Self { memory, report, last_use, by, device, rules, told: 0, told_total: 0 };
        if let Err(error) = copies.load() {
            tracing::debug!(%error, "expert ids cannot be looked at on the device");
        }
        Ok(copies)
    }

    /// Loads the kernel where one is needed and missing.
    fn load(&mut self) -> Result<()> {
        if let By::Nobody = self.by {
            let function = kernel::load(self.device)?;
            if let Report::None = self.report {
                let memory = kernel::pinned(self.device, size_of::<IdReport>())?.cast::<IdReport>();
                // SAFETY: page-locked memory of that size, which nothing else knows yet.
                unsafe { memory.write(IdReport::default()) };
                self.report = Report::Pinned(memory);
            }
            self.by = By::Kernel(function);
        }
        Ok(())
    }

    /// Enqueues a copy of `ids` and a look at each of them, and gives the address of the copy, of the
    /// same width. What it finds shows in [`take_error`](Self::take_error) once the stream has run
    /// it. The copy stays until the next one of these copies.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the driver has no way to look at ids on the device, what the
    /// driver reports, and the backend's own errors.
    ///
    /// # Safety
    /// `ids` are as many as they say and not more than there is memory for, in memory of the
    /// communicator's device, and stay unchanged until the stream has copied them. The communicator
    /// is on the device that these copies were made for, its lock is held; the stream is on it, too. One copy is run
    /// after the other, and after what reads it, also on several streams.
    pub unsafe fn copy(
        &mut self,
        comm: &Comm,
        ids: IdSource,
        stream: Stream<'_>,
    ) -> Result<*mut c_void> {
        if ids.tokens == 0 {
            return Ok(self.check(ids).to);
        }
        self.load()?;
        let mut check = self.check(ids);
        let to = check.to;
        let uses = [Use::write(Some(&self.last_use))];
        Use::around(stream, &uses, || match self.by {
            By::Loop => {
                // SAFETY: this function's contract; memory of the host.
                unsafe { check.run() };
                Ok(())
            }
            By::Table(table) => {
                let arguments = (&raw const check, comm.as_raw(), stream.as_raw());
                // SAFETY: this function's contract; `check` outlives the call.
                unsafe { comm.call("ncclExtCheckIds", table.ncclExtCheckIds, arguments) }
            }
            // SAFETY: this function's contract; drop waits for the device.
            By::Kernel(function) => unsafe {
                kernel::launch(self.device, function, &mut check, stream)
            },
            By::Nobody => Ok(()), // `load` has replaced it
        })?;
        Ok(to)
    }

    /// Copies ids that the host holds, and waits for it. They are looked at first, in place.
    ///
    /// # Errors
    /// What the driver reports.
    ///
    /// # Safety
    /// As [`copy`](Self::copy), but that `ids` is memory of the host, of at least as many bytes.
    pub unsafe fn copy_from_host(
        &mut self,
        ids: &mut [u8],
        wide: bool,
        tokens: u64,
        stream: Stream<'_>,
    ) -> Result<*mut c_void> {
        let source = IdSource { ptr: ids.as_ptr().cast(), wide, tokens };
        let report = IdReport::default();
        let check = self.check(source);
        let here = IdCheck { to: ids.as_mut_ptr().cast(), report: &raw const report, ..check };
        // SAFETY: one slice is source and target, and holds the ids by this function's contract.
        unsafe { here.run() };
        let uses = [Use::write(Some(&self.last_use))];
        // SAFETY: the same contract: there is memory for them.
        Use::around(stream, &uses, || unsafe {
            self.device.copy_from_host(ids, check.to, stream)
        })?;
        Ok(check.to)
    }

    fn check(&mut self, IdSource { ptr, wide, tokens }: IdSource) -> IdCheck {
        let (state, to) = match &mut *self.memory {
            Memory::Host(words) => (core::ptr::null_mut(), words.as_mut_ptr().cast()),
            Memory::Device(buffer) => {
                let head = buffer.raw().ptr;
                (head.cast::<u64>(), head.wrapping_byte_add(Self::HEAD_BYTES as usize))
            }
        };
        let IdRules { experts, topk, repeated, rank_experts } = self.rules;
        let (wide, repeated) = (u32::from(wide), repeated as u32);
        let report = self.report();
        IdCheck {
            from: ptr,
            to,
            tokens,
            experts,
            topk,
            wide,
            repeated,
            rank_experts,
            state,
            report,
        }
    }

    /// A read of the copy by a call, to be enqueued around each that reads it: drop waits for those.
    #[must_use]
    pub fn as_use(&self) -> Use<'_> {
        Use::read(Some(&self.last_use))
    }

    fn report(&self) -> *const IdReport {
        match self.report {
            Report::Pinned(report) => report,
            Report::Plain(report) => report,
            Report::None => core::ptr::null(),
        }
    }

    /// Whether copies that have been run so far found ids wrong that were not told before. Waits for
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Ids`].
    pub fn take_error(&mut self) -> Result<()> {
        // SAFETY: NULL or this value's own memory, of which the host reads atomics.
        let Some(report) = (unsafe { self.report().as_ref() }) else { return Ok(()) };
        let Some(wrong) = report.after(self.told, self.told_total) else { return Ok(()) };
        let Wrong { count, first, reports, total } = wrong;
        (self.told, self.told_total) = (reports, total);
        let topk = u64::from(self.rules.topk.max(1));
        let (token, choice) = ((first / topk) as usize, (first % topk) as usize);
        Err(Error::Ids { count, token, choice })
    }
}

fn no_memory(bytes: usize) -> Error {
    Error::Native {
        call: "allocation of memory for expert ids",
        code: ncclResult_t::ncclSystemError,
        detail: format!("{bytes} bytes are not to be had"),
    }
}

impl Drop for IdCopies {
    fn drop(&mut self) {
        if let Err(error) = self.last_use.wait() {
            // A copy may still be enqueued: all it writes stays where it is.
            tracing::error!(%error, "leaking memory for expert ids: cannot wait for its use");
            return;
        }
        // SAFETY: given up once, here.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
        match self.report {
            // SAFETY: from `pinned`; the device is done.
            Report::Pinned(report) => unsafe {
                kernel::free_pinned(self.device, report.cast_mut().cast());
            },
            // SAFETY: from `Box::into_raw`; the device is done.
            Report::Plain(report) => drop(unsafe { Box::from_raw(report) }),
            Report::None => {}
        }
    }
}

impl fmt::Debug for IdCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdCopies").field("rules", &self.rules).finish_non_exhaustive()
    }
}
