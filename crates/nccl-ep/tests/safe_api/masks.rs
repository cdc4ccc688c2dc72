//! Masks of active ranks.

use nccl_ep::{
    CombineConfig, CombineInputs, CombineOutputs, DispatchConfig, DispatchInputs, DispatchOutputs,
    Error, Layout, LayoutInfo, Tensor, TensorMut, bf16,
};

use crate::support::*;

/// EP vectors L21, L22 and L25.
#[test]
fn ranks_that_mask_each_other_work_on_without_the_others_part() {
    let config = low_latency().enable_mask(true);
    with_handle(2, &config, Layout::RankMajor, |group, handle| {
        let (comm, rank) = (group.comm(), group.comm().rank());
        let mut mask = [-1_i32; 2];
        group.mask_query(&mut mask, STREAM)?;
        assert_eq!(mask, [1, 1], "of a new group");
        assert!(!group.get_async_error()?, "of a new group");
        group.error_clear()?;
        let mut active = [true; 2];
        active[1 - rank] = false;
        group.mask_update(&active, STREAM)?;
        group.mask_query(&mut mask, STREAM)?;
        assert_eq!(mask, [[1, 0], [0, 1]][rank]);
        meet(comm)?;

        let ids = G2::IDS[rank];
        let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
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
        let values = row_values(&combined, 512);
        // Rank 0: token 3 goes nowhere. Rank 1: its token 2 went to rank 0 alone.
        assert_eq!(values, [[1.0, 2.0, 3.0, 0.0], [5.0, 6.0, 0.0, 8.0]][rank]);
        drop(step);

        meet(comm)?;
        group.mask_clean(STREAM)?;
        meet(comm)?;
        group.mask_query(&mut mask, STREAM)?;
        assert_eq!(mask, [1, 1]);
        Ok(())
    });
}

#[test]
fn a_clean_is_busy_while_a_round_is_open() {
    let config = low_latency().enable_mask(true);
    with_handle(1, &config, Layout::ExpertMajor, |group, handle| {
        let ids = [0_i64, 1];
        let mut step = handle.update(Tensor::new(&ids, &[1, 2])?, None, STREAM)?;
        let mut received = ExpertMajor::new(group, 4, 512);
        received.dispatch(&mut step, &[bf16::ONE; 512])?;
        let busy = group.mask_clean(STREAM).unwrap_err();
        assert!(matches!(busy, Error::Busy { .. }), "{busy}");
        received.combine(&mut step, &[1.0; 2])?;
        group.mask_clean(STREAM)?;
        Ok(())
    });
}
