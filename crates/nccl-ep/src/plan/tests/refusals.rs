//! What is refused, and how.

use super::*;
use crate::environment::Environment;
use crate::{Group, OverflowPolicy, ZeroCopyMode};
use nccl_ext_test::stub::ep as stub;

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

fn broken_rule(setup: &Setup) -> &'static str {
    match memory(setup) {
        Err(Error::Invalid { name, .. }) => name,
        other => panic!("{other:?}"),
    }
}

/// EP 8: what the maps of expert-major can number. A backward combine has a limit of its own, which
/// the plan of a forward and backward handle can only note.
#[test]
fn limits_of_the_maps_are_planned_for() {
    let config = |experts| {
        let config = model(512, experts, 2).algorithm(Algorithm::HighThroughput);
        config.max_dispatch_tokens_per_rank(4).max_recv_tokens_per_rank((1 << 22) - 1)
    };
    let setup = |recv| Setup::new(config(8).max_recv_tokens_per_rank(recv), 4, 512);
    assert!(memory(&setup((1 << 22) - 1).local_dup(true)).is_ok());
    for dup in [setup(1 << 22).local_dup(true), setup(1 << 22).nvlink_dup(true)] {
        assert_eq!(broken_rule(&dup), "handle.em-dup-slots");
        assert!(memory(&dup.layout(Layout::Flat)).is_ok(), "flat has no such slots");
    }
    assert!(memory(&setup(1 << 22)).is_ok(), "without duplicates there is no such limit");

    assert!(memory(&Setup::new(config(1024), 1024, 512)).is_ok());
    let team = Setup::new(config(1028), 1028, 512);
    assert_eq!(broken_rule(&team), "handle.em-team");
    assert!(memory(&team.layout(Layout::Flat)).is_ok());

    let notes = |experts| {
        let planned = memory(&Setup::new(config(experts), 4, 512).layout(Layout::Flat)).unwrap();
        planned.notes.iter().filter(|note| note.text.contains("backward combine")).count()
    };
    assert_eq!((notes(4 * 1024), notes(4 * 1025)), (0, 1));
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
