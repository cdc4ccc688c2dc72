//! Recipe FWD: rows of the caller's own quantisation, with their scales beside them (EP 5.2).

use nccl_ep_sys::ncclEpDispatchConfig_t;
use nccl_ext_core::DataType;

use crate::ep::settings::{Algorithm, HandleSettings, Layout, Settings};
use crate::ep::tensor::{Tensor, WindowOnly};
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::Member;

const TOKEN_TYPES: &[DataType] = &[
    DataType::Float32,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Float8E4m3,
    DataType::Float8E5m2,
    DataType::Float4x2,
];
const SCALE_TYPES: &[DataType] = &[
    DataType::Float32,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Float8E4m3,
    DataType::Float8E5m2,
    DataType::Uint8,
];

const RET: FailureClass = FailureClass::Return;

/// The tensors beside tokens in and out, as the caller gave them.
pub(crate) struct RecipeTensors {
    pub(crate) out_tokens: Option<Tensor>,
    pub(crate) in_scales: Option<Tensor>,
    pub(crate) out_scales: Option<Tensor>,
}

/// Scale rows that travel with the token rows.
pub(crate) struct Scales {
    pub(crate) input: Tensor,
    pub(crate) output: Tensor,
    /// Bytes of a row.
    pub(crate) bytes: usize,
}

/// All rules of the recipe, in the vendor's order.
pub(crate) fn forwarded(
    settings: &Settings,
    handle: &HandleSettings,
    tokens: &Tensor,
    given: &RecipeTensors,
    config: &ncclEpDispatchConfig_t,
) -> Outcome<(DataType, Tensor, Scales)> {
    require(config.round_scales == 0, || {
        let rule = "forwarded scales are not rounded";
        Refusal::argument(RET, "round_scales", rule, 0, config.round_scales)
    })?;
    let data_type = one_of(tokens, TOKEN_TYPES)?;
    let token_bytes = row_bytes(tokens, data_type)?;
    let needed = |tensor: &Option<Tensor>, name| tensor.ok_or_else(|| Refusal::null(RET, name));
    let input = needed(&given.in_scales, "inputs.scales")?;
    let output = needed(&given.out_scales, "outputs.scales")?;
    let out_tokens = needed(&given.out_tokens, "outputs.tokens")?;
    for tensor in [tokens, &input, &out_tokens, &output] {
        require(tensor.is_aligned_to(16), || {
            let rule = "rows travel in units of 16 bytes";
            let expected = "data and win_offset at multiples of 16";
            Refusal::argument(RET, tensor.name(), rule, expected, "another")
        })?;
    }
    input.require_ndim(RET, 2)?;
    let scale_type = one_of(&input, SCALE_TYPES)?;
    require(input.extent(0) == tokens.extent(0), || {
        let rule = "every token has a row of scales";
        let expected = format_args!("{} rows", tokens.extent(0)).to_string();
        Refusal::argument(RET, "inputs.scales", rule, expected, input.extent(0))
    })?;
    let bytes = row_bytes(&input, scale_type)?;
    let both = token_bytes.saturating_add(bytes);
    require(both <= settings.max_token_bytes, || {
        let rule = "a token and its scales are at most max_token_bytes long";
        let expected = format_args!("at most {} bytes", settings.max_token_bytes).to_string();
        Refusal::argument(RET, "inputs.tokens", rule, expected, both)
    })?;
    let widths = [tokens.extent(1), input.extent(1)];
    for ((tensor, data_type), width) in
        [(&out_tokens, data_type), (&output, scale_type)].into_iter().zip(widths)
    {
        tensor.require_type(RET, &[data_type])?;
        match settings.algorithm {
            Algorithm::LowLatency => {
                let [regions, rows] = ll_shape(settings, handle.layout);
                tensor.require_shape(RET, &[regions, rows, width])?;
            }
            Algorithm::HighThroughput => {
                tensor.require_shape(RET, &[out_tokens.extent(0), width])?;
            }
        }
    }
    Ok((data_type, out_tokens, Scales { input, output, bytes }))
}

/// Regions of a low-latency output, and rows of each.
fn ll_shape(settings: &Settings, layout: Layout) -> [usize; 2] {
    let Settings { ranks, max_tokens, local_experts, .. } = *settings;
    match layout {
        Layout::ExpertMajor => [local_experts, ranks * max_tokens],
        _ => [ranks, max_tokens],
    }
}

fn one_of(tensor: &Tensor, types: &[DataType]) -> Outcome<DataType> {
    tensor.require_type(RET, types)?;
    let found = DataType::from_raw(tensor.data_type());
    found.ok_or_else(|| Refusal::null(RET, tensor.name()))
}

/// Bytes of a row, which are some and a multiple of 16.
fn row_bytes(tensor: &Tensor, data_type: DataType) -> Outcome<usize> {
    let bytes = tensor.extent(1).saturating_mul(data_type.size());
    require(bytes > 0 && bytes.is_multiple_of(16), || {
        let rule = "rows travel in units of 16 bytes";
        let expected = "a multiple of 16 bytes, not 0";
        Refusal::argument(RET, tensor.name(), rule, expected, bytes)
    })?;
    Ok(bytes)
}

/// High throughput writes both outputs in place, or neither.
pub(crate) fn check_windows(out_tokens: &Tensor, scales: Option<&Scales>) -> Outcome {
    let Some(scales) = scales else { return Ok(()) };
    require(out_tokens.has_window() == scales.output.has_window(), || {
        let rule = "token and scale outputs are both windows or neither is";
        let word = |window| if window { "a window" } else { "no window" };
        let expected = word(out_tokens.has_window());
        let found = word(scales.output.has_window());
        Refusal::argument(RET, "outputs.scales", rule, expected, found)
    })
}

/// The scales' memory: where they come from, where they go, and the bytes of a row.
pub(crate) fn data(
    scales: Option<&Scales>,
    member: &Member,
    input: WindowOnly,
) -> Outcome<(*const u8, *mut u8, usize)> {
    let Some(scales) = scales else { return Ok((core::ptr::null(), core::ptr::null_mut(), 0)) };
    let from = scales.input.data(member, input)?;
    let to = scales.output.data(member, WindowOnly::Resolved)?;
    Ok((from, to, scales.bytes))
}
