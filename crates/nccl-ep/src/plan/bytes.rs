//! Arithmetic that says so when it overflows.

use nccl_ext_core::Result;

use crate::rules;
use crate::rules::plan::{BYTES, BytesFacts};

/// The product, unless it takes more than 128 bits.
pub(super) fn product(factors: impl IntoIterator<Item = u64>) -> Option<u128> {
    factors.into_iter().try_fold(1_u128, |product, factor| product.checked_mul(factor.into()))
}

/// The sum, unless it or a summand takes more than 128 bits.
pub(super) fn sum(summands: impl IntoIterator<Item = Option<u128>>) -> Option<u128> {
    summands.into_iter().try_fold(0_u128, |sum, summand| sum.checked_add(summand?))
}

/// The next multiple of `unit`; 0 stays 0.
pub(super) fn rounded(bytes: Option<u128>, unit: u64) -> Option<u128> {
    bytes?.checked_next_multiple_of(unit.into())
}

/// Bytes as 64 bits count them.
pub(super) fn in_64_bits(buffer: &'static str, bytes: Option<u128>) -> Result<u64> {
    let facts = BytesFacts { buffer, bytes };
    rules::check(BYTES, |broken| broken(&facts))?;
    Ok(facts.in_64_bits().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_wraps() {
        assert_eq!(product([]), Some(1));
        assert_eq!(product([u64::MAX, u64::MAX]), Some(u128::from(u64::MAX).pow(2)));
        assert_eq!(product([u64::MAX, u64::MAX, 2]), None);
        assert_eq!(sum([Some(u128::MAX), Some(1)]), None);
        assert_eq!(sum([Some(1), None]), None);
        assert_eq!(rounded(Some(0), 256), Some(0));
        assert_eq!(rounded(Some(257), 256), Some(512));
        assert_eq!(rounded(Some(u128::MAX), 256), None);
        assert_eq!(in_64_bits("b", Some(u64::MAX.into())).ok(), Some(u64::MAX));
        let over = |bytes| in_64_bits("b", bytes).map_err(|error| error.to_string());
        let rule = "`b`: the bytes of a buffer are counted in 64 bits; expected at most \
                    18446744073709551615 bytes, found";
        assert_eq!(over(Some(1 << 64)), Err(format!("{rule} 18446744073709551616")));
        assert_eq!(over(None), Err(format!("{rule} more than 128 bits")));
    }
}
