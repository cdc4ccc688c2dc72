//! EP 5.2, 9.7: dispatch that forwards the caller's scales.

mod high_throughput;
mod low_latency;
mod refusals;

use nccl_ep_sys::{ncclEpGroupConfig_t, ncclEpZeroCopyMode_t};
use nccl_ext_core::DataType::{self, Float4x2, Uint8};
use nccl_ext_test::cpu::ep::*;

/// Packed elements with one byte for the scale of each block.
const PACKED: [DataType; 2] = [Float4x2, Uint8];

/// Whether outputs must be windows.
const ZERO_COPY_MODES: [(&str, ncclEpZeroCopyMode_t); 2] =
    [("automatic", ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_AUTO), ("on", ZERO_COPY_ON)];

/// Room for the rows and scales of these tests.
fn wide(config: &mut ncclEpGroupConfig_t) {
    config.max_token_bytes = 1024;
}

/// One rank, one token without experts.
const ONE_RANK: Fixture = Fixture { ranks: 1, ids: |_| vec![0, 1, 2, 3, 1, 0, -1, -1], ..G2 };

/// Source and token of each row of both ranks in G2.
const G2_FLAT: [&[(usize, usize)]; 2] =
    [&[(0, 0), (0, 1), (0, 2), (1, 2)], &[(0, 0), (0, 1), (1, 0), (1, 1), (1, 3)]];

/// The same of the zones of both ranks.
const G2_ZONES: [[&[(usize, usize)]; 2]; 2] = [
    [&[(0, 0), (0, 2), (1, 2)], &[(0, 1), (0, 2), (1, 2)]],
    [&[(0, 0), (1, 0), (1, 3)], &[(0, 1), (1, 1), (1, 3)]],
];
