//! Walks the validation table: every row has a call that breaks it, the error names the row, and
//! no native call was made. A row without such a call fails the walk.

use std::sync::Arc;

use nccl_ext_core::{Comm, DataType, Error, MemorySpace, Result, Stream};

use super::group::Environment;
use super::tensors::{Call, Dim, Extent, Need, Place, Sizes, Slot, TABLE, TensorRule};
use super::{RuleInfo, call, data, group, handle, import, mask};
use crate::geometry::EmMode;
use crate::stub;
use crate::{DispatchQuantizationRecipe as Recipe, *};

const RANKS: u32 = 4;
const EXPERTS: u32 = 8;
const TOKENS: usize = 3;
const HIDDEN: usize = 512;
const TOPK: u32 = 2;
const STREAM: Stream<'static> = Stream::DEFAULT;

fn ll() -> GroupConfig {
    GroupConfig::new().num_experts(EXPERTS).max_dispatch_tokens_per_rank(4).max_token_bytes(2048)
}

fn ht() -> GroupConfig {
    ll().algorithm(Algorithm::HighThroughput).max_recv_tokens_per_rank(16)
}

/// The error names the row, and nothing native ran.
fn assert_names(info: &RuleInfo, result: Result<()>) {
    match result {
        Err(Error::Invalid { argument, rule, scope, .. }) => {
            assert_eq!((argument, rule), (info.argument, info.rule), "{}", info.name);
            assert_eq!(scope, info.scope, "{}", info.name);
        }
        other => panic!("{}: {other:?}", info.name),
    }
    assert_eq!(stub::take_calls(), [""; 0], "{}", info.name);
}

#[test]
fn every_group_rule() {
    let flags = Environment { local_dup: true, nvlink_dup: true, ..Environment::default() };
    let usual = Environment::default();
    for rule in group::RULES {
        let (ranks, config, environment) = match rule.info.name {
            "group.experts-exist" => (4, ht().num_experts(0), usual),
            "group.ll-experts" => (4, ll().num_experts(65536), usual),
            "group.experts-divide" => (3, ll().num_experts(256), usual),
            "group.tokens-exist" => (4, ll().max_dispatch_tokens_per_rank(0), usual),
            "group.token-bytes-exist" => (4, ll().max_token_bytes(0), usual),
            "group.ht-token-bytes" => (4, ht().max_token_bytes(24), usual),
            "group.ht-experts-team" => (2, ht().num_experts(2), usual),
            "group.ht-budget" => (4, ht().max_recv_tokens_per_rank(3), usual),
            "group.topk" => (4, ll().num_topk(9), usual),
            "group.eager-drop" => {
                let config = ht().max_recv_tokens_per_rank(0);
                (4, config.overflow_policy(OverflowPolicy::Drop), usual)
            }
            "group.eager-bound" => {
                let config = ht().max_recv_tokens_per_rank(0).num_topk(8);
                (4, config.max_dispatch_tokens_per_rank(1 << 27), usual)
            }
            "group.sms" => (4, ll().max_num_sms(133), usual),
            "group.ht-sms" => (4, ht().max_num_sms(17), usual),
            "group.ll-sms" => (4, ll().max_num_sms(1), usual),
            "group.ht-mask" => (4, ht().enable_mask(true), usual),
            "group.em-flags" => (4, ht(), flags),
            "group.zero-copy" => (4, ll().zero_copy(ZeroCopyMode::On), usual),
            name => panic!("no violating call for {name}"),
        };
        let comm = stub::comm(ranks);
        let made = Group::create_in(&comm, &config, environment, None);
        assert_names(&rule.info, made.map(drop));
    }
}

/// EP 7.1: two ranks were seen to work up to 34 SMs, any number up to 16; the environment counts.
#[test]
fn ht_sms_known_to_work() {
    let attempt = |ranks, sms, comm_sms| {
        let environment = Environment { comm_sms, ..Environment::default() };
        let made = Group::create_in(&stub::comm(ranks), &ht().max_num_sms(sms), environment, None);
        made.map(|group| group.destroy().map_err(Error::from).unwrap()).is_ok()
    };
    assert!(attempt(4, 16, None) && attempt(2, 34, None) && attempt(4, 0, None));
    assert!(!attempt(4, 17, None) && !attempt(2, 35, None) && !attempt(2, 64, None));
    assert!(!attempt(4, 16, Some(32)) && attempt(4, 32, Some(16)));
    stub::take_calls();
}

#[test]
fn every_handle_rule() {
    for rule in handle::RULES {
        let plain = HandleConfig::new();
        let aligned = HandleConfig::new().dispatch_output_per_expert_alignment(4);
        let (em, flat) = (Layout::ExpertMajor, Layout::Flat);
        let dup = Some(EmMode::NvlinkDup);
        let (config, ranks, mode, layout, options, topk) = match rule.info.name {
            "handle.layout" => (ll(), 4, None, flat, plain, 2),
            "handle.alignment" => {
                let odd = HandleConfig::new().dispatch_output_per_expert_alignment(3);
                (ht(), 4, None, em, odd, 2)
            }
            "handle.topk" => (ht(), 4, None, flat, plain, 9),
            "handle.ll-topk" => (ll().num_experts(64), 4, None, em, plain, 32),
            "handle.ht-topk" => (ht().num_topk(2), 4, None, flat, plain, 3),
            "handle.eager-topk" => (ht().max_recv_tokens_per_rank(0), 4, None, em, plain, 2),
            "handle.em-topk" => (ht().num_experts(64), 4, None, em, plain, 33),
            "handle.em-local-experts" => (ht().num_experts(1028), 4, None, em, plain, 2),
            "handle.alignment-room" => {
                let wide = HandleConfig::new().dispatch_output_per_expert_alignment(1 << 31);
                (ht(), 4, None, em, wide, 2)
            }
            "handle.em-dup-crowd" => {
                let config = ht().num_experts(64).max_recv_tokens_per_rank(1024);
                (config, 4, Some(EmMode::LocalDup), em, plain, 9)
            }
            "handle.em-dup-experts" => (ht().num_experts(24), 4, dup, em, plain, 2),
            "handle.em-dup-team" => (ht().num_experts(256), 256, dup, em, plain, 2),
            "handle.em-dup-budget" => (ht(), 4, dup, em, plain, 2),
            "handle.em-dup-drop" => {
                let config = ht().max_recv_tokens_per_rank(33);
                (config.overflow_policy(OverflowPolicy::Drop), 4, dup, em, aligned, 2)
            }
            "handle.ll-buffer-units" => {
                let config = ll().num_experts(4).max_token_bytes(512);
                (config.max_dispatch_tokens_per_rank(1), 1, None, em, plain, 1)
            }
            "handle.ll-buffer-size" => {
                let config = ll().num_experts(4).max_token_bytes(1024);
                (config.rdma_buffer_size(50175), 2, None, em, plain, 2)
            }
            name => panic!("no violating call for {name}"),
        };
        let mut group = Group::create_in(&stub::comm(ranks), &config, Environment::default(), None);
        if let (Some(mode), Ok(group)) = (mode, &mut group) {
            Arc::get_mut(&mut group.inner).unwrap().geometry.em_mode = mode;
        }
        let group = group.unwrap();
        stub::take_calls();
        let made = group.init_handle(layout, &options, TopK::N(topk), None);
        assert_names(&rule.info, made.map(drop));
        assert_names(&rule.info, group.handle_mem_size(layout, &options, TopK::N(topk)).map(drop));
    }
}

/// A tensor over fresh memory that stays for the rest of the test process.
fn leaked(data_type: DataType, shape: &[usize]) -> (*mut core::ffi::c_void, DataType, Vec<usize>) {
    let bytes = shape.iter().product::<usize>() * data_type.size();
    let memory: &mut [u128] = Box::leak(vec![0; bytes / 16 + 1].into_boxed_slice());
    (memory.as_mut_ptr().cast(), data_type, shape.to_vec())
}

fn read(data_type: DataType, shape: &[usize]) -> Tensor<'static> {
    let (ptr, data_type, shape) = leaked(data_type, shape);
    // SAFETY: fresh leaked memory of that size.
    unsafe { Tensor::from_raw(ptr, data_type, &shape, MemorySpace::Host) }.unwrap()
}

fn write(data_type: DataType, shape: &[usize]) -> TensorMut<'static> {
    let (ptr, data_type, shape) = leaked(data_type, shape);
    // SAFETY: fresh leaked memory of that size, which nothing else knows.
    unsafe { TensorMut::from_raw(ptr, data_type, &shape, MemorySpace::Host) }.unwrap()
}

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

/// No update, dispatch or combine ran. Drops after the error free the handle, which is local.
fn assert_no_step_calls(info: &RuleInfo) {
    let calls = stub::take_calls();
    let native = ["ncclEpUpdateHandle", "ncclEpDispatch", "ncclEpCombine"];
    assert!(!calls.iter().any(|call| native.contains(call)), "{}: {calls:?}", info.name);
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
fn attempt(call: Call, place: Place, recipe: Recipe, broken: Option<(Slot, Break)>) -> Result<()> {
    let (config, layout) = match place {
        Place::LlExpertMajor => (ll(), Layout::ExpertMajor),
        Place::LlRankMajor => (ll(), Layout::RankMajor),
        Place::HtFlat => (ht(), Layout::Flat),
        Place::HtExpertMajor => (ht(), Layout::ExpertMajor),
    };
    let comm = stub::comm(RANKS as usize);
    let group = Group::create_in(&comm, &config, Environment::default(), None)?;
    let mut handle = group.init_handle(layout, &HandleConfig::new(), TopK::N(TOPK), None)?;
    let geometry = group.inner.geometry.clone();
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
        let rule =
            TABLE.iter().find(|rule| rule.is_for(call, place, recipe) && rule.slot == slot)?;
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
    let ids = read(DataType::Int64, &[TOKENS, TOPK as usize]);
    let mut step = handle.update(ids, None, STREAM)?;
    if let Call::Dispatch(pass) = call {
        return dispatch_broken(&mut step, pass, recipe, &reads, &writes, &mut info);
    }
    let Call::Combine(pass) = call else { return Ok(()) };
    let dispatched = attempt_dispatch(&mut step, place, &geometry);
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
fn attempt_dispatch(
    step: &mut Step<'_>,
    place: Place,
    geometry: &crate::geometry::Geometry,
) -> Result<()> {
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
        let rule = TABLE
            .iter()
            .find(|rule| rule.is_for(call, place, Recipe::None) && rule.slot == slot)?;
        shaped(rule, &sizes, None)
    };
    let reads = |slot| shape(slot).map(|(data_type, shape)| read(data_type, &shape));
    let writes = |slot| shape(slot).map(|(data_type, shape)| write(data_type, &shape));
    let mut info = LayoutInfo::new();
    info.expert_counters = writes(Slot::LiExpertCounters);
    info.src_rank_counters = writes(Slot::LiSrcRankCounters);
    dispatch_broken(step, PassDir::Fwd, Recipe::None, &reads, &writes, &mut info)
}

#[test]
fn every_tensor_rule_in_every_way() {
    let mut tried = 0;
    for rule in TABLE {
        for &place in rule.places {
            let recipe = rule.recipe.unwrap_or(Recipe::None);
            attempt(rule.call, place, recipe, None)
                .unwrap_or_else(|error| panic!("{}: the right call: {error}", rule.info.name));
            let made = stub::take_calls();
            assert!(!made.is_empty(), "{}: the right call was made", rule.info.name);
            for how in Break::of(rule) {
                tried += 1;
                let result = attempt(rule.call, place, recipe, Some((rule.slot, how)));
                assert_no_step_calls(&rule.info);
                assert_names(&rule.info, result);
            }
        }
    }
    assert!(tried > 150, "{tried}");
}

/// What the rules of calls start from: a handle after its update, and tensors that fit.
struct Calls {
    _comm: Comm,
    group: Group,
    layout: Layout,
}

impl Calls {
    fn new(ranks: usize, config: &GroupConfig, layout: Layout) -> Self {
        let comm = stub::comm(ranks);
        let group = Group::create_in(&comm, config, Environment::default(), None).unwrap();
        Self { _comm: comm, group, layout }
    }

    fn handle(&self) -> Handle {
        let made = self.group.init_handle(self.layout, &HandleConfig::new(), TopK::N(TOPK), None);
        made.unwrap()
    }

    fn dispatch(&self, hidden: usize, pass: PassDir, weight_rows: usize) -> Result<()> {
        let mut handle = self.handle();
        let ids = read(DataType::Int64, &[TOKENS, 2]);
        let mut step = handle.update(ids, None, STREAM)?;
        let outputs = self.outputs(hidden, weight_rows);
        self.dispatch_in(&mut step, hidden, pass, outputs)
    }

    fn outputs(&self, hidden: usize, weight_rows: usize) -> DispatchOutputs<'static> {
        let bf16 = DataType::Bfloat16;
        if self.layout == Layout::ExpertMajor {
            let local = self.group.local_experts();
            let rows = self.group.comm().size() * 4;
            return DispatchOutputs::new(write(bf16, &[local, rows, hidden]));
        }
        let eager = self.group.inner.geometry.eager;
        let rows = if eager { 0 } else { self.group.inner.geometry.max_recv as usize };
        DispatchOutputs::new(write(bf16, &[rows, hidden]))
            .topk_weights(write(DataType::Float32, &[weight_rows.max(rows), 2]))
            .topk_idx(write(DataType::Int64, &[rows, 2]))
    }

    fn dispatch_in(
        &self,
        step: &mut Step<'_>,
        hidden: usize,
        pass: PassDir,
        mut outputs: DispatchOutputs<'_>,
    ) -> Result<()> {
        let mut inputs = DispatchInputs::new(read(DataType::Bfloat16, &[TOKENS, hidden]));
        let mut info = LayoutInfo::new();
        if self.layout == Layout::ExpertMajor {
            let local = self.group.local_experts();
            info.expert_counters = Some(write(DataType::Int32, &[local]));
        } else {
            inputs.topk_weights = Some(read(DataType::Float32, &[TOKENS, 2]));
        }
        let config = DispatchConfig::new().pass_direction(pass);
        stub::take_calls();
        step.dispatch(&inputs, &mut outputs, Some(&mut info), &config, STREAM)
    }

    fn combine(&self, hidden: usize, pass: PassDir) -> Result<()> {
        let mut handle = self.handle();
        let ids = read(DataType::Int64, &[TOKENS, 2]);
        let mut step = handle.update(ids, None, STREAM)?;
        self.dispatch_in(&mut step, HIDDEN, PassDir::Fwd, self.outputs(HIDDEN, 0))?;
        let bf16 = DataType::Bfloat16;
        let mut inputs = if self.layout == Layout::ExpertMajor {
            let (local, rows) = (self.group.local_experts(), self.group.comm().size() * 4);
            CombineInputs::new(read(bf16, &[local, rows, hidden]))
        } else {
            CombineInputs::new(read(bf16, &[16, hidden]))
        };
        if self.layout == Layout::ExpertMajor {
            inputs.routing_weights = Some(read(DataType::Float32, &[TOKENS, 2]));
        }
        let mut outputs = CombineOutputs::new(write(bf16, &[TOKENS, hidden]));
        stub::take_calls();
        step.combine(&inputs, &mut outputs, &CombineConfig::new().pass_direction(pass), STREAM)
    }
}

/// A flat dispatch that forwards quantised rows; tokens begin `offset` bytes into their memory.
fn forward(data_type: DataType, hidden: usize, scales: usize, offset: usize) -> Result<()> {
    let calls = Calls::new(4, &ht(), Layout::Flat);
    let mut handle = calls.handle();
    let ids = read(DataType::Int64, &[TOKENS, 2]);
    let mut step = handle.update(ids, None, STREAM)?;
    let (memory, ..) = leaked(data_type, &[TOKENS * hidden + offset]);
    // SAFETY: fresh leaked memory, large enough behind the offset.
    let tokens = unsafe {
        let tokens = memory.cast::<u8>().add(offset).cast();
        Tensor::from_raw(tokens, data_type, &[TOKENS, hidden], MemorySpace::Host)?
    };
    let inputs = DispatchInputs::new(tokens)
        .topk_weights(read(DataType::Float32, &[TOKENS, 2]))
        .scales(read(DataType::Uint8, &[TOKENS, scales]));
    let mut outputs = DispatchOutputs::new(write(data_type, &[16, hidden]))
        .topk_weights(write(DataType::Float32, &[16, 2]))
        .topk_idx(write(DataType::Int64, &[16, 2]))
        .scales(write(DataType::Uint8, &[16, scales]));
    let config = DispatchConfig::new().quantization_recipe(Recipe::Fwd);
    stub::take_calls();
    step.dispatch(&inputs, &mut outputs, None, &config, STREAM)
}

/// A backward combine of `rows` token gradients with `weight_rows` weight gradients, in a group
/// of this configuration, straight after an update.
fn backward_in(config: &GroupConfig, rows: usize, weight_rows: usize) -> Result<()> {
    let calls = Calls::new(4, config, Layout::Flat);
    let mut handle = calls.handle();
    let mut step = handle.update(read(DataType::Int64, &[TOKENS, 2]), None, STREAM)?;
    let bf16 = DataType::Bfloat16;
    let outputs = DispatchOutputs::new(write(bf16, &[rows.min(16), HIDDEN]));
    let inputs = DispatchInputs::new(read(bf16, &[TOKENS, HIDDEN]));
    let (mut outputs, bwd) = (outputs, PassDir::Bwd);
    let dispatch = DispatchConfig::new().pass_direction(bwd);
    step.dispatch(&inputs, &mut outputs, None, &dispatch, STREAM)?;
    let inputs = CombineInputs::new(read(bf16, &[rows, HIDDEN]))
        .topk_weights(read(DataType::Float32, &[weight_rows, 2]));
    let mut outputs = CombineOutputs::new(write(bf16, &[TOKENS, HIDDEN]))
        .topk_weights(write(DataType::Float32, &[TOKENS, 2]));
    stub::take_calls();
    step.combine(&inputs, &mut outputs, &CombineConfig::new().pass_direction(bwd), STREAM)
}

/// Two rows were dispatched, three are combined with weights for two.
fn backward_beyond(config: &GroupConfig) -> Result<()> {
    let calls = Calls::new(4, config, Layout::Flat);
    let mut handle = calls.handle();
    let mut step = handle.update(read(DataType::Int64, &[TOKENS, 2]), None, STREAM)?;
    let bf16 = DataType::Bfloat16;
    let (inputs, bwd) = (DispatchInputs::new(read(bf16, &[TOKENS, HIDDEN])), PassDir::Bwd);
    let mut outputs = DispatchOutputs::new(write(bf16, &[2, HIDDEN]));
    let dispatch = DispatchConfig::new().pass_direction(bwd);
    step.dispatch(&inputs, &mut outputs, None, &dispatch, STREAM)?;
    let inputs =
        CombineInputs::new(read(bf16, &[3, HIDDEN])).topk_weights(read(DataType::Float32, &[2, 2]));
    let mut outputs = CombineOutputs::new(write(bf16, &[TOKENS, HIDDEN]))
        .topk_weights(write(DataType::Float32, &[TOKENS, 2]));
    stub::take_calls();
    step.combine(&inputs, &mut outputs, &CombineConfig::new().pass_direction(bwd), STREAM)
}

fn backward(rows: usize, weight_rows: usize) -> Result<()> {
    backward_in(&ht(), rows, weight_rows)
}

#[test]
fn every_rule_of_calls() {
    let em = |config: &GroupConfig| Calls::new(4, config, Layout::ExpertMajor);
    let flat = |config: &GroupConfig| Calls::new(4, config, Layout::Flat);
    let (fwd, bwd) = (PassDir::Fwd, PassDir::Bwd);
    let all = call::UPDATE.iter().chain(call::DISPATCH).chain(call::COMBINE);
    for rule in all {
        let result = match rule.info.name {
            "update.tokens" => {
                let calls = flat(&ht());
                let mut handle = calls.handle();
                stub::take_calls();
                handle.update(read(DataType::Int64, &[5, 2]), None, STREAM).map(drop)
            }
            "update.counter-types" => {
                let calls = em(&ht());
                let mut handle = calls.handle();
                let mut info = LayoutInfo::new()
                    .expert_counters(write(DataType::Int64, &[2]))
                    .recv_total_counter(write(DataType::Int32, &[1]));
                stub::take_calls();
                let ids = read(DataType::Int64, &[TOKENS, 2]);
                handle.update(ids, Some(&mut info), STREAM).map(drop)
            }
            "dispatch.ll-pass" => em(&ll()).dispatch(HIDDEN, bwd, 0),
            "dispatch.row-bytes" => em(&ll()).dispatch(2048, fwd, 0),
            "dispatch.ll-row-unit" => em(&ll()).dispatch(128, fwd, 0),
            "dispatch.quantized-row-unit" => forward(DataType::Float8E4m3, 8, 16, 0),
            "dispatch.scale-row-unit" => forward(DataType::Float8E4m3, 16, 8, 0),
            "dispatch.quantized-alignment" => forward(DataType::Float8E4m3, 16, 16, 1),
            "dispatch.ht-row-unit" => flat(&ht()).dispatch(4, fwd, 0),
            "dispatch.ht-map-unit" => {
                let config = ht().num_experts(4).max_dispatch_tokens_per_rank(3);
                Calls::new(1, &config, Layout::Flat).dispatch(HIDDEN, fwd, 0)
            }
            "dispatch.flat-rows" => {
                let calls = flat(&ht());
                let mut handle = calls.handle();
                let ids = read(DataType::Int64, &[TOKENS, 2]);
                let mut step = handle.update(ids, None, STREAM).unwrap();
                let outputs = DispatchOutputs::new(write(DataType::Bfloat16, &[16, HIDDEN]))
                    .topk_weights(write(DataType::Float32, &[16, 2]))
                    .topk_idx(write(DataType::Int64, &[20, 2]));
                calls.dispatch_in(&mut step, HIDDEN, fwd, outputs)
            }
            "dispatch.ht-emptiness" => {
                flat(&ht().max_recv_tokens_per_rank(0)).dispatch(HIDDEN, fwd, 1)
            }
            "combine.ll-pass" => em(&ll()).combine(HIDDEN, bwd),
            "combine.row-bytes" => em(&ll()).combine(2048, fwd),
            "combine.ll-row-unit" => em(&ll()).combine(256, fwd),
            "combine.ll-row-limit" => em(&ll().max_token_bytes(65536)).combine(16384, fwd),
            "combine.ht-row-unit" => flat(&ht()).combine(12, fwd),
            "combine.bwd-rows" => backward(17, 17),
            "combine.bwd-weight-rows" => {
                // Eager: weights for the two rows that were dispatched, but not for those beyond.
                let eager = ht().max_recv_tokens_per_rank(0).num_topk(2);
                backward(16, 16).unwrap();
                backward_beyond(&eager)
            }
            name => panic!("no violating call for {name}"),
        };
        assert_no_step_calls(&rule.info);
        assert_names(&rule.info, result);
    }
}

#[test]
fn every_rule_of_data() {
    for rule in data::DATA {
        let wide = HandleConfig::new();
        let (config, layout, ids) = match rule.info.name {
            "data.expert-exists" => (ht(), Layout::Flat, [0_i64, 1, 2, 8]),
            "data.ll-negative" => (ll(), Layout::RankMajor, [0, -65529, 1, 2]),
            "data.ll-em-twice" => (ll(), Layout::ExpertMajor, [0, 1, 5, 5]),
            "data.em-crowded" => {
                let config = ht().num_experts(64).max_recv_tokens_per_rank(1024);
                let calls =
                    Calls::new(4, &config.validation(Validation::Data), Layout::ExpertMajor);
                let mut group = calls.group;
                Arc::get_mut(&mut group.inner).unwrap().geometry.em_mode = EmMode::LocalDup;
                let topk = TopK::N(9);
                let mut handle = group.init_handle(Layout::ExpertMajor, &wide, topk, None).unwrap();
                // Eight of one rank are fine, with others and repeats beside them.
                let ids = Tensor::new(&[0_i64, 1, 2, 3, 4, 5, 6, 7, 16], &[1, 9]).unwrap();
                handle.update(ids, None, STREAM).map(drop).unwrap();
                stub::take_calls();
                let ids = Tensor::new(&[0_i64, 1, 2, 3, 4, 5, 6, 7, 8], &[1, 9]).unwrap();
                assert_names(&rule.info, handle.update(ids, None, STREAM).map(drop));
                continue;
            }
            name => panic!("no violating call for {name}"),
        };
        let calls = Calls::new(4, &config.validation(Validation::Data), layout);
        let mut handle = calls.handle();
        stub::take_calls();
        let ids = Tensor::new(&ids, &[2, 2]).unwrap();
        assert_names(&rule.info, handle.update(ids, None, STREAM).map(drop));
    }
}

/// Without data validation the same ids reach the library, and right ids pass with it.
#[test]
fn data_is_looked_at_only_when_asked() {
    let calls = Calls::new(4, &ll(), Layout::ExpertMajor);
    let wrong = Tensor::new(&[99_i64, 99], &[1, 2]).unwrap();
    calls.handle().update(wrong, None, STREAM).map(drop).unwrap();
    let calls = Calls::new(4, &ll().validation(Validation::Data), Layout::ExpertMajor);
    let mut handle = calls.handle();
    let right = Tensor::new(&[7_i32, 0, -1, -1, 3, -65528], &[3, 2]).unwrap();
    handle.update(right, None, STREAM).map(drop).unwrap();
    let error = handle.update(wrong, None, STREAM).map(drop).unwrap_err().to_string();
    assert!(error.ends_with("expected ids below 8, found 99 as choice 0 of token 0"), "{error}");
}

#[test]
fn every_rule_of_snapshots_and_imports() {
    let memory =
        |comm: &Comm| -> HandleMemory { Box::new(Buffer::<u8>::zeroed(comm, 8192).unwrap()) };
    let all = import::SNAPSHOT.iter().chain(import::IMPORT);
    for rule in all {
        let high = Calls::new(4, &ht(), Layout::Flat);
        let low = Calls::new(4, &ll(), Layout::ExpertMajor);
        let state = HandleState { num_tokens: 4, num_topk: 2, topk_idx_datatype: DataType::Int32 };
        let import = |calls: &Calls, state: HandleState| {
            let memory = memory(calls.group.comm());
            stub::take_calls();
            calls.group.import_handle(calls.layout, &HandleConfig::new(), &state, memory).map(drop)
        };
        let result = match rule.info.name {
            "snapshot.high-throughput" => low.handle().snapshot(STREAM).map(drop),
            "snapshot.prepared" => high.handle().snapshot(STREAM).map(drop),
            "snapshot.memory" => {
                let mut handle = high.handle();
                handle.update(read(DataType::Int64, &[TOKENS, 2]), None, STREAM).unwrap();
                handle.snapshot(STREAM).map(drop)
            }
            "import.high-throughput" => import(&low, state),
            "import.tokens" => import(&high, HandleState { num_tokens: 5, ..state }),
            "import.data-type" => {
                let topk_idx_datatype = DataType::Float32;
                import(&high, HandleState { topk_idx_datatype, ..state })
            }
            name => panic!("no violating call for {name}"),
        };
        stub::take_calls();
        assert_names(&rule.info, result);
    }
}

/// A library that cannot import says so, and what to do instead.
#[test]
fn import_is_unsupported_without_its_table() {
    let calls = Calls::new(4, &ht(), Layout::Flat);
    let state = HandleState { num_tokens: 4, num_topk: 2, topk_idx_datatype: DataType::Int64 };
    let memory: HandleMemory = Box::new(Buffer::<u8>::zeroed(calls.group.comm(), 8192).unwrap());
    let made = calls.group.import_handle(Layout::Flat, &HandleConfig::new(), &state, memory);
    let error = made.map(drop).unwrap_err().to_string();
    assert!(error.contains("libnccl_ep.so.0 (0.2.0)"), "{error}");
    assert!(error.contains("restore_collective"), "{error}");
}

/// E10: a pointer that is not device memory is refused before the launch.
#[test]
fn e10_host_pointer_as_device_tensor() {
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

#[test]
fn every_rule_of_masks() {
    for rule in mask::RULES {
        let calls = |config: GroupConfig, ranks| Calls::new(ranks, &config, Layout::ExpertMajor);
        let masked = ll().enable_mask(true);
        let group = match rule.info.name {
            "mask.enabled" => calls(ll(), 4),
            "mask.entries" | "mask.clean-handle" => calls(masked, 4),
            "mask.clean-ranks" => calls(masked.num_experts(514).rdma_buffer_size(1 << 30), 257),
            "mask.clean-units" => {
                let odd = masked.max_dispatch_tokens_per_rank(1).max_token_bytes(512);
                calls(odd.rdma_buffer_size(1 << 30).num_experts(4), 1)
            }
            name => panic!("no violating call for {name}"),
        }
        .group;
        stub::take_calls();
        match rule.info.name {
            "mask.enabled" => {
                let mut mask = [0_i32; 4];
                assert_names(&rule.info, group.mask_query(&mut mask, STREAM));
                assert_names(&rule.info, group.mask_update(&[true; 4], STREAM));
                assert_names(&rule.info, group.mask_clean(STREAM));
                assert_names(&rule.info, group.get_async_error().map(drop));
                assert_names(&rule.info, group.error_clear());
            }
            "mask.entries" => assert_names(&rule.info, group.mask_update(&[true; 3], STREAM)),
            _ => assert_names(&rule.info, group.mask_clean(STREAM)),
        }
    }
}
