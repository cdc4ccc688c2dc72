//! Calls in two halves, on the CPU backend.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cpu;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cpu::{ExpertMajor, G2, STREAM, handle, on_ranks, row_values};
use nccl_ep::{
    CombineConfig, CombineInputs, CombineOutputs, DispatchConfig, DispatchInputs, DispatchOutputs,
    Error, HandleConfig, Layout, LayoutInfo, Result, Step, Tensor, TensorMut, TopK, bf16,
};

const COMBINED: [[f32; 4]; 2] = [[2.25, 8.5, 18.75, 0.0], [25.0, 36.0, 100.0, 130.0]];

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

fn combine<T>(
    received: &ExpertMajor,
    step: &mut Step<'_>,
    rank: usize,
    overlap: impl FnOnce() -> T,
) -> Result<(Vec<bf16>, T)> {
    let mut combined = vec![bf16::ZERO; 4 * 512];
    let weights = G2::weights(rank);
    let inputs = CombineInputs::new(Tensor::new(&received.rows, &[2, 8, 512])?)
        .routing_weights(Tensor::new(&weights, &[4, 2])?);
    let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &[4, 512])?);
    let config = CombineConfig::new();
    let output = step.staged_combine(&inputs, &mut outputs, &config, STREAM, overlap)?;
    Ok((combined, output))
}

#[test]
fn both_halves_give_what_the_whole_gives() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let (group, mut handle) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
        for _ in 0..3 {
            let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
            let mut step = handle.update(ids, None, STREAM)?;
            let mut received = ExpertMajor::new(&group, 4, 512);
            assert_eq!(dispatch(&mut received, &mut step, rank, || "between")?, "between");
            assert_eq!(received.counters, [3, 3]);
            let (combined, between) = combine(&received, &mut step, rank, || rank)?;
            assert_eq!(between, rank);
            assert_eq!(row_values(&combined, 512), COMBINED[rank]);
        }
        drop(handle);
        group.destroy()?;
        Ok(())
    });
}

/// E13: between the halves the step is borrowed, and other handles are refused.
#[test]
fn e13_nothing_else_between_the_halves() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let (group, mut first) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
        let options = HandleConfig::new();
        let mut second = group.init_handle(Layout::ExpertMajor, &options, TopK::N(2), None)?;
        let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
        let mut step = first.update(ids, None, STREAM)?;
        let mut other = second.update(ids, None, STREAM)?;
        let (mut received, mut beside) =
            (ExpertMajor::new(&group, 4, 512), ExpertMajor::new(&group, 4, 512));
        let tokens = G2::tokens(rank, 512);
        dispatch(&mut received, &mut step, rank, || {
            let busy = beside.dispatch(&mut other, &tokens).unwrap_err();
            assert!(matches!(busy, Error::Busy { .. }), "{busy}");
            let busy = dispatch(&mut beside, &mut other, rank, || ()).unwrap_err();
            assert!(matches!(busy, Error::Busy { .. }), "{busy}");
        })?;
        let (combined, ()) = combine(&received, &mut step, rank, || {
            let busy = beside.dispatch(&mut other, &tokens).unwrap_err();
            assert!(matches!(busy, Error::Busy { .. }), "{busy}");
        })?;
        assert_eq!(row_values(&combined, 512), COMBINED[rank]);
        beside.dispatch(&mut other, &tokens)?;
        let (combined, ()) = combine(&beside, &mut other, rank, || ())?;
        assert_eq!(row_values(&combined, 512), COMBINED[rank]);
        drop((step, other));
        drop((first, second));
        group.destroy()?;
        Ok(())
    });
}

/// The peers wait for the second half, so a panic between the halves does not skip it.
#[test]
fn a_panic_between_the_halves_passes_through_after_the_second() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let (group, mut handle) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
        let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
        let mut step = handle.update(ids, None, STREAM)?;
        let mut received = ExpertMajor::new(&group, 4, 512);
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
        assert_eq!(row_values(&combined, 512), COMBINED[rank]);
        drop(step);
        drop(handle);
        group.destroy()?;
        Ok(())
    });
}

/// A step that is leaked leaves its round open; the handle's next update ends it.
#[test]
fn a_leaked_step_does_not_lock_its_group() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let (group, mut handle) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
        let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
        let mut step = handle.update(ids, None, STREAM)?;
        let mut received = ExpertMajor::new(&group, 4, 512);
        received.dispatch(&mut step, &G2::tokens(rank, 512))?;
        std::mem::forget(step);
        let mut step = handle.update(ids, None, STREAM)?;
        received.dispatch(&mut step, &G2::tokens(rank, 512))?;
        let combined = received.combine(&mut step, &G2::weights(rank))?;
        assert_eq!(row_values(&combined, 512), COMBINED[rank]);
        Ok(())
    });
}
