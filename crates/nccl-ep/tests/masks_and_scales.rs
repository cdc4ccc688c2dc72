//! Masks of active ranks and forwarded scales, through the safe API on the CPU backend.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cpu;

use cpu::{G2, STREAM, handle, meet, on_ranks};
use nccl_ep::{
    Algorithm, CombineConfig, CombineInputs, CombineOutputs, DataType, DispatchConfig,
    DispatchInputs, DispatchOutputs, DispatchQuantizationRecipe, Error, Group, GroupConfig,
    HandleConfig, Layout, LayoutInfo, Tensor, TensorMut, TopK, bf16,
};

/// L21: both ranks mask each other; each works on alone, without the other's part.
#[test]
fn l21_ranks_that_mask_each_other() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let config = G2::ll().enable_mask(true);
        let (group, mut rank_major) = handle(&comm, &config, Layout::RankMajor)?;
        let mut mask = [-1_i32; 2];
        group.mask_query(&mut mask, STREAM)?;
        assert_eq!(mask, [1, 1], "L22");
        assert!(!group.get_async_error()?, "L25");
        group.error_clear()?;
        let mut active = [true; 2];
        active[1 - rank] = false;
        group.mask_update(&active, STREAM)?;
        group.mask_query(&mut mask, STREAM)?;
        assert_eq!(mask, [[1, 0], [0, 1]][rank]);
        meet(&comm)?;

        let ids = G2::IDS[rank];
        let mut step = rank_major.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        let mut rows = vec![bf16::ZERO; 2 * 4 * 512];
        let (mut row_weights, mut row_ids) = ([0.0_f32; 16], [-7_i32; 16]);
        let mut counts = [-1_i32; 2];
        let inputs = DispatchInputs::new(Tensor::new(&tokens, &[4, 512])?)
            .topk_weights(Tensor::new(&weights, &[4, 2])?);
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &[2, 4, 512])?)
            .topk_weights(TensorMut::new(&mut row_weights, &[2, 4, 2])?)
            .topk_idx(TensorMut::new(&mut row_ids, &[2, 4, 2])?);
        let mut info = LayoutInfo::new().src_rank_counters(TensorMut::new(&mut counts, &[2])?);
        let config = DispatchConfig::new();
        step.dispatch(&inputs, &mut outputs, Some(&mut info), &config, STREAM)?;
        assert_eq!(counts, [[3, 0], [0, 3]][rank]);

        let mut combined = vec![bf16::ZERO; 4 * 512];
        let inputs = CombineInputs::new(Tensor::new(&rows, &[2, 4, 512])?);
        let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &[4, 512])?);
        step.combine(&inputs, &mut outputs, &CombineConfig::new(), STREAM)?;
        let values = cpu::row_values(&combined, 512);
        // Rank 0: token 3 goes nowhere. Rank 1: its token 2 went to rank 0 alone.
        assert_eq!(values, [[1.0, 2.0, 3.0, 0.0], [5.0, 6.0, 0.0, 8.0]][rank]);
        drop(step);

        meet(&comm)?;
        group.mask_clean(STREAM)?;
        meet(&comm)?;
        group.mask_query(&mut mask, STREAM)?;
        assert_eq!(mask, [1, 1]);
        drop(rank_major);
        group.destroy()?;
        Ok(())
    });
}

/// A round that is open keeps the clean out.
#[test]
fn a_clean_waits_for_the_round() {
    on_ranks(1, |comm| {
        let (group, mut em) = handle(&comm, &G2::ll().enable_mask(true), Layout::ExpertMajor)?;
        let ids = [0_i64, 1];
        let mut step = em.update(Tensor::new(&ids, &[1, 2])?, None, STREAM)?;
        let mut received = cpu::ExpertMajor::new(&group, 4, 512);
        received.dispatch(&mut step, &[bf16::ONE; 512])?;
        let busy = group.mask_clean(STREAM).unwrap_err();
        assert!(matches!(busy, Error::Busy { .. }), "{busy}");
        received.combine(&mut step, &[1.0; 2])?;
        group.mask_clean(STREAM)?;
        drop(step);
        drop(em);
        group.destroy()?;
        Ok(())
    });
}

/// C18: packed FP4 rows with their scales, expert-major, zones padded to 32 rows.
#[test]
fn c18_packed_fp4_rows_travel_with_their_scales() {
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
