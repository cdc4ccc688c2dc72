//! A checksum of 64-bit words.

/// Every step can be undone, so rows of words that differ in one word differ in their checksums.
pub(super) fn checksum(seed: u64, words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(seed ^ 0xCBF2_9CE4_8422_2325, |sum, word| {
        let sum = (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        sum ^ (sum >> 32)
    })
}
