use nccl_ext_test::stub::ep as stub;

use crate::rules::RuleInfo;
use crate::rules::walk_support::{
    HIDDEN, STREAM, StubGroup, TOKENS, assert_names, assert_no_step_calls, ht, ids, ll, read, write,
};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let em = |config: &GroupConfig| StubGroup::new(4, config, Layout::ExpertMajor);
    let flat = |config: &GroupConfig| StubGroup::new(4, config, Layout::Flat);
    let (fwd, bwd) = (PassDir::Fwd, PassDir::Bwd);
    let result = match rule.name {
        "combine.after-dispatch" => {
            let calls = em(&ll());
            let mut handle = calls.handle();
            let mut step = handle.update(calls.ids(), None, STREAM).unwrap();
            calls.combine_in(&mut step, HIDDEN, fwd)
        }
        "combine.ll-pass" => em(&ll()).combine(HIDDEN, bwd),
        "combine.row-bytes" => em(&ll()).combine(2048, fwd),
        "combine.ll-row-unit" => em(&ll()).combine(256, fwd),
        "combine.ll-row-limit" => em(&ll().max_token_bytes(65536)).combine(16384, fwd),
        "combine.ht-row-unit" => flat(&ht()).combine(12, fwd),
        "combine.bwd-local-experts" => {
            backward_in(&ht().num_experts(4 * 1024), 16, 16).unwrap();
            backward_in(&ht().num_experts(4 * 1025), 16, 16)
        }
        "combine.bwd-rows" => backward(17, 17),
        "combine.bwd-weight-rows" => {
            // Eager: weights for the two rows that were dispatched, but not for those beyond.
            let eager = ht().max_recv_tokens_per_rank(0).num_topk(2);
            backward(16, 16).unwrap();
            backward_beyond(&eager)
        }
        _ => return false,
    };
    assert_no_step_calls(rule);
    assert_names(rule, result);
    true
}

/// A backward combine of `rows` token gradients with `weight_rows` weight gradients, in a group
/// of this configuration, straight after an update.
fn backward_in(config: &GroupConfig, rows: usize, weight_rows: usize) -> Result<()> {
    let calls = StubGroup::new(4, config, Layout::Flat);
    let mut handle = calls.handle();
    let mut step = handle.update(ids(), None, STREAM)?;
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
    let calls = StubGroup::new(4, config, Layout::Flat);
    let mut handle = calls.handle();
    let mut step = handle.update(ids(), None, STREAM)?;
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
