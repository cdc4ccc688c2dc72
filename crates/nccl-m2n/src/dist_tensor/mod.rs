//! Distributed tensors: a layout, and this rank's part of the memory.

mod descriptor;
mod side;

use core::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use nccl_ext_core::{DeviceBuffer, DeviceBufferMut, MemorySpace, Use};

pub(crate) use descriptor::Descriptor;
pub(crate) use side::Side;

use crate::layout::Layout;

/// The side that is read.
///
/// Borrows the memory of this rank's tile: it cannot be dropped or written meanwhile. A rank
/// outside of the mesh passes none; memory that it passes anyway is not looked at. Whether the
/// memory fits is checked by the call, so that its error can reach the other ranks too.
#[derive(Clone, Copy)]
#[doc(alias = "ncclDistTensor_t")]
pub struct DistTensor<'a> {
    side: Side<'a>,
    memory: PhantomData<&'a ()>,
}

/// The side that is written.
///
/// As [`DistTensor`], with the memory borrowed mutably: nothing else touches it meanwhile.
#[doc(alias = "ncclDistTensor_t")]
pub struct DistTensorMut<'a> {
    side: Side<'a>,
    memory: PhantomData<&'a mut ()>,
}

impl<'a> DistTensor<'a> {
    /// This rank's tile is at the front of `buffer`, dense and row-major.
    ///
    /// The buffer has the layout's element type; bytes will do for the 8-bit floats.
    pub fn new<B: DeviceBuffer + ?Sized>(buffer: &'a B, layout: &Layout) -> Self {
        Self::optional(Some(buffer), layout)
    }

    /// A tile where there is one: for code that every rank runs.
    pub fn optional<B: DeviceBuffer + ?Sized>(buffer: Option<&'a B>, layout: &Layout) -> Self {
        let used = Use::read(buffer.and_then(DeviceBuffer::usage));
        let buffer = buffer.map(DeviceBuffer::raw);
        Self { side: Side::new(layout, buffer, used), memory: PhantomData }
    }

    /// A tile over memory that something else manages.
    ///
    /// # Safety
    /// `ptr` points to [`Layout::local_bytes`] bytes in `memory`; they are valid to read, and not
    /// written, for `'a` and until everything enqueued with this tensor has run.
    #[must_use]
    pub unsafe fn from_raw(ptr: *const c_void, layout: &Layout, memory: MemorySpace) -> Self {
        Self { side: Side::unowned(ptr.cast_mut(), layout, memory), memory: PhantomData }
    }
}

impl<'a> DistTensorMut<'a> {
    /// As [`DistTensor::new`], to be written.
    pub fn new<B: DeviceBufferMut + ?Sized>(buffer: &'a mut B, layout: &Layout) -> Self {
        Self::optional(Some(buffer), layout)
    }

    /// A tile where there is one: for code that every rank runs.
    pub fn optional<B: DeviceBufferMut + ?Sized>(
        mut buffer: Option<&'a mut B>,
        layout: &Layout,
    ) -> Self {
        let memory = buffer.as_deref_mut().map(DeviceBufferMut::raw_mut);
        let used = Use::write(buffer.and_then(|buffer| buffer.usage()));
        Self { side: Side::new(layout, memory, used), memory: PhantomData }
    }

    /// A tile over memory that something else manages.
    ///
    /// # Safety
    /// `ptr` points to [`Layout::local_bytes`] bytes in `memory`; they are valid to read and write,
    /// and touched by nothing else, for `'a` and until everything enqueued with this tensor has
    /// run.
    #[must_use]
    pub unsafe fn from_raw(ptr: *mut c_void, layout: &Layout, memory: MemorySpace) -> Self {
        Self { side: Side::unowned(ptr, layout, memory), memory: PhantomData }
    }
}

/// What both kinds have.
macro_rules! either_side {
    ($($tensor:ident)+) => {$(
        impl<'a> $tensor<'a> {
            /// This rank holds no tile of the side.
            #[must_use]
            pub fn inactive(layout: &Layout) -> Self {
                Self { side: Side::new(layout, None, Use::NONE), memory: PhantomData }
            }

            /// The layout.
            #[must_use]
            pub fn layout(&self) -> &Layout {
                &self.side.layout
            }

            /// Whether memory was passed.
            #[must_use]
            pub fn is_participating(&self) -> bool {
                self.side.buffer.is_some()
            }

            pub(crate) fn side(&self) -> &Side<'a> {
                &self.side
            }
        }

        impl fmt::Debug for $tensor<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.side.fmt(stringify!($tensor), f)
            }
        }
    )+};
}

either_side! { DistTensor DistTensorMut }
