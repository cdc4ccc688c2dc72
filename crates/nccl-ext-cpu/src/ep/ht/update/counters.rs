//! The counters that a high-throughput update writes (EP 3.5.2, 3.5.3).

use nccl_ep_sys::{ncclEpLayoutInfo_t, ncclEpTensor_t};
use nccl_ext_core::DataType;

use crate::ep::ht::placement::{Placement, PlacementRules, Zone};
use crate::ep::settings::Settings;
use crate::ep::tensor::{Tensor, WindowOnly};
use crate::queue;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::Member;

/// The tensors that an update writes.
#[derive(Default)]
pub(super) struct Counters {
    experts: Option<Counter>,
    /// Expert-major only.
    offsets: Option<Counter>,
    total: Option<Counter>,
}

// SAFETY: the caller keeps the tensors valid until the stream has passed the update, for whatever
// thread does the stream's work.
unsafe impl Send for Counters {}

impl Counters {
    /// Checks the tensors in the vendor's order.
    ///
    /// # Safety
    /// The tensors of `info` are valid.
    pub(super) unsafe fn read(
        member: &Member,
        settings: &Settings,
        rules: &PlacementRules,
        info: Option<&ncclEpLayoutInfo_t>,
    ) -> Outcome<Self> {
        let Some(info) = info else { return Ok(Self::default()) };
        let local = settings.local_experts;
        let any = &[DataType::Int32, DataType::Int64][..];
        let flat = &[DataType::Int32][..];
        let em = rules.expert_major;
        let (counter_types, window) =
            if em { (any, WindowOnly::Undefined) } else { (flat, WindowOnly::Resolved) };
        // SAFETY: this function's contract.
        let read = |given, name, types, len, window| unsafe {
            Counter::read(member, given, name, types, len, window)
        };
        let undefined = WindowOnly::Undefined;
        let experts = read(info.expert_counters, "expert_counters", counter_types, local, window)?;
        let offsets = if em { info.expert_offsets } else { core::ptr::null_mut() };
        let offsets = read(offsets, "expert_offsets", any, local, undefined)?;
        let total = read(info.recv_total_counter, "recv_total_counter", any, 1, undefined)?;
        let shared = [if em { experts } else { None }, offsets, total];
        let mut kinds = shared.iter().flatten().map(|counter| counter.wide);
        let first = kinds.next();
        require(kinds.all(|wide| Some(wide) == first), || {
            let rule = "counters that one kernel writes share their type";
            let name = "layout_info";
            let found = "int32 and int64";
            Refusal::argument(FailureClass::Assert, name, rule, "int32 or int64 for all", found)
        })?;
        Ok(Self { experts, offsets, total })
    }

    /// Writes what rank `me` receives.
    ///
    /// # Safety
    /// The tensors are still valid.
    pub(super) unsafe fn publish(
        &self,
        me: usize,
        rules: &PlacementRules,
        placement: &Placement,
    ) -> Outcome {
        let Self { experts, offsets, total } = *self;
        let cap = if rules.drop { rules.budget } else { u64::MAX };
        // SAFETY: `read` checked that the tensors hold that many elements.
        unsafe {
            if rules.expert_major {
                let clamped = |zone: &Zone| zone.padded.min(cap.saturating_sub(zone.base));
                Counter::write(experts, placement.zones.iter().map(clamped))?;
                Counter::write(offsets, placement.zones.iter().map(|zone| zone.base.min(cap)))?;
                Counter::write(total, [placement.zone_totals[me]].into_iter())
            } else {
                Counter::write(experts, placement.flat_counts.iter().copied())?;
                Counter::write(total, [placement.flat_totals[me]].into_iter())
            }
        }
    }
}

/// An integer tensor to be written.
#[derive(Clone, Copy)]
struct Counter {
    data: *mut u8,
    wide: bool,
}

impl Counter {
    /// # Safety
    /// As [`Tensor::optional`].
    unsafe fn read(
        member: &Member,
        given: *const ncclEpTensor_t,
        name: &'static str,
        types: &[DataType],
        len: usize,
        window: WindowOnly,
    ) -> Outcome<Option<Self>> {
        let assert = FailureClass::Assert;
        // SAFETY: this function's contract.
        let Some(tensor) = (unsafe { Tensor::optional(given, name)? }) else { return Ok(None) };
        tensor.require_ndim(assert, 1)?;
        tensor.require_type(assert, types)?;
        require(tensor.extent(0) >= len, || {
            let expected = format_args!("at least {len} elements").to_string();
            let rule = "a counter has its elements";
            Refusal::argument(assert, name, rule, expected, tensor.extent(0))
        })?;
        let data = tensor.data(member, window).map_err(|refusal| {
            if tensor.has_window() { refusal.with_class(assert) } else { refusal }
        })?;
        Ok(Some(Self { data, wide: tensor.data_type() == DataType::Int64.as_raw() }))
    }

    /// # Safety
    /// The tensor holds as many elements as `values` has.
    unsafe fn write(counter: Option<Self>, values: impl ExactSizeIterator<Item = u64>) -> Outcome {
        let Some(Self { data, wide }) = counter else { return Ok(()) };
        let width = if wide { size_of::<i64>() } else { size_of::<i32>() };
        queue::write(data, values.len() * width)?;
        for (i, value) in values.enumerate() {
            // SAFETY: this function's contract; `Tensor::data` checked the alignment.
            unsafe {
                if wide {
                    data.cast::<i64>().add(i).write(value as i64);
                } else {
                    data.cast::<i32>().add(i).write(value as i32);
                }
            }
        }
        Ok(())
    }
}
