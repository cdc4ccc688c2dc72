//! What the rows call through and with.

use std::ffi::c_void;

use nccl_ep_sys::{
    EpApi, NCCL_EP_MAGIC, VersionedStruct, ncclEpGroup_t, ncclEpHandle_t, ncclEpTensor_t,
};
use nccl_ext_core::raw::{ncclComm_t, ncclDataType_t, ncclResult_t};

/// A library and the objects that rows use.
pub(crate) struct Fixture<'a> {
    pub(crate) api: &'a EpApi,
    /// A communicator; over the vendor's library one of the stand-in for NCCL.
    pub(crate) comm: ncclComm_t,
    /// A group; over the vendor's library a [`maze`]. Only for calls that fail before they use it.
    pub(crate) group: ncclEpGroup_t,
    /// A handle, likewise.
    pub(crate) handle: ncclEpHandle_t,
    /// A low-latency group without masks; over the vendor's library zeros, which say the same.
    pub(crate) low_latency: ncclEpGroup_t,
}

/// An object of zeros.
pub(crate) fn zeros() -> *mut c_void {
    Box::leak(vec![0_usize; WORDS].into_boxed_slice()).as_mut_ptr().cast()
}

/// Larger than any object of the vendor's library.
const WORDS: usize = 1 << 16;

/// Memory every word of which is its own address: a pointer read from it, at any depth, leads to
/// readable memory. A stand-in for objects that only a GPU could make.
pub(crate) fn maze() -> *mut c_void {
    let memory: &'static mut [usize] = Box::leak(vec![0; WORDS].into_boxed_slice());
    let address = memory.as_mut_ptr().expose_provenance();
    memory.fill(address);
    memory.as_mut_ptr().cast()
}

/// How a versioned structure is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    Good,
    Null,
    SizeZero,
    /// One byte less than the first published size.
    BelowV1,
    /// The first published size.
    V1,
    /// Larger than any version, with garbage where later fields would be.
    Larger,
    /// One bit of the magic differs.
    OtherMagic,
    /// Both: the size is looked at first.
    BelowV1OtherMagic,
}

impl Given {
    /// What is refused although the pointer is not NULL.
    pub(crate) const BAD: [Self; 4] =
        [Self::SizeZero, Self::BelowV1, Self::OtherMagic, Self::BelowV1OtherMagic];
    /// What is accepted.
    pub(crate) const ACCEPTED: [Self; 2] = [Self::V1, Self::Larger];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Null => "null",
            Self::SizeZero => "size_0",
            Self::BelowV1 => "size_below_v1",
            Self::V1 => "size_v1",
            Self::Larger => "size_larger",
            Self::OtherMagic => "other_magic",
            Self::BelowV1OtherMagic => "size_below_v1_and_other_magic",
        }
    }

    /// What the vendor's library prints when it refuses this.
    pub(crate) fn complaint(self, argument: &str, v1: usize) -> String {
        let small = |size| format!("{argument} size too small: got {size}, expected at least {v1}");
        match self {
            Self::Good | Self::V1 | Self::Larger => String::new(),
            Self::Null => format!("required {argument} is NULL"),
            Self::SizeZero => small(0),
            Self::BelowV1 | Self::BelowV1OtherMagic => small(v1 - 1),
            Self::OtherMagic => {
                format!("{argument} magic mismatch: got 0xc00fffef, expected 0xc00fffee")
            }
        }
    }
}

/// A versioned structure as an argument.
#[repr(C)]
pub(crate) struct Arg<T> {
    value: T,
    /// As much as [`Given::Larger`] claims.
    garbage: [u8; 256],
    given: Given,
}

impl<T: VersionedStruct> Arg<T> {
    pub(crate) fn new(given: Given, mut value: T) -> Self {
        let size = size_of::<T>();
        let (size, magic) = match given {
            Given::Good | Given::Null => (size, NCCL_EP_MAGIC),
            Given::SizeZero => (0, NCCL_EP_MAGIC),
            Given::BelowV1 => (T::V1_SIZE - 1, NCCL_EP_MAGIC),
            Given::V1 => (T::V1_SIZE, NCCL_EP_MAGIC),
            Given::Larger => (size + 256, NCCL_EP_MAGIC),
            Given::OtherMagic => (size, NCCL_EP_MAGIC ^ 1),
            Given::BelowV1OtherMagic => (T::V1_SIZE - 1, NCCL_EP_MAGIC ^ 1),
        };
        // SAFETY: every versioned structure starts with its size and magic, two `u32`.
        unsafe { (&raw mut value).cast::<[u32; 2]>().write([u32::try_from(size).unwrap(), magic]) };
        Self { value, garbage: [0xA5; 256], given }
    }

    pub(crate) fn init(given: Given) -> Self {
        Self::new(given, T::init())
    }

    pub(crate) fn as_ptr(&self) -> *const T {
        if self.given == Given::Null { core::ptr::null() } else { (&raw const *self).cast() }
    }
}

/// A caller-made descriptor with memory behind it.
pub(crate) struct Tensor {
    _data: Box<[Row16; 64]>,
    _sizes: Box<[usize]>,
    pub(crate) raw: ncclEpTensor_t,
}

#[derive(Clone, Copy)]
#[repr(align(16))]
struct Row16(#[expect(dead_code, reason = "memory alone")] [u8; 16]);

impl Tensor {
    /// All zeros. The extents are small: 1 KiB lies behind them.
    pub(crate) fn new(datatype: ncclDataType_t, sizes: &[usize]) -> Self {
        let mut data = Box::new([Row16([0; 16]); 64]);
        let mut sizes: Box<[usize]> = sizes.into();
        let mut raw = ncclEpTensor_t::init();
        raw.ndim = u32::try_from(sizes.len()).unwrap();
        raw.datatype = datatype;
        raw.data = data.as_mut_ptr().cast();
        raw.sizes = sizes.as_mut_ptr();
        Self { _data: data, _sizes: sizes, raw }
    }

    /// Expert indices of two tokens with one expert each.
    pub(crate) fn topk() -> Self {
        Self::new(ncclDataType_t::ncclInt64, &[2, 1])
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut ncclEpTensor_t {
        &raw mut self.raw
    }
}

/// A pointer that no call may follow, to see whether an out argument was written.
pub(crate) fn untouched<T>() -> *mut T {
    core::ptr::without_provenance_mut(0x5A5A_5A5A_5A5A_5A58)
}

/// A result and whether `out` was written.
pub(crate) fn with_out<T>(code: ncclResult_t, out: *mut T) -> String {
    let state = match out {
        out if out == untouched() => "out untouched",
        out if out.is_null() => "out NULL",
        _ => "out set",
    };
    format!("{}, {state}", nccl_ext_core::result_name(code))
}

/// A result alone.
pub(crate) fn name(code: ncclResult_t) -> String {
    nccl_ext_core::result_name(code).to_owned()
}
