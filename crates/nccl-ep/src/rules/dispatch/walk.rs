use nccl_ext_test::stub::ep as stub;

use crate::rules::RuleInfo;
use crate::rules::walk_support::{
    HIDDEN, STREAM, StubGroup, TOKENS, assert_names, assert_no_step_calls, ht, leaked, ll, read,
    write,
};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let em = |config: &GroupConfig| StubGroup::new(4, config, Layout::ExpertMajor);
    let flat = |config: &GroupConfig| StubGroup::new(4, config, Layout::Flat);
    let (fwd, bwd) = (PassDir::Fwd, PassDir::Bwd);
    let result = match rule.name {
        "dispatch.ll-pass" => em(&ll()).dispatch(HIDDEN, bwd, 0),
        "dispatch.row-bytes" => em(&ll()).dispatch(2048, fwd, 0),
        "dispatch.ll-row-unit" => em(&ll()).dispatch(128, fwd, 0),
        "dispatch.quantized-row-unit" => forward(DataType::Float8E4m3, 8, 16, 0),
        "dispatch.scale-row-unit" => forward(DataType::Float8E4m3, 16, 8, 0),
        "dispatch.quantized-alignment" => forward(DataType::Float8E4m3, 16, 16, 1),
        "dispatch.ht-row-unit" => flat(&ht()).dispatch(4, fwd, 0),
        "dispatch.ht-map-unit" => {
            let config = ht().num_experts(4).max_dispatch_tokens_per_rank(3);
            StubGroup::new(1, &config, Layout::Flat).dispatch(HIDDEN, fwd, 0)
        }
        "dispatch.flat-rows" => {
            let calls = flat(&ht());
            let mut handle = calls.handle();
            let mut step = handle.update(calls.ids(), None, STREAM).unwrap();
            let outputs = DispatchOutputs::new(write(DataType::Bfloat16, &[16, HIDDEN]))
                .topk_weights(write(DataType::Float32, &[16, 2]))
                .topk_idx(write(DataType::Int64, &[20, 2]));
            calls.dispatch_in(&mut step, HIDDEN, fwd, outputs)
        }
        "dispatch.ht-emptiness" => flat(&ht().max_recv_tokens_per_rank(0)).dispatch(HIDDEN, fwd, 1),
        _ => return false,
    };
    assert_no_step_calls(rule);
    assert_names(rule, result);
    true
}

/// A flat dispatch that forwards quantized rows; tokens begin `offset` bytes into their memory.
fn forward(data_type: DataType, hidden: usize, scales: usize, offset: usize) -> Result<()> {
    let calls = StubGroup::new(4, &ht(), Layout::Flat);
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
    let config = DispatchConfig::new().quantization_recipe(DispatchQuantizationRecipe::Fwd);
    stub::take_calls();
    step.dispatch(&inputs, &mut outputs, None, &config, STREAM)
}
