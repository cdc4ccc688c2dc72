//! Calls in two halves.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nccl_ep::{
    CombineConfig, CombineInputs, CombineOutputs, DispatchConfig, DispatchInputs, DispatchOutputs,
    Error, Group, Handle, HandleConfig, Layout, LayoutInfo, Result, Step, Tensor, TensorMut, TopK,
    bf16,
};

use crate::support::*;

/// A staged dispatch of G2; `overlap` runs between its halves.
fn dispatch<T>(
    received: &mut ExpertMajor,
    step: &mut Step<'_>,
    rank: usize,
    overlap: impl FnOnce() -> T,
) -> Result<T> {
    let tokens = G2::tokens(rank, 512);
    let inputs = DispatchInputs::new(Tensor::new(&tokens, &[4, 512])?);
    let mut outputs = DispatchOutputs::new(TensorMut::new(&mut received.rows, &[2, 8, 512])?);
    let counters = TensorMut::new(&mut received.counters, &[2])?;
    let mut info = LayoutInfo::new().expert_counters(counters);
    let config = DispatchConfig::new();
    step.staged_dispatch(&inputs, &mut outputs, Some(&mut info), &config, STREAM, overlap)
}

/// A staged combine of G2, to one value per token.
fn combine<T>(
    received: &ExpertMajor,
    step: &mut Step<'_>,
    rank: usize,
    overlap: impl FnOnce() -> T,
) -> Result<(Vec<f32>, T)> {
    let mut combined = vec![bf16::ZERO; 4 * 512];
    let weights = G2::weights(rank);
    let inputs = CombineInputs::new(Tensor::new(&received.rows, &[2, 8, 512])?)
        .routing_weights(Tensor::new(&weights, &[4, 2])?);
    let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &[4, 512])?);
    let config = CombineConfig::new();
    let output = step.staged_combine(&inputs, &mut outputs, &config, STREAM, overlap)?;
    Ok((row_values(&combined, 512), output))
}

/// Both ranks of G2 with a low-latency expert-major handle, their number and their ids.
fn on_g2(body: impl Fn(&Group, &mut Handle, usize, Tensor<'_>) -> Result<()> + Sync) {
    with_handle(2, &low_latency(), Layout::ExpertMajor, |group, handle| {
        let rank = group.comm().rank();
        body(group, handle, rank, Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?)
    });
}

#[track_caller]
fn is_busy(result: Result<()>) {
    assert!(matches!(result, Err(Error::Busy { .. })), "{result:?}");
}

#[test]
fn both_halves_give_what_the_whole_gives() {
    on_g2(|group, handle, rank, ids| {
        for _ in 0..3 {
            let mut step = handle.update(ids, None, STREAM)?;
            let mut received = ExpertMajor::new(group, 4, 512);
            assert_eq!(dispatch(&mut received, &mut step, rank, || "between")?, "between");
            assert_eq!(received.counters, [3, 3]);
            let combined = combine(&received, &mut step, rank, || rank)?;
            assert_eq!(combined, (G2::WEIGHTED[rank].to_vec(), rank));
        }
        Ok(())
    });
}

/// Case E13: between the halves the step is borrowed, and other handles are refused.
#[test]
fn other_handles_are_busy_between_the_halves() {
    on_g2(|group, first, rank, ids| {
        let mut second = top2(group, Layout::ExpertMajor)?;
        let mut step = first.update(ids, None, STREAM)?;
        let mut other = second.update(ids, None, STREAM)?;
        let (mut received, mut beside) =
            (ExpertMajor::new(group, 4, 512), ExpertMajor::new(group, 4, 512));
        let tokens = G2::tokens(rank, 512);
        dispatch(&mut received, &mut step, rank, || {
            is_busy(beside.dispatch(&mut other, &tokens));
            is_busy(dispatch(&mut beside, &mut other, rank, || ()));
        })?;
        let (combined, ()) = combine(&received, &mut step, rank, || {
            is_busy(beside.dispatch(&mut other, &tokens));
        })?;
        assert_eq!(combined, G2::WEIGHTED[rank]);
        beside.dispatch(&mut other, &tokens)?;
        let (combined, ()) = combine(&beside, &mut other, rank, || ())?;
        assert_eq!(combined, G2::WEIGHTED[rank]);
        Ok(())
    });
}

/// The peers wait for the second half, so a panic between the halves does not skip it.
#[test]
fn a_panic_between_the_halves_passes_through_after_the_second() {
    on_g2(|group, handle, rank, ids| {
        let mut step = handle.update(ids, None, STREAM)?;
        let mut received = ExpertMajor::new(group, 4, 512);
        if rank == 0 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                dispatch(&mut received, &mut step, rank, || panic!("between the halves"))
            }));
            let payload = caught.map(|result: Result<()>| result.is_ok()).unwrap_err();
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"between the halves"));
        } else {
            dispatch(&mut received, &mut step, rank, || ())?;
        }
        assert_eq!(received.counters, [3, 3], "the second half ran");
        // This step no longer counts as dispatched on rank 0; the next one works on both.
        drop(step);
        let mut step = handle.update(ids, None, STREAM)?;
        dispatch(&mut received, &mut step, rank, || ())?;
        let (combined, ()) = combine(&received, &mut step, rank, || ())?;
        assert_eq!(combined, G2::WEIGHTED[rank]);
        Ok(())
    });
}

/// A step that is leaked leaves its round open; the handle's next update ends it, and nothing keeps
/// the group from being destroyed.
#[test]
fn a_leaked_step_does_not_lock_its_group() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let (group, mut handle) = handle(&comm, &low_latency(), Layout::ExpertMajor)?;
        let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
        let mut step = handle.update(ids, None, STREAM)?;
        let mut received = ExpertMajor::new(&group, 4, 512);
        received.dispatch(&mut step, &G2::tokens(rank, 512))?;
        std::mem::forget(step);
        let mut step = handle.update(ids, None, STREAM)?;
        assert_eq!(received.round_of_g2(&mut step, rank)?, G2::WEIGHTED[rank]);
        drop(step);
        handle.destroy()?;
        group.destroy()?;
        Ok(())
    });
}

/// Case A3: between the halves the library does nothing else, and the buffer must not grow.
#[test]
fn no_handle_is_made_between_the_halves() {
    on_g2(|group, handle, rank, ids| {
        let mut step = handle.update(ids, None, STREAM)?;
        let mut received = ExpertMajor::new(group, 4, 512);
        let options = HandleConfig::new();
        let made = dispatch(&mut received, &mut step, rank, || {
            group.init_handle(Layout::ExpertMajor, &options, TopK::N(4), None).map(drop)
        })?;
        is_busy(made);
        let (combined, ()) = combine(&received, &mut step, rank, || ())?;
        assert_eq!(combined, G2::WEIGHTED[rank].to_vec());
        Ok(())
    });
}
