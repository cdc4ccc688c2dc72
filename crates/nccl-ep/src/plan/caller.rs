//! Tensors that the caller brings to a step, from the same rows that check them.

use nccl_ext_core::Result;

use super::buffer::Buffer;
use super::bytes::in_64_bits;
use super::check::{self, Checked};
use super::setup::Setup;
use crate::enums::{DispatchQuantizationRecipe, PassDir};
use crate::geometry::Geometry;
use crate::recv_spec::tensor_spec;
use crate::rules::tensor_row::{Call, Need, Slot};
use crate::rules::tensors;

/// What a dispatch writes and a combine reads, each with the name that the plan gives it.
const TENSORS: [(Call, Slot, &str); 6] = [
    (Call::Dispatch(PassDir::Fwd), Slot::OutTokens, "received tokens"),
    (Call::Dispatch(PassDir::Fwd), Slot::OutWeights, "received weights"),
    (Call::Dispatch(PassDir::Fwd), Slot::OutIdx, "received expert ids"),
    (Call::Dispatch(PassDir::Fwd), Slot::LiExpertCounters, "expert counters"),
    (Call::Dispatch(PassDir::Fwd), Slot::LiSrcRankCounters, "source rank counters"),
    (Call::Combine(PassDir::Fwd), Slot::InTokens, "expert outputs"),
];

pub(super) fn buffers(setup: &Setup, checked: &Checked) -> Result<Vec<Buffer>> {
    let rows = in_64_bits("received tokens", checked.received_rows())?;
    // The most that can arrive stands in for the caller's own count.
    let geometry = Geometry { eager: false, max_recv: rows, ..checked.geometry.clone() };
    let sizes = check::sizes(setup, &geometry, checked.topk, rows);
    let mut buffers = Vec::new();
    for (call, slot, name) in TENSORS {
        let recipe = DispatchQuantizationRecipe::None;
        let rule = tensors::row(call, checked.mode, recipe, slot)
            .filter(|rule| rule.need != Need::Forbidden);
        let Some(rule) = rule else { continue };
        let spec = tensor_spec(rule, &sizes);
        let token = spec.data_types.contains(&setup.data_type);
        let data_type =
            if token { Some(setup.data_type) } else { spec.data_types.first().copied() };
        let Some(data_type) = data_type else { continue };
        let (formula, source) = (rule.info.rule, rule.info.source);
        buffers.push(Buffer::tensor(name, spec.shape, data_type, formula, source)?);
    }
    Ok(buffers)
}
