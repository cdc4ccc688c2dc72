//! Memory that tensors are made of.

use crate::data_type::Element;
use crate::raw_buffer::RawBuffer;
use crate::usage::Usage;

/// Memory that a backend can read.
///
/// # Safety
/// [`raw`](Self::raw) gives the same memory on every call while the value is borrowed. The memory
/// stays valid until everything that was enqueued on a stream before the value's drop has run:
/// either the drop waits for it, or the free is itself ordered after it on the stream. While the
/// value is borrowed any thread may use the memory through the pointer, and nothing writes it
/// through a shared borrow.
pub unsafe trait DeviceBuffer {
    /// The memory. Whoever enqueues work that uses it tells [`usage`](Self::usage).
    fn raw(&self) -> RawBuffer;

    /// What is told of each use on a stream, and orders it after earlier ones; `None` for memory whose
    /// owner sees to order. Calls of these crates tell it; code that enqueues kernels of its own calls
    /// [`Use::around`](crate::Use::around), or both hooks.
    fn usage(&self) -> Option<&dyn Usage> {
        None
    }
}

/// Memory that a backend can write.
///
/// # Safety
/// As [`DeviceBuffer`]; the memory is writable through the pointer of [`raw_mut`](Self::raw_mut),
/// any bit pattern is valid in it, and nothing else reads or writes it while the value is
/// mutably borrowed.
pub unsafe trait DeviceBufferMut: DeviceBuffer {
    /// The memory, to be written.
    fn raw_mut(&mut self) -> RawBuffer;
}

// SAFETY: a slice is `size_of_val` readable bytes that cannot move while it is borrowed; host
// backends have no work pending after a call, and other backends refuse host memory.
unsafe impl<T: Element> DeviceBuffer for [T] {
    fn raw(&self) -> RawBuffer {
        RawBuffer::host(self.as_ptr().cast_mut().cast(), size_of_val(self), T::DATA_TYPE)
    }
}

// SAFETY: as above; the pointer comes from a mutable borrow, and `Element` types take any bytes.
unsafe impl<T: Element> DeviceBufferMut for [T] {
    fn raw_mut(&mut self) -> RawBuffer {
        RawBuffer::host(self.as_mut_ptr().cast(), size_of_val(self), T::DATA_TYPE)
    }
}

// SAFETY: the slice's implementation.
unsafe impl<T: Element> DeviceBuffer for Vec<T> {
    fn raw(&self) -> RawBuffer {
        self.as_slice().raw()
    }
}

// SAFETY: the slice's implementation.
unsafe impl<T: Element> DeviceBufferMut for Vec<T> {
    fn raw_mut(&mut self) -> RawBuffer {
        self.as_mut_slice().raw_mut()
    }
}

// SAFETY: the slice's implementation.
unsafe impl<T: Element, const N: usize> DeviceBuffer for [T; N] {
    fn raw(&self) -> RawBuffer {
        self.as_slice().raw()
    }
}

// SAFETY: the slice's implementation.
unsafe impl<T: Element, const N: usize> DeviceBufferMut for [T; N] {
    fn raw_mut(&mut self) -> RawBuffer {
        self.as_mut_slice().raw_mut()
    }
}
