//! The arithmetic of combine (EP 4.4.3, 4.8.3): fp32 sums in a fixed order, rounded once to
//! nearest even, with one NaN for each type.
//!
//! Each kernel exists twice, as portable code and for AVX2, FMA and F16C; both give the same bits.

use half::{bf16, f16};
use nccl_ext_core::DataType;

/// Elements that are summed at a time: a block of fp32 sums stays in the first-level cache.
pub(super) const BLOCK: usize = 1024;

/// A token's element type.
pub(super) trait Token: Copy + Default + 'static {
    fn widen(self) -> f32;
    /// To nearest even; every NaN becomes the canonical one.
    fn round(sum: f32) -> Self;

    /// `sum[i] += row[i]`.
    fn add(sum: &mut [f32], row: &[Self]);
    /// `sum[i] = fma(row[i], weight, sum[i])`: one rounding.
    fn multiply_add(sum: &mut [f32], row: &[Self], weight: f32);
    /// `out[i] = round(sum[i])`.
    fn store(sum: &[f32], out: &mut [Self]);
}

#[inline(always)]
fn add<T: Token>(sum: &mut [f32], row: &[T]) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum += x.widen();
    }
}

#[inline(always)]
fn multiply_add<T: Token>(sum: &mut [f32], row: &[T], weight: f32) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum = x.widen().mul_add(weight, *sum);
    }
}

#[inline(always)]
fn store<T: Token>(sum: &[f32], out: &mut [T]) {
    for (out, &sum) in out.iter_mut().zip(sum) {
        *out = T::round(sum);
    }
}

/// Kernels of one type: portable ones, and the same compiled for AVX2 with FMA.
macro_rules! kernels {
    ($ty:ty, $fast:path, $widen:expr, $round:expr) => {
        impl Token for $ty {
            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }
            #[inline(always)]
            fn round(sum: f32) -> Self {
                $round(sum)
            }
            fn add(sum: &mut [f32], row: &[Self]) {
                #[cfg(target_arch = "x86_64")]
                if fast::available() {
                    use $fast as fast_kernels;
                    // SAFETY: the CPU has the features.
                    return unsafe { fast_kernels::add(sum, row) };
                }
                add(sum, row);
            }
            fn multiply_add(sum: &mut [f32], row: &[Self], weight: f32) {
                #[cfg(target_arch = "x86_64")]
                if fast::available() {
                    use $fast as fast_kernels;
                    // SAFETY: the CPU has the features.
                    return unsafe { fast_kernels::multiply_add(sum, row, weight) };
                }
                multiply_add(sum, row, weight);
            }
            fn store(sum: &[f32], out: &mut [Self]) {
                #[cfg(target_arch = "x86_64")]
                if fast::available() {
                    use $fast as fast_kernels;
                    // SAFETY: the CPU has the features.
                    return unsafe { fast_kernels::store(sum, out) };
                }
                store(sum, out);
            }
        }
    };
}

kernels!(f32, fast::fp32, |x: f32| x, |sum: f32| {
    if sum.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { sum }
});
kernels!(bf16, fast::bf16, bf16_to_f32, |sum: f32| {
    let bits = if sum.is_nan() { 0x7FFF } else { bf16_bits(sum) };
    bf16::from_bits(bits)
});
kernels!(f16, fast::f16, f16::to_f32, |sum: f32| {
    if sum.is_nan() { f16::from_bits(0x7FFF) } else { f16::from_f32(sum) }
});

#[inline(always)]
fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// As `bf16::from_f32` of a number, without branches so that it vectorises.
#[inline(always)]
fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    (bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
}

#[cfg(target_arch = "x86_64")]
mod fast {
    pub(super) fn available() -> bool {
        use std::arch::is_x86_feature_detected as has;
        has!("avx2") && has!("fma") && has!("f16c")
    }

    /// The portable loops, which vectorise once the compiler may use the instructions.
    macro_rules! compiled {
        ($name:ident, $ty:ty) => {
            pub(super) mod $name {
                #[target_feature(enable = "avx2,fma")]
                pub(in super::super) fn add(sum: &mut [f32], row: &[$ty]) {
                    super::super::add(sum, row);
                }
                #[target_feature(enable = "avx2,fma")]
                pub(in super::super) fn multiply_add(sum: &mut [f32], row: &[$ty], weight: f32) {
                    super::super::multiply_add(sum, row, weight);
                }
                #[target_feature(enable = "avx2,fma")]
                pub(in super::super) fn store(sum: &[f32], out: &mut [$ty]) {
                    super::super::store(sum, out);
                }
            }
        };
    }

    compiled!(fp32, f32);
    compiled!(bf16, half::bf16);

    /// FP16 converts with F16C, which compilers do not use by themselves.
    pub(super) mod f16 {
        use core::arch::x86_64::{
            __m128i, __m256, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm_blendv_epi8,
            _mm_loadu_si128, _mm_packs_epi32, _mm_set1_epi16, _mm_storeu_si128, _mm256_add_ps,
            _mm256_castps_si256, _mm256_castsi256_si128, _mm256_cmp_ps, _mm256_cvtph_ps,
            _mm256_cvtps_ph, _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_loadu_ps,
            _mm256_set1_ps, _mm256_storeu_ps,
        };

        use half::f16;

        const LANES: usize = 8;

        #[target_feature(enable = "avx2,fma,f16c")]
        fn widen(row: &[f16; LANES]) -> __m256 {
            // SAFETY: eight elements are 16 bytes; the load need not be aligned.
            _mm256_cvtph_ps(unsafe { _mm_loadu_si128(row.as_ptr().cast::<__m128i>()) })
        }

        #[target_feature(enable = "avx2,fma,f16c")]
        fn update(
            sum: &mut [f32],
            row: &[f16],
            vector: impl Fn(__m256, __m256) -> __m256,
            scalar: impl Fn(&mut [f32], &[f16]),
        ) {
            let (sums, sums_rest) = sum.as_chunks_mut::<LANES>();
            let (rows, rows_rest) = row.as_chunks::<LANES>();
            for (sum, row) in sums.iter_mut().zip(rows) {
                // SAFETY: eight elements are 32 bytes; load and store need not be aligned.
                unsafe {
                    let old = _mm256_loadu_ps(sum.as_ptr());
                    _mm256_storeu_ps(sum.as_mut_ptr(), vector(old, widen(row)));
                }
            }
            scalar(sums_rest, rows_rest);
        }

        #[target_feature(enable = "avx2,fma,f16c")]
        pub(in super::super) fn add(sum: &mut [f32], row: &[f16]) {
            update(sum, row, |sum, x| _mm256_add_ps(sum, x), super::super::add);
        }

        #[target_feature(enable = "avx2,fma,f16c")]
        pub(in super::super) fn multiply_add(sum: &mut [f32], row: &[f16], weight: f32) {
            let w = _mm256_set1_ps(weight);
            let scalar = |sum: &mut [f32], row: &[f16]| {
                super::super::multiply_add(sum, row, weight);
            };
            update(sum, row, |sum, x| _mm256_fmadd_ps(x, w, sum), scalar);
        }

        #[target_feature(enable = "avx2,fma,f16c")]
        pub(in super::super) fn store(sum: &[f32], out: &mut [f16]) {
            let (sums, sums_rest) = sum.as_chunks::<LANES>();
            let (outs, outs_rest) = out.as_chunks_mut::<LANES>();
            let nan = _mm_set1_epi16(0x7FFF);
            for (sum, out) in sums.iter().zip(outs) {
                // SAFETY: as in `update`.
                let x = unsafe { _mm256_loadu_ps(sum.as_ptr()) };
                let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
                let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
                let (low, high) =
                    (_mm256_castsi256_si128(is_nan), _mm256_extracti128_si256::<1>(is_nan));
                let bits = _mm_blendv_epi8(bits, nan, _mm_packs_epi32(low, high));
                // SAFETY: as in `widen`.
                unsafe { _mm_storeu_si128(out.as_mut_ptr().cast::<__m128i>(), bits) };
            }
            super::super::store(sums_rest, outs_rest);
        }
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
pub(super) use with_token_type;

/// Token types of recipe NONE (EP 5.1).
pub(super) const TOKEN_TYPES: &[DataType] =
    &[DataType::Bfloat16, DataType::Float16, DataType::Float32];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        add(&mut two, row);
        assert!(same_bits(&one, &two), "{one:?} {two:?}");
        T::multiply_add(&mut one, row, weight);
        multiply_add(&mut two, row, weight);
        assert!(same_bits(&one, &two), "{one:?} {two:?}");
        let (mut out_one, mut out_two) = (row.to_vec(), row.to_vec());
        T::store(&one, &mut out_one);
        store(&two, &mut out_two);
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
