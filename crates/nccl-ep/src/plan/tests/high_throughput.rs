//! High throughput by hand.

use super::*;
use crate::ZeroCopyMode;
use crate::environment::Environment;
use crate::geometry::{EmMode, Geometry, GroupFacts};
use crate::plan::high_throughput::group;

fn geometry(config: &GroupConfig, ranks: u32, mode: EmMode) -> Geometry {
    let facts = GroupFacts {
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
        let staged = group(&geometry, true).unwrap();
        assert_eq!(named(&staged, "dispatch token staging"), Some(rows * 1024), "{mode:?}");
        assert_eq!(named(&staged, "combine token staging"), Some(rows * 1024), "{mode:?}");
        let windows = group(&geometry, false).unwrap();
        assert_eq!(windows.len() + 2, staged.len());
        assert_eq!(named(&windows, "dispatch token staging"), None);
        assert_eq!(named(&windows, "scale staging"), Some(40 * 1024));
    }
    let on = config.clone().zero_copy(ZeroCopyMode::On);
    let facts = |lsa| GroupFacts {
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
