//! High throughput.

use nccl_ep_sys::ncclEpOverflowPolicy_t;
use nccl_ext_core::DataType::{
    Bfloat16, Float4x2, Float8E4m3, Float8E5m2, Float16, Float32, Uint8,
};
use nccl_ext_core::bf16;
use nccl_ext_test::cpu::ep::scales::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

use super::refusals::assert_call_refused;
use super::{G2_FLAT, G2_ZONES, ONE_RANK, PACKED, ZERO_COPY_MODES, wide};

/// Four tokens a rank, every one for every expert.
const ALL: Fixture =
    Fixture { topk: 8, ids: |_| (0..32).map(|i| i % 8).collect(), max_recv: 64, ..F4 };

/// A call with that many rows.
fn packed(ht: &HighThroughputRank, rows: usize) -> ScaledDispatch {
    ScaledDispatch::high_throughput(ht, rows, PACKED_FP4, PACKED)
}

/// EP vector C18.
#[test]
fn packed_fp4_zones_end_in_zero_rows_and_scales() {
    both_ways(4, |comm| {
        let ht = HighThroughputRank::with(comm, ALL, EXPERT_MAJOR, 32, wide);
        // A repeated dispatch does the same.
        for _ in 0..3 {
            let call = packed(&ht, 64).must_succeed(&ht.handle);
            for zone in [0, 32] {
                for i in 0..16 {
                    call.assert_row(zone + i, (i / 4, i % 4));
                    call.assert_filled(zone + 16 + i, 0);
                }
            }
        }
    });
}

#[test]
fn flat_rows_of_every_type() {
    let tokens = [Float32, Float16, Bfloat16, Float8E4m3, Float8E5m2, Float4x2];
    let scales = [Float32, Float16, Bfloat16, Float8E4m3, Float8E5m2, Uint8];
    let pairs = tokens.map(|token| scales.map(|scale| [token, scale])).concat();
    // On one handle, whose calls may each have other types.
    both_ways(2, |comm| {
        let ht = HighThroughputRank::with(comm, G2, FLAT, 0, wide);
        check_rows(pairs.iter().map(|types| (format!("{types:?}"), *types)), |types| {
            let row_bytes = RowBytes { tokens: 48, scales: 16 };
            let call = ScaledDispatch::high_throughput(&ht, 16, row_bytes, types);
            let call = call.must_succeed(&ht.handle);
            call.assert_rows(G2_FLAT[comm.rank()]);
            let weights = call.call.out_weights.unwrap().data;
            let expected: [&[f32]; 2] = [
                &[1., 0., 2.25, 0., 3.25, 3., 7., 7.25],
                &[1.25, 0., 2., 0., 5., 0., 6., 0., 8., 8.25],
            ];
            let expected = expected[comm.rank()];
            assert_eq!(weights[..expected.len()], *expected);
        });
    });
}

#[test]
fn expert_major_zones_in_both_modes() {
    let rows = [
        ("permute", (false, 0)),
        ("permute, aligned", (false, 4)),
        ("local dup", (true, 0)),
        ("local dup, aligned", (true, 4)),
    ];
    check_rows(rows, |(local_dup, alignment)| {
        both_ways(2, |comm| {
            let ht = HighThroughputRank::with(comm, G2, EXPERT_MAJOR, alignment, |c| {
                wide(c);
                if local_dup {
                    c.zero_copy = ZERO_COPY_ON;
                }
            });
            let call = packed(&ht, 16).with_output_windows(comm, local_dup, local_dup);
            let call = call.must_succeed(&ht.handle);
            let zone_rows = 3_usize.next_multiple_of(alignment.max(1));
            for (zone, tokens) in G2_ZONES[comm.rank()].iter().enumerate() {
                for (i, &token) in tokens.iter().enumerate() {
                    call.assert_row(zone * zone_rows + i, token);
                }
                for i in tokens.len()..zone_rows {
                    call.assert_filled(zone * zone_rows + i, 0);
                }
            }
            for row in 2 * zone_rows..16 {
                call.assert_filled(row, UNTOUCHED);
            }
        });
    });
}

#[test]
fn dropping_clears_scales_up_to_the_budget() {
    both_ways(2, |comm| {
        let fixture = Fixture { topk: 1, ids: |_| vec![0, 0, 0, 1], max_recv: 8, ..G2 };
        let ht = HighThroughputRank::with(comm, fixture, EXPERT_MAJOR, 2, |c| {
            wide(c);
            c.max_recv_tokens_per_rank = 4;
            c.overflow_policy = ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP;
        });
        let call = packed(&ht, 6).must_succeed(&ht.handle);
        // Expert 0's zone takes the budget; of its rows the first three are rank 0's, and what
        // arrives fourth is rank 0's token for expert 1, which has no room.
        let tokens = [3, 0][comm.rank()];
        for token in 0..tokens {
            call.assert_row(token, (0, token));
        }
        for row in tokens..4 {
            call.assert_filled(row, 0);
        }
        for row in 4..6 {
            call.assert_filled(row, UNTOUCHED);
        }
    });
}

#[test]
fn eager_groups_forward_scales() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::with(comm, G2, FLAT, 0, |c| {
            wide(c);
            c.max_recv_tokens_per_rank = 0;
        });
        let rows = G2_FLAT[comm.rank()];
        packed(&ht, rows.len()).must_succeed(&ht.handle).assert_rows(rows);
    });
}

#[test]
fn a_combine_of_another_type_follows() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::with(comm, G2, FLAT, 0, wide);
        let types = [Float8E4m3, Float32];
        let call = ScaledDispatch::high_throughput(&ht, 16, PACKED_FP4, types);
        call.must_succeed(&ht.handle).assert_rows(G2_FLAT[comm.rank()]);
        let mut values = vec![CANARY; 16];
        for (row, &(source, token)) in G2_FLAT[comm.rank()].iter().enumerate() {
            values[row] = (G2.values)(source)[token];
        }
        assert_eq!(ht.combine(&values), [[2., 4., 3., 0.], [5., 6., 7., 8.]][comm.rank()]);
    });
}

#[test]
fn half_precision_scales_keep_their_bits() {
    // NaNs and subnormals are bytes like all others.
    both_ways(1, |comm| {
        let ht = HighThroughputRank::with(comm, ONE_RANK, FLAT, 0, wide);
        let types = [Bfloat16, Bfloat16];
        let mut scaled = ScaledDispatch::high_throughput(&ht, 16, PACKED_FP4, types);
        let odd = [bf16::NAN.to_bits(), 0xFFC1, 0x0001, 0x8000].map(u16::to_ne_bytes);
        let odd = odd.as_flattened();
        scaled.call.scales.as_mut().unwrap().data[..8].copy_from_slice(odd);
        assert_eq!(scaled.must_succeed(&ht.handle).row(0).1[..8], *odd);
    });
}

/// EP vector Q17.
#[test]
fn both_outputs_are_windows_or_neither() {
    check_rows(ZERO_COPY_MODES, |zero_copy| {
        both_ways(2, |comm| {
            let ht = HighThroughputRank::with(comm, G2, FLAT, 0, |c| {
                wide(c);
                c.zero_copy = zero_copy;
            });
            for (tokens, scales) in [(true, false), (false, true)] {
                let call = packed(&ht, 16).with_output_windows(comm, tokens, scales);
                assert_call_refused(call, &ht.handle, "both windows or neither");
            }
            let call = packed(&ht, 16).with_output_windows(comm, true, true);
            call.must_succeed(&ht.handle).assert_rows(G2_FLAT[comm.rank()]);
            let call = packed(&ht, 16);
            if zero_copy == ZERO_COPY_ON {
                assert_call_refused(call, &ht.handle, "the output is a window");
            } else {
                call.must_succeed(&ht.handle).assert_rows(G2_FLAT[comm.rank()]);
            }
        });
    });
}
