//! Dispatches that forward scales.

use nccl_ep_sys::*;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, DataType};

use super::*;

/// Bytes of a token row and of a scale row.
#[derive(Clone, Copy)]
pub struct Width {
    pub tokens: usize,
    pub scales: usize,
}

pub const FP4: Width = Width { tokens: 256, scales: 32 };

/// What untouched bytes hold.
pub const SPARE: u8 = 0xC3;

/// A tensor of that type over bytes; its last extent counts elements.
pub fn typed(data_type: DataType, sizes: &[usize], data: Vec<u8>) -> Ten<u8> {
    let mut tensor = Ten::new(sizes, data);
    let size = data_type.size();
    tensor.retype(data_type, size);
    tensor
}

/// The bytes of a token: each says where it comes from.
pub fn token(rank: usize, token: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (rank * 64 + token * 8 + i % 5 + 1) as u8).collect()
}

/// The bytes of its scales.
pub fn scale(rank: usize, token: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (rank * 64 + token * 8 + i % 3 + 101) as u8).collect()
}

pub struct Scaled {
    pub tokens: Ten<u8>,
    pub weights: Option<Ten<f32>>,
    pub scales: Option<Ten<u8>>,
    pub out_tokens: Option<Ten<u8>>,
    pub out_scales: Option<Ten<u8>>,
    pub out_weights: Option<Ten<f32>>,
    pub out_ids: Option<Ten<i64>>,
    pub out_ids32: Option<Ten<i32>>,
    pub counters: Option<Ten<i32>>,
    pub src_counters: Option<Ten<i32>>,
    pub config: ncclEpDispatchConfig_t,
    pub width: Width,
}

impl Scaled {
    fn of(
        fixture: Fixture,
        rank: usize,
        width: Width,
        types: [DataType; 2],
        out: &[usize],
    ) -> Self {
        let count = (fixture.values)(rank).len();
        let all = |row: fn(usize, usize, usize) -> Vec<u8>, bytes| {
            (0..count).flat_map(|t| row(rank, t, bytes)).collect::<Vec<_>>()
        };
        let rows: usize = out.iter().product();
        let shape = |bytes| [out, &[bytes]].concat();
        let spare = |data_type, bytes| typed(data_type, &shape(bytes), vec![SPARE; rows * bytes]);
        let [tokens, scales] = types;
        Self {
            tokens: typed(tokens, &[count, width.tokens], all(token, width.tokens)),
            weights: None,
            scales: Some(typed(scales, &[count, width.scales], all(scale, width.scales))),
            out_tokens: Some(spare(tokens, width.tokens)),
            out_scales: Some(spare(scales, width.scales)),
            out_weights: None,
            out_ids: None,
            out_ids32: None,
            counters: None,
            src_counters: None,
            config: ncclEpDispatchConfig_t {
                quant_recipe: ncclEpDispQuant_t::NCCL_EP_DISP_QUANT_FWD,
                ..VersionedStruct::init()
            },
            width,
        }
    }

    /// A high-throughput call with outputs of that many rows.
    pub fn high(ht: &Ht, rows: usize, width: Width, types: [DataType; 2]) -> Self {
        let plain = ht.dispatch_into(rows);
        Self {
            weights: plain.weights,
            out_weights: plain.out_weights,
            out_ids: plain.out_ids,
            ..Self::of(ht.fixture, ht.rank, width, types, &[rows])
        }
    }

    /// A low-latency call.
    pub fn low(ll: &Ll, width: Width, types: [DataType; 2]) -> Self {
        let plain = ll.dispatch_call(WIDE);
        let [regions, rows, _] = ll.shape(1);
        Self {
            weights: plain.weights,
            out_weights: plain.out_weights,
            out_ids32: plain.out_ids32,
            counters: plain.counters,
            src_counters: plain.src_counters,
            ..Self::of(ll.fixture, ll.rank, width, types, &[regions, rows])
        }
    }

    pub fn call(&mut self, handle: &Handle) -> ncclResult_t {
        let mut inputs = ncclEpDispatchInputs_t::init();
        inputs.tokens = self.tokens.d();
        inputs.topk_weights = d(&mut self.weights);
        inputs.scales = d(&mut self.scales);
        let mut outputs = ncclEpDispatchOutputs_t::init();
        outputs.tokens = d(&mut self.out_tokens);
        outputs.scales = d(&mut self.out_scales);
        outputs.topk_weights = d(&mut self.out_weights);
        outputs.topk_idx = d(&mut self.out_ids);
        if self.out_ids32.is_some() {
            outputs.topk_idx = d(&mut self.out_ids32);
        }
        let mut info = ncclEpLayoutInfo_t::init();
        info.expert_counters = d(&mut self.counters);
        info.src_rank_counters = d(&mut self.src_counters);
        let call = api().ncclEpDispatch;
        // SAFETY: the handle is live; the structs are this frame's, and their tensors are null or
        // `self`'s.
        unsafe { call(handle.raw, &inputs, &outputs, &info, &self.config, null_mut()) }
    }

    /// A received token row and its scale row.
    pub fn row(&self, row: usize) -> (&[u8], &[u8]) {
        let Width { tokens, scales } = self.width;
        let (out_tokens, out_scales) = (&self.out_tokens, &self.out_scales);
        (
            &out_tokens.as_ref().unwrap().data[row * tokens..][..tokens],
            &out_scales.as_ref().unwrap().data[row * scales..][..scales],
        )
    }

    #[track_caller]
    pub fn assert_row(&self, row: usize, rank: usize, t: usize) {
        let Width { tokens, scales } = self.width;
        let expected = (token(rank, t, tokens), scale(rank, t, scales));
        assert_eq!(self.row(row), (&expected.0[..], &expected.1[..]), "row {row}");
    }

    #[track_caller]
    pub fn assert_filled(&self, row: usize, byte: u8) {
        let (token, scale) = self.row(row);
        assert!(token.iter().chain(scale).all(|&b| b == byte), "row {row}: {token:?}, {scale:?}");
    }

    pub fn windows(mut self, comm: &Comm, tokens: bool, scales: bool) -> Self {
        if tokens {
            self.out_tokens = self.out_tokens.map(|tensor| window(comm, tensor));
        }
        if scales {
            self.out_scales = self.out_scales.map(|tensor| window(comm, tensor));
        }
        self
    }
}
