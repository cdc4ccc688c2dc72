//! Cases from the field.

use super::*;

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
    assert_eq!(bytes(&eager, "handle memory"), handle.into_iter().map(up).sum::<u64>());
    assert_eq!(eager.total(), Owner::ALL.into_iter().map(|owner| eager.of(owner)).sum::<u64>());
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
