//! The rows about more than one tensor's shape.

use super::*;

/// What the rules of calls start from: a handle after its update, and tensors that fit.
pub(super) struct Calls {
    _comm: Comm,
    pub(super) group: Group,
    pub(super) layout: Layout,
}

impl Calls {
    pub(super) fn new(ranks: usize, config: &GroupConfig, layout: Layout) -> Self {
        let comm = stub::comm(ranks);
        let group = Group::create_in(&comm, config, Environment::default(), None).unwrap();
        Self { _comm: comm, group, layout }
    }

    pub(super) fn handle(&self) -> Handle {
        let made = self.group.init_handle(self.layout, &HandleConfig::new(), TopK::N(TOPK), None);
        made.unwrap()
    }

    pub(super) fn dispatch(&self, hidden: usize, pass: PassDir, weight_rows: usize) -> Result<()> {
        let mut handle = self.handle();
        let ids = read(DataType::Int64, &[TOKENS, 2]);
        let mut step = handle.update(ids, None, STREAM)?;
        let outputs = self.outputs(hidden, weight_rows);
        self.dispatch_in(&mut step, hidden, pass, outputs)
    }

    pub(super) fn outputs(&self, hidden: usize, weight_rows: usize) -> DispatchOutputs<'static> {
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

    pub(super) fn dispatch_in(
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

    pub(super) fn combine(&self, hidden: usize, pass: PassDir) -> Result<()> {
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
