//! Vectors of the specification, cases from the field, and the plan against the calls.

use nccl_ext_core::{DataType, Error, Result};

use super::*;
use crate::geometry::{EmMode, Geometry};
use crate::rules::group::Environment;
use crate::stub;
use crate::{Group, GroupConfig, HandleConfig, Layout, OverflowPolicy, TopK, ZeroCopyMode};

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

/// EP vectors A24 to A27: R = 2, E = 4, M = 4, K = 2, rows of 1024 bytes.
#[test]
fn low_latency_vectors() {
    let config = model(512, 4, 2).max_dispatch_tokens_per_rank(4);
    let setup = Setup::new(config.clone(), 2, 512);
    let planned = memory(&setup).unwrap();
    assert_eq!(bytes(&planned, "handle memory"), 512); // A24
    assert_eq!(bytes(&planned, "communication buffer"), 50176); // A25
    let planned = memory(&setup.clone().layout(Layout::RankMajor)).unwrap();
    assert_eq!(bytes(&planned, "communication buffer"), 33536); // A26

    let with = |size| Setup { group: config.clone().rdma_buffer_size(size), ..setup.clone() };
    assert_eq!(
        refusal(&with(50175)),
        "`rdma_buffer_size`: an explicit buffer holds what the handle needs; expected 0 or at \
         least 50176, found 50175"
    );
    let planned = memory(&with(50176 + 1000)).unwrap();
    let buffer = planned.buffer("communication buffer").unwrap();
    assert_eq!(buffer.bytes, 51176);
    assert_eq!(buffer.pieces.last().map(|piece| (piece.name, piece.bytes)), Some(("spare", 1000)));

    let config = GroupConfig::new().num_experts(4).num_topk(1).max_token_bytes(512);
    let a27 = Setup::new(config.max_dispatch_tokens_per_rank(1), 1, 256);
    assert!(refusal(&a27).contains("520"), "{}", refusal(&a27));
}

/// The regions of one bank, by hand: EP 3.4 with the numbers of A25.
#[test]
fn a_bank_holds_dispatch_or_combine() {
    let config = model(512, 4, 2).max_dispatch_tokens_per_rank(4);
    let planned = memory(&Setup::new(config, 2, 512)).unwrap();
    let buffer = planned.buffer("communication buffer").unwrap();
    let regions: Vec<_> = buffer.bank.iter().map(|region| region.bytes).collect();
    let row = 1024 + 4 * 4;
    assert_eq!(regions, [4 * (16 + 1024), 2 * 4 * (16 + 1024), 4 * 4 * row, 4 * row * 2]);
    let pieces: Vec<_> = buffer.pieces.iter().map(|piece| piece.bytes).collect();
    assert_eq!(pieces, [2 * (regions[2] + regions[3]), 2 * 128]);
}

/// Case E18: 65,536 tokens a rank on 8 ranks, hidden 7168 bf16, with 256 experts and top-8.
#[test]
fn sixty_four_thousand_tokens_a_rank() {
    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;
    let (ranks, tokens, row, local, topk) = (8_u64, 65536_u64, 2 * 7168_u64, 32_u64, 8_u64);
    let config = model(7168, 256, 8)
        .algorithm(Algorithm::HighThroughput)
        .max_dispatch_tokens_per_rank(tokens as u32);
    let eager = memory(&Setup::new(config.clone(), ranks as u32, 7168)).unwrap();
    let recv = ranks * tokens * topk;
    for (name, expected, gib) in [
        ("dispatch token staging", ranks * tokens * row, 7),
        ("combine token staging", ranks * tokens * row, 7),
        ("dispatch weight staging", recv * local * ranks * 4, 4),
        ("combine weight staging", recv * local * ranks * 4, 4),
        ("scale staging", recv * row, 56),
        ("received tokens", recv * row, 56),
        ("expert outputs", recv * row, 56),
    ] {
        assert_eq!((bytes(&eager, name), expected), (expected, gib * GIB), "{name}");
    }
    assert_eq!(bytes(&eager, "workspace"), 32 * MIB);
    assert_eq!(bytes(&eager, "counter block"), 32);
    assert_eq!(bytes(&eager, "routing bitmap"), ranks * tokens * ranks * local / 8);
    assert_eq!(bytes(&eager, "received weights"), recv * 4);
    let up = |bytes: u64| bytes.next_multiple_of(256);
    let handle = [
        tokens,              // already a multiple of 16
        recv * local,        // local expert routing map
        4,                   // token count
        tokens * ranks * 4,  // sparse to dense map
        tokens * ranks * 8,  // rank mask
        132 * ranks * 8,     // scan scratch
        tokens * 256 * 4,    // dense weights
        tokens * topk * 8,   // cached top-k
        local * 4,           // active counts
        (local + 1) * 8,     // expert offsets
        2 * recv * topk * 4, // flat to expert-major map, flat weights
        tokens * ranks * 4,  // token to slot map
    ];
    assert_eq!(bytes(&eager, "handle memory"), handle.into_iter().map(up).sum());
    assert_eq!(eager.total(), Owner::ALL.into_iter().map(|owner| eager.of(owner)).sum());
    assert!(eager.notes.iter().any(|note| note.text.contains("8192")), "{:?}", eager.notes);

    // A budget of twice the balanced share takes a quarter of what eager plans for.
    let budget = config.max_recv_tokens_per_rank((2 * tokens * topk) as u32);
    let fixed = memory(&Setup::new(budget, ranks as u32, 7168)).unwrap();
    assert_eq!(bytes(&fixed, "scale staging"), 14 * GIB);
    assert_eq!(bytes(&fixed, "received tokens"), 14 * GIB);
    assert_eq!(bytes(&fixed, "dispatch token staging"), 7 * GIB);
}

/// Case E17: 8192 tokens are within any cap; 8193 are refused where the library has that cap.
#[test]
fn a_cap_of_tokens_is_named_where_there_is_one() {
    let setup = |tokens| {
        let config = model(7168, 256, 8).algorithm(Algorithm::HighThroughput);
        Setup::new(config.max_dispatch_tokens_per_rank(tokens), 8, 7168)
    };
    assert!(memory(&setup(8192).token_cap(TOKENS_ONCE_SUPPORTED)).is_ok());
    assert!(memory(&setup(8193)).is_ok());
    assert_eq!(
        refusal(&setup(8193).token_cap(TOKENS_ONCE_SUPPORTED)),
        "`max_dispatch_tokens_per_rank`: the library has a cap of tokens a rank (EP 8); expected \
         at most 8192 tokens a rank, found 8193"
    );
}

/// Cases E5 and E6: many experts, high top-k. Accepted where the device has the SMs for it.
#[test]
fn wide_models_are_accepted_or_their_limit_named() {
    for (hidden, experts, topk) in [(1024, 512, 22), (3584, 896, 16)] {
        for (algorithm, layout) in PAIRS {
            let config = model(hidden, experts, topk).algorithm(algorithm);
            let setup = Setup::new(config.max_dispatch_tokens_per_rank(128), 8, hidden);
            assert!(memory(&setup.layout(layout)).is_ok(), "{experts} {algorithm} {layout}");
        }
        let config = model(hidden, experts, topk).max_dispatch_tokens_per_rank(128);
        let small = Setup::new(config, 8, hidden).device_sms(32);
        let expected = format!("expected at least {}, found 32", experts.div_ceil(14));
        assert!(refusal(&small).contains(&expected), "{}", refusal(&small));
    }
    // 11 experts a block leave 22 warps, one of which is not for a choice.
    let config = model(1024, 512, 22).max_dispatch_tokens_per_rank(128);
    assert_eq!(
        refusal(&Setup::new(config, 8, 1024).device_sms(47)),
        "`num_topk`: low latency has one warp a choice and one more, of at most 32; expected at \
         most 21, found 22"
    );
}

/// Case E7: rows of 2880 elements fit high throughput only.
#[test]
fn rows_that_low_latency_cannot_move() {
    for (algorithm, layout) in PAIRS {
        let config = model(2880, 128, 4).algorithm(algorithm).max_dispatch_tokens_per_rank(128);
        let planned = memory(&Setup::new(config, 8, 2880).layout(layout));
        if algorithm == Algorithm::HighThroughput {
            assert!(planned.is_ok(), "{planned:?}");
            continue;
        }
        let Err(Error::Invalid { argument, expected, found, .. }) = planned else {
            panic!("{planned:?}")
        };
        assert_eq!((argument, &*found), ("inputs.tokens", "2880"));
        assert_eq!(expected, "a hidden size that is a multiple of 256");
    }
}

/// The calls on a communicator and the plan without one refuse with the same words.
#[test]
fn refused_as_the_calls_refuse() {
    let ll = || model(512, 8, 2).max_dispatch_tokens_per_rank(4);
    let ht = || ll().algorithm(Algorithm::HighThroughput).max_recv_tokens_per_rank(16);
    let (em, flat) = (Layout::ExpertMajor, Layout::Flat);
    let plain = HandleConfig::new;
    let odd = || plain().dispatch_output_per_expert_alignment(3);
    let cases = [
        (ll().num_experts(0), 4, em, plain(), 2),
        (ll().num_experts(256), 3, em, plain(), 2),
        (ll().max_dispatch_tokens_per_rank(0), 4, em, plain(), 2),
        (ll().max_token_bytes(0), 4, em, plain(), 2),
        (ll().num_topk(9), 4, em, plain(), 2),
        (ll().max_num_sms(133), 4, em, plain(), 2),
        (ll().zero_copy(ZeroCopyMode::On), 4, em, plain(), 2),
        (ht().max_token_bytes(24), 4, em, plain(), 2),
        (ht().max_recv_tokens_per_rank(3), 4, em, plain(), 2),
        (ht().max_num_sms(17), 4, em, plain(), 2),
        (ht().enable_mask(true), 4, em, plain(), 2),
        (ht().max_recv_tokens_per_rank(0).overflow_policy(OverflowPolicy::Drop), 4, em, plain(), 2),
        (ht().max_recv_tokens_per_rank(0).num_topk(0), 4, em, plain(), 2),
        (ll(), 4, flat, plain(), 2),
        (ht(), 4, em, odd(), 2),
        (ht(), 4, flat, plain(), 3),
        (ll(), 4, em, plain(), 9),
        (ll().rdma_buffer_size(100), 4, em, plain(), 2),
    ];
    for (config, ranks, layout, options, topk) in cases {
        let called = Group::create_in(&stub::comm(ranks), &config, Environment::default(), None);
        let called = called.and_then(|group| {
            let made = group.init_handle(layout, &options, TopK::N(topk), None).map(drop);
            group.destroy().map_err(Error::from)?;
            made
        });
        stub::take_calls();
        let setup = Setup::new(config, ranks as u32, 512).layout(layout).handle(options);
        let planned = memory(&setup.topk(TopK::N(topk)));
        let message = |result: Result<()>| result.expect_err("to be refused").to_string();
        assert_eq!(message(planned.map(drop)), message(called));
    }
}

/// What no call would get as far as asking.
#[test]
fn numbers_that_are_no_machine() {
    let config = || model(512, 8, 2).max_dispatch_tokens_per_rank(4);
    let setup = |ranks| Setup::new(config(), ranks, 512);
    for (setup, argument) in [
        (setup(0), "`ranks`"),
        (setup(1 << 31), "`ranks`"),
        (setup(4).team_ranks(0), "`team_ranks`"),
        (setup(4).team_ranks(3), "`team_ranks`"),
        (setup(4).device_sms(0), "`device_sms`"),
        (Setup::new(config(), 4, 0), "`hidden`"),
        (setup(4).topk(TopK::N(0)), "`num_topk`"),
        (setup(4).data_type(DataType::Float8E4m3), "`inputs.tokens`"),
        (Setup::new(config(), 4, 1024), "`inputs.tokens`"),
    ] {
        assert!(refusal(&setup).starts_with(argument), "{}", refusal(&setup));
    }
    let automatic = Setup::new(config().num_topk(0), 4, 512);
    assert!(refusal(&automatic).contains("automatic top-k is the group's"));
    let teams = Setup::new(config().algorithm(Algorithm::HighThroughput), 8, 512).team_ranks(4);
    let error = memory(&teams).expect_err("several teams");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(memory(&setup(8).team_ranks(4)).is_ok(), "low latency does not depend on teams");
}

/// Sizes beyond 64 bits are an error that names the buffer.
#[test]
fn overflow_is_an_error() {
    let (experts, tokens, row) = (65535_u32, u32::MAX - 1, u32::MAX - 1023);
    let config = GroupConfig::new()
        .num_experts(experts)
        .max_dispatch_tokens_per_rank(tokens)
        .max_token_bytes(row);
    let setup = Setup::new(config, experts, 512).topk(TopK::N(4)).device_sms(experts);
    let wide = |value: u32| u128::from(value);
    let combine_row = wide(row) + 4 * (wide(row) / 256);
    let banks = 2 * wide(tokens) * combine_row * (wide(experts) + 4);
    let rule = "the bytes of a buffer are counted in 64 bits; expected at most \
                18446744073709551615 bytes, found";
    assert_eq!(refusal(&setup), format!("`two banks`: {rule} {banks}"));

    let config = model(512, 1 << 31, 8)
        .algorithm(Algorithm::HighThroughput)
        .max_dispatch_tokens_per_rank(1024)
        .max_recv_tokens_per_rank(u32::MAX);
    let setup = Setup::new(config, 4, 512).layout(Layout::Flat);
    let weights = u128::from(u32::MAX) << 33;
    assert_eq!(refusal(&setup), format!("`dispatch weight staging`: {rule} {weights}"));
}

fn geometry(config: &GroupConfig, ranks: u32, mode: EmMode) -> Geometry {
    let facts = crate::rules::group::Facts {
        config,
        ranks: ranks.into(),
        lsa: ranks.into(),
        device_sms: HOPPER_SMS.into(),
        environment: Environment::default(),
    };
    Geometry { em_mode: mode, ..Geometry::new(&facts) }
}

/// EP 2.4: the duplicating modes stage the budget, and zero-copy stages no tokens.
#[test]
fn staging_of_the_duplicating_modes() {
    let config = model(512, 8, 2)
        .algorithm(Algorithm::HighThroughput)
        .max_dispatch_tokens_per_rank(4)
        .max_recv_tokens_per_rank(40);
    let named = |buffers: &[Buffer], name: &str| {
        buffers.iter().find(|buffer| buffer.name == name).map(|buffer| buffer.bytes)
    };
    for (mode, rows) in
        [(EmMode::LocalPermute, 4 * 4), (EmMode::LocalDup, 40), (EmMode::NvlinkDup, 40)]
    {
        let geometry = geometry(&config, 4, mode);
        let staged = high_throughput::group(&geometry, true).unwrap();
        assert_eq!(named(&staged, "dispatch token staging"), Some(rows * 1024), "{mode:?}");
        assert_eq!(named(&staged, "combine token staging"), Some(rows * 1024), "{mode:?}");
        let windows = high_throughput::group(&geometry, false).unwrap();
        assert_eq!(windows.len() + 2, staged.len());
        assert_eq!(named(&windows, "dispatch token staging"), None);
        assert_eq!(named(&windows, "scale staging"), Some(40 * 1024));
    }
    let on = config.clone().zero_copy(ZeroCopyMode::On);
    let facts = |lsa| crate::rules::group::Facts {
        config: &on,
        ranks: 4,
        lsa,
        device_sms: 132,
        environment: Environment::default(),
    };
    assert_eq!(Geometry::new(&facts(4)).em_mode, EmMode::LocalDup);
    assert_eq!(Geometry::new(&facts(2)).em_mode, EmMode::NvlinkDup);
}

/// EP 3.1: handle memory of expert-major in each mode, against a flat handle.
#[test]
fn handle_pieces_of_each_mode() {
    let config = model(512, 8, 2)
        .algorithm(Algorithm::HighThroughput)
        .max_dispatch_tokens_per_rank(4)
        .max_recv_tokens_per_rank(40);
    let pieces = |setup: Setup| {
        let planned = memory(&setup).unwrap();
        let buffer = planned.buffer("handle memory").unwrap().clone();
        buffer.pieces.into_iter().map(|piece| (piece.name, piece.bytes)).collect::<Vec<_>>()
    };
    let setup = Setup::new(config, 4, 512);
    let flat = pieces(setup.clone().layout(Layout::Flat));
    assert_eq!(flat.len(), 8);
    assert!(flat.contains(&("scan scratch", (132 * 4 * 8_u64).next_multiple_of(256))));
    let permute = pieces(setup.clone());
    let more: Vec<_> = permute[8..].iter().map(|(name, _)| *name).collect();
    assert_eq!(
        more,
        [
            "active counts",
            "expert offsets",
            "flat to expert-major map",
            "flat weights",
            "token to slot map"
        ]
    );
    let local = pieces(setup.clone().local_dup(true));
    assert_eq!(local[10..], [("duplicate groups", 256), ("duplicate group count", 256)]);
    assert_eq!(pieces(setup.clone().nvlink_dup(true)).len(), 10);
    assert!(refusal(&setup.local_dup(true).nvlink_dup(true)).contains("both on"));
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

/// Eager expert-major with padding: each zone can end with an almost empty unit.
#[test]
fn eager_rows_count_padding() {
    let config = model(512, 8, 4).algorithm(Algorithm::HighThroughput);
    let setup = Setup::new(config.max_dispatch_tokens_per_rank(4), 4, 512);
    let rows = |setup: &Setup| {
        let planned = memory(setup).unwrap();
        planned.buffer("received tokens").unwrap().tensor.map(|(shape, _)| shape[0])
    };
    // 2 local experts, so a token arrives at most twice.
    assert_eq!(rows(&setup), Some(4 * 4 * 2));
    let padded = HandleConfig::new().dispatch_output_per_expert_alignment(16);
    assert_eq!(rows(&setup.clone().handle(padded)), Some(4 * 4 * 2 + 2 * 15));
    assert_eq!(rows(&setup.layout(Layout::Flat)), Some(4 * 4));
}
