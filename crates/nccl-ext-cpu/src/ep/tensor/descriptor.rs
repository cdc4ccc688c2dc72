//! Tensor descriptors, read and checked.

use std::fmt;

use nccl_ep_sys::{NCCL_EP_TENSOR_MAGIC, ncclEpTensor_t};
use nccl_ext_core::DataType;
use nccl_ext_core::raw::{ncclDataType_t, ncclWindow_t};

use super::allocated::{self, ALLOCATED_MAGIC};
use crate::nccl::find_window;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::Member;

/// More extents than any rule accepts.
const EXTENTS: usize = 4;

/// A valid descriptor, read once.
#[derive(Clone, Copy)]
pub(crate) struct Tensor {
    name: &'static str,
    ndim: usize,
    extents: [usize; EXTENTS],
    data_type: ncclDataType_t,
    data: *mut u8,
    window: ncclWindow_t,
    window_offset: u64,
    empty: bool,
}

/// Whether an operation resolves a descriptor that has a window and no pointer (EP 1.6).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowOnly {
    Resolved,
    Undefined,
}

impl Tensor {
    /// A tensor that must be given: anything else is an ASSERT.
    ///
    /// # Safety
    /// `given` is NULL or points to a descriptor whose `sizes` holds `ndim` extents.
    pub(crate) unsafe fn required(
        given: *const ncclEpTensor_t,
        name: &'static str,
    ) -> Outcome<Self> {
        // SAFETY: this function's contract.
        unsafe { Self::optional(given, name)? }
            .ok_or_else(|| Refusal::null(FailureClass::Assert, name))
    }

    /// A tensor that may be NULL; an invalid one is an ASSERT.
    ///
    /// # Safety
    /// As [`required`](Self::required).
    pub(crate) unsafe fn optional(
        given: *const ncclEpTensor_t,
        name: &'static str,
    ) -> Outcome<Option<Self>> {
        if given.is_null() {
            return Ok(None);
        }
        let class = FailureClass::Assert;
        // SAFETY: the contract; `size` comes first and says whether the rest is there.
        let size = unsafe { (&raw const (*given).size).read() } as usize;
        require(size >= size_of::<ncclEpTensor_t>(), || {
            let rule = "a tensor descriptor starts with its size and magic";
            Refusal::argument(class, name, rule, "size >= 48", format_args!("size {size}"))
        })?;
        // SAFETY: the contract and the size.
        let tensor = unsafe { *given };
        let known = match tensor.magic {
            NCCL_EP_TENSOR_MAGIC => true,
            ALLOCATED_MAGIC => allocated::is_intact(given, tensor.sizes),
            _ => false,
        };
        require(known, || {
            let rule = "a descriptor is made by the caller or by ncclEpTensorAlloc, and not copied";
            let expected = format_args!("magic {NCCL_EP_TENSOR_MAGIC:#x}").to_string();
            let found = format_args!("magic {:#x}", tensor.magic).to_string();
            Refusal::argument(class, name, rule, expected, found)
        })?;
        let ndim = tensor.ndim as usize;
        require(ndim == 0 || !tensor.sizes.is_null(), || {
            Refusal::null(FailureClass::UndefinedBehaviour, name)
        })?;
        let mut extents = [0; EXTENTS];
        let mut empty = false;
        for i in 0..ndim {
            // SAFETY: the contract: `ndim` extents are there.
            let extent = unsafe { tensor.sizes.add(i).read() };
            empty |= extent == 0;
            if let Some(kept) = extents.get_mut(i) {
                *kept = extent;
            }
        }
        let bound = !tensor.data.is_null() || !tensor.win_hdl.is_null();
        require(empty || bound, || {
            let rule = "a tensor that is not empty has data or a window";
            Refusal::argument(class, name, rule, "data or win_hdl", "neither")
        })?;
        Ok(Some(Self {
            name,
            ndim,
            extents,
            data_type: tensor.datatype,
            data: tensor.data.cast(),
            window: tensor.win_hdl,
            window_offset: tensor.win_offset,
            empty,
        }))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn ndim(&self) -> usize {
        self.ndim
    }

    /// An extent; 0 beyond the last.
    pub(crate) fn extent(&self, dimension: usize) -> usize {
        self.extents.get(dimension).copied().unwrap_or(0)
    }

    pub(crate) fn data_type(&self) -> ncclDataType_t {
        self.data_type
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    pub(crate) fn has_window(&self) -> bool {
        !self.window.is_null()
    }

    /// Whether the pointer, if any, and the offset in a window, if any, are multiples of `unit`.
    pub(crate) fn is_aligned_to(&self, unit: usize) -> bool {
        let offset = if self.window.is_null() { 0 } else { self.window_offset };
        self.data.addr().is_multiple_of(unit) && offset.is_multiple_of(unit as u64)
    }

    /// Refuses another number of extents.
    pub(crate) fn require_ndim(&self, class: FailureClass, ndim: usize) -> Outcome {
        require(self.ndim == ndim, || {
            let rule = "the number of extents";
            Refusal::argument(class, self.name, rule, ndim, format_args!("{self}"))
        })
    }

    /// Refuses any other shape.
    pub(crate) fn require_shape(&self, class: FailureClass, shape: &[usize]) -> Outcome {
        let equal = self.ndim == shape.len() && self.extents.starts_with(shape);
        require(equal, || {
            let rule = "the shape is given by the group and the handle";
            Refusal::argument(class, self.name, rule, Shape(shape), format_args!("{self}"))
        })
    }

    /// Refuses any other element type.
    pub(crate) fn require_type(&self, class: FailureClass, allowed: &[DataType]) -> Outcome {
        require(allowed.iter().any(|data_type| data_type.as_raw() == self.data_type), || {
            let expected: Vec<_> = allowed.iter().map(|data_type| data_type.name()).collect();
            let rule = "the element type";
            Refusal::argument(class, self.name, rule, expected.join(" or "), format_args!("{self}"))
        })
    }

    /// The first element, for an operation of `member`'s rank.
    ///
    /// What the vendor's library leaves undefined is refused here: a window that the operation
    /// does not resolve or that is too small, data that is not aligned for its type, sizes that
    /// overflow.
    pub(crate) fn data(&self, member: &Member, window_only: WindowOnly) -> Outcome<*mut u8> {
        let class = FailureClass::UndefinedBehaviour;
        if self.empty {
            return Ok(self.data);
        }
        let size = DataType::from_raw(self.data_type).map_or(1, DataType::size);
        let kept = self.extents.get(..self.ndim).ok_or_else(|| {
            let rule = "the number of extents";
            Refusal::argument(class, self.name, rule, "at most 4", self.ndim)
        })?;
        let bytes = kept.iter().try_fold(size, |bytes, &extent| bytes.checked_mul(extent));
        let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(|| {
            let rule = "the tensor fits the address space";
            Refusal::argument(class, self.name, rule, "fewer elements", format_args!("{self}"))
        })?;
        let data = if self.data.is_null() {
            require(window_only == WindowOnly::Resolved, || {
                let rule = "this operation does not find the data of a window by itself";
                Refusal::argument(class, self.name, rule, "data beside win_hdl", "NULL")
            })?;
            let window = find_window(member, self.window, class)?;
            let offset = usize::try_from(self.window_offset).ok();
            let end = offset.and_then(|offset| offset.checked_add(bytes));
            let offset = offset.filter(|_| end.is_some_and(|end| end <= window.size));
            let offset = offset.ok_or_else(|| {
                let rule = "the tensor lies inside its window";
                let found = format_args!("{bytes} at offset {}", self.window_offset).to_string();
                let expected = format_args!("{} bytes", window.size).to_string();
                Refusal::argument(class, self.name, rule, expected, found)
            })?;
            // SAFETY: the offset is inside the window, which the caller registered as one range.
            unsafe { window.base.add(offset) }
        } else {
            self.data
        };
        require(data.addr() % size == 0, || {
            let rule = "data is aligned for its type";
            let expected = format_args!("a multiple of {size}").to_string();
            Refusal::argument(class, self.name, rule, expected, format_args!("{data:p}"))
        })?;
        Ok(data)
    }
}

struct Shape<'a>(&'a [usize]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DataType::from_raw(self.data_type) {
            Some(data_type) => write!(f, "{data_type} ")?,
            None => write!(f, "type {} ", self.data_type.0)?,
        }
        match self.extents.get(..self.ndim) {
            Some(extents) => write!(f, "{extents:?}"),
            None => write!(f, "of {} extents", self.ndim),
        }
    }
}
