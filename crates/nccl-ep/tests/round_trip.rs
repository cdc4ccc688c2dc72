//! The vectors of EP 9.2 and 9.6 for G2, through the safe API on the CPU backend.

mod cpu;

use cpu::{ExpertMajor, Flat, G2, STREAM, handle, on_ranks, row_values};
use nccl_ep::{ExpertIdKind, HandleConfig, Layout, LayoutInfo, Step, Tensor, TensorMut};

/// L1 to L3, with the duplicate of rank 1's second row left out.
#[test]
fn l01_l03_g2_low_latency_expert_major() {
    let results = on_ranks(2, |comm| {
        let rank = comm.rank();
        let (group, mut handle) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
        let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
        let mut step = handle.update(ids, None, STREAM)?;
        let mut received = ExpertMajor::new(&group, 4, 512);
        received.dispatch(&mut step, &G2::tokens(rank, 512))?;
        let combined = received.combine(&mut step, &G2::weights(rank))?;
        drop(step);
        handle.destroy()?;
        group.destroy()?;
        let zones = (received.zone(0), received.zone(1));
        comm.destroy()?;
        Ok((received.counters, zones, row_values(&combined, 512)))
    });
    let canary = |count| vec![ExpertMajor::CANARY; count];
    let (counters, zones, combined) = &results[0];
    assert_eq!(*counters, [3, 3]);
    assert_eq!(zones.0, (vec![1.0, 3.0, 7.0], canary(5)));
    assert_eq!(zones.1, (vec![2.0, 3.0, 7.0], canary(5)));
    assert_eq!(*combined, [2.25, 8.5, 18.75, 0.0]);
    let (counters, zones, combined) = &results[1];
    assert_eq!(*counters, [3, 3]);
    assert_eq!(zones.0, (vec![1.0, 5.0, 8.0], canary(5)));
    assert_eq!(zones.1, (vec![2.0, 6.0, 8.0], canary(5)));
    // 6 x 6 for the row whose duplicate is left out; 99.75 rounds to even.
    assert_eq!(*combined, [25.0, 36.0, 100.0, 130.0]);
}

/// B7 to B13.
#[test]
fn b07_b13_g2_high_throughput_flat() {
    let results = on_ranks(2, |comm| {
        let rank = comm.rank();
        let (group, mut handle) = handle(&comm, &G2::ht(), Layout::Flat)?;
        let ids = Tensor::new(&G2::IDS[rank], &[4, 2])?;
        let (mut total, mut counters) = ([-1_i64], [-1_i32; 3]);
        let mut info = LayoutInfo::new()
            .recv_total_counter(TensorMut::new(&mut total, &[1])?)
            .expert_counters(TensorMut::new(&mut counters, &[2])?);
        let mut step = handle.update(ids, Some(&mut info), STREAM)?;
        let mut received = Flat::new(16, 512, 2);
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        received.dispatch(&mut step, &tokens, &weights, ExpertIdKind::Auto)?;
        let combined = received.combine(&mut step)?;
        let mut global = Flat::new(16, 512, 2);
        global.dispatch(&mut step, &tokens, &weights, ExpertIdKind::Global)?;
        drop(step);
        drop(handle);
        group.destroy()?;
        Ok((total[0], counters, received, global.ids, row_values(&combined, 512)))
    });
    let (total, counters, received, _, combined) = &results[0];
    assert_eq!((*total, *counters), (4, [3, 3, -1]));
    assert_eq!(received.values(4), [1.0, 2.0, 3.0, 7.0]);
    assert_eq!(received.ids[..8], [0, -1, 1, -1, 0, 1, 0, 1]);
    assert_eq!(received.weights[..8], [1.0, 0.0, 2.25, 0.0, 3.25, 3.0, 7.0, 7.25]);
    assert!(received.values(16)[4..].iter().all(|x| *x == ExpertMajor::CANARY));
    assert!(received.ids[8..].iter().all(|id| *id == -77), "rows past the count are untouched");
    assert_eq!(*combined, [2.0, 4.0, 3.0, 0.0]);
    let (total, counters, received, global, combined) = &results[1];
    assert_eq!((*total, *counters), (5, [3, 3, -1]));
    assert_eq!(received.values(5), [1.0, 2.0, 5.0, 6.0, 8.0]);
    assert_eq!(received.ids[..10], [0, -1, 1, -1, 0, -1, 1, -1, 0, 1]);
    assert_eq!(global[..10], [2, -1, 3, -1, 2, -1, 3, -1, 2, 3]);
    assert_eq!(received.weights[..10], [1.25, 0.0, 2.0, 0.0, 5.0, 0.0, 6.0, 0.0, 8.0, 8.25]);
    assert_eq!(*combined, [5.0, 6.0, 7.0, 8.0]);
}

/// The fused call gives the same as init and update, with int32 ids.
#[test]
fn b15_created_in_one_call_with_int32_ids() {
    let results = on_ranks(2, |comm| {
        let rank = comm.rank();
        let group = nccl_ep::Group::create(&comm, &G2::ht())?;
        let ids = G2::IDS[rank].map(|id| id as i32);
        let mut total = [-1_i32];
        let mut info = LayoutInfo::new().recv_total_counter(TensorMut::new(&mut total, &[1])?);
        let mut step = group.create_handle(
            Layout::Flat,
            &HandleConfig::new(),
            Tensor::new(&ids, &[4, 2])?,
            Some(&mut info),
            STREAM,
        )?;
        let mut received = Flat::new(16, 512, 2);
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        received.dispatch(&mut step, &tokens, &weights, ExpertIdKind::Local)?;
        let combined = received.combine(&mut step)?;
        // The handle outlives the step, for the next update.
        let mut handle = step.into_handle();
        let step = handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
        assert_eq!(step.tokens(), 4);
        drop(step);
        handle.destroy()?;
        group.destroy()?;
        Ok((total[0], received.values(5), row_values(&combined, 512)))
    });
    assert_eq!(results[0].0, 4);
    assert_eq!(results[1].0, 5);
    assert_eq!(results[1].1, [1.0, 2.0, 5.0, 6.0, 8.0]);
    assert_eq!(results[0].2, [2.0, 4.0, 3.0, 0.0]);
}

/// A step that owns its handle and shares its indices lives in a struct, for round after round.
#[test]
fn b22_owned_steps_in_a_struct() {
    struct Engine {
        step: Step<'static, nccl_ep::Handle>,
        group: nccl_ep::Group,
    }
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let (mut group, mut handle) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
        let ids = std::sync::Arc::new(G2::UNIQUE_IDS[rank].to_vec());
        for _ in 0..4 {
            let step = handle.update_shared(ids.clone(), [4, 2], None, STREAM)?;
            let mut engine = Engine { step, group };
            let mut received = ExpertMajor::new(&engine.group, 4, 512);
            received.dispatch(&mut engine.step, &G2::tokens(rank, 512))?;
            let combined = received.combine(&mut engine.step, &G2::weights(rank))?;
            let expected = [[2.25, 8.5, 18.75, 0.0], [25.0, 36.0, 100.0, 130.0]];
            assert_eq!(row_values(&combined, 512), expected[rank]);
            group = engine.group;
            handle = engine.step.into_handle();
        }
        drop(handle);
        group.destroy()?;
        Ok(())
    });
}
