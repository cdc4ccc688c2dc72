//! Tensors in the memory of a rank's device.

use std::ptr::null_mut;

use nccl_ep_sys::{VersionedStruct, ncclEpTensor_t};
use nccl_ext_core::driver::CuResult;
use nccl_ext_core::{Buffer, Comm, DeviceBufferMut, Element, Stream};

/// A tensor with its memory and descriptor. Calls of the table use the memory without telling the
/// buffer.
pub(crate) struct DeviceTensor<T: Element> {
    pub(crate) buffer: Buffer<T>,
    sizes: Vec<usize>,
    raw: ncclEpTensor_t,
}

impl<T: Element> DeviceTensor<T> {
    pub(crate) fn new(comm: &Comm, sizes: &[usize], data: &[T]) -> Self {
        assert_eq!(data.len(), sizes.iter().product::<usize>());
        let mut raw: ncclEpTensor_t = VersionedStruct::init();
        (raw.ndim, raw.datatype) = (sizes.len() as u32, T::DATA_TYPE.as_raw());
        Self { buffer: Buffer::from_slice(comm, data).unwrap(), sizes: sizes.to_vec(), raw }
    }

    pub(crate) fn filled(comm: &Comm, sizes: &[usize], value: T) -> Self {
        Self::new(comm, sizes, &vec![value; sizes.iter().product()])
    }

    /// The descriptor, good until the tensor is used otherwise.
    pub(crate) fn descriptor(&mut self) -> *mut ncclEpTensor_t {
        self.raw.sizes = self.sizes.as_mut_ptr();
        self.raw.data = self.buffer.raw_mut().ptr;
        &raw mut self.raw
    }

    /// Sets every byte, on the stream; waits for nothing.
    pub(crate) fn fill(&mut self, value: u8, stream: Stream<'_>) {
        let memory = self.buffer.raw_mut();
        let fill = self.buffer.device().backend().driver().fill.unwrap();
        // SAFETY: the memory is the tensor's; the backend finds out who uses it without an order.
        let code = unsafe { fill(memory.ptr as u64, value, memory.bytes, stream.as_raw()) };
        assert!(matches!(code, CuResult::SUCCESS | CuResult::LAUNCH_FAILED), "{code:?}");
    }

    /// Registers all of it as a window.
    pub(crate) fn register(&mut self, comm: &Comm) {
        let memory = self.buffer.raw_mut();
        let bytes = memory.bytes;
        let mut window = null_mut();
        let register = comm.backend().nccl().ncclCommWindowRegister;
        // SAFETY: the communicator is live, and the memory is the tensor's.
        let code = unsafe { register(comm.as_raw(), memory.ptr, bytes, &mut window, 0) };
        assert!(code.is_success());
        self.raw.win_hdl = window;
    }
}

/// The descriptor of a tensor, or NULL for none.
pub(crate) fn or_null<T: Element>(tensor: &mut Option<DeviceTensor<T>>) -> *mut ncclEpTensor_t {
    tensor.as_mut().map_or(null_mut(), DeviceTensor::descriptor)
}
