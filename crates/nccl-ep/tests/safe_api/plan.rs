//! The memory plan against the CPU backend.

use nccl_ep::plan::{self, Setup};
use nccl_ep::{
    Algorithm, DataType, Group, GroupConfig, HandleConfig, Layout, Presence, Result, TensorSpec,
    TopK,
};

use crate::support::*;

/// The size of low-latency handle memory is promised exactly, for either layout (EP 3.1).
#[test]
fn low_latency_handle_memory_is_what_the_library_says() {
    for (ranks, experts) in [(1, 4), (2, 4), (4, 8), (3, 12)] {
        for tokens in [1, 4, 7, 128, 1000] {
            let config = GroupConfig::new()
                .num_experts(experts)
                .max_dispatch_tokens_per_rank(tokens)
                .max_token_bytes(1024);
            on_ranks(ranks, |comm| -> Result<()> {
                let group = Group::create(&comm, &config)?;
                for topk in 1..=4 {
                    for layout in [Layout::ExpertMajor, Layout::RankMajor] {
                        let setup = Setup::new(config.clone(), ranks as u32, 512);
                        let memory = plan::memory(&setup.layout(layout).topk(TopK::N(topk)))?;
                        let planned = memory.buffer("handle memory").map(|buffer| buffer.bytes);
                        let options = HandleConfig::new();
                        let asked = group.handle_mem_size(layout, &options, TopK::N(topk))?;
                        assert_eq!(planned, Some(asked as u64), "{layout}, top-{topk}, {config:?}");
                    }
                }
                Ok(group.destroy()?)
            });
        }
    }
}

/// The caller's tensors are those that a handle's `recv_spec` asks for.
#[test]
fn tensors_are_what_recv_spec_asks_for() {
    let pairs = [
        (Algorithm::LowLatency, Layout::ExpertMajor),
        (Algorithm::LowLatency, Layout::RankMajor),
        (Algorithm::HighThroughput, Layout::Flat),
        (Algorithm::HighThroughput, Layout::ExpertMajor),
    ];
    for (algorithm, layout) in pairs {
        let config = GroupConfig::new()
            .algorithm(algorithm)
            .num_experts(8)
            .max_dispatch_tokens_per_rank(16)
            .max_recv_tokens_per_rank(48)
            .max_token_bytes(2048)
            .num_topk(2);
        let setup = Setup::new(config.clone(), 4, 512).layout(layout);
        let memory = plan::memory(&setup.data_type(DataType::Float32)).unwrap();
        on_ranks(4, |comm| -> Result<()> {
            let group = Group::create(&comm, &config)?;
            let handle = group.init_handle(layout, &HandleConfig::new(), TopK::Auto, None)?;
            let spec = handle.recv_spec(512, DataType::Float32).unwrap();
            for (name, spec) in [
                ("received tokens", &spec.tokens),
                ("received weights", &spec.topk_weights),
                ("received expert ids", &spec.topk_idx),
                ("expert counters", &spec.expert_counters),
                ("source rank counters", &spec.src_rank_counters),
                ("expert outputs", &spec.tokens),
            ] {
                let planned = memory.buffer(name).and_then(|buffer| buffer.tensor);
                assert_eq!(planned, expected(spec), "{algorithm} {layout}: {name}");
            }
            drop(handle);
            Ok(group.destroy()?)
        });
    }
}

fn expected(spec: &TensorSpec) -> Option<(nccl_ep::Shape, DataType)> {
    let given = spec.presence != Presence::Forbidden;
    given.then(|| (spec.shape, spec.data_types[0]))
}
