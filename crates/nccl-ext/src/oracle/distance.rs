//! How far a result is from exact arithmetic, and from what it must be.

use nccl_ext_core::bf16;

use super::choices;
use crate::routing::Routing;
use crate::rows;

/// The largest `|result - exact| / sum of |weight x expert output|` over all elements, with
/// everything but the result in f64 and nothing rounded to bf16 on the way.
///
/// One rounding to bf16 contributes at most 2^-8, about 3.9e-3. NaN when a result is.
#[must_use]
pub fn distance(routing: &Routing, result: &[bf16]) -> f64 {
    let hidden = routing.sizes.hidden;
    let tokens = result.len() / hidden;
    let of_token = |token: usize| {
        let row = &result[token * hidden..][..hidden];
        let choices = choices(routing, token);
        let mut largest = 0.0_f64;
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
        largest
    };
    largest(rows::map(rows::threads(), tokens, hidden, of_token))
}

/// The largest `|result - expected|`; 0 when all bits are equal, NaN when one of the two is NaN and
/// the bits differ.
#[must_use]
pub fn largest_difference(result: &[bf16], expected: &[bf16]) -> f64 {
    largest(result.iter().zip(expected).map(|(result, expected)| {
        let equal = result.to_bits() == expected.to_bits();
        if equal { 0.0 } else { (result.to_f64() - expected.to_f64()).abs() }
    }))
}

/// The largest of non-negative numbers; NaN if one is.
fn largest(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let larger = |a: f64, b: f64| if b.is_nan() || b > a { b } else { a };
    numbers.into_iter().fold(0.0, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_bits() {
        let values = |values: [f32; 3]| values.map(bf16::from_f32);
        let expected = values([1.0, f32::NAN, f32::INFINITY]);
        assert_eq!(largest_difference(&expected, &expected), 0.0);
        let other = values([1.5, f32::NAN, f32::INFINITY]);
        assert_eq!(largest_difference(&other, &expected), 0.5);
        assert!(largest_difference(&values([1.5, 0.0, f32::INFINITY]), &expected).is_nan());
        let other = values([1.5, f32::NAN, 3.0]);
        assert_eq!(largest_difference(&other, &expected), f64::INFINITY);
        assert!(largest([1.0, f64::NAN, 2.0]).is_nan());
    }
}
