//! Delays that a seed decides.

use std::time::Duration;

/// The longest one.
const MOST: u64 = 200;

/// How long a stream waits before one of its entries: mostly not at all.
pub(super) fn before(seed: u64, stream: u64, entry: u64) -> Option<Duration> {
    let drawn = mix(seed ^ mix(stream ^ mix(entry)));
    drawn.is_multiple_of(4).then(|| Duration::from_micros((drawn >> 8) % MOST))
}

/// The finaliser of SplitMix64.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_them_and_another_one_otherwise() {
        let drawn = |seed| (0..64).map(|entry| before(seed, 1, entry)).collect::<Vec<_>>();
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        let delayed = drawn(7).into_iter().flatten().collect::<Vec<_>>();
        assert!((4..40).contains(&delayed.len()));
        assert!(delayed.iter().all(|delay| *delay < Duration::from_micros(MOST)));
    }
}
