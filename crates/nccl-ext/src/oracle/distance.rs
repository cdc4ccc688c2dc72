//! How far a result is from exact arithmetic.

use nccl_ext_core::bf16;

use super::choices;
use crate::routing::Routing;

/// The largest `|result - exact| / sum of |weight x expert output|` over all elements, with
/// everything but the result in f64 and nothing rounded to bf16 on the way.
///
/// One rounding to bf16 contributes at most 2^-8, about 3.9e-3. NaN when a result is.
#[must_use]
pub fn distance(routing: &Routing, result: &[bf16]) -> f64 {
    let mut largest = 0.0_f64;
    for (token, row) in result.chunks_exact(routing.sizes.hidden).enumerate() {
        let choices = choices(routing, token);
        for (h, (result, value)) in row.iter().zip(routing.row(token)).enumerate() {
            let (mut exact, mut size) = (0.0_f64, 0.0_f64);
            for &(expert, weight) in &choices {
                let factor = if (expert >> (h % 16)) & 1 == 1 { 1.5 } else { 1.0 };
                let term = f64::from(weight) * (value.to_f64() * factor);
                exact += term;
                size += term.abs();
            }
            let off = (result.to_f64() - exact).abs();
            if off.is_nan() {
                return f64::NAN;
            }
            if off > 0.0 {
                largest = largest.max(off / size);
            }
        }
    }
    largest
}
