//! Communicators.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::backend::{self, Backend, MemorySpace};
use crate::buffer::{DeviceBuffer, DeviceBufferMut, RawBuffer};
use crate::device::{Context, DeviceScope};
use crate::driver;
use crate::error::{Error, Refused, Result, Scope};
use crate::guard::Foreign;
use crate::raw::{ncclComm_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};
use crate::rules::{self, comm, memory};
use crate::stream::Stream;

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
    /// [`Error::Native`] with what NCCL reports.
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

/// How all-reduce combines values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ncclRedOp_t")]
pub enum Reduction {
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// Largest.
    Max,
    /// Smallest.
    Min,
}

impl Reduction {
    fn as_raw(self) -> ncclRedOp_t {
        match self {
            Self::Sum => ncclRedOp_t::ncclSum,
            Self::Product => ncclRedOp_t::ncclProd,
            Self::Max => ncclRedOp_t::ncclMax,
            Self::Min => ncclRedOp_t::ncclMin,
        }
    }
}

struct Inner {
    backend: Backend,
    raw: ncclComm_t,
    rank: usize,
    size: usize,
    device: i32,
    /// Held over each native call: NCCL allows one thread at a time on a communicator, and the
    /// extensions run collectives of their own on it.
    calls: Mutex<()>,
    context: OnceLock<Context>,
    marked_for_abort: AtomicBool,
}

// SAFETY: NCCL communicators are not tied to a thread; `calls` keeps two threads from using one at
// the same time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A rank's membership in a communicator.
///
/// Clones share it. The last clone's drop aborts it, which is local: a collective in a drop would
/// hang when a peer is gone. [`destroy`](Self::destroy) ends it in good order.
#[derive(Clone)]
#[doc(alias = "ncclComm_t")]
pub struct Comm(Arc<Inner>);

impl Comm {
    /// Joins a communicator of `size` ranks as `rank`. Every rank calls it; all block until all
    /// are there.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rank outside `0..size`; what the backend reports, such as
    /// [`Error::Timeout`] from the CPU backend when a rank never comes.
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

    /// As [`init_rank`](Self::init_rank), on the device of that ordinal: it is made current for the
    /// call, and the caller's again afterwards.
    ///
    /// # Errors
    /// As [`init_rank`](Self::init_rank), and what the driver reports.
    pub fn init_rank_on(
        backend: Backend,
        device: i32,
        size: usize,
        id: &UniqueId,
        rank: usize,
    ) -> Result<Self> {
        let _device = DeviceScope::enter(backend, device)?;
        Self::init_rank(backend, size, id, rank)
    }

    /// Takes over a communicator made by other means, such as a C++ part of the program.
    ///
    /// # Safety
    /// `raw` is a live communicator of `backend` that is not used, aborted or destroyed by anyone
    /// else from here on.
    ///
    /// # Errors
    /// [`Error::Native`] when it cannot be asked for rank, size and device.
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
        let device = ask("ncclCommCuDevice", nccl.ncclCommCuDevice)?;
        Ok(Self(Arc::new(Inner {
            backend,
            raw,
            rank: rank.max(0).unsigned_abs() as usize,
            size: size.max(0).unsigned_abs() as usize,
            device,
            calls: Mutex::new(()),
            context: OnceLock::new(),
            marked_for_abort: AtomicBool::new(false),
        })))
    }

    /// The backend it was made on.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.0.backend
    }

    /// This rank.
    #[must_use]
    #[doc(alias = "ncclCommUserRank")]
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// Number of ranks.
    #[must_use]
    #[doc(alias = "ncclCommCount")]
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// The device's ordinal.
    #[must_use]
    #[doc(alias = "ncclCommCuDevice")]
    pub fn device(&self) -> i32 {
        self.0.device
    }

    /// Makes the communicator's device current on this thread, until the scope drops. Every call
    /// of these crates does it for itself: threads of a pool have no device current, and kernels
    /// go to the current one.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn activate(&self) -> Result<DeviceScope> {
        let Inner { backend, device, context, .. } = &*self.0;
        if backend.memory() == MemorySpace::Host {
            return Ok(DeviceScope::host(*backend));
        }
        let context = match context.get() {
            Some(context) => *context,
            None => {
                let primary = Context::primary(*backend, *device)?;
                *context.get_or_init(|| primary)
            }
        };
        DeviceScope::make_current(*backend, context)
    }

    /// The C handle, for calls that these crates do not wrap.
    #[must_use]
    pub fn as_raw(&self) -> ncclComm_t {
        self.0.raw
    }

    /// Keeps every other thread out of native calls on this communicator until the guard drops:
    /// for native calls that these crates do not wrap. All calls of these crates take it for
    /// themselves, so none may be made while holding it.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        // A panic while it was held cannot have left native state half-changed by Rust code.
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks it for abort: something on it was leaked or left out of step, so it will not be
    /// finalised in good order.
    pub fn mark_for_abort(&self) {
        self.0.marked_for_abort.store(true, Ordering::Release);
    }

    /// Whether it is marked for abort.
    #[must_use]
    pub fn is_marked_for_abort(&self) -> bool {
        self.0.marked_for_abort.load(Ordering::Acquire)
    }

    /// Tells the peers, where the backend can, that this rank will not come to the next
    /// collective, and marks the communicator for abort.
    pub fn fail(&self, error: &Error) {
        self.mark_for_abort();
        if let Some(hooks) = self.0.backend.hooks() {
            // SAFETY: the communicator lives as long as this handle.
            unsafe { (hooks.fail_rank)(self.0.raw, error) };
        }
    }

    /// Makes a native call of this communicator's backend through the [`guard`](crate::guard) and turns what
    /// comes back into the best error, on the call's thread.
    ///
    /// The caller holds [`lock`](Self::lock) and has the device current.
    ///
    /// # Errors
    /// [`Error::Exception`] for a C++ exception, else what the backend reports.
    ///
    /// # Safety
    /// As for the call, except that C++ exceptions may leave it.
    pub unsafe fn call<F>(
        &self,
        name: &'static str,
        function: F,
        arguments: F::Arguments,
    ) -> Result<()>
    where
        F: Foreign<Output = ncclResult_t>,
    {
        let backend = self.0.backend;
        // SAFETY: this function's contract; the communicator lives as long as this handle, and
        // NCCL's text stays until its next error on this thread.
        unsafe {
            backend.call(name, function, arguments, || {
                Ok(backend::text((backend.nccl().ncclGetLastError)(self.0.raw)))
            })
        }
    }

    /// Refuses memory that this communicator's backend cannot use.
    ///
    /// # Errors
    /// [`Error::Invalid`] for memory of another space or another backend.
    pub fn check_memory(&self, argument: &'static str, buffer: &RawBuffer) -> Result<()> {
        let facts = memory::MemoryFacts { argument, buffer: *buffer, backend: self.0.backend };
        rules::check(memory::BACKEND, |broken| broken(&facts))
    }

    /// Refuses a pointer that the driver does not know as device memory. Host backends take any.
    ///
    /// # Errors
    /// [`Error::Invalid`] for memory of another kind; [`Error::Unsupported`] without the driver
    /// function.
    #[doc(alias = "cuPointerGetAttribute")]
    pub fn check_device_pointer(&self, argument: &'static str, buffer: &RawBuffer) -> Result<()> {
        const NAME: &str = "cuPointerGetAttribute";
        let backend = self.0.backend;
        if backend.memory() == MemorySpace::Host {
            return Ok(());
        }
        let _device = self.activate()?;
        let call = driver::required(backend, backend.driver().pointer_attribute, NAME)?;
        let mut kind: u32 = 0;
        let attribute = driver::POINTER_MEMORY_TYPE;
        // SAFETY: the attribute is 32 bits wide; any pointer may be asked about.
        let known = unsafe { call((&raw mut kind).cast(), attribute, buffer.ptr as u64) };
        let other = match (known == driver::CuResult::SUCCESS, kind) {
            (true, driver::MEMORY_DEVICE | driver::MEMORY_UNIFIED) => None,
            (true, driver::MEMORY_HOST) => Some("pinned host memory"),
            (true, _) => Some("memory of another kind"),
            (false, _) => {
                Some("a pointer that the driver does not know, such as ordinary host memory")
            }
        };
        let facts = memory::PointerFacts { argument, other };
        rules::check(memory::DEVICE, |broken| broken(&facts))
    }

    /// Copies device memory to the host, after the stream's earlier work, and waits for it.
    ///
    /// # Errors
    /// What the driver reports.
    ///
    /// # Safety
    /// `from` points to at least as many readable bytes of the backend's memory as `to` has.
    pub unsafe fn copy_to_host(
        &self,
        from: *const core::ffi::c_void,
        to: &mut [u8],
        stream: Stream<'_>,
    ) -> Result<()> {
        const NAME: &str = "cuMemcpyDtoHAsync_v2";
        let backend = self.0.backend;
        let _device = self.activate()?;
        let call = driver::required(backend, backend.driver().copy_to_host, NAME)?;
        // SAFETY: this function's contract; `to` is borrowed until the copy is done.
        let code = unsafe { call(to.as_mut_ptr().cast(), from as u64, to.len(), stream.as_raw()) };
        driver::check(backend, NAME, code)?;
        stream.synchronize(self)
    }

    /// Gathers `send` of every rank into `recv`, in rank order. `recv` is `size` times as long.
    ///
    /// # Errors
    /// [`Error::Invalid`] for lengths, types or memory that do not fit; what the backend reports.
    #[doc(alias = "ncclAllGather")]
    pub fn all_gather<S, D>(&self, send: &S, recv: &mut D, stream: Stream<'_>) -> Result<()>
    where
        S: DeviceBuffer + ?Sized,
        D: DeviceBufferMut + ?Sized,
    {
        let (send, recv) = (send.raw(), recv.raw_mut());
        self.check_pair(&send, &recv, self.0.size)?;
        let count = send.bytes / send.data_type.size();
        let data_type = send.data_type.as_raw();
        let _device = self.activate()?;
        let _calls = self.lock();
        // SAFETY: `check_pair` made sure that both hold the elements; their owners keep them valid
        // until the enqueued work is done.
        unsafe {
            let function = self.0.backend.nccl().ncclAllGather;
            self.call(
                "ncclAllGather",
                function,
                (send.ptr.cast_const(), recv.ptr, count, data_type, self.0.raw, stream.as_raw()),
            )
        }
    }

    /// Combines `send` of every rank element by element into every rank's `recv`.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce<S, D>(
        &self,
        send: &S,
        recv: &mut D,
        reduction: Reduction,
        stream: Stream<'_>,
    ) -> Result<()>
    where
        S: DeviceBuffer + ?Sized,
        D: DeviceBufferMut + ?Sized,
    {
        let (send, recv) = (send.raw(), recv.raw_mut());
        self.check_pair(&send, &recv, 1)?;
        let count = send.bytes / send.data_type.size();
        let data_type = send.data_type.as_raw();
        let _device = self.activate()?;
        let _calls = self.lock();
        // SAFETY: as in `all_gather`.
        unsafe {
            let function = self.0.backend.nccl().ncclAllReduce;
            self.call(
                "ncclAllReduce",
                function,
                (
                    send.ptr.cast_const(),
                    recv.ptr,
                    count,
                    data_type,
                    reduction.as_raw(),
                    self.0.raw,
                    stream.as_raw(),
                ),
            )
        }
    }

    /// Copies `root`'s `buffer` to every rank's.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    #[doc(alias = "ncclBroadcast")]
    pub fn broadcast<B>(&self, buffer: &mut B, root: usize, stream: Stream<'_>) -> Result<()>
    where
        B: DeviceBufferMut + ?Sized,
    {
        let buffer = buffer.raw_mut();
        self.tell_if_local(self.check_memory("buffer", &buffer))?;
        let facts = comm::RootFacts { root, ranks: self.0.size };
        rules::check(comm::ROOT, |broken| broken(&facts))?;
        let root = root as i32; // less than the ranks, which NCCL counts in an `int`
        let count = buffer.bytes / buffer.data_type.size();
        let _device = self.activate()?;
        let _calls = self.lock();
        // SAFETY: as in `all_gather`; NCCL allows sending and receiving in place.
        unsafe {
            let function = self.0.backend.nccl().ncclBroadcast;
            self.call(
                "ncclBroadcast",
                function,
                (
                    buffer.ptr.cast_const(),
                    buffer.ptr,
                    count,
                    buffer.data_type.as_raw(),
                    root,
                    self.0.raw,
                    stream.as_raw(),
                ),
            )
        }
    }

    /// Passes on the verdict of a check before a collective. Only this rank knows its buffers:
    /// its peers would wait for it, so they are told, where the backend can.
    fn tell_if_local<T>(&self, checked: Result<T>) -> Result<T> {
        if let Err(error) = &checked
            && error.scope() == Scope::Local
        {
            self.fail(error);
        }
        checked
    }

    fn check_pair(&self, send: &RawBuffer, recv: &RawBuffer, factor: usize) -> Result<()> {
        self.tell_if_local(self.fits(send, recv, factor))
    }

    fn fits(&self, send: &RawBuffer, recv: &RawBuffer, factor: usize) -> Result<()> {
        self.check_memory("send", send)?;
        self.check_memory("recv", recv)?;
        let facts = comm::ReceiveFacts { send: *send, recv: *recv, factor };
        rules::check(comm::RECEIVE, |broken| broken(&facts))
    }

    /// Ends the communicator in good order. Every rank calls it, after its last collective.
    ///
    /// # Errors
    /// [`Error::Busy`], with the communicator, while clones, groups, handles or buffers live;
    /// what the backend reports.
    #[doc(alias = "ncclCommFinalize")]
    #[doc(alias = "ncclCommDestroy")]
    pub fn destroy(self) -> Result<(), Refused<Self>> {
        let inner = match Arc::try_unwrap(self.0) {
            Ok(inner) => inner,
            Err(shared) => {
                let error = Error::Busy {
                    what: "the communicator",
                    reason: format!(
                        "{} other owner(s) (clones, groups, handles, buffers) live; drop or \
                         destroy them first",
                        Arc::strong_count(&shared) - 1
                    ),
                };
                return Err(Refused::kept(error, Self(shared)));
            }
        };
        if inner.marked_for_abort.load(Ordering::Acquire) {
            return Ok(()); // the drop aborts it
        }
        let inner = std::mem::ManuallyDrop::new(inner);
        let nccl = inner.backend.nccl();
        // SAFETY: the last owner gives up a live communicator; its drop does not run any more.
        let result = unsafe {
            let code = (nccl.ncclCommFinalize)(inner.raw);
            let finalized = inner.backend.check("ncclCommFinalize", code, inner.raw);
            let code = (nccl.ncclCommDestroy)(inner.raw);
            finalized
                .and_then(|()| inner.backend.check("ncclCommDestroy", code, core::ptr::null_mut()))
        };
        result.map_err(Refused::lost)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner; abort is local and ends pending work.
        let code = unsafe { (self.backend.nccl().ncclCommAbort)(self.raw) };
        if !code.is_success() {
            tracing::error!(rank = self.rank, code = code.0, "ncclCommAbort failed");
        }
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm(rank {} of {} on {})", self.0.rank, self.0.size, self.0.backend.name())
    }
}

impl MemorySpace {
    /// Whether calls on this memory finish before they return.
    #[must_use]
    pub fn is_synchronous(self) -> bool {
        self == Self::Host
    }
}
