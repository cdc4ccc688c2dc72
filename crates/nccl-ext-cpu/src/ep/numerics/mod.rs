//! The arithmetic of combine (EP 4.4.3, 4.8.3): fp32 sums in a fixed order, rounded once to
//! nearest even, with one NaN for each type.
//!
//! Each kernel exists twice, as portable code and for AVX2, FMA and F16C; both give the same bits.

mod element;
#[cfg(target_arch = "x86_64")]
mod fast;
mod token;

pub(super) use element::{TOKEN_TYPES, token_type, with_token_type};
pub(super) use token::{BLOCK, Token};
