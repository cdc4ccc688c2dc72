//! The memory plan against the CPU backend.

use nccl_ep::plan::{self, Setup};
use nccl_ep::{
    DataType, Group, GroupConfig, HandleConfig, Layout, Mode, Presence, Result, Shape, TensorSpec,
    TopK,
};
use nccl_ext_test::rows::check_rows;

use crate::support::*;

/// The size of low-latency handle memory is promised exactly, for either layout (EP 3.1).
#[test]
fn low_latency_handle_memory_is_what_the_library_says() {
    let rows = [(1, 4), (2, 4), (4, 8), (3, 12)].into_iter().flat_map(|(ranks, experts)| {
        [1, 4, 7, 128, 1000].map(|tokens| {
            let name = format!("{ranks} ranks, {experts} experts, {tokens} tokens");
            (name, (ranks, experts, tokens))
        })
    });
    check_rows(rows, |(ranks, experts, tokens)| {
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
                    assert_eq!(planned, Some(asked as u64), "{layout}, top-{topk}");
                }
            }
            Ok(group.destroy()?)
        });
    });
}

/// The caller's tensors are those that a handle's `recv_spec` asks for.
#[test]
fn tensors_are_what_recv_spec_asks_for() {
    check_rows(Mode::ALL.iter().map(|mode| (mode, mode)), |mode| {
        let config = GroupConfig::new()
            .algorithm(mode.algorithm())
            .num_experts(8)
            .max_dispatch_tokens_per_rank(16)
            .max_recv_tokens_per_rank(48)
            .max_token_bytes(2048)
            .num_topk(2);
        let setup = Setup::new(config.clone(), 4, 512).layout(mode.layout());
        let memory = plan::memory(&setup.data_type(DataType::Float32)).unwrap();
        on_ranks(4, |comm| -> Result<()> {
            let group = Group::create(&comm, &config)?;
            let options = HandleConfig::new();
            let handle = group.init_handle(mode.layout(), &options, TopK::Auto, None)?;
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
                assert_eq!(planned, expected(spec), "{name}");
            }
            handle.destroy()?;
            Ok(group.destroy()?)
        });
    });
}

fn expected(spec: &TensorSpec) -> Option<(Shape, DataType)> {
    let given = spec.presence != Presence::Forbidden;
    given.then(|| (spec.shape, spec.data_types[0]))
}
