//! Sizes and limits that follow from the vendor's launch shapes and buffer layouts.

use super::group::{EmMode, Settings};
use crate::driver::SM_COUNT;

/// Experts that one thread block of low latency serves (EP 4.1).
pub(crate) fn ll_groups(experts: usize, comm_sms: u32) -> usize {
    experts.div_ceil(comm_sms.max(1) as usize)
}

/// Warps that a low-latency block of that many experts launches (EP 3.2).
pub(crate) fn ll_warps(groups: usize) -> usize {
    if (1..=32).contains(&groups) { groups * (32 / groups) } else { 0 }
}

/// Bytes of handle memory for low latency (EP 3.1).
pub(crate) fn ll_handle_bytes(ranks: u64, local_experts: u64, max_tokens: u64, topk: u64) -> u64 {
    (4 * ranks * (1 + (topk + 1) * max_tokens)).next_multiple_of(256)
        + (8 * local_experts * ranks).next_multiple_of(256)
}

/// Bytes of handle memory for high throughput (EP 3.1, one team).
pub(crate) fn ht_handle_bytes(group: &Settings, expert_major: bool, topk: u64) -> u64 {
    let [ranks, local, experts] =
        [group.ranks, group.local_experts, group.experts].map(|value| value as u128);
    let (tokens, recv) = (group.max_tokens as u128, u128::from(group.max_recv));
    let topk = u128::from(topk);
    let dup = group.em_mode != EmMode::LocalPermute;
    let inner = if expert_major && dup { topk } else { ranks };
    let mut pieces = vec![
        tokens.next_multiple_of(16),
        recv * local,
        4,
        tokens * inner * 4,
        tokens * ranks * 8 * ranks.div_ceil(64),
        u128::from(SM_COUNT) * ranks * 8,
        tokens * experts * 4,
        tokens * topk * 8,
    ];
    if expert_major {
        pieces.extend([local * 4, (local + 1) * 8]);
        match group.em_mode {
            EmMode::LocalDup => pieces.extend([(recv / 2) * topk.min(local) * 4, 4]),
            EmMode::LocalPermute => {
                pieces.extend([recv * topk * 4, recv * topk * 4, tokens * ranks * 4]);
            }
            EmMode::NvlinkDup => {}
        }
    }
    let bytes: u128 = pieces.into_iter().map(|bytes| bytes.next_multiple_of(256)).sum();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The communication buffer of a low-latency group (EP 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LlBuffer {
    /// Dispatch send, dispatch receive, combine send, combine receive.
    pub(crate) regions: [u128; 4],
    /// Bytes in all.
    pub(crate) total: u128,
}

/// Lays out the buffer for handles of this layout and top-k.
pub(crate) fn ll_buffer(group: &Settings, rank_major: bool, topk: usize) -> LlBuffer {
    let (ranks, experts) = (group.ranks as u128, group.experts as u128);
    let (tokens, bytes) = (group.max_tokens as u128, group.max_token_bytes as u128);
    let topk = topk as u128;
    let header = if rank_major { 4 + 8 * topk } else { 4 + 2 * topk }.next_multiple_of(16);
    let message = bytes + 4 * (bytes / 256);
    let sources = if rank_major { ranks } else { experts };
    let a = tokens * (header + bytes);
    let (b, c, d) = (ranks * a, sources * tokens * message, tokens * message * topk);
    let total = 2 * (a + b).max(c + d) + 2 * (4 * experts).next_multiple_of(128);
    LlBuffer { regions: [a, b, c, d], total }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launched_warps_of_1_to_14_experts_a_block() {
        let warps: Vec<_> = (1..=14).map(ll_warps).collect();
        assert_eq!(warps, [32, 32, 30, 32, 30, 30, 28, 32, 27, 30, 22, 24, 26, 28]);
    }

    #[test]
    fn ll_handle_memory_of_a24() {
        assert_eq!(ll_handle_bytes(2, 2, 4, 2), 512);
    }

    #[test]
    fn ll_buffer_sizes_of_a25_to_a27() {
        let group = Settings { ranks: 2, experts: 4, max_tokens: 4, ..Settings::for_tests(1024) };
        assert_eq!(ll_buffer(&group, false, 2).total, 50176);
        assert_eq!(ll_buffer(&group, true, 2).total, 33536);
        let group = Settings { ranks: 1, experts: 4, max_tokens: 1, ..Settings::for_tests(512) };
        assert_eq!(ll_buffer(&group, false, 1).regions[3], 520);
    }
}
