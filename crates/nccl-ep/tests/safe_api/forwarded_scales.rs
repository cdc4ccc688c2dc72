//! Quantized rows that are forwarded with their scales.

use nccl_ep::{
    Algorithm, DataType, DispatchConfig, DispatchInputs, DispatchOutputs,
    DispatchQuantizationRecipe, Group, GroupConfig, HandleConfig, Layout, LayoutInfo, Tensor,
    TensorMut, TopK,
};

use crate::support::*;

/// Expert-major, zones padded to 32 rows.
///
/// EP vector C18.
#[test]
fn packed_fp4_rows_travel_with_their_scales() {
    const TOKENS: usize = 16;
    const ROW: usize = 64; // bytes: 128 values
    const SCALES: usize = 16;
    const RANKS: usize = 4;
    on_ranks(RANKS, |comm| {
        let rank = comm.rank();
        let config = GroupConfig::new()
            .algorithm(Algorithm::HighThroughput)
            .num_experts(8)
            .max_dispatch_tokens_per_rank(TOKENS as u32)
            .max_recv_tokens_per_rank(128)
            .max_token_bytes(128);
        let group = Group::create(&comm, &config)?;
        let padded = HandleConfig::new().dispatch_output_per_expert_alignment(32);
        let mut em = group.init_handle(Layout::ExpertMajor, &padded, TopK::N(1), None)?;
        // Token t of every rank goes to expert t mod 8: 2 tokens of each of 4 ranks an expert.
        let ids: Vec<i64> = (0..TOKENS as i64).map(|token| token % 8).collect();
        let byte = |rank: usize, token: usize, at: usize| (rank * 61 + token * 7 + at) as u8;
        let tokens: Vec<u8> = (0..TOKENS * ROW).map(|i| byte(rank, i / ROW, i % ROW)).collect();
        let scales: Vec<u8> =
            (0..TOKENS * SCALES).map(|i| byte(rank, i / SCALES, 100 + i % SCALES)).collect();
        let weights = [1.0_f32; TOKENS];
        for _ in 0..3 {
            let mut total = [-1_i64];
            let mut info = LayoutInfo::new().recv_total_counter(TensorMut::new(&mut total, &[1])?);
            let mut step = em.update(Tensor::new(&ids, &[TOKENS, 1])?, Some(&mut info), STREAM)?;
            assert_eq!(total, [64], "two zones of 32");
            let (mut rows, mut row_scales) =
                (vec![0xEE_u8; 128 * ROW], vec![0xEE_u8; 128 * SCALES]);
            let mut row_weights = [-7.0_f32; 128];
            let fp4 = DataType::Float4x2;
            let inputs =
                DispatchInputs::new(Tensor::new(&tokens, &[TOKENS, ROW])?.with_data_type(fp4)?)
                    .topk_weights(Tensor::new(&weights, &[TOKENS, 1])?)
                    .scales(Tensor::new(&scales, &[TOKENS, SCALES])?);
            let out = TensorMut::new(&mut rows, &[128, ROW])?.with_data_type(fp4)?;
            let mut outputs = DispatchOutputs::new(out)
                .topk_weights(TensorMut::new(&mut row_weights, &[128])?)
                .scales(TensorMut::new(&mut row_scales, &[128, SCALES])?);
            let forward =
                DispatchConfig::new().quantization_recipe(DispatchQuantizationRecipe::Fwd);
            step.dispatch(&inputs, &mut outputs, None, &forward, STREAM)?;
            for zone in 0..2 {
                let expert = rank * 2 + zone;
                // In the order of source rank and token, then zeros.
                let sent = (0..RANKS).flat_map(|source| [(source, expert), (source, expert + 8)]);
                for (slot, (source, token)) in sent.enumerate() {
                    let row = zone * 32 + slot;
                    let got = &rows[row * ROW..][..ROW];
                    assert!(got.iter().enumerate().all(|(at, b)| *b == byte(source, token, at)));
                    let got = &row_scales[row * SCALES..][..SCALES];
                    assert!(
                        got.iter().enumerate().all(|(at, b)| *b == byte(source, token, 100 + at))
                    );
                    assert_eq!(row_weights[row], 1.0);
                }
                let padding = zone * 32 + 8..(zone + 1) * 32;
                assert!(rows[padding.start * ROW..padding.end * ROW].iter().all(|b| *b == 0));
                let scales = padding.start * SCALES..padding.end * SCALES;
                assert!(row_scales[scales].iter().all(|b| *b == 0));
                assert!(row_weights[padding].iter().all(|weight| *weight == 0.0));
            }
            assert!(rows[64 * ROW..].iter().all(|b| *b == 0xEE), "rows past the total");
        }
        drop(em);
        group.destroy()?;
        Ok(())
    });
}
