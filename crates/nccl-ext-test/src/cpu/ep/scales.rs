//! Dispatches that forward scales.

use nccl_ep_sys::{VersionedStruct, ncclEpDispQuant_t, ncclEpDispatchConfig_t};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, DataType};

use super::{
    DispatchCall, Fixture, HighThroughputRank, LL_HIDDEN, LowLatencyRank, TestHandle, TestTensor,
    assert_ok, register_window,
};

/// Bytes of a token row and of a scale row.
#[derive(Debug, Clone, Copy)]
pub struct RowBytes {
    pub tokens: usize,
    pub scales: usize,
}

/// Rows of 512 packed FP4 elements with a scale for 16 of them.
pub const PACKED_FP4: RowBytes = RowBytes { tokens: 256, scales: 32 };

/// What untouched bytes hold.
pub const UNTOUCHED: u8 = 0xC3;

/// A tensor of that type over bytes; its last extent counts elements.
pub fn tensor_of_bytes(data_type: DataType, sizes: &[usize], data: Vec<u8>) -> TestTensor<u8> {
    let mut tensor = TestTensor::new(sizes, data);
    let size = data_type.size();
    tensor.retype(data_type, size);
    tensor
}

/// As [`tensor_of_bytes`], of zeros.
pub fn zero_bytes(data_type: DataType, sizes: &[usize]) -> TestTensor<u8> {
    tensor_of_bytes(data_type, sizes, vec![0; sizes.iter().product()])
}

/// The bytes of a token: each says where it comes from.
fn token_bytes(rank: usize, token: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (rank * 64 + token * 8 + i % 5 + 1) as u8).collect()
}

/// The bytes of its scales.
fn scale_bytes(rank: usize, token: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (rank * 64 + token * 8 + i % 3 + 101) as u8).collect()
}

/// A dispatch of bytes with scales.
#[derive(Debug)]
pub struct ScaledDispatch {
    pub call: DispatchCall<u8>,
    pub row_bytes: RowBytes,
}

impl ScaledDispatch {
    /// With outputs of that shape, of which the last extent is left out.
    fn new(
        fixture: Fixture,
        rank: usize,
        row_bytes: RowBytes,
        [tokens, scales]: [DataType; 2],
        out: &[usize],
        plain: DispatchCall,
    ) -> Self {
        let count = (fixture.values)(rank).len();
        let all = |row: fn(usize, usize, usize) -> Vec<u8>, bytes| {
            (0..count).flat_map(|token| row(rank, token, bytes)).collect::<Vec<_>>()
        };
        let rows: usize = out.iter().product();
        let untouched = |data_type, bytes| {
            tensor_of_bytes(data_type, &[out, &[bytes]].concat(), vec![UNTOUCHED; rows * bytes])
        };
        let input = |data_type, bytes, data| tensor_of_bytes(data_type, &[count, bytes], data);
        let (token_data, scale_data) =
            (all(token_bytes, row_bytes.tokens), all(scale_bytes, row_bytes.scales));
        let call = DispatchCall {
            tokens: Some(input(tokens, row_bytes.tokens, token_data)),
            scales: Some(input(scales, row_bytes.scales, scale_data)),
            out_tokens: Some(untouched(tokens, row_bytes.tokens)),
            out_scales: Some(untouched(scales, row_bytes.scales)),
            weights: plain.weights,
            out_weights: plain.out_weights,
            out_ids: plain.out_ids,
            out_ids32: plain.out_ids32,
            counters: plain.counters,
            src_counters: plain.src_counters,
            config: Some(ncclEpDispatchConfig_t {
                quant_recipe: ncclEpDispQuant_t::NCCL_EP_DISP_QUANT_FWD,
                ..VersionedStruct::init()
            }),
            ..DispatchCall::default()
        };
        Self { call, row_bytes }
    }

    /// A high-throughput call with outputs of that many rows.
    pub fn high_throughput(
        ht: &HighThroughputRank,
        rows: usize,
        row_bytes: RowBytes,
        types: [DataType; 2],
    ) -> Self {
        Self::new(ht.fixture, ht.rank, row_bytes, types, &[rows], ht.dispatch_into(rows))
    }

    /// A low-latency call.
    pub fn low_latency(ll: &LowLatencyRank, row_bytes: RowBytes, types: [DataType; 2]) -> Self {
        let [regions, rows, _] = ll.shape(1);
        let plain = ll.dispatch_call(LL_HIDDEN);
        Self::new(ll.fixture, ll.rank, row_bytes, types, &[regions, rows], plain)
    }

    pub fn call(&mut self, handle: &TestHandle) -> ncclResult_t {
        self.call.call(handle)
    }

    /// Makes the call.
    #[track_caller]
    pub fn must_succeed(mut self, handle: &TestHandle) -> Self {
        assert_ok(self.call(handle));
        self
    }

    /// A received token row and its scale row.
    pub fn row(&self, row: usize) -> (&[u8], &[u8]) {
        let RowBytes { tokens, scales } = self.row_bytes;
        let (out_tokens, out_scales) = (&self.call.out_tokens, &self.call.out_scales);
        (
            &out_tokens.as_ref().unwrap().data[row * tokens..][..tokens],
            &out_scales.as_ref().unwrap().data[row * scales..][..scales],
        )
    }

    /// The row is that token with its scales.
    #[track_caller]
    pub fn assert_row(&self, row: usize, (rank, token): (usize, usize)) {
        let RowBytes { tokens, scales } = self.row_bytes;
        let expected = (token_bytes(rank, token, tokens), scale_bytes(rank, token, scales));
        assert_eq!(self.row(row), (&expected.0[..], &expected.1[..]), "row {row}");
    }

    /// The first rows are these tokens, and all others are untouched.
    #[track_caller]
    pub fn assert_rows(&self, tokens: &[(usize, usize)]) {
        for (row, &token) in tokens.iter().enumerate() {
            self.assert_row(row, token);
        }
        let rows = self.call.out_tokens.as_ref().unwrap().data.len() / self.row_bytes.tokens;
        for row in tokens.len()..rows {
            self.assert_filled(row, UNTOUCHED);
        }
    }

    #[track_caller]
    pub fn assert_filled(&self, row: usize, byte: u8) {
        let (token, scale) = self.row(row);
        assert!(token.iter().chain(scale).all(|&b| b == byte), "row {row}: {token:?}, {scale:?}");
    }

    /// Registers outputs as windows.
    pub fn with_output_windows(mut self, comm: &Comm, tokens: bool, scales: bool) -> Self {
        let register = |tensor| register_window(comm, tensor);
        if tokens {
            self.call.out_tokens = self.call.out_tokens.map(register);
        }
        if scales {
            self.call.out_scales = self.call.out_scales.map(register);
        }
        self
    }
}
