//! EP 5.2, EP vectors C18 and Q9 to Q18: dispatch that forwards the caller's scales.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::ptr::{null, null_mut};

use common::masks::*;
use common::scaled::*;
use common::*;
use nccl_ep_sys::{ncclEpGroupConfig_t, ncclEpOverflowPolicy_t, ncclEpZeroCopyMode_t};
use nccl_ext_core::DataType::{
    self, Bfloat16, Float4x2, Float8E4m3, Float8E5m2, Float16, Float32, Int64, Uint8,
};
use nccl_ext_core::{Comm, bf16};
use nccl_ext_cpu::FailureClass;

const ON: ncclEpZeroCopyMode_t = ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON;
const PACKED: [DataType; 2] = [Float4x2, Uint8];

/// Rows of tokens and scales that fit.
fn wide(config: &mut ncclEpGroupConfig_t) {
    config.max_token_bytes = 1024;
}

/// Four tokens a rank, every one for every expert.
const ALL: Fixture =
    Fixture { topk: 8, ids: |_| (0..32).map(|i| i % 8).collect(), max_recv: 64, ..F4 };

#[test]
fn c18_packed_fp4_expert_major_with_padding() {
    ranks(4, |comm| {
        let ht = Ht::with(comm, ALL, EM, 32, wide);
        let mut first: Option<Scaled> = None;
        for _ in 0..3 {
            let mut call = Scaled::high(&ht, 64, FP4, PACKED);
            ok(call.call(&ht.handle));
            for zone in 0..2 {
                for i in 0..16 {
                    call.assert_row(zone * 32 + i, i / 4, i % 4);
                    call.assert_filled(zone * 32 + 16 + i, 0);
                }
            }
            if let Some(first) = &first {
                assert!((0..64).all(|row| first.row(row) == call.row(row)), "a repeated dispatch");
            }
            first = Some(call);
        }
    });
}

/// Whose tokens arrive where in G2: by rank, (source, token).
const G2_FLAT: [&[(usize, usize)]; 2] =
    [&[(0, 0), (0, 1), (0, 2), (1, 2)], &[(0, 0), (0, 1), (1, 0), (1, 1), (1, 3)]];
const G2_ZONES: [[&[(usize, usize)]; 2]; 2] = [
    [&[(0, 0), (0, 2), (1, 2)], &[(0, 1), (0, 2), (1, 2)]],
    [&[(0, 0), (1, 0), (1, 3)], &[(0, 1), (1, 1), (1, 3)]],
];

#[test]
fn flat_rows_of_every_type() {
    let tokens = [Float32, Float16, Bfloat16, Float8E4m3, Float8E5m2, Float4x2];
    let scales = [Float32, Float16, Bfloat16, Float8E4m3, Float8E5m2, Uint8];
    ranks(2, |comm| {
        let ht = Ht::with(comm, G2, FLAT, 0, wide);
        for token in tokens {
            for scale in scales {
                let width = Width { tokens: 48, scales: 16 };
                let mut call = Scaled::high(&ht, 16, width, [token, scale]);
                ok(call.call(&ht.handle));
                let rows = G2_FLAT[comm.rank()];
                for (row, &(source, t)) in rows.iter().enumerate() {
                    call.assert_row(row, source, t);
                }
                for row in rows.len()..16 {
                    call.assert_filled(row, SPARE);
                }
                let weights = call.out_weights.unwrap().data;
                assert_eq!(weights[..2], [[1., 0.], [1.25, 0.]][comm.rank()]);
            }
        }
    });
}

#[test]
fn expert_major_zones_in_both_modes() {
    for (copies, alignment) in [(false, 0), (false, 4), (true, 0), (true, 4)] {
        ranks(2, |comm| {
            let ht = Ht::with(comm, G2, EM, alignment, |c| {
                wide(c);
                if copies {
                    c.zero_copy = ON;
                }
            });
            let call = Scaled::high(&ht, 16, FP4, PACKED);
            let mut call = call.windows(comm, copies, copies);
            ok(call.call(&ht.handle));
            let zone_rows = 3_usize.next_multiple_of(alignment.max(1));
            for (zone, tokens) in G2_ZONES[comm.rank()].iter().enumerate() {
                for (i, &(source, t)) in tokens.iter().enumerate() {
                    call.assert_row(zone * zone_rows + i, source, t);
                }
                for i in tokens.len()..zone_rows {
                    call.assert_filled(zone * zone_rows + i, 0);
                }
            }
            for row in 2 * zone_rows..16 {
                call.assert_filled(row, SPARE);
            }
        });
    }
}

#[test]
fn dropping_clears_scales_up_to_the_budget() {
    ranks(2, |comm| {
        let fixture = Fixture { topk: 1, ids: |_| vec![0, 0, 0, 1], max_recv: 8, ..G2 };
        let ht = Ht::with(comm, fixture, EM, 2, |c| {
            wide(c);
            c.max_recv_tokens_per_rank = 4;
            c.overflow_policy = ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP;
        });
        let mut call = Scaled::high(&ht, 6, FP4, PACKED);
        ok(call.call(&ht.handle));
        if comm.rank() == 0 {
            // Expert 0's zone takes the budget; of its rows the first three are rank 0's, and
            // what arrives fourth is rank 0's token for expert 1, which has no room.
            for t in 0..3 {
                call.assert_row(t, 0, t);
            }
            call.assert_filled(3, 0);
        } else {
            for row in 0..4 {
                call.assert_filled(row, 0);
            }
        }
        for row in 4..6 {
            call.assert_filled(row, SPARE);
        }
    });
}

#[test]
fn eager_groups_forward_scales() {
    ranks(2, |comm| {
        let ht = Ht::with(comm, G2, FLAT, 0, |c| {
            wide(c);
            c.max_recv_tokens_per_rank = 0;
        });
        let rows = G2_FLAT[comm.rank()];
        let mut call = Scaled::high(&ht, rows.len(), FP4, PACKED);
        ok(call.call(&ht.handle));
        for (row, &(source, t)) in rows.iter().enumerate() {
            call.assert_row(row, source, t);
        }
    });
}

#[test]
fn a_combine_of_another_type_follows() {
    ranks(2, |comm| {
        let ht = Ht::with(comm, G2, FLAT, 0, wide);
        ok(Scaled::high(&ht, 16, FP4, [Float8E4m3, Float32]).call(&ht.handle));
        let mut values = vec![CANARY; 16];
        for (row, &(source, t)) in G2_FLAT[comm.rank()].iter().enumerate() {
            values[row] = (G2.values)(source)[t];
        }
        assert_eq!(ht.combine(&values), [[2., 4., 3., 0.], [5., 6., 7., 8.]][comm.rank()]);
    });
}

fn low(comm: &Comm, layout: nccl_ep_sys::ncclEpLayout_t, zero_copy: ncclEpZeroCopyMode_t) -> Ll {
    let config = ncclEpGroupConfig_t { zero_copy, ..G2.config(LL, WIDE) };
    Ll::on(Group::new(comm, &config).into(), comm.rank(), G2, layout)
}

/// Rows at the counters and the rest, of a low-latency call on G2.
#[track_caller]
fn check_low(call: &Scaled, layout: nccl_ep_sys::ncclEpLayout_t, rank: usize) {
    let regions: [Vec<(usize, usize)>; 2] = match layout == EM {
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
    let counters = call.counters.as_ref().or(call.src_counters.as_ref()).unwrap();
    let room = if layout == EM { 8 } else { 4 };
    for (region, tokens) in regions.iter().enumerate() {
        assert_eq!(counters.data[region], tokens.len() as i32);
        for i in 0..room {
            match tokens.get(i) {
                Some(&(source, t)) => call.assert_row(region * room + i, source, t),
                None => call.assert_filled(region * room + i, SPARE),
            }
        }
    }
}

#[test]
fn q09_low_latency_keeps_tokens_and_scales_together() {
    for layout in [EM, RM] {
        ranks(2, |comm| {
            let ll = low(comm, layout, ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_AUTO);
            // 48 bytes are no whole warp of loads, which this recipe does not need.
            for width in [FP4, Width { tokens: 48, scales: 16 }] {
                let mut call = Scaled::low(&ll, width, PACKED);
                ok(call.call(&ll.handle));
                check_low(&call, layout, comm.rank());
            }
            let fp32 = Width { tokens: 16, scales: 16 };
            let mut call = Scaled::low(&ll, fp32, [Float32, Float32]);
            ok(call.call(&ll.handle));
            check_low(&call, layout, comm.rank());
        });
    }
}

#[test]
fn q09_staged() {
    for layout in [EM, RM] {
        ranks(2, |comm| {
            let ll = low(comm, layout, ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_AUTO);
            for stage in [[1, 1], [1, 0], [0, 1]] {
                let mut call = Scaled::low(&ll, FP4, PACKED);
                call.config.send_only = stage[comm.rank()];
                ok(call.call(&ll.handle));
                if stage[comm.rank()] == 1 {
                    // The inputs are free.
                    call.tokens.data.fill(0);
                    call.scales.as_mut().unwrap().data.fill(0);
                    let complete = api().ncclEpComplete;
                    // SAFETY: the handle is live; no configuration and the null stream.
                    ok(unsafe { complete(ll.handle.raw, null(), null_mut()) });
                }
                check_low(&call, layout, comm.rank());
            }
        });
    }
}

#[test]
fn q09_with_masks() {
    for layout in [EM, RM] {
        ranks(2, |comm| {
            let ll = Ll::on(masked(comm, G2, LONG), comm.rank(), G2, layout);
            for _ in 0..2 {
                let mut call = Scaled::low(&ll, FP4, PACKED);
                ok(call.call(&ll.handle));
                check_low(&call, layout, comm.rank());
            }
        });
    }
}

type Change = fn(&mut Scaled);

/// What every handle refuses, in the order of the rules, each with words of the message.
const WRONG: [(&str, Change); 15] = [
    ("round_scales", |c| c.config.round_scales = 1),
    // Q10.
    ("inputs.tokens", |c| c.tokens.retype(Uint8, 1)),
    // Q13.
    ("a multiple of 16 bytes", |c| c.tokens = typed(Float4x2, &[4, 8], vec![0; 32])),
    ("a multiple of 16 bytes", |c| c.tokens = typed(Float4x2, &[4, 0], vec![])),
    // Q11.
    ("inputs.scales", |c| c.scales = None),
    ("outputs.scales", |c| c.out_scales = None),
    ("outputs.tokens", |c| c.out_tokens = None),
    ("inputs.scales", |c| c.scales = Some(typed(Uint8, &[128], vec![0; 128]))),
    ("the element type", |c| c.scales.as_mut().unwrap().retype(Int64, 8)),
    ("every token has a row", |c| c.scales = Some(typed(Uint8, &[3, 32], vec![0; 96]))),
    // Q13.
    ("a multiple of 16 bytes", |c| c.scales = Some(typed(Uint8, &[4, 8], vec![0; 32]))),
    ("a multiple of 16 bytes", |c| c.scales = Some(typed(Uint8, &[4, 0], vec![]))),
    // Q14.
    ("at most 1024 bytes", |c| c.scales = Some(typed(Uint8, &[4, 784], vec![0; 4 * 784]))),
    // Q16, and the same for low latency.
    ("outputs.tokens", |c| c.out_tokens.as_mut().unwrap().retype(Float8E4m3, 1)),
    ("outputs.scales", |c| c.out_scales.as_mut().unwrap().retype(Float8E5m2, 1)),
];

#[track_caller]
fn refuse(mut call: Scaled, handle: &Handle, word: &str) {
    let code = call.call(handle);
    assert_eq!(nccl_ext_cpu::last_refusal(), Some(FailureClass::Return), "{word}");
    let text = error().map_or_else(String::new, |error| error.to_string());
    assert_eq!(code, ARGUMENT, "{word}: {text}");
    assert!(text.contains(word), "{word}: {text}");
}

/// Applies each change of the table alone, and with every later one: the first rule speaks.
fn refusals(handle: &Handle, make: impl Fn() -> Scaled) {
    for (i, (word, change)) in WRONG.iter().enumerate() {
        let mut call = make();
        change(&mut call);
        refuse(call, handle, word);
        // The recipe's own two come first whatever else is wrong.
        for (_, other) in WRONG[i + 1..].iter().filter(|_| i < 2) {
            let mut call = make();
            other(&mut call);
            change(&mut call);
            refuse(call, handle, word);
        }
    }
}

#[test]
fn q10_to_q16_high_throughput_refusals() {
    ranks(1, |comm| {
        let fixture = Fixture { ranks: 1, ids: |_| vec![0, 1, 2, 3, 1, 0, -1, -1], ..G2 };
        for layout in [FLAT, EM] {
            let ht = Ht::with(comm, fixture, layout, 0, wide);
            let make = || Scaled::high(&ht, 16, FP4, PACKED);
            refusals(&ht.handle, make);
            // Q16: width, dtype, scale width, capacity, unequal capacities.
            let changes: [(&str, Change); 5] = [
                ("outputs.tokens", |c| {
                    c.out_tokens = Some(typed(Float4x2, &[16, 240], vec![0; 16 * 240]));
                }),
                ("outputs.scales", |c| {
                    c.out_scales = Some(typed(Uint8, &[16, 48], vec![0; 16 * 48]));
                }),
                ("outputs.scales", |c| {
                    c.out_scales = Some(typed(Uint8, &[17, 32], vec![0; 17 * 32]));
                }),
                ("at least 16 rows", |c| {
                    c.out_tokens = Some(typed(Float4x2, &[15, 256], vec![0; 15 * 256]));
                    c.out_scales = Some(typed(Uint8, &[15, 32], vec![0; 15 * 32]));
                }),
                ("outputs.tokens", |c| {
                    c.out_tokens = Some(typed(Float4x2, &[1, 16, 256], vec![0; 16 * 256]));
                }),
            ];
            for (word, change) in changes {
                let mut call = make();
                change(&mut call);
                refuse(call, &ht.handle, word);
            }
            ok(make().call(&ht.handle));
        }
    });
}

#[test]
fn q10_to_q16_low_latency_refusals() {
    ranks(1, |comm| {
        let fixture = Fixture { ranks: 1, ids: |_| vec![0, 1, 2, 3, 1, 0, -1, -1], ..G2 };
        for layout in [EM, RM] {
            let ll = Ll::new(comm, fixture, layout);
            let make = || Scaled::low(&ll, FP4, PACKED);
            refusals(&ll.handle, make);
            let [regions, rows, _] = ll.shape(1);
            let shapes = [[regions, rows, 48], [regions + 1, rows, 32], [regions, rows + 1, 32]];
            for shape in shapes {
                let mut call = make();
                let bytes = shape.iter().product();
                call.out_scales = Some(typed(Uint8, &shape, vec![0; bytes]));
                refuse(call, &ll.handle, "outputs.scales");
                let mut call = make();
                let shape = [shape[0], shape[1], 8 * shape[2]];
                let bytes = shape.iter().product();
                call.out_tokens = Some(typed(Float4x2, &shape, vec![0; bytes]));
                refuse(call, &ll.handle, "outputs.tokens");
            }
            ok(make().call(&ll.handle));
        }
    });
}

#[test]
fn q12_recipe_none_has_no_scales() {
    ranks(1, |comm| {
        let fixture = Fixture { ranks: 1, ids: |_| vec![0, 1, 2, 3, 1, 0, -1, -1], ..G2 };
        let ht = Ht::with(comm, fixture, FLAT, 0, wide);
        for both in [true, false] {
            let mut call = Scaled::high(&ht, 16, FP4, [Bfloat16, Float32]);
            call.config.quant_recipe = nccl_ep_sys::ncclEpDispQuant_t::NCCL_EP_DISP_QUANT_NONE;
            if !both {
                call.scales = None;
            }
            refuse(call, &ht.handle, "recipe NONE has no scales");
        }
    });
}

type Pick = fn(&mut Scaled) -> &mut Ten<u8>;

#[test]
fn q15_pointers_off_by_one_byte() {
    ranks(1, |comm| {
        let fixture = Fixture { ranks: 1, ids: |_| vec![0, 1, 2, 3, 1, 0, -1, -1], ..G2 };
        let ht = Ht::with(comm, fixture, FLAT, 0, wide);
        let pick: [(&str, Pick); 4] = [
            ("inputs.tokens", |c| &mut c.tokens),
            ("inputs.scales", |c| c.scales.as_mut().unwrap()),
            ("outputs.tokens", |c| c.out_tokens.as_mut().unwrap()),
            ("outputs.scales", |c| c.out_scales.as_mut().unwrap()),
        ];
        for (name, pick) in pick {
            let mut call = Scaled::high(&ht, 16, FP4, PACKED);
            pick(&mut call).skew = 1;
            refuse(call, &ht.handle, name);
        }
    });
}

#[test]
fn q17_high_throughput_takes_both_windows_or_none() {
    for zero_copy in [ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_AUTO, ON] {
        ranks(2, |comm| {
            let ht = Ht::with(comm, G2, FLAT, 0, |c| {
                wide(c);
                c.zero_copy = zero_copy;
            });
            for (tokens, scales) in [(true, false), (false, true)] {
                let call = Scaled::high(&ht, 16, FP4, PACKED).windows(comm, tokens, scales);
                refuse(call, &ht.handle, "both windows or neither");
            }
            let mut call = Scaled::high(&ht, 16, FP4, PACKED).windows(comm, true, true);
            ok(call.call(&ht.handle));
            let rows = G2_FLAT[comm.rank()];
            for (row, &(source, t)) in rows.iter().enumerate() {
                call.assert_row(row, source, t);
            }
            for row in rows.len()..16 {
                call.assert_filled(row, SPARE);
            }
            if zero_copy == ON {
                let call = Scaled::high(&ht, 16, FP4, PACKED);
                refuse(call, &ht.handle, "the output is a window");
            }
        });
    }
}

#[test]
fn q18_low_latency_takes_either_window() {
    for zero_copy in [ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_AUTO, ON] {
        ranks(2, |comm| {
            let ll = low(comm, RM, zero_copy);
            for (tokens, scales) in [(true, false), (false, true), (true, true)] {
                let mut call = Scaled::low(&ll, FP4, PACKED).windows(comm, tokens, scales);
                ok(call.call(&ll.handle));
                check_low(&call, RM, comm.rank());
            }
            if zero_copy == ON {
                refuse(Scaled::low(&ll, FP4, PACKED), &ll.handle, "the output is a window");
            }
        });
    }
}

#[test]
fn ranks_with_scales_of_other_widths_do_not_meet() {
    for algorithm in [HT, LL] {
        let results = nccl_ext_cpu::run_ranks(2, &nccl_ext_cpu::CpuConfig::new(), |comm| {
            let width = Width { scales: 16 + 16 * comm.rank(), ..FP4 };
            let code = if algorithm == HT {
                let ht = Ht::with(&comm, G2, FLAT, 0, wide);
                let code = Scaled::high(&ht, 16, width, PACKED).call(&ht.handle);
                std::mem::forget(ht);
                code
            } else {
                let ll = Ll::new(&comm, G2, RM);
                let code = Scaled::low(&ll, width, PACKED).call(&ll.handle);
                std::mem::forget(ll);
                code
            };
            Ok::<_, nccl_ext_core::Error>(code)
        });
        for result in results {
            assert_ne!(result.unwrap(), OK);
        }
    }
}

#[test]
fn half_precision_scales_keep_their_bits() {
    // NaNs and subnormals are bytes like all others.
    ranks(1, |comm| {
        let fixture = Fixture { ranks: 1, ids: |_| vec![0, 1, 2, 3, 1, 0, -1, -1], ..G2 };
        let ht = Ht::with(comm, fixture, FLAT, 0, wide);
        let mut call = Scaled::high(&ht, 16, FP4, [Bfloat16, Bfloat16]);
        let odd = [bf16::NAN.to_bits(), 0xFFC1, 0x0001, 0x8000].map(u16::to_ne_bytes);
        let odd = odd.as_flattened();
        call.scales.as_mut().unwrap().data[..8].copy_from_slice(odd);
        ok(call.call(&ht.handle));
        assert_eq!(call.row(0).1[..8], *odd);
    });
}
