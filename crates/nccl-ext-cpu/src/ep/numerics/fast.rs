//! The loops for AVX2, FMA and F16C.

use super::element;

pub(super) fn available() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("fma") && has!("f16c")
}

/// The portable loops, which vectorise once the compiler may use the instructions.
macro_rules! compiled {
    ($name:ident, $ty:ty) => {
        pub(super) mod $name {
            use super::element;

            #[target_feature(enable = "avx2,fma")]
            pub(in super::super) fn add(sum: &mut [f32], row: &[$ty]) {
                element::add(sum, row);
            }
            #[target_feature(enable = "avx2,fma")]
            pub(in super::super) fn multiply_add(sum: &mut [f32], row: &[$ty], weight: f32) {
                element::multiply_add(sum, row, weight);
            }
            #[target_feature(enable = "avx2,fma")]
            pub(in super::super) fn store(sum: &[f32], out: &mut [$ty]) {
                element::store(sum, out);
            }
        }
    };
}

compiled!(fp32, f32);
compiled!(bf16, half::bf16);

/// FP16 converts with F16C, which compilers do not use by themselves.
pub(super) mod f16 {
    use core::arch::x86_64::{
        __m128i, __m256, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm_blendv_epi8, _mm_loadu_si128,
        _mm_packs_epi32, _mm_set1_epi16, _mm_storeu_si128, _mm256_add_ps, _mm256_castps_si256,
        _mm256_castsi256_si128, _mm256_cmp_ps, _mm256_cvtph_ps, _mm256_cvtps_ph,
        _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps,
        _mm256_storeu_ps,
    };

    use half::f16;

    use super::element;

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
        update(sum, row, |sum, x| _mm256_add_ps(sum, x), element::add);
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(in super::super) fn multiply_add(sum: &mut [f32], row: &[f16], weight: f32) {
        let w = _mm256_set1_ps(weight);
        let scalar = |sum: &mut [f32], row: &[f16]| {
            element::multiply_add(sum, row, weight);
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
        element::store(sums_rest, outs_rest);
    }
}
