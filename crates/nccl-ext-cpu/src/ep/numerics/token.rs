//! Sums of rows, with the fastest instructions that the CPU has.

use half::{bf16, f16};

use super::element::{self, Element};
#[cfg(target_arch = "x86_64")]
use super::fast;

/// Elements that are summed at a time: a block of fp32 sums stays in the first-level cache.
pub(crate) const BLOCK: usize = 1024;

/// An element type with its kernels.
pub(crate) trait Token: Element {
    /// `sum[i] += row[i]`.
    fn add(sum: &mut [f32], row: &[Self]);
    /// `sum[i] = fma(row[i], weight, sum[i])`: one rounding.
    fn multiply_add(sum: &mut [f32], row: &[Self], weight: f32);
    /// `out[i] = round(sum[i])`.
    fn store(sum: &[f32], out: &mut [Self]);
}

/// Kernels of one type: portable ones, and the same compiled for AVX2 with FMA.
macro_rules! kernels {
    ($ty:ty, $fast:path) => {
        impl Token for $ty {
            fn add(sum: &mut [f32], row: &[Self]) {
                #[cfg(target_arch = "x86_64")]
                if fast::available() {
                    use $fast as fast_kernels;
                    // SAFETY: the CPU has the features.
                    return unsafe { fast_kernels::add(sum, row) };
                }
                element::add(sum, row);
            }
            fn multiply_add(sum: &mut [f32], row: &[Self], weight: f32) {
                #[cfg(target_arch = "x86_64")]
                if fast::available() {
                    use $fast as fast_kernels;
                    // SAFETY: the CPU has the features.
                    return unsafe { fast_kernels::multiply_add(sum, row, weight) };
                }
                element::multiply_add(sum, row, weight);
            }
            fn store(sum: &[f32], out: &mut [Self]) {
                #[cfg(target_arch = "x86_64")]
                if fast::available() {
                    use $fast as fast_kernels;
                    // SAFETY: the CPU has the features.
                    return unsafe { fast_kernels::store(sum, out) };
                }
                element::store(sum, out);
            }
        }
    };
}

kernels!(f32, fast::fp32);
kernels!(bf16, fast::bf16);
kernels!(f16, fast::f16);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::element::bf16_bits;
    use super::*;

    /// Every bit pattern, so that subnormals, infinities and NaNs are frequent.
    fn floats(len: usize) -> impl Strategy<Value = Vec<f32>> {
        let any = prop_oneof![
            any::<u32>().prop_map(f32::from_bits),
            (-200.0_f32..200.0),
            Just(f32::INFINITY),
            Just(-0.0)
        ];
        prop::collection::vec(any, len)
    }

    fn same_bits(a: &[f32], b: &[f32]) -> bool {
        a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
    }

    fn check<T: Token + PartialEq + std::fmt::Debug>(
        sum: &[f32],
        row: &[T],
        weight: f32,
        bits: impl Fn(&T) -> u32,
    ) {
        let (mut one, mut two) = (sum.to_vec(), sum.to_vec());
        T::add(&mut one, row);
        element::add(&mut two, row);
        assert!(same_bits(&one, &two), "{one:?} {two:?}");
        T::multiply_add(&mut one, row, weight);
        element::multiply_add(&mut two, row, weight);
        assert!(same_bits(&one, &two), "{one:?} {two:?}");
        let (mut out_one, mut out_two) = (row.to_vec(), row.to_vec());
        T::store(&one, &mut out_one);
        element::store(&two, &mut out_two);
        let both = out_one.iter().zip(&out_two);
        assert!(both.into_iter().all(|(a, b)| bits(a) == bits(b)), "{out_one:?} {out_two:?}");
    }

    proptest! {
        #[test]
        fn fast_kernels_give_the_bits_of_the_portable_ones(
            sum in floats(19), row in floats(19), weight in floats(1),
        ) {
            let w = weight[0];
            let half: Vec<_> = row.iter().map(|x| f16::from_bits(x.to_bits() as u16)).collect();
            let brain: Vec<_> = row.iter().map(|x| bf16::from_bits(x.to_bits() as u16)).collect();
            check(&sum, &row, w, |x| x.to_bits());
            check(&sum, &half, w, |x| u32::from(x.to_bits()));
            check(&sum, &brain, w, |x| u32::from(x.to_bits()));
        }

        #[test]
        fn bf16_rounds_as_the_half_crate_does(bits in any::<u32>()) {
            let x = f32::from_bits(bits);
            if !x.is_nan() {
                prop_assert_eq!(bf16_bits(x), bf16::from_f32(x).to_bits());
            }
        }
    }

    #[test]
    fn one_rounding_shows_the_error_of_the_product() {
        // With a separate multiplication both products cancel to 0.
        let x = 1.000_000_1_f32;
        let mut sum = [-(x * x)];
        f32::multiply_add(&mut sum, &[x], x);
        assert_eq!(sum[0], (f64::from(x) * f64::from(x) - f64::from(x * x)) as f32);
        assert_ne!(sum[0], 0.0);
    }

    #[test]
    fn every_nan_is_canonical_and_overflow_is_infinite() {
        let nan = [f32::from_bits(0xFFC1_2345); 9];
        let mut out = [bf16::ZERO; 9];
        bf16::store(&nan, &mut out);
        assert!(out.iter().all(|x| x.to_bits() == 0x7FFF));
        let mut out = [f16::ZERO; 9];
        f16::store(&nan, &mut out);
        assert!(out.iter().all(|x| x.to_bits() == 0x7FFF));
        let mut out = [0.0_f32; 9];
        f32::store(&nan, &mut out);
        assert!(out.iter().all(|x| x.to_bits() == 0x7FFF_FFFF));
        let mut out = [f16::ZERO];
        f16::store(&[131_008.0], &mut out);
        assert_eq!(out[0], f16::INFINITY);
        // Ties go to even: 257 lies between 256 and 258.
        let mut out = [bf16::ZERO; 2];
        bf16::store(&[257.0, 259.0], &mut out);
        assert_eq!(out.map(bf16::to_f32), [256.0, 260.0]);
    }
}
