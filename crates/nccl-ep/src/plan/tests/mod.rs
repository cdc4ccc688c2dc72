//! Vectors of the specification, cases from the field, and the plan against the calls.

mod cases;
mod high_throughput;
mod low_latency;
mod refusals;

use nccl_ext_core::{DataType, Error, Result};

use super::*;
use crate::{GroupConfig, HandleConfig, Layout, TopK};

const PAIRS: [(Algorithm, Layout); 4] = [
    (Algorithm::LowLatency, Layout::ExpertMajor),
    (Algorithm::LowLatency, Layout::RankMajor),
    (Algorithm::HighThroughput, Layout::Flat),
    (Algorithm::HighThroughput, Layout::ExpertMajor),
];

/// A model of bf16 rows.
fn model(hidden: u32, experts: u32, topk: u32) -> GroupConfig {
    GroupConfig::new().num_experts(experts).num_topk(topk).max_token_bytes(2 * hidden)
}

fn bytes(memory: &Memory, name: &str) -> u64 {
    memory.buffer(name).unwrap_or_else(|| panic!("no {name} in {memory:?}")).bytes
}

fn refusal(setup: &Setup) -> String {
    memory(setup).expect_err("to be refused").to_string()
}

/// In every pair: pieces add up to their buffer, owners to the total, and names are unique.
#[test]
fn parts_add_up() {
    for (algorithm, layout) in PAIRS {
        for (hidden, experts, topk, ranks) in [(7168, 256, 8, 8), (512, 8, 2, 4), (4096, 8, 2, 8)] {
            for (tokens, recv, data_type) in
                [(128, 0, DataType::Bfloat16), (4096, 8192, DataType::Float32)]
            {
                let config = model(hidden, experts, topk)
                    .algorithm(algorithm)
                    .enable_mask(algorithm == Algorithm::LowLatency)
                    .max_token_bytes(4 * hidden)
                    .max_dispatch_tokens_per_rank(tokens)
                    .max_recv_tokens_per_rank(recv);
                let setup = Setup::new(config, ranks, hidden).layout(layout).data_type(data_type);
                let planned = memory(&setup).unwrap();
                let mut names: Vec<_> = planned.buffers.iter().map(|b| b.name).collect();
                for buffer in &planned.buffers {
                    let pieces: u64 = buffer.pieces.iter().map(|piece| piece.bytes).sum();
                    assert!(buffer.pieces.is_empty() || pieces == buffer.bytes, "{buffer:?}");
                    assert!(buffer.source.starts_with("EP "), "{buffer:?}");
                }
                let owned = Owner::ALL.into_iter().map(|owner| planned.of(owner));
                assert_eq!(owned.sum::<u64>(), planned.total());
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), planned.buffers.len());
            }
        }
    }
}
