//! Tensors: borrowed memory with a shape.

use core::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use nccl_ep_sys::{VersionedStruct, ncclEpTensor_t};
use nccl_ext_core::rules::{RuleInfo, Violation};
use nccl_ext_core::{
    DataType, DeviceBuffer, DeviceBufferMut, MemorySpace, RawBuffer, Result, Scope,
};

/// Most dimensions a tensor here has.
pub const MAX_DIMS: usize = 4;

/// The extents of a tensor, at most [`MAX_DIMS`].
pub type Shape = nccl_ext_core::Shape<MAX_DIMS>;

/// What every tensor is, without its lifetime.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) buffer: RawBuffer,
    pub(crate) shape: Shape,
}

impl View {
    fn new(buffer: RawBuffer, extents: &[usize]) -> Result<Self> {
        let invalid = |name, rule, expected: String| {
            let info = RuleInfo::new(name, "shape", rule, "EP 1.4", Scope::Local);
            info.broken(Violation::new(expected, format!("{extents:?} of {}", buffer.data_type)))
        };
        let shape = Shape::new(extents).filter(|_| !extents.is_empty()).ok_or_else(|| {
            let rule = "a tensor has one to four dimensions";
            invalid("tensor.dimensions", rule, format!("1 to {MAX_DIMS} extents"))
        })?;
        let bytes = shape.elements().and_then(|n| n.checked_mul(buffer.data_type.size()));
        if bytes.is_none_or(|bytes| bytes > buffer.bytes) {
            let rule = "a tensor lies inside its buffer";
            return Err(invalid("tensor.inside", rule, format!("at most {} bytes", buffer.bytes)));
        }
        if buffer.ptr.is_null() && bytes != Some(0) {
            let rule = "a tensor with elements has memory";
            return Err(invalid("tensor.memory", rule, "a pointer that is not NULL".into()));
        }
        Ok(Self { buffer, shape })
    }

    pub(crate) fn data_type(&self) -> DataType {
        self.buffer.data_type
    }

    fn reinterpret(&mut self, data_type: DataType) -> Result<()> {
        if data_type.size() != self.buffer.data_type.size() {
            let rule = "a tensor's bytes are read as a type of the same size";
            let info = RuleInfo::new("tensor.data-type", "data_type", rule, "EP 1.4", Scope::Local);
            let expected = format!("a type of {} bytes", self.buffer.data_type.size());
            let found = format!("{data_type} of {}", data_type.size());
            return Err(info.broken(Violation::new(expected, found)));
        }
        self.buffer.data_type = data_type;
        Ok(())
    }

    fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{name}({:?} {}, {})", self.shape, self.data_type(), self.buffer.memory)
    }
}

// SAFETY: an address and numbers. The memory behind it is borrowed by the tensor types below, and the
// contract of `DeviceBuffer`, or of whoever gave the address, lets any thread use it meanwhile.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

/// A tensor that is read.
///
/// Borrows its buffer: it cannot be dropped or written meanwhile.
#[derive(Clone, Copy)]
#[doc(alias = "ncclEpTensor_t")]
pub struct Tensor<'a> {
    view: View,
    buffer: PhantomData<&'a ()>,
}

/// A tensor that is written.
///
/// Borrows its buffer mutably: nothing else touches it meanwhile.
#[doc(alias = "ncclEpTensor_t")]
pub struct TensorMut<'a> {
    view: View,
    buffer: PhantomData<&'a mut ()>,
}

impl<'a> Tensor<'a> {
    /// The front of `buffer` as a row-major tensor of this shape and the buffer's element type.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) without dimensions, with more than [`MAX_DIMS`], or when the shape does
    /// not fit the buffer.
    pub fn new<B: DeviceBuffer + ?Sized>(buffer: &'a B, shape: &[usize]) -> Result<Self> {
        View::new(buffer.raw(), shape).map(|view| Self { view, buffer: PhantomData })
    }

    /// A tensor over memory that something else manages.
    ///
    /// # Safety
    /// `ptr` points to the tensor's bytes in `memory`; they are valid to read, and not written,
    /// for `'a` and until everything enqueued with this tensor has run.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub unsafe fn from_raw(
        ptr: *const c_void,
        data_type: DataType,
        shape: &[usize],
        memory: MemorySpace,
    ) -> Result<Self> {
        let view = View::new(RawBuffer::unowned(ptr.cast_mut(), data_type, shape, memory), shape)?;
        Ok(Self { view, buffer: PhantomData })
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

    /// The same bytes as another type of the same size: fp8 or packed fp4 in a buffer of bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) when the sizes differ.
    pub fn with_data_type(mut self, data_type: DataType) -> Result<Self> {
        self.view.reinterpret(data_type)?;
        Ok(self)
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }
}

impl<'a> TensorMut<'a> {
    /// As [`Tensor::new`], to be written.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn new<B: DeviceBufferMut + ?Sized>(buffer: &'a mut B, shape: &[usize]) -> Result<Self> {
        View::new(buffer.raw_mut(), shape).map(|view| Self { view, buffer: PhantomData })
    }

    /// A tensor over memory that something else manages.
    ///
    /// # Safety
    /// `ptr` points to the tensor's bytes in `memory`; they are valid to read and write, and
    /// touched by nothing else, for `'a` and until everything enqueued with this tensor has run.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub unsafe fn from_raw(
        ptr: *mut c_void,
        data_type: DataType,
        shape: &[usize],
        memory: MemorySpace,
    ) -> Result<Self> {
        let view = View::new(RawBuffer::unowned(ptr, data_type, shape, memory), shape)?;
        Ok(Self { view, buffer: PhantomData })
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

    /// As [`Tensor::with_data_type`].
    ///
    /// # Errors
    /// As [`Tensor::with_data_type`].
    pub fn with_data_type(mut self, data_type: DataType) -> Result<Self> {
        self.view.reinterpret(data_type)?;
        Ok(self)
    }

    /// The same tensor, to be read.
    #[must_use]
    pub fn as_tensor(&self) -> Tensor<'_> {
        Tensor { view: self.view, buffer: PhantomData }
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }
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

/// A C descriptor on the stack of the call that uses it.
pub(crate) struct Descriptor {
    tensor: ncclEpTensor_t,
    extents: [usize; MAX_DIMS],
}

impl Descriptor {
    pub(crate) fn empty() -> Self {
        Self { tensor: ncclEpTensor_t::init(), extents: [0; MAX_DIMS] }
    }

    /// Describes `view` and gives the pointer to hand over, NULL for none. The pointer is good as
    /// long as the descriptor neither moves nor is used again.
    pub(crate) fn bind(&mut self, view: Option<&View>) -> *mut ncclEpTensor_t {
        let Some(view) = view else { return core::ptr::null_mut() };
        self.extents = view.shape.padded();
        self.tensor.ndim = view.shape.len() as u32;
        self.tensor.datatype = view.buffer.data_type.as_raw();
        self.tensor.data = view.buffer.ptr;
        self.tensor.sizes = self.extents.as_mut_ptr();
        &mut self.tensor
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
