//! Tensors: borrowed memory with a shape.

mod descriptor;

use core::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use nccl_ext_core::{DataType, DeviceBuffer, DeviceBufferMut, MemorySpace, RawBuffer, Result, Use};

pub(crate) use self::descriptor::Descriptor;
#[cfg(doc)]
use crate::Error;
use crate::rules;
use crate::rules::tensor::{DATA_TYPE, DataTypeFacts, SHAPE, ShapeFacts};
#[cfg(doc)]
use crate::view::MAX_DIMS;
use crate::view::{Shape, View};

/// A tensor that is read.
///
/// Borrows its buffer: it cannot be dropped or written meanwhile.
#[derive(Clone, Copy)]
#[doc(alias = "ncclEpTensor_t")]
pub struct Tensor<'a> {
    view: View,
    /// The use of the buffer by a call.
    used: Use<'a>,
    buffer: PhantomData<&'a ()>,
}

/// A tensor that is written.
///
/// Borrows its buffer mutably: nothing else touches it meanwhile.
#[doc(alias = "ncclEpTensor_t")]
pub struct TensorMut<'a> {
    view: View,
    /// The use of the buffer by a call.
    used: Use<'a>,
    buffer: PhantomData<&'a mut ()>,
}

impl<'a> Tensor<'a> {
    /// The front of `buffer` as a row-major tensor of this shape and the buffer's element type.
    ///
    /// # Errors
    /// [`Error::Invalid`] without dimensions, with more than [`MAX_DIMS`], or when the shape does
    /// not fit the buffer.
    pub fn new<B: DeviceBuffer + ?Sized>(buffer: &'a B, shape: &[usize]) -> Result<Self> {
        let view = view_of(buffer.raw(), shape)?;
        Ok(Self { view, used: Use::read(buffer.usage()), buffer: PhantomData })
    }

    /// A tensor over memory that something else manages.
    ///
    /// # Safety
    /// `ptr` points to the tensor's bytes in `memory`; they are valid to read, and not written,
    /// for `'a` and until everything enqueued with this tensor has run.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub unsafe fn from_raw(
        ptr: *const c_void,
        data_type: DataType,
        shape: &[usize],
        memory: MemorySpace,
    ) -> Result<Self> {
        let view = view_of(RawBuffer::unowned(ptr.cast_mut(), data_type, shape, memory), shape)?;
        Ok(Self { view, used: Use::NONE, buffer: PhantomData })
    }

    /// The extents.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.view.shape
    }

    /// The element type.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.view.data_type()
    }
}

impl<'a> TensorMut<'a> {
    /// The front of `buffer` as a row-major tensor to be written, of this shape and the buffer's
    /// element type.
    ///
    /// # Errors
    /// The errors of [`Tensor::new`].
    pub fn new<B: DeviceBufferMut + ?Sized>(buffer: &'a mut B, shape: &[usize]) -> Result<Self> {
        let view = view_of(buffer.raw_mut(), shape)?;
        Ok(Self { view, used: Use::write(buffer.usage()), buffer: PhantomData })
    }

    /// A tensor over memory that something else manages.
    ///
    /// # Safety
    /// `ptr` points to the tensor's bytes in `memory`; they are valid to read and write, and
    /// touched by nothing else, for `'a` and until everything enqueued with this tensor has run.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub unsafe fn from_raw(
        ptr: *mut c_void,
        data_type: DataType,
        shape: &[usize],
        memory: MemorySpace,
    ) -> Result<Self> {
        let view = view_of(RawBuffer::unowned(ptr, data_type, shape, memory), shape)?;
        Ok(Self { view, used: Use::NONE, buffer: PhantomData })
    }

    /// The same tensor, to be read.
    #[must_use]
    pub fn as_tensor(&self) -> Tensor<'_> {
        Tensor { view: self.view, used: self.used.reading(), buffer: PhantomData }
    }

    /// The extents.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.view.shape
    }

    /// The element type.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.view.data_type()
    }
}

/// What both kinds of tensor do alike.
macro_rules! alike {
    ($tensor:ident) => {
        impl<'a> $tensor<'a> {
            /// The same bytes as another type of the same size: fp8 or packed fp4 in a buffer of
            /// bytes.
            ///
            /// # Errors
            /// [`Error::Invalid`] when the sizes differ.
            pub fn with_data_type(mut self, data_type: DataType) -> Result<Self> {
                self.view = read_as(self.view, data_type)?;
                Ok(self)
            }

            pub(crate) fn view(&self) -> &View {
                &self.view
            }

            /// The use of its memory by a call that it is given to.
            pub(crate) fn as_use(&self) -> Use<'a> {
                self.used
            }
        }
    };
}

alike!(Tensor);
alike!(TensorMut);

/// The front of a buffer as a row-major tensor.
fn view_of(buffer: RawBuffer, extents: &[usize]) -> Result<View> {
    let facts = ShapeFacts {
        extents,
        data_type: buffer.data_type,
        buffer_bytes: buffer.bytes,
        null: buffer.ptr.is_null(),
    };
    rules::check(SHAPE, |broken| broken(&facts))?;
    Ok(View { buffer, shape: Shape::new(extents).unwrap_or_default() })
}

/// The same bytes as another type of the same size.
fn read_as(mut view: View, data_type: DataType) -> Result<View> {
    let facts = DataTypeFacts { from: view.data_type(), to: data_type };
    rules::check(DATA_TYPE, |broken| broken(&facts))?;
    view.buffer.data_type = data_type;
    Ok(view)
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt("Tensor", f)
    }
}

impl fmt::Debug for TensorMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt("TensorMut", f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<Tensor<'_>>) -> String {
        result.map_or_else(|error| error.to_string(), |tensor| format!("{tensor:?}"))
    }

    #[test]
    fn shapes_must_fit_their_buffer() {
        let data = [0.0_f32; 12];
        assert_eq!(message(Tensor::new(&data, &[3, 4])), "Tensor([3, 4] fp32, host memory)");
        assert_eq!(message(Tensor::new(&data, &[0, 4])), "Tensor([0, 4] fp32, host memory)");
        assert_eq!(
            message(Tensor::new(&data, &[13])),
            "`shape`: a tensor lies inside its buffer; expected at most 48 bytes, found [13] of fp32"
        );
        assert!(message(Tensor::new(&data, &[usize::MAX, 2])).contains("lies inside"));
        assert!(message(Tensor::new(&data, &[])).contains("one to four dimensions"));
        assert!(message(Tensor::new(&data, &[1, 1, 1, 1, 1])).contains("one to four dimensions"));
    }

    #[test]
    fn null_needs_an_empty_shape() {
        let null = core::ptr::null();
        let make = |shape: &[usize]| {
            // SAFETY: the tensor is only looked at.
            message(unsafe { Tensor::from_raw(null, DataType::Float32, shape, MemorySpace::Host) })
        };
        assert_eq!(make(&[0, 8]), "Tensor([0, 8] fp32, host memory)");
        assert!(make(&[1, 8]).contains("has memory"));
    }
}
