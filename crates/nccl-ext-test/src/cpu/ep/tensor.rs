//! Tensors that own their data.

use std::ptr::null_mut;

use nccl_ep_sys::{VersionedStruct, ncclEpTensor_t};
use nccl_ext_core::raw::ncclWindow_t;
use nccl_ext_core::{Comm, DataType, Element, bf16};
use nccl_ext_cpu::backend;

use super::assert_ok;

/// What untouched memory holds.
pub const CANARY: f32 = -77.0;

/// A tensor with its data and descriptor.
#[derive(Debug)]
pub struct TestTensor<T> {
    pub data: Vec<T>,
    sizes: Vec<usize>,
    raw: ncclEpTensor_t,
    /// Bytes by which the descriptor's pointer misses the data.
    pub pointer_offset: usize,
}

impl<T: Element> TestTensor<T> {
    pub fn new(sizes: &[usize], data: Vec<T>) -> Self {
        assert_eq!(data.len(), sizes.iter().product::<usize>());
        let (sizes, raw) = (sizes.to_vec(), VersionedStruct::init());
        let mut this = Self { data, sizes, raw, pointer_offset: 0 };
        this.raw.ndim = this.sizes.len() as u32;
        this.raw.datatype = T::DATA_TYPE.as_raw();
        this
    }

    /// A tensor in a window, that many bytes behind its begin, without a pointer to its data.
    pub fn in_window(sizes: &[usize], window: ncclWindow_t, offset: u64) -> Self {
        let mut this = Self::new(&[0], vec![]).with_window(window);
        this.sizes = sizes.to_vec();
        (this.raw.ndim, this.raw.win_offset) = (sizes.len() as u32, offset);
        this
    }

    pub fn filled(sizes: &[usize], value: T) -> Self {
        Self::new(sizes, vec![value; sizes.iter().product()])
    }

    /// The descriptor, good until the tensor is used otherwise.
    pub fn descriptor(&mut self) -> *mut ncclEpTensor_t {
        self.raw.sizes = self.sizes.as_mut_ptr();
        self.raw.data =
            if self.data.is_empty() { null_mut() } else { self.data.as_mut_ptr().cast() };
        self.raw.data = self.raw.data.wrapping_byte_add(self.pointer_offset);
        &raw mut self.raw
    }

    /// The descriptor, for a test to break.
    pub fn raw_mut(&mut self) -> &mut ncclEpTensor_t {
        self.descriptor();
        &mut self.raw
    }

    /// Another element type over the same bytes; the last extent counts its elements.
    pub fn retype(&mut self, data_type: DataType, size: usize) {
        self.raw.datatype = data_type.as_raw();
        let last = self.sizes.last_mut().unwrap();
        *last = *last * size_of::<T>() / size;
    }

    pub fn with_window(mut self, window: ncclWindow_t) -> Self {
        self.raw.win_hdl = window;
        self
    }
}

/// The descriptor of a tensor, or NULL for none.
pub fn descriptor_or_null<T: Element>(tensor: &mut Option<TestTensor<T>>) -> *mut ncclEpTensor_t {
    tensor.as_mut().map_or(null_mut(), TestTensor::descriptor)
}

/// Registers all of a tensor's data as a window.
pub fn register_window<T: Element>(comm: &Comm, mut tensor: TestTensor<T>) -> TestTensor<T> {
    let mut handle = null_mut();
    let (data, bytes) = (tensor.data.as_mut_ptr().cast(), size_of_val(&tensor.data[..]));
    let register = backend().nccl().ncclCommWindowRegister;
    // SAFETY: the communicator is live and the data is the tensor's, whose buffer does not move
    // with it.
    assert_ok(unsafe { register(comm.as_raw(), data, bytes, &mut handle, 0) });
    tensor.with_window(handle)
}

/// Int64 expert ids of any number of tokens.
pub fn int64_ids(topk: usize, ids: &[i64]) -> TestTensor<i64> {
    TestTensor::new(&[ids.len() / topk, topk], ids.to_vec())
}

/// Rows whose elements all have one value each.
pub fn uniform_rows(values: &[f32], hidden: usize) -> Vec<bf16> {
    values.iter().flat_map(|&v| vec![bf16::from_f32(v); hidden]).collect()
}

/// The value of each row.
///
/// # Panics
/// If a row is not of one value.
#[track_caller]
pub fn row_values(data: &[bf16], hidden: usize) -> Vec<f32> {
    let row = |row: &[bf16]| {
        assert!(row.iter().all(|x| x.to_bits() == row[0].to_bits()), "a mixed row: {row:?}");
        row[0].to_f32()
    };
    data.chunks_exact(hidden).map(row).collect()
}
