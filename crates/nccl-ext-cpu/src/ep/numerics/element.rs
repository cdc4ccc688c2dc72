//! The element types of tokens, and plain loops over them.

use half::{bf16, f16};
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclDataType_t;

/// An element of a token.
pub(crate) trait Element: Copy + Default + 'static {
    fn widen(self) -> f32;
    /// To nearest even; every NaN becomes the canonical one.
    fn round(sum: f32) -> Self;
}

macro_rules! elements {
    ($($ty:ty, $widen:expr, $round:expr;)+) => {$(
        impl Element for $ty {
            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }
            #[inline(always)]
            fn round(sum: f32) -> Self {
                $round(sum)
            }
        }
    )+};
}

elements! {
    f32, |x: f32| x, |sum: f32| {
        if sum.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { sum }
    };
    bf16, bf16_to_f32, |sum: f32| {
        let bits = if sum.is_nan() { 0x7FFF } else { bf16_bits(sum) };
        bf16::from_bits(bits)
    };
    f16, f16::to_f32, |sum: f32| {
        if sum.is_nan() { f16::from_bits(0x7FFF) } else { f16::from_f32(sum) }
    };
}

#[inline(always)]
fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// As `bf16::from_f32` of a number, without branches so that it vectorises.
#[inline(always)]
pub(super) fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    (bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
}

/// `sum[i] += row[i]`.
#[inline(always)]
pub(super) fn add<T: Element>(sum: &mut [f32], row: &[T]) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum += x.widen();
    }
}

/// `sum[i] = fma(row[i], weight, sum[i])`: one rounding.
#[inline(always)]
pub(super) fn multiply_add<T: Element>(sum: &mut [f32], row: &[T], weight: f32) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum = x.widen().mul_add(weight, *sum);
    }
}

/// `out[i] = round(sum[i])`.
#[inline(always)]
pub(super) fn store<T: Element>(sum: &[f32], out: &mut [T]) {
    for (out, &sum) in out.iter_mut().zip(sum) {
        *out = T::round(sum);
    }
}

/// Calls a generic function with the token type of a [`DataType`] that recipe NONE accepts.
macro_rules! with_token_type {
    ($data_type:expr, $ty:ident => $call:expr) => {
        match $data_type {
            nccl_ext_core::DataType::Bfloat16 => {
                type $ty = half::bf16;
                $call
            }
            nccl_ext_core::DataType::Float16 => {
                type $ty = half::f16;
                $call
            }
            _ => {
                type $ty = f32;
                $call
            }
        }
    };
}
pub(crate) use with_token_type;

/// Token types of recipe NONE (EP 5.1).
pub(crate) const TOKEN_TYPES: &[DataType] =
    &[DataType::Bfloat16, DataType::Float16, DataType::Float32];

/// The type among [`TOKEN_TYPES`] with this C value.
pub(crate) fn token_type(raw: ncclDataType_t) -> DataType {
    let known = TOKEN_TYPES.iter().find(|data_type| data_type.as_raw() == raw);
    known.copied().unwrap_or(DataType::Bfloat16)
}
