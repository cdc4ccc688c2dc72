//! Tokens, scales and recipes: what dispatch and combine refuse of them before they look at the
//! group (EP 4.0, 5.1, 5.2).

use core::ptr::{null, null_mut};

use nccl_ep_sys::{
    VersionedStruct, ncclEpCombQuant_t, ncclEpCombineConfig_t, ncclEpCombineInputs_t,
    ncclEpCombineOutputs_t, ncclEpDispQuant_t, ncclEpDispatchConfig_t, ncclEpDispatchInputs_t,
    ncclEpDispatchOutputs_t,
};
use nccl_ext_core::raw::ncclDataType_t;

use super::tensor::{INVALID, UNBOUND};
use crate::fixture::{Fixture, Tensor, name};
use crate::table::{Expected, Needs, Row, seen};

const BF16: ncclDataType_t = ncclDataType_t::ncclBfloat16;
const FP16: ncclDataType_t = ncclDataType_t::ncclFloat16;
const FP32: ncclDataType_t = ncclDataType_t::ncclFloat32;
const E4M3: ncclDataType_t = ncclDataType_t::ncclFloat8e4m3;

/// The tensors of a step: good ones, until a row changes them.
struct Step {
    tokens: Tensor,
    scales: Option<Tensor>,
    out_tokens: Option<Tensor>,
    out_scales: Option<Tensor>,
    recipe: u32,
    round_scales: u32,
}

impl Step {
    fn plain() -> Self {
        let tokens = || Tensor::new(BF16, &[2, 64]);
        Self {
            tokens: tokens(),
            scales: None,
            out_tokens: Some(tokens()),
            out_scales: None,
            recipe: 0,
            round_scales: 0,
        }
    }

    /// E4M3 tokens with their scales forwarded.
    fn scaled() -> Self {
        let (tokens, scales) = (|| Tensor::new(E4M3, &[2, 64]), || Tensor::new(FP32, &[2, 4]));
        Self {
            tokens: tokens(),
            scales: Some(scales()),
            out_tokens: Some(tokens()),
            out_scales: Some(scales()),
            recipe: 1,
            round_scales: 0,
        }
    }
}

type Change = fn(&mut Step);

pub(super) fn rows() -> Vec<Row> {
    let asserts: [(&str, &'static str, Change); 5] = [
        ("tokens_size_47", INVALID, |step| step.tokens.raw.size = 47),
        ("tokens_without_data", UNBOUND, |step| step.tokens.raw.data = null_mut()),
        ("out_tokens_size_47", INVALID, |step| out(step).raw.size = 47),
        ("scales_size_47", INVALID, |step| {
            step.scales.insert(Tensor::new(FP32, &[2, 4])).raw.size = 47;
        }),
        ("out_scales_size_47", INVALID, |step| {
            step.out_scales.insert(Tensor::new(FP32, &[2, 4])).raw.size = 47;
        }),
    ];
    let plain: [(&str, &'static str, Change); 9] = [
        ("tokens_1d", "", |step| step.tokens = Tensor::new(BF16, &[64])),
        ("tokens_3d", "", |step| step.tokens = Tensor::new(BF16, &[2, 1, 64])),
        ("recipe_9", "recipe 9: recipe is not implemented", |step| step.recipe = 9),
        ("tokens_int64", "tokens has unsupported dtype", |step| {
            same(step, ncclDataType_t::ncclInt64)
        }),
        ("tokens_e4m3", "tokens has unsupported dtype", |step| same(step, E4M3)),
        ("no_out_tokens", "outputs->tokens is required", |step| step.out_tokens = None),
        ("out_tokens_fp16", "outputs->tokens dtype must match inputs->tokens", |step| {
            step.out_tokens = Some(Tensor::new(FP16, &[2, 64]))
        }),
        ("scales", "inputs->scales must be null for NONE", |step| {
            step.scales = Some(Tensor::new(FP32, &[2, 4]))
        }),
        ("out_scales", "outputs->scales must be null for NONE", |step| {
            step.out_scales = Some(Tensor::new(FP32, &[2, 4]))
        }),
    ];
    let scaled: [(&str, &'static str, Change); 12] = [
        ("round_scales", "round_scales must be zero", |step| step.round_scales = 1),
        ("tokens_uint8", "supported raw wire dtype", |step| same(step, ncclDataType_t::ncclUint8)),
        ("rows_of_24_bytes", "token rows must be 16-byte aligned", |step| {
            step.tokens = Tensor::new(E4M3, &[2, 24]);
            step.out_tokens = Some(Tensor::new(E4M3, &[2, 24]));
        }),
        ("rows_of_0_bytes", "token rows must be 16-byte aligned", |step| {
            step.tokens = Tensor::new(E4M3, &[2, 0])
        }),
        ("no_scales", "inputs->scales is required", |step| step.scales = None),
        ("no_out_scales", "outputs->scales is required", |step| step.out_scales = None),
        ("no_out_tokens", "outputs->tokens is required", |step| step.out_tokens = None),
        ("tokens_off_by_8", "storage pointers/window offsets must be 16-byte aligned", |step| {
            step.tokens.raw.data = step.tokens.raw.data.wrapping_byte_add(8)
        }),
        ("scales_1d", "inputs->scales must be 2D", |step| {
            step.scales = Some(Tensor::new(FP32, &[4]))
        }),
        ("scales_int64", "supported raw scale dtype", |step| {
            step.scales = Some(Tensor::new(ncclDataType_t::ncclInt64, &[2, 4]));
        }),
        ("scales_of_other_rows", "dimension 0 must equal the token count", |step| {
            step.scales = Some(Tensor::new(FP32, &[3, 4]))
        }),
        (
            "scale_rows_of_8_bytes",
            "scale bytes per token must be non-zero and 16-byte aligned",
            |step| step.scales = Some(Tensor::new(FP32, &[2, 2])),
        ),
    ];
    let combined: [(&str, &'static str, Change); 4] = [
        ("recipe_9", "recipe 9: recipe is not implemented", |step| step.recipe = 9),
        ("tokens_int64", "tokens has unsupported dtype", |step| {
            same(step, ncclDataType_t::ncclInt64)
        }),
        ("tokens_e4m3_before_no_out_tokens", "tokens has unsupported dtype", |step| {
            same(step, E4M3);
            step.out_tokens = None;
        }),
        ("scales", "inputs->scales must be null for NONE", |step| {
            step.scales = Some(Tensor::new(FP32, &[2, 4]))
        }),
    ];

    let mut rows = Vec::new();
    for (name, condition, change) in asserts {
        rows.push(Row::new(format!("dispatch::{name}"), Expected::Assert(condition), move |f| {
            dispatch(f, changed(Step::plain(), change))
        }));
    }
    for (name, saying, change) in plain {
        let row = Row::new(format!("dispatch::plain_{name}"), refused(), move |f| {
            dispatch(f, changed(Step::plain(), change))
        });
        rows.push(row.saying(saying));
    }
    for (name, saying, change) in scaled {
        let row = Row::new(format!("dispatch::scaled_{name}"), refused(), move |f| {
            dispatch(f, changed(Step::scaled(), change))
        });
        rows.push(row.saying(saying));
    }
    for (name, condition, change) in &asserts[..2] {
        let (condition, change) = (*condition, *change);
        rows.push(Row::new(format!("combine::{name}"), Expected::Assert(condition), move |f| {
            combine(f, changed(Step::plain(), change))
        }));
    }
    for (name, saying, change) in combined {
        let row = Row::new(format!("combine::{name}"), refused(), move |f| {
            combine(f, changed(Step::plain(), change))
        });
        rows.push(row.saying(saying));
    }
    // The CPU backend is of a version that has it.
    let mxfp8 = Row::new("combine::recipe_mxfp8", refused(), |f| {
        combine(f, changed(Step::plain(), |step| step.recipe = 2))
    });
    rows.push(mxfp8.saying("recipe 2: recipe is not implemented").vendor_only());
    rows.into_iter().map(|row| row.needs(Needs::Objects)).collect()
}

fn refused() -> Expected {
    seen("ncclInvalidArgument")
}

fn changed(mut step: Step, change: Change) -> Step {
    change(&mut step);
    step
}

fn out(step: &mut Step) -> &mut Tensor {
    step.out_tokens.as_mut().unwrap()
}

/// Tokens of another type, on both sides.
fn same(step: &mut Step, datatype: ncclDataType_t) {
    step.tokens.raw.datatype = datatype;
    out(step).raw.datatype = datatype;
}

fn pointer(tensor: &mut Option<Tensor>) -> *mut nccl_ep_sys::ncclEpTensor_t {
    tensor.as_mut().map_or(null_mut(), Tensor::as_mut_ptr)
}

fn dispatch(f: &Fixture<'_>, mut step: Step) -> String {
    let mut inputs = ncclEpDispatchInputs_t::init();
    inputs.tokens = step.tokens.as_mut_ptr();
    inputs.scales = pointer(&mut step.scales);
    let mut outputs = ncclEpDispatchOutputs_t::init();
    outputs.tokens = pointer(&mut step.out_tokens);
    outputs.scales = pointer(&mut step.out_scales);
    let mut config = ncclEpDispatchConfig_t::init();
    config.quant_recipe = ncclEpDispQuant_t(step.recipe);
    config.round_scales = step.round_scales;
    // SAFETY: what is refused is refused before the handle's memory is used; the descriptors live
    // in `step`.
    name(unsafe {
        (f.api.ncclEpDispatch)(f.handle, &inputs, &outputs, null(), &config, null_mut())
    })
}

fn combine(f: &Fixture<'_>, mut step: Step) -> String {
    let mut inputs = ncclEpCombineInputs_t::init();
    inputs.tokens = step.tokens.as_mut_ptr();
    inputs.scales = pointer(&mut step.scales);
    let mut outputs = ncclEpCombineOutputs_t::init();
    outputs.tokens = pointer(&mut step.out_tokens);
    let mut config = ncclEpCombineConfig_t::init();
    config.quant_recipe = ncclEpCombQuant_t(step.recipe);
    // SAFETY: as above.
    name(unsafe { (f.api.ncclEpCombine)(f.handle, &inputs, &outputs, &config, null_mut()) })
}
