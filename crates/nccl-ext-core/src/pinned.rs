//! Host memory that devices copy from and to while the host goes on.

use core::ffi::{c_uint, c_void};
use std::fmt;
use std::ptr::NonNull;

use crate::backend::MemorySpace;
use crate::buffer::Buffer;
use crate::data_type::Element;
use crate::device::Device;
use crate::driver::CuResult;
use crate::error::{Error, Result};
use crate::host_memory;
use crate::order::LastUse;
use crate::rules;
use crate::rules::buffer::{PINNED, PinnedFacts, SIZE, SizeFacts};
use crate::stream::Stream;
use crate::usage::Use;

/// `CU_MEMHOSTALLOC_PORTABLE`: page-locked for all contexts.
const PORTABLE: c_uint = 1;

/// Page-locked host memory, from `cuMemHostAlloc`; ordinary memory on backends whose memory is the
/// host's.
///
/// Copies between it and a [`Buffer`] of the same device only enqueue:
/// [`enqueue_write`](Buffer::enqueue_write), [`enqueue_read`](Buffer::enqueue_read). It remembers
/// them, and [`get`](Self::get), [`get_mut`](Self::get_mut) and the drop wait for those that matter.
///
/// ```no_run
/// # use nccl_ext_core::{Buffer, Comm, OwnedStream, PinnedBuffer, Result};
/// # fn example(comm: &Comm, data: &Buffer<f32>) -> Result<()> {
/// let stream = OwnedStream::new(comm)?;
/// let mut copy = PinnedBuffer::<f32>::zeroed(comm, data.len())?;
/// data.enqueue_read(&mut copy, stream.stream())?;
/// // The host goes on, and the stream, too.
/// let sum: f32 = copy.get()?.iter().sum();
/// # Ok(())
/// # }
/// ```
#[doc(alias = "cuMemHostAlloc")]
pub struct PinnedBuffer<T: Element> {
    memory: Memory<T>,
    len: usize,
    device: Device,
    last_use: LastUse,
}

enum Memory<T> {
    Ordinary(Vec<T>),
    Pinned(NonNull<T>),
}

// SAFETY: the buffer owns its memory alone, which has no thread affinity.
unsafe impl<T: Element> Send for PinnedBuffer<T> {}
// SAFETY: shared access only reads, after the last write of a device is done.
unsafe impl<T: Element> Sync for PinnedBuffer<T> {}

impl<T: Element> PinnedBuffer<T> {
    /// Allocates `len` elements, all bytes zero, for copies with a device, or with a communicator's:
    /// `&comm`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the size overflows; [`Error::Driver`], on host backends
    /// [`Error::Native`], when there is no memory; [`Error::Unsupported`] without the driver function.
    pub fn zeroed(device: impl Into<Device>, len: usize) -> Result<Self> {
        let device = device.into();
        let memory = match device.backend().memory() {
            MemorySpace::Host => {
                Memory::Ordinary(host_memory::zeroed("PinnedBuffer::zeroed", len)?)
            }
            MemorySpace::Device => Memory::Pinned(page_locked(device, len)?),
        };
        Ok(Self { memory, len, device, last_use: LastUse::new(device) })
    }

    /// Allocates and copies `data` into it.
    ///
    /// # Errors
    /// As [`zeroed`](Self::zeroed).
    pub fn from_slice(device: impl Into<Device>, data: &[T]) -> Result<Self> {
        let mut buffer = Self::zeroed(device, data.len())?;
        buffer.get_mut()?.copy_from_slice(data);
        Ok(buffer)
    }

    /// The device whose buffers it is copied from and to.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, once the last copy into them is done.
    ///
    /// # Errors
    /// As [`LastUse::wait`].
    pub fn get(&self) -> Result<&[T]> {
        self.last_use.wait_for_write()?;
        // SAFETY: as many initialised elements; what wrote them is done, and whatever may write them
        // next borrows this buffer mutably.
        Ok(unsafe { core::slice::from_raw_parts(self.ptr(), self.len) })
    }

    /// The elements, to be written, once all copies from and to them are done.
    ///
    /// # Errors
    /// As [`LastUse::wait`].
    pub fn get_mut(&mut self) -> Result<&mut [T]> {
        self.last_use.wait()?;
        // SAFETY: as in `get`; nothing reads them any more either.
        Ok(unsafe { core::slice::from_raw_parts_mut(self.ptr_mut(), self.len) })
    }

    fn ptr(&self) -> *const T {
        match &self.memory {
            Memory::Ordinary(elements) => elements.as_ptr(),
            Memory::Pinned(start) => start.as_ptr(),
        }
    }

    fn ptr_mut(&mut self) -> *mut T {
        match &mut self.memory {
            Memory::Ordinary(elements) => elements.as_mut_ptr(),
            Memory::Pinned(start) => start.as_ptr(),
        }
    }

    fn check_with(&self, buffer: &Buffer<T>) -> Result<()> {
        let facts = PinnedFacts { pinned: self.device, buffer: buffer.device() };
        rules::check(PINNED, |broken| broken(&facts))
    }
}

/// Page-locked memory of as many elements, all bytes zero.
fn page_locked<T: Element>(device: Device, len: usize) -> Result<NonNull<T>> {
    const NAME: &str = "cuMemHostAlloc";
    let size = SizeFacts { len, element: size_of::<T>() };
    rules::check(SIZE, |broken| broken(&size))?;
    let bytes = size.bytes().unwrap_or(0).max(1); // the driver refuses none
    let backend = device.backend();
    let _current = device.activate()?;
    let call = backend.driver_function(backend.driver().host_alloc, NAME)?;
    let mut memory: *mut c_void = core::ptr::null_mut();
    // SAFETY: `memory` outlives the call.
    backend.check_driver(NAME, unsafe { call(&mut memory, bytes, PORTABLE) })?;
    let memory = NonNull::new(memory).ok_or_else(|| Error::Driver {
        call: NAME,
        code: CuResult::SUCCESS.0,
        detail: "success, but no memory".into(),
    })?;
    // SAFETY: so many bytes that are this function's alone.
    unsafe { memory.cast::<u8>().write_bytes(0, bytes) };
    Ok(memory.cast())
}

impl<T: Element> Buffer<T> {
    /// Enqueues a copy of all elements of `source` to the front of this buffer, and does not wait.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `source` is longer than the buffer, or one of the two or the stream is
    /// of another device; what the driver reports.
    #[doc(alias = "cuMemcpyHtoDAsync_v2")]
    pub fn enqueue_write(&mut self, source: &PinnedBuffer<T>, stream: Stream<'_>) -> Result<()> {
        const NAME: &str = "cuMemcpyHtoDAsync_v2";
        source.check_with(self)?;
        stream.check_on(self.device())?;
        let to = self.range(0, source.len)?;
        if source.is_empty() {
            return Ok(());
        }
        let backend = self.device().backend();
        let _current = self.device().activate()?;
        let call = backend.driver_function(backend.driver().copy_to_device, NAME)?;
        let bytes = source.len * size_of::<T>();
        let uses = [Use::read(Some(&source.last_use)), Use::write(Some(self.last_use()))];
        Use::around(stream, &uses, || {
            // SAFETY: both ranges hold the bytes. Whoever frees or changes one of them waits for what it
            // was told of first.
            let code = unsafe { call(to, source.ptr().cast(), bytes, stream.as_raw()) };
            backend.check_driver(NAME, code)
        })
    }

    /// Enqueues a copy of the front of this buffer to all elements of `destination`, and does not wait.
    ///
    /// # Errors
    /// As [`enqueue_write`](Self::enqueue_write).
    #[doc(alias = "cuMemcpyDtoHAsync_v2")]
    pub fn enqueue_read(
        &self,
        destination: &mut PinnedBuffer<T>,
        stream: Stream<'_>,
    ) -> Result<()> {
        const NAME: &str = "cuMemcpyDtoHAsync_v2";
        destination.check_with(self)?;
        stream.check_on(self.device())?;
        let from = self.range(0, destination.len)?;
        if destination.is_empty() {
            return Ok(());
        }
        let backend = self.device().backend();
        let _current = self.device().activate()?;
        let call = backend.driver_function(backend.driver().copy_to_host, NAME)?;
        let (to, bytes) = (destination.ptr_mut(), destination.len * size_of::<T>());
        let uses = [Use::read(Some(self.last_use())), Use::write(Some(&destination.last_use))];
        Use::around(stream, &uses, || {
            // SAFETY: as in `enqueue_write`; `Element` types take any bytes.
            let code = unsafe { call(to.cast(), from, bytes, stream.as_raw()) };
            backend.check_driver(NAME, code)
        })
    }
}

impl<T: Element> Drop for PinnedBuffer<T> {
    #[doc(alias = "cuMemFreeHost")]
    fn drop(&mut self) {
        let Memory::Pinned(start) = self.memory else { return };
        let backend = self.device.backend();
        let done = self.last_use.wait().and_then(|()| self.device.refuse_to_free());
        let scope = done.and_then(|()| self.device.activate());
        if let Err(error) = &scope {
            tracing::error!(%error, len = self.len, "pinned memory is left behind: it cannot be freed");
            return;
        }
        let Some(call) = backend.driver().host_free else { return };
        // SAFETY: the memory came from `cuMemHostAlloc` of this driver and is freed once.
        let code = unsafe { call(start.as_ptr().cast()) };
        if code != CuResult::SUCCESS {
            tracing::error!(code = code.0, "cuMemFreeHost failed");
        }
    }
}

impl<T: Element> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer<{}>[{}]", T::DATA_TYPE, self.len)
    }
}
