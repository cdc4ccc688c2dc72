//! The experts of the demo: what a rank does with the rows that it received.

use nccl_ep::{GlobalExpert, bf16};

/// One expert. It multiplies element `h` of a row by 1.5 where bit `h mod 16` of its own number is
/// set, so that a row which any other expert made has other bits.
pub(super) struct Expert {
    factors: [f32; 16],
}

impl Expert {
    pub(super) fn new(GlobalExpert(number): GlobalExpert) -> Self {
        let factor = |bit: usize| if (number >> bit) & 1 == 0 { 1.0 } else { 1.5 };
        Self { factors: std::array::from_fn(factor) }
    }

    /// Replaces a row with the expert's output, rounded to bf16.
    pub(super) fn apply(&self, row: &mut [bf16]) {
        for values in row.chunks_mut(self.factors.len()) {
            for (value, factor) in values.iter_mut().zip(&self.factors) {
                *value = bf16::from_f32(value.to_f32() * factor);
            }
        }
    }

    /// Replaces a row with the expert's output times `weight`, both rounded to bf16.
    pub(super) fn apply_weighted(&self, row: &mut [bf16], weight: f32) {
        self.apply(row);
        for value in row {
            *value = bf16::from_f32(weight * value.to_f32());
        }
    }
}

/// Replaces a row with the weighted sum of several experts' outputs: each output rounded to bf16,
/// products and sums to fp32, the whole to bf16.
pub(super) fn weighted_sum(row: &mut [bf16], experts: &[(GlobalExpert, f32)]) {
    let mut sum = vec![0.0_f32; row.len()];
    let mut output = vec![bf16::ZERO; row.len()];
    for &(expert, weight) in experts {
        output.copy_from_slice(row);
        Expert::new(expert).apply(&mut output);
        for (sum, output) in sum.iter_mut().zip(&output) {
            *sum += weight * output.to_f32();
        }
    }
    for (value, sum) in row.iter_mut().zip(sum) {
        *value = bf16::from_f32(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle;

    /// Two implementations of one definition.
    #[test]
    fn experts_agree_with_the_oracle() {
        let row: Vec<_> = (0..72_u16).map(|i| bf16::from_bits(0x3F80 + i * 37)).collect();
        let choices = [(3, 0.25_f32), (77, 0.3), (40_000, 0.45)];
        for (number, weight) in choices {
            let expert = Expert::new(GlobalExpert(number));
            let (mut output, mut weighted) = (row.clone(), row.clone());
            expert.apply(&mut output);
            expert.apply_weighted(&mut weighted, weight);
            for (h, value) in row.iter().enumerate() {
                let expected = oracle::expert_output(value.to_f32(), number, h);
                assert_eq!(output[h].to_f32(), expected);
                assert_eq!(weighted[h], oracle::rounded(weight * expected));
            }
        }
        let mut summed = row.clone();
        weighted_sum(&mut summed, &choices.map(|(number, weight)| (GlobalExpert(number), weight)));
        for (h, value) in row.iter().enumerate() {
            let sum = oracle::weighted_sum(value.to_f32(), &choices, h);
            assert_eq!(summed[h], oracle::rounded(sum));
        }
    }
}
