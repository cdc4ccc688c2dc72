//! Update, dispatch and combine of [`G2`] (EP 9.2, 9.6).

use nccl_ep::{ExpertIdKind, Group, Handle, HandleConfig, Layout, LayoutInfo, Step};
use nccl_ep::{Tensor, TensorMut};

use crate::support::*;

/// EP vectors L1 to L3, with the duplicate of rank 1's second row left out.
#[test]
fn low_latency_expert_major_sorts_tokens_by_expert_and_weighs_them() {
    let results = with_handle(2, &low_latency(), Layout::ExpertMajor, |group, handle| {
        let rank = group.comm().rank();
        let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
        let mut received = ExpertMajor::new(group, 4, 512);
        let combined = received.round_of_g2(&mut handle.update(ids, None, STREAM)?, rank)?;
        let zones = (received.zone(0), received.zone(1));
        Ok((received.counters, zones, combined))
    });
    let canary = |count| vec![ExpertMajor::CANARY; count];
    let zone = |live: [f32; 3]| (live.to_vec(), canary(5));
    for (rank, zones) in [
        (0, (zone([1.0, 3.0, 7.0]), zone([2.0, 3.0, 7.0]))),
        (1, (zone([1.0, 5.0, 8.0]), zone([2.0, 6.0, 8.0]))),
    ] {
        let (counters, found, combined) = &results[rank];
        assert_eq!((&counters[..], found), (&[3, 3][..], &zones), "rank {rank}");
        assert_eq!(*combined, G2::WEIGHTED[rank], "rank {rank}");
    }
}

/// EP vectors B7 to B13.
#[test]
fn high_throughput_flat_gives_rows_ids_and_weights_in_order() {
    let results = with_handle(2, &high_throughput(), Layout::Flat, |group, handle| {
        let rank = group.comm().rank();
        let ids = Tensor::new(&G2::IDS[rank], &[4, 2])?;
        let (mut total, mut counters) = ([-1_i64], [-1_i32; 3]);
        let mut info = LayoutInfo::new()
            .recv_total_counter(TensorMut::new(&mut total, &[1])?)
            .expert_counters(TensorMut::new(&mut counters, &[2])?);
        let mut step = handle.update(ids, Some(&mut info), STREAM)?;
        let mut received = Flat::new(16, 512, 2);
        let combined = received.round_of_g2(&mut step, rank)?;
        let mut global = Flat::new(16, 512, 2);
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        global.dispatch(&mut step, &tokens, &weights, ExpertIdKind::Global)?;
        Ok((total[0], counters, received, global.ids, combined))
    });
    let (total, counters, received, global, combined) = &results[0];
    assert_eq!((*total, *counters), (4, [3, 3, -1]));
    assert_eq!(received.values(4), [1.0, 2.0, 3.0, 7.0]);
    assert_eq!(received.ids[..8], [0, -1, 1, -1, 0, 1, 0, 1]);
    assert_eq!(global[..8], received.ids[..8], "rank 0's experts have the same numbers");
    assert_eq!(received.weights[..8], [1.0, 0.0, 2.25, 0.0, 3.25, 3.0, 7.0, 7.25]);
    assert!(received.values(16)[4..].iter().all(|x| *x == ExpertMajor::CANARY));
    assert!(received.ids[8..].iter().all(|id| *id == -77), "rows past the count are untouched");
    assert_eq!(*combined, G2::SUMMED[0]);
    let (total, counters, received, global, combined) = &results[1];
    assert_eq!((*total, *counters), (5, [3, 3, -1]));
    assert_eq!(received.values(5), [1.0, 2.0, 5.0, 6.0, 8.0]);
    assert_eq!(received.ids[..10], [0, -1, 1, -1, 0, -1, 1, -1, 0, 1]);
    assert_eq!(global[..10], [2, -1, 3, -1, 2, -1, 3, -1, 2, 3]);
    assert_eq!(received.weights[..10], [1.25, 0.0, 2.0, 0.0, 5.0, 0.0, 6.0, 0.0, 8.0, 8.25]);
    assert_eq!(*combined, G2::SUMMED[1]);
}

/// EP vector B15: the fused call gives the same as init and update, also with int32 ids.
#[test]
fn a_handle_created_with_its_routing_gives_the_same_with_int32_ids() {
    let results = on_ranks(2, |comm| {
        let rank = comm.rank();
        let group = Group::create(&comm, &high_throughput())?;
        let ids = G2::IDS[rank].map(|id| id as i32);
        let mut total = [-1_i32];
        let mut info = LayoutInfo::new().recv_total_counter(TensorMut::new(&mut total, &[1])?);
        let options = HandleConfig::new();
        let ids = Tensor::new(&ids, &[4, 2])?;
        let mut step = group.create_handle(Layout::Flat, &options, ids, Some(&mut info), STREAM)?;
        let mut received = Flat::new(16, 512, 2);
        let combined = received.round_of_g2(&mut step, rank)?;
        // The handle outlives the step, for the next update.
        let mut handle = step.into_handle();
        let step = handle.update(ids, None, STREAM)?;
        assert_eq!(step.tokens(), 4);
        drop(step);
        handle.destroy()?;
        group.destroy()?;
        Ok((total[0], received.values(total[0] as usize), combined))
    });
    let expected = [
        (4, vec![1.0, 2.0, 3.0, 7.0], G2::SUMMED[0].to_vec()),
        (5, vec![1.0, 2.0, 5.0, 6.0, 8.0], G2::SUMMED[1].to_vec()),
    ];
    assert_eq!(results, expected);
}

/// A step that owns its handle, for round after round.
///
/// EP vector B22.
#[test]
fn owned_steps_live_in_a_struct() {
    struct Engine {
        step: Step<'static, Handle>,
        group: Group,
    }
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let (mut group, mut handle) = handle(&comm, &low_latency(), Layout::ExpertMajor)?;
        let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
        for _ in 0..4 {
            let step = handle.into_step(ids, None, STREAM)?;
            let mut engine = Engine { step, group };
            let mut received = ExpertMajor::new(&engine.group, 4, 512);
            let combined = received.round_of_g2(&mut engine.step, rank)?;
            assert_eq!(combined, G2::WEIGHTED[rank]);
            group = engine.group;
            handle = engine.step.into_handle();
        }
        handle.destroy()?;
        group.destroy()?;
        Ok(())
    });
}
