//! Memory that a backend allocates on a device.

use core::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::data_type::Element;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::host_memory;
use crate::memory::{DeviceBuffer, DeviceBufferMut};
use crate::order::LastUse;
use crate::raw_buffer::RawBuffer;
use crate::rules;
use crate::rules::buffer::{COPY, CopyFacts, SIZE, SizeFacts};
use crate::stream::Stream;
use crate::usage::{Access, Usage, Use};

/// Memory of a device, from `ncclMemAlloc`: GPU memory on GPUs, host memory on the CPU backend.
/// With it one program runs on both. It outlives any communicator: it keeps none.
///
/// It remembers the streams of its last uses ([`LastUse`]): a use on another stream waits for them on
/// the device, reads and writes of the host and the drop wait for them here. Where they cannot be
/// waited for, because a communicator was aborted or the driver fails, the memory is left behind.
///
/// `nccl_ep::plan::Buffer` is another thing: a buffer that a plan foretells.
#[doc(alias = "ncclMemAlloc")]
pub struct Buffer<T: Element> {
    ptr: NonNull<c_void>,
    len: usize,
    device: Device,
    last_use: LastUse,
    element: PhantomData<T>,
}

// SAFETY: the buffer owns its memory alone; device memory has no thread affinity.
unsafe impl<T: Element> Send for Buffer<T> {}
// SAFETY: shared access only reads the handle; device memory is not dereferenced by Rust.
unsafe impl<T: Element> Sync for Buffer<T> {}

impl<T: Element> Buffer<T> {
    /// Allocates `len` elements, all bytes zero, on a device, or on a communicator's: `&comm`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the size overflows, [`Error::Native`] when there is no memory, and what
    /// the driver reports when the device cannot be made current or the memory cleared.
    pub fn zeroed(device: impl Into<Device>, len: usize) -> Result<Self> {
        let device = device.into();
        let size = SizeFacts { len, element: size_of::<T>() };
        rules::check(SIZE, |broken| broken(&size))?;
        let bytes = size.bytes().unwrap_or(0); // never, after the check
        let backend = device.backend();
        let _current = device.activate()?;
        let mut ptr = core::ptr::null_mut();
        // SAFETY: `ptr` outlives the call. NCCL refuses nothing but a size it cannot allocate;
        // empty buffers take one byte so that their pointer is theirs alone.
        let code = unsafe { (backend.nccl().ncclMemAlloc)(&mut ptr, bytes.max(1)) };
        // SAFETY: no communicator is given.
        unsafe { backend.check("ncclMemAlloc", code, core::ptr::null_mut())? };
        let ptr = NonNull::new(ptr).ok_or_else(|| Error::Native {
            call: "ncclMemAlloc",
            code,
            detail: "success, but no memory".into(),
        })?;
        let last_use = LastUse::new(device);
        let mut buffer = Self { ptr, len, device, last_use, element: PhantomData };
        buffer.fill_bytes(0, Stream::DEFAULT)?;
        Ok(buffer)
    }

    /// Allocates and copies `data` into it.
    ///
    /// # Errors
    /// As [`zeroed`](Self::zeroed), and what the driver reports of the copy.
    pub fn from_slice(device: impl Into<Device>, data: &[T]) -> Result<Self> {
        let mut buffer = Self::zeroed(device, data.len())?;
        buffer.write(data, Stream::DEFAULT)?;
        Ok(buffer)
    }

    /// The device that it is on.
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

    fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Sets every byte to `value`, after the stream's earlier work, and waits for it.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn fill_bytes(&mut self, value: u8, stream: Stream<'_>) -> Result<()> {
        const NAME: &str = "cuMemsetD8Async";
        stream.check_on(self.device)?;
        let backend = self.device.backend();
        if self.is_empty() {
            return Ok(());
        }
        let _current = self.device.activate()?;
        let call = backend.driver_function(backend.driver().fill, NAME)?;
        let (to, bytes) = (self.ptr.as_ptr() as u64, self.bytes());
        self.write_and_wait(stream, || {
            // SAFETY: the range is this buffer's, borrowed mutably.
            backend.check_driver(NAME, unsafe { call(to, value, bytes, stream.as_raw()) })
        })
    }

    /// Copies `data` to the front of the buffer, after the stream's earlier work, and waits for it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `data` is longer than the buffer; what the driver reports.
    pub fn write(&mut self, data: &[T], stream: Stream<'_>) -> Result<()> {
        self.write_range(0, data, stream)
    }

    /// As [`write`](Self::write), from element `offset` of the buffer on.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the range does not lie inside the buffer; what the driver reports.
    pub fn write_range(&mut self, offset: usize, data: &[T], stream: Stream<'_>) -> Result<()> {
        const NAME: &str = "cuMemcpyHtoDAsync_v2";
        stream.check_on(self.device)?;
        let to = self.range(offset, data.len())?;
        let backend = self.device.backend();
        if data.is_empty() {
            return Ok(());
        }
        let _current = self.device.activate()?;
        let call = backend.driver_function(backend.driver().copy_to_device, NAME)?;
        let from = data.as_ptr().cast();
        self.write_and_wait(stream, || {
            // SAFETY: both ranges hold `data.len()` elements; `data` is borrowed until the copy is
            // done.
            let code = unsafe { call(to, from, size_of_val(data), stream.as_raw()) };
            backend.check_driver(NAME, code)
        })
    }

    /// Copies the front of the buffer to `data`, after the stream's earlier work, and waits for it.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read_into(&self, data: &mut [T], stream: Stream<'_>) -> Result<()> {
        self.read_range_into(0, data, stream)
    }

    /// As [`read_into`](Self::read_into), from element `offset` of the buffer on.
    ///
    /// # Errors
    /// As [`write_range`](Self::write_range).
    pub fn read_range_into(&self, offset: usize, data: &mut [T], stream: Stream<'_>) -> Result<()> {
        stream.check_on(self.device)?;
        let from = self.range(offset, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        // SAFETY: `Element` types have no padding and take any bytes.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(data.as_mut_ptr().cast::<u8>(), size_of_val(data))
        };
        self.last_use.before(stream, Access::Read)?;
        // SAFETY: `range` made sure that the buffer holds as many bytes from there on.
        let read = unsafe { self.device.copy_to_host(from as *const c_void, bytes, stream) };
        match read {
            Ok(()) => self.last_use.after_wait(stream),
            Err(_) => self.last_use.after(stream, Access::Read)?,
        }
        read
    }

    /// Copies all bytes of `source` to the front of the buffer, after the stream's earlier work,
    /// and waits for it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a longer source or memory that the backend cannot read; what the
    /// driver reports.
    pub fn copy_from<B>(&mut self, source: &B, stream: Stream<'_>) -> Result<()>
    where
        B: DeviceBuffer + ?Sized,
    {
        const NAME: &str = "cuMemcpyDtoDAsync_v2";
        let (source, usage) = (source.raw(), source.usage());
        self.device.check_memory("source", &source)?;
        stream.check_on(self.device)?;
        let to = self.range(0, source.bytes.div_ceil(size_of::<T>()))?;
        if source.bytes == 0 {
            return Ok(());
        }
        let backend = self.device.backend();
        let _current = self.device.activate()?;
        let call = backend.driver_function(backend.driver().copy_on_device, NAME)?;
        let from = source.ptr as u64;
        self.write_and_wait(stream, || {
            Use::around(stream, &[Use::read(usage)], || {
                // SAFETY: both ranges hold the bytes, and `source` is borrowed until the copy is done.
                let code = unsafe { call(to, from, source.bytes, stream.as_raw()) };
                backend.check_driver(NAME, code)
            })
        })
    }

    pub(crate) fn last_use(&self) -> &LastUse {
        &self.last_use
    }

    /// Enqueues a write after the earlier uses, and waits for it.
    fn write_and_wait(
        &mut self,
        stream: Stream<'_>,
        enqueue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.last_use.before(stream, Access::Write)?;
        let written = enqueue().and_then(|()| stream.synchronize(self.device));
        match written {
            Ok(()) => self.last_use.forget(), // this one was ordered after all others
            Err(_) => self.last_use.after(stream, Access::Write)?,
        }
        written
    }

    /// All elements, as [`read_into`](Self::read_into) gives them.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into).
    pub fn to_vec(&self, stream: Stream<'_>) -> Result<Vec<T>> {
        let mut data = host_memory::zeroed("Buffer::to_vec", self.len)?;
        self.read_into(&mut data, stream)?;
        Ok(data)
    }

    /// The address of element `offset`, from which on `count` elements lie in the buffer.
    pub(crate) fn range(&self, offset: usize, count: usize) -> Result<u64> {
        let facts = CopyFacts { offset, count, len: self.len };
        rules::check(COPY, |broken| broken(&facts))?;
        Ok(self.ptr.as_ptr() as u64 + (offset * size_of::<T>()) as u64)
    }
}

// SAFETY: the memory belongs to the buffer until its drop, which waits for the uses it was told of.
unsafe impl<T: Element> DeviceBuffer for Buffer<T> {
    fn raw(&self) -> RawBuffer {
        RawBuffer::on(self.device, self.ptr.as_ptr(), self.bytes(), T::DATA_TYPE)
    }

    fn usage(&self) -> Option<&dyn Usage> {
        Some(&self.last_use)
    }
}

// SAFETY: as above; `&mut` makes the access exclusive, and `Element` types take any bytes.
unsafe impl<T: Element> DeviceBufferMut for Buffer<T> {
    fn raw_mut(&mut self) -> RawBuffer {
        self.raw()
    }
}

impl<T: Element> Drop for Buffer<T> {
    fn drop(&mut self) {
        let backend = self.device.backend();
        let done = self.last_use.wait().and_then(|()| self.device.refuse_to_free());
        let scope = done.and_then(|()| self.device.activate());
        if let Err(error) = &scope {
            // Freeing memory that a kernel may still write is worse than keeping it.
            tracing::error!(%error, bytes = self.bytes(), "a buffer is left behind: it cannot be freed");
            return;
        }
        // SAFETY: the pointer came from `ncclMemAlloc` of this backend and is freed once.
        let code = unsafe { (backend.nccl().ncclMemFree)(self.ptr.as_ptr()) };
        if !code.is_success() {
            tracing::error!(code = code.0, "ncclMemFree failed");
        }
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>[{}]", T::DATA_TYPE, self.len)
    }
}

impl Device {
    /// Copies memory of this device to the host, after the stream's earlier work, and waits for it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a stream of another device; what the driver reports.
    ///
    /// # Safety
    /// `from` points to at least as many readable bytes of the device's memory as `to` has.
    pub unsafe fn copy_to_host(
        self,
        from: *const c_void,
        to: &mut [u8],
        stream: Stream<'_>,
    ) -> Result<()> {
        const NAME: &str = "cuMemcpyDtoHAsync_v2";
        stream.check_on(self)?;
        let backend = self.backend();
        let _current = self.activate()?;
        let call = backend.driver_function(backend.driver().copy_to_host, NAME)?;
        // SAFETY: this function's contract; `to` is borrowed until the copy is done.
        let code = unsafe { call(to.as_mut_ptr().cast(), from as u64, to.len(), stream.as_raw()) };
        backend.check_driver(NAME, code)?;
        stream.synchronize(self)
    }

    /// Copies memory of the host to this device, after the stream's earlier work, and waits for it.
    ///
    /// # Errors
    /// As [`copy_to_host`](Self::copy_to_host).
    ///
    /// # Safety
    /// `to` points to at least as many bytes of the device's memory as `from` has, which nothing else
    /// uses meanwhile.
    pub unsafe fn copy_from_host(
        self,
        from: &[u8],
        to: *mut c_void,
        stream: Stream<'_>,
    ) -> Result<()> {
        const NAME: &str = "cuMemcpyHtoDAsync_v2";
        stream.check_on(self)?;
        let backend = self.backend();
        let _current = self.activate()?;
        let call = backend.driver_function(backend.driver().copy_to_device, NAME)?;
        // SAFETY: this function's contract; `from` is borrowed until the copy is done.
        let code = unsafe { call(to as u64, from.as_ptr().cast(), from.len(), stream.as_raw()) };
        backend.check_driver(NAME, code)?;
        stream.synchronize(self)
    }
}
