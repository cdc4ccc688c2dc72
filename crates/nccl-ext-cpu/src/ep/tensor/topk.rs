//! The caller's top-k indices.

use nccl_ep_sys::ncclEpTensor_t;
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclDataType_t;

use super::descriptor::{Tensor, WindowOnly};
use crate::queue;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::Member;

/// A table of expert ids, one row a token, in the caller's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TopK {
    data: *const u8,
    wide: bool,
    pub(crate) tokens: usize,
    topk: usize,
}

// SAFETY: the caller keeps the ids valid as long as the operations that use them (EP 1.7), from
// whatever thread those are called.
unsafe impl Send for TopK {}

impl TopK {
    /// Reads a descriptor with the checks that both algorithms make (EP 3.5.1).
    ///
    /// # Safety
    /// As [`Tensor::required`].
    pub(crate) unsafe fn tensor(given: *const ncclEpTensor_t) -> Outcome<Tensor> {
        let assert = FailureClass::Assert;
        // SAFETY: this function's contract.
        let tensor = unsafe { Tensor::required(given, "topk_idx")? };
        tensor.require_ndim(assert, 2)?;
        tensor.require_type(assert, &[DataType::Int32, DataType::Int64])?;
        Ok(tensor)
    }

    /// The ids of a descriptor with `topk` columns.
    pub(crate) fn of(
        tensor: &Tensor,
        topk: usize,
        member: &Member,
        window_only: WindowOnly,
    ) -> Outcome<Self> {
        require(tensor.extent(1) == topk, || {
            let rule = "the handle was made for that many experts a token";
            let found = format_args!("{tensor}").to_string();
            let expected = format_args!("{topk} columns").to_string();
            Refusal::argument(FailureClass::Assert, "topk_idx", rule, expected, found)
        })?;
        Ok(Self {
            data: tensor.data(member, window_only)?,
            wide: tensor.data_type() == DataType::Int64.as_raw(),
            tokens: tensor.extent(0),
            topk,
        })
    }

    /// The type of the ids.
    pub(crate) fn data_type(&self) -> ncclDataType_t {
        if self.wide { DataType::Int64.as_raw() } else { DataType::Int32.as_raw() }
    }

    /// The running work is about to read the ids.
    pub(crate) fn declare(&self) -> Outcome {
        let width = if self.wide { size_of::<i64>() } else { size_of::<i32>() };
        queue::read(self.data, self.tokens * self.topk * width)
    }

    /// All ids, row by row.
    ///
    /// # Safety
    /// The caller's table is still there and does not change meanwhile.
    pub(crate) unsafe fn ids(&self) -> impl ExactSizeIterator<Item = i64> + Clone {
        let Self { data, wide, tokens, topk } = *self;
        let id = move |i: usize| {
            // SAFETY: `i` is inside the table; `Tensor::data` checked its alignment.
            unsafe {
                if wide {
                    data.cast::<i64>().add(i).read()
                } else {
                    i64::from(data.cast::<i32>().add(i).read())
                }
            }
        };
        (0..tokens * topk).map(id)
    }

    /// Refuses ids that name no expert; the vendor's library writes out of bounds with them. Any
    /// negative id says "none", but ids below `lowest` alias experts there (EP 4.16).
    ///
    /// # Safety
    /// As [`ids`](Self::ids).
    pub(crate) unsafe fn check(&self, experts: usize, lowest: i64) -> Outcome {
        let valid = |id: i64| id >= lowest && (id < 0 || (id as u64) < experts as u64);
        // SAFETY: this function's contract.
        let wrong = unsafe { self.ids() }.enumerate().find(|&(_, id)| !valid(id));
        let Some((i, id)) = wrong else { return Ok(()) };
        let (token, k) = (i / self.topk, i % self.topk);
        let most = experts - 1;
        let expected = if lowest == i64::MIN {
            format_args!("at most {most}").to_string()
        } else {
            format_args!("{lowest} to {most}").to_string()
        };
        let found = format_args!("{id} at token {token}, position {k}").to_string();
        let rule = "an id is a global expert, or negative for none";
        let class = FailureClass::UndefinedBehaviour;
        Err(Refusal::argument(class, "topk_idx", rule, expected, found))
    }
}
