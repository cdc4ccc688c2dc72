//! The rows of single tensors, broken in every way that a row has.

use nccl_ext_core::{DataType, Result};
use nccl_ext_test::stub::ep as stub;

use super::{all, row};
use crate::environment::Environment;
use crate::geometry::Geometry;
use crate::rules::RuleInfo;
use crate::rules::tensor_row::extents::{Dim, Extent, Sizes};
use crate::rules::tensor_row::{Call, Need, Slot, TensorRule};
use crate::rules::walk_support::{
    HIDDEN, RANKS, STREAM, TOKENS, TOPK, assert_names, assert_no_step_calls, ht, ids, ll, read,
    write,
};
use crate::{DispatchQuantizationRecipe as Recipe, *};

/// How a tensor breaks its row.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Break {
    Omit,
    Provide,
    Extent,
    Dimension,
    Type,
}

impl Break {
    fn of(rule: &TensorRule) -> Vec<Self> {
        // These are not optional in Rust, so nobody can leave them out.
        let by_type = matches!(rule.slot, Slot::TopkIdx | Slot::InTokens | Slot::OutTokens);
        let mut breaks = vec![];
        match rule.need {
            Need::Forbidden => return vec![Self::Provide],
            Need::Required if !by_type => breaks.push(Self::Omit),
            Need::Required | Need::Optional => {}
        }
        breaks.extend([Self::Dimension, Self::Type]);
        let fixed =
            |dim: &Dim| !matches!(dim, Dim::Hidden | Dim::Scales | Dim::AtLeast(Extent::Zero));
        if rule.dims.iter().any(fixed) {
            breaks.push(Self::Extent);
        }
        breaks
    }
}

/// Shape and type of a call's tensor, right or broken; `None` leaves it out.
fn shaped(
    rule: &TensorRule,
    sizes: &Sizes<'_>,
    broken: Option<Break>,
) -> Option<(DataType, Vec<usize>)> {
    match (rule.need, broken) {
        (Need::Forbidden, Some(_)) => return Some((DataType::Int32, vec![1])),
        (Need::Forbidden, None) | (_, Some(Break::Omit)) => return None,
        _ => {}
    }
    let accepted = rule.types.accepted(sizes);
    let scales = matches!(rule.slot, Slot::InScales | Slot::OutScales);
    let usual = if scales { sizes.scale_type } else { sizes.token_type };
    let mut data_type = if accepted.contains(&usual) { usual } else { accepted[0] };
    let mut shape: Vec<usize> = vec![];
    let mut unbroken = broken == Some(Break::Extent);
    for dim in rule.dims {
        let (extent, broken_extent) = match *dim {
            Dim::Is(extent) => (sizes.extent(extent), Some(sizes.extent(extent) + 1)),
            Dim::AtLeast(extent) => (sizes.extent(extent), sizes.extent(extent).checked_sub(1)),
            Dim::Hidden => (sizes.hidden, None),
            Dim::Scales => (sizes.scale_width, None),
        };
        let broken_extent = broken_extent.filter(|_| unbroken);
        unbroken &= broken_extent.is_none();
        shape.push(broken_extent.unwrap_or(extent) as usize);
    }
    match broken {
        Some(Break::Dimension) => shape.push(1),
        Some(Break::Type) => data_type = DataType::Float64,
        _ => {}
    }
    Some((data_type, shape))
}

/// Makes a call whose tensors fit the table, but for one.
fn attempt(call: Call, mode: Mode, recipe: Recipe, broken: Option<(Slot, Break)>) -> Result<()> {
    let config = if mode.is_high_throughput() { ht() } else { ll() };
    let layout = mode.layout();
    let comm = stub::comm(RANKS as usize);
    let group = Group::create_in(&comm, &config, Environment::default(), None)?;
    let mut handle = group.init_handle(layout, &HandleConfig::new(), TopK::N(TOPK), None)?;
    let geometry = group.shared.geometry.clone();
    let update = call == Call::Update;
    let sizes = Sizes {
        geometry: &geometry,
        topk: TOPK.into(),
        tokens: TOKENS as u64,
        hidden: HIDDEN as u64,
        token_type: if update { DataType::Int64 } else { DataType::Bfloat16 },
        scale_width: 16,
        scale_type: DataType::Uint8,
        out_rows: 16,
        step_rows: 16,
    };
    let shape = |slot: Slot| {
        let rule = row(call, mode, recipe, slot)?;
        let broken = broken.filter(|(broken, _)| *broken == slot).map(|(_, how)| how);
        shaped(rule, &sizes, broken)
    };
    let reads = |slot| shape(slot).map(|(data_type, shape)| read(data_type, &shape));
    let writes = |slot| shape(slot).map(|(data_type, shape)| write(data_type, &shape));
    let mut info = LayoutInfo::new();
    info.expert_counters = writes(Slot::LiExpertCounters);
    info.src_rank_counters = writes(Slot::LiSrcRankCounters);
    info.expert_offsets = writes(Slot::LiExpertOffsets);
    info.recv_total_counter = writes(Slot::LiRecvTotal);

    if update {
        // Rows of routing may be any number: three here.
        let mut ids = shape(Slot::TopkIdx).unwrap();
        ids.1[0] = TOKENS;
        stub::take_calls();
        let step = handle.update(read(ids.0, &ids.1), Some(&mut info), STREAM);
        return step.map(drop);
    }
    let mut step = handle.update(ids(), None, STREAM)?;
    if let Call::Dispatch(pass) = call {
        return dispatch_broken(&mut step, pass, recipe, &reads, &writes, &mut info);
    }
    let Call::Combine(pass) = call else { return Ok(()) };
    let dispatched = attempt_dispatch(&mut step, mode, &geometry);
    dispatched?;
    let mut inputs = CombineInputs::new(reads(Slot::InTokens).unwrap());
    inputs.topk_weights = reads(Slot::InWeights);
    inputs.routing_weights = reads(Slot::RoutingWeights);
    let mut outputs = CombineOutputs::new(writes(Slot::OutTokens).unwrap());
    outputs.topk_weights = writes(Slot::OutWeights);
    stub::take_calls();
    step.combine(&inputs, &mut outputs, &CombineConfig::new().pass_direction(pass), STREAM)
}

fn dispatch_broken(
    step: &mut Step<'_>,
    pass: PassDir,
    recipe: Recipe,
    reads: &dyn Fn(Slot) -> Option<Tensor<'static>>,
    writes: &dyn Fn(Slot) -> Option<TensorMut<'static>>,
    info: &mut LayoutInfo<'_>,
) -> Result<()> {
    let mut inputs = DispatchInputs::new(reads(Slot::InTokens).unwrap());
    inputs.topk_weights = reads(Slot::InWeights);
    let mut outputs = DispatchOutputs::new(writes(Slot::OutTokens).unwrap());
    outputs.topk_weights = writes(Slot::OutWeights);
    outputs.topk_idx = writes(Slot::OutIdx);
    inputs.scales = reads(Slot::InScales);
    outputs.scales = writes(Slot::OutScales);
    stub::take_calls();
    step.dispatch(
        &inputs,
        &mut outputs,
        Some(info),
        &DispatchConfig::new().pass_direction(pass).quantization_recipe(recipe),
        STREAM,
    )
}

/// A right forward dispatch, as a combine needs one before it.
fn attempt_dispatch(step: &mut Step<'_>, mode: Mode, geometry: &Geometry) -> Result<()> {
    let sizes = Sizes {
        geometry,
        topk: TOPK.into(),
        tokens: TOKENS as u64,
        hidden: HIDDEN as u64,
        token_type: DataType::Bfloat16,
        scale_width: 0,
        scale_type: DataType::Float32,
        out_rows: 16,
        step_rows: 16,
    };
    let shape = |slot: Slot| {
        let call = Call::Dispatch(PassDir::Fwd);
        let rule = row(call, mode, Recipe::None, slot)?;
        shaped(rule, &sizes, None)
    };
    let reads = |slot| shape(slot).map(|(data_type, shape)| read(data_type, &shape));
    let writes = |slot| shape(slot).map(|(data_type, shape)| write(data_type, &shape));
    let mut info = LayoutInfo::new();
    info.expert_counters = writes(Slot::LiExpertCounters);
    info.src_rank_counters = writes(Slot::LiSrcRankCounters);
    dispatch_broken(step, PassDir::Fwd, Recipe::None, &reads, &writes, &mut info)
}

pub(in crate::rules) fn walk(info: &RuleInfo) -> bool {
    let Some(rule) = all().find(|rule| rule.info == *info) else { return false };
    assert!(break_in_every_way(rule) > 0, "{}: no way to break it", info.name);
    true
}

/// Breaks a row in each of its modes; gives the number of broken calls.
fn break_in_every_way(rule: &TensorRule) -> usize {
    let mut broken = 0;
    for &mode in rule.modes {
        let recipe = rule.recipe.unwrap_or(Recipe::None);
        attempt(rule.call, mode, recipe, None)
            .unwrap_or_else(|error| panic!("{}: the right call: {error}", rule.info.name));
        let made = stub::take_calls();
        assert!(!made.is_empty(), "{}: the right call was made", rule.info.name);
        for how in Break::of(rule) {
            broken += 1;
            let result = attempt(rule.call, mode, recipe, Some((rule.slot, how)));
            assert_no_step_calls(&rule.info);
            assert_names(&rule.info, result);
        }
    }
    broken
}

#[test]
fn every_tensor_rule_in_every_way() {
    let broken: usize = all().map(break_in_every_way).sum();
    assert!(broken > 150, "{broken}");
}

/// Case E10: a pointer that is not device memory is refused before the launch.
#[test]
fn a_host_pointer_is_no_device_tensor() {
    let comm = stub::comm_on(stub::backend(MemorySpace::Device), 4);
    let config = ll().validation(Validation::Data);
    let group = Group::create_in(&comm, &config, Environment::default(), None).unwrap();
    let options = HandleConfig::new();
    let mut handle = group.init_handle(Layout::ExpertMajor, &options, TopK::N(2), None).unwrap();
    let ids = [0_i64, 1];
    // SAFETY: readable memory; that it is the host's is what must be found.
    let ids = unsafe {
        Tensor::from_raw(ids.as_ptr().cast(), DataType::Int64, &[1, 2], MemorySpace::Device)
    };
    stub::take_calls();
    let error = handle.update(ids.unwrap(), None, STREAM).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("`topk_idx`: a tensor of this backend is device memory"), "{error}");
    assert!(!stub::take_calls().contains(&"ncclEpUpdateHandle"));
}
