//! Low latency.

use nccl_ep_sys::{ncclEpGroupConfig_t, ncclEpLayout_t, ncclEpZeroCopyMode_t};
use nccl_ext_core::Comm;
use nccl_ext_core::DataType::Float32;
use nccl_ext_test::cpu::ep::masks::*;
use nccl_ext_test::cpu::ep::scales::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

use super::refusals::assert_call_refused;
use super::{G2_FLAT, G2_ZONES, PACKED, ZERO_COPY_MODES};

/// A rank of G2, on a group with or without windows.
fn rank_with(
    comm: &Comm,
    layout: ncclEpLayout_t,
    zero_copy: ncclEpZeroCopyMode_t,
) -> LowLatencyRank {
    let config = ncclEpGroupConfig_t { zero_copy, ..G2.config(LOW_LATENCY, LL_HIDDEN) };
    LowLatencyRank::on(TestGroup::new(comm, &config).into(), comm.rank(), G2, layout)
}

/// Every expert or source has the rows of its tokens, and its other rows are untouched.
#[track_caller]
fn assert_g2_rows(scaled: &ScaledDispatch, layout: ncclEpLayout_t, rank: usize) {
    let regions: [Vec<(usize, usize)>; 2] = match layout == EXPERT_MAJOR {
        true => {
            let mut zones = G2_ZONES[rank].map(<[_]>::to_vec);
            // Low latency sends a duplicate twice.
            if rank == 1 {
                zones[1].insert(1, (1, 1));
            }
            zones
        }
        false => [0, 1].map(|source| {
            G2_FLAT[rank].iter().copied().filter(|&(from, _)| from == source).collect()
        }),
    };
    let counters = scaled.call.counters.as_ref().or(scaled.call.src_counters.as_ref()).unwrap();
    let room = if layout == EXPERT_MAJOR { 8 } else { 4 };
    for (region, tokens) in regions.iter().enumerate() {
        assert_eq!(counters.data[region], tokens.len() as i32);
        for i in 0..room {
            match tokens.get(i) {
                Some(&token) => scaled.assert_row(region * room + i, token),
                None => scaled.assert_filled(region * room + i, UNTOUCHED),
            }
        }
    }
}

fn packed(ll: &LowLatencyRank) -> ScaledDispatch {
    ScaledDispatch::low_latency(ll, PACKED_FP4, PACKED)
}

/// EP vector Q9.
#[test]
fn tokens_and_scales_stay_together() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        both_ways(2, |comm| {
            let ll = LowLatencyRank::new(comm, G2, layout);
            let small = RowBytes { tokens: 16, scales: 16 };
            let calls = [
                packed(&ll),
                // 48 bytes are no whole warp of loads, which this recipe does not need.
                ScaledDispatch::low_latency(&ll, RowBytes { tokens: 48, scales: 16 }, PACKED),
                ScaledDispatch::low_latency(&ll, small, [Float32, Float32]),
            ];
            for call in calls {
                assert_g2_rows(&call.must_succeed(&ll.handle), layout, comm.rank());
            }
        });
    });
}

#[test]
fn staged_tokens_and_scales_stay_together() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        both_ways(2, |comm| {
            let ll = LowLatencyRank::new(comm, G2, layout);
            for staging_ranks in [&[0, 1][..], &[0], &[1]] {
                let mut scaled = packed(&ll);
                if staging_ranks.contains(&comm.rank()) {
                    scaled.call = scaled.call.staged();
                    scaled = scaled.must_succeed(&ll.handle);
                    // The inputs are free.
                    for input in [&mut scaled.call.tokens, &mut scaled.call.scales] {
                        input.as_mut().unwrap().data.fill(0);
                    }
                    assert_ok(complete(&ll.handle));
                } else {
                    scaled = scaled.must_succeed(&ll.handle);
                }
                assert_g2_rows(&scaled, layout, comm.rank());
            }
        });
    });
}

#[test]
fn tokens_and_scales_stay_together_with_masks() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        both_ways(2, |comm| {
            let ll = LowLatencyRank::masked(comm, G2, LONG_TIMEOUT, layout);
            for _ in 0..2 {
                assert_g2_rows(&packed(&ll).must_succeed(&ll.handle), layout, comm.rank());
            }
        });
    });
}

/// EP vector Q18.
#[test]
fn either_output_may_be_a_window() {
    check_rows(ZERO_COPY_MODES, |zero_copy| {
        both_ways(2, |comm| {
            let ll = rank_with(comm, RANK_MAJOR, zero_copy);
            for (tokens, scales) in [(true, false), (false, true), (true, true)] {
                let call = packed(&ll).with_output_windows(comm, tokens, scales);
                assert_g2_rows(&call.must_succeed(&ll.handle), RANK_MAJOR, comm.rank());
            }
            if zero_copy == ZERO_COPY_ON {
                assert_call_refused(packed(&ll), &ll.handle, "the output is a window");
            }
        });
    });
}
