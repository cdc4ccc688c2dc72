//! What is refused, and in which order.

use nccl_ep_sys::{ncclEpDispQuant_t, ncclEpLayout_t};
use nccl_ext_core::DataType::{Bfloat16, Float4x2, Float8E4m3, Float8E5m2, Float32, Int64, Uint8};
use nccl_ext_cpu::{FailureClass, last_refusal};
use nccl_ext_test::cpu::ep::scales::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;
use nccl_ext_test::worlds;

use super::{ONE_RANK, PACKED, wide};

type Change = fn(&mut DispatchCall<u8>);

/// What is wrong, words of the message, and how the call becomes so.
type Wrong = (&'static str, &'static str, Change);

/// What comes first, whatever else is wrong.
const WRONG_RECIPE: [Wrong; 2] = [
    ("scales are rounded", "round_scales", |c| c.config.as_mut().unwrap().round_scales = 1),
    ("Q10 tokens of bytes", "inputs.tokens", |c| c.tokens.as_mut().unwrap().retype(Uint8, 1)),
];

/// What every handle refuses. Vectors: EP vectors Q11, Q13, Q14 and Q16.
const WRONG: [Wrong; 13] = [
    ("Q13 tokens of 8 bytes", "a multiple of 16 bytes", |c| c.tokens = bytes(Float4x2, &[4, 8])),
    ("Q13 empty tokens", "a multiple of 16 bytes", |c| c.tokens = bytes(Float4x2, &[4, 0])),
    ("Q11 no scales", "inputs.scales", |c| c.scales = None),
    ("no output of scales", "outputs.scales", |c| c.out_scales = None),
    ("no output of tokens", "outputs.tokens", |c| c.out_tokens = None),
    ("scales of one extent", "inputs.scales", |c| c.scales = bytes(Uint8, &[128])),
    ("int64 scales", "the element type", |c| c.scales.as_mut().unwrap().retype(Int64, 8)),
    ("scales of three tokens", "every token has a row", |c| c.scales = bytes(Uint8, &[3, 32])),
    ("Q13 scales of 8 bytes", "a multiple of 16 bytes", |c| c.scales = bytes(Uint8, &[4, 8])),
    ("Q13 empty scales", "a multiple of 16 bytes", |c| c.scales = bytes(Uint8, &[4, 0])),
    ("Q14 more than a row's bytes", "at most 1024 bytes", |c| c.scales = bytes(Uint8, &[4, 784])),
    ("Q16 other tokens", "outputs.tokens", |c| {
        c.out_tokens.as_mut().unwrap().retype(Float8E4m3, 1);
    }),
    ("Q16 other scales", "outputs.scales", |c| {
        c.out_scales.as_mut().unwrap().retype(Float8E5m2, 1);
    }),
];

fn bytes(data_type: nccl_ext_core::DataType, sizes: &[usize]) -> Option<TestTensor<u8>> {
    Some(zero_bytes(data_type, sizes))
}

#[track_caller]
pub(crate) fn assert_call_refused(mut call: ScaledDispatch, handle: &TestHandle, word: &str) {
    let code = call.call(handle);
    assert_eq!(last_refusal(), Some(FailureClass::Return), "{word}");
    let text = take_error().map_or_else(String::new, |error| error.to_string());
    assert_eq!(code, INVALID_ARGUMENT, "{word}: {text}");
    assert!(text.contains(word), "{word}: {text}");
}

/// Each change alone is refused in its words; what a recipe cannot have also with any other.
fn assert_wrong_calls_refused(handle: &TestHandle, make: impl Fn() -> ScaledDispatch) {
    let all = WRONG_RECIPE.into_iter().chain(WRONG);
    check_rows(all.clone().map(|(name, word, change)| (name, (word, change))), |(word, change)| {
        let mut scaled = make();
        change(&mut scaled.call);
        assert_call_refused(scaled, handle, word);
    });
    for (i, (first, word, change)) in WRONG_RECIPE.into_iter().enumerate() {
        let later = all.clone().skip(i + 1);
        let later = later.map(|(name, _, other)| (format!("{first} and {name}"), other));
        check_rows(later, |other| {
            let mut scaled = make();
            other(&mut scaled.call);
            change(&mut scaled.call);
            assert_call_refused(scaled, handle, word);
        });
    }
}

/// EP vectors Q10 to Q16.
#[test]
fn high_throughput_refusals() {
    let outputs: [Wrong; 5] = [
        ("Q16 narrow tokens", "outputs.tokens", |c| c.out_tokens = bytes(Float4x2, &[16, 240])),
        ("Q16 wide scales", "outputs.scales", |c| c.out_scales = bytes(Uint8, &[16, 48])),
        ("Q16 more rows of scales", "outputs.scales", |c| c.out_scales = bytes(Uint8, &[17, 32])),
        ("Q16 15 rows", "at least 16 rows", |c| {
            c.out_tokens = bytes(Float4x2, &[15, 256]);
            c.out_scales = bytes(Uint8, &[15, 32]);
        }),
        ("three extents", "outputs.tokens", |c| c.out_tokens = bytes(Float4x2, &[1, 16, 256])),
    ];
    check_rows(HIGH_THROUGHPUT_LAYOUTS, |layout| {
        every_rank(1, |comm| {
            let ht = HighThroughputRank::with(comm, ONE_RANK, layout, 0, wide);
            let make = || ScaledDispatch::high_throughput(&ht, 16, PACKED_FP4, PACKED);
            assert_wrong_calls_refused(&ht.handle, make);
            let rows = outputs.map(|(name, word, change)| (name, (word, change)));
            check_rows(rows, |(word, change)| {
                let mut scaled = make();
                change(&mut scaled.call);
                assert_call_refused(scaled, &ht.handle, word);
            });
            make().must_succeed(&ht.handle);
        });
    });
}

/// EP vectors Q10 to Q16.
#[test]
fn low_latency_refusals() {
    check_rows(LOW_LATENCY_LAYOUTS, |layout| {
        every_rank(1, |comm| {
            let ll = LowLatencyRank::new(comm, ONE_RANK, layout);
            let make = || ScaledDispatch::low_latency(&ll, PACKED_FP4, PACKED);
            assert_wrong_calls_refused(&ll.handle, make);
            let [regions, rows, _] = ll.shape(1);
            let shapes = [
                ("wide rows", [regions, rows, 48]),
                ("one region more", [regions + 1, rows, 32]),
                ("one row more", [regions, rows + 1, 32]),
            ];
            check_rows(shapes, |[regions, rows, scales]| {
                let mut scaled = make();
                scaled.call.out_scales = bytes(Uint8, &[regions, rows, scales]);
                assert_call_refused(scaled, &ll.handle, "outputs.scales");
                let mut scaled = make();
                scaled.call.out_tokens = bytes(Float4x2, &[regions, rows, 8 * scales]);
                assert_call_refused(scaled, &ll.handle, "outputs.tokens");
            });
            make().must_succeed(&ll.handle);
        });
    });
}

/// EP vector Q12.
#[test]
fn the_recipe_none_has_no_scales() {
    every_rank(1, |comm| {
        let ht = HighThroughputRank::with(comm, ONE_RANK, FLAT, 0, wide);
        check_rows([("input and output", true), ("output", false)], |input| {
            let types = [Bfloat16, Float32];
            let mut scaled = ScaledDispatch::high_throughput(&ht, 16, PACKED_FP4, types);
            let config = scaled.call.config.as_mut().unwrap();
            config.quant_recipe = ncclEpDispQuant_t::NCCL_EP_DISP_QUANT_NONE;
            if !input {
                scaled.call.scales = None;
            }
            assert_call_refused(scaled, &ht.handle, "recipe NONE has no scales");
        });
    });
}

/// EP vector Q15.
#[test]
fn pointers_off_by_one_byte_are_refused() {
    type Pick = fn(&mut DispatchCall<u8>) -> &mut Option<TestTensor<u8>>;
    let rows: [(&str, Pick); 4] = [
        ("inputs.tokens", |c| &mut c.tokens),
        ("inputs.scales", |c| &mut c.scales),
        ("outputs.tokens", |c| &mut c.out_tokens),
        ("outputs.scales", |c| &mut c.out_scales),
    ];
    every_rank(1, |comm| {
        let ht = HighThroughputRank::with(comm, ONE_RANK, FLAT, 0, wide);
        check_rows(rows.map(|(name, pick)| (name, (name, pick))), |(name, pick)| {
            let mut scaled = ScaledDispatch::high_throughput(&ht, 16, PACKED_FP4, PACKED);
            pick(&mut scaled.call).as_mut().unwrap().pointer_offset = 1;
            assert_call_refused(scaled, &ht.handle, name);
        });
    });
}

#[test]
fn ranks_with_scales_of_other_widths_do_not_meet() {
    let rows: [(&str, ncclEpLayout_t); 2] =
        [("high throughput", FLAT), ("low latency", RANK_MAJOR)];
    check_rows(rows, |layout| {
        let errors = worlds::errors(2, |comm| {
            let row_bytes = RowBytes { scales: 16 + 16 * comm.rank(), ..PACKED_FP4 };
            let code = if layout == FLAT {
                let ht = HighThroughputRank::with(&comm, G2, FLAT, 0, wide);
                let mut call = ScaledDispatch::high_throughput(&ht, 16, row_bytes, PACKED);
                let code = call.call(&ht.handle);
                std::mem::forget(ht);
                code
            } else {
                let ll = LowLatencyRank::new(&comm, G2, RANK_MAJOR);
                let code = ScaledDispatch::low_latency(&ll, row_bytes, PACKED).call(&ll.handle);
                // Its peers are out of step, so that the group cannot be destroyed.
                std::mem::forget(ll);
                code
            };
            assert!([INVALID_USAGE, REMOTE_ERROR].contains(&code), "{code:?}");
            Err(take_error().unwrap())
        });
        for error in errors {
            let detail = usage_detail(&error);
            assert!(detail.contains("ncclEpDispatch"), "{detail}");
        }
    });
}
