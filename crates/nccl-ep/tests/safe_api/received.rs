//! What arrives, counted and typed.

use nccl_ep::{
    Algorithm, Error, ExpertIdKind, GlobalExpert, Group, GroupConfig, HandleConfig, Layout,
    LayoutInfo, LocalExpert, ReceivedExperts, Tensor, TensorMut, TopK, bf16,
};
use nccl_ext_test::routing::{drawn, recorded};

use crate::support::*;

const RANKS: usize = 4;
const EXPERTS: usize = 128;

/// Dispatches `ids` of all ranks and checks every count against the routing itself.
fn conserved(ids: &[i64], topk: usize) {
    let tokens = ids.len() / topk / RANKS;
    let local = EXPERTS / RANKS;
    let copies = |expert: usize| ids.iter().filter(|id| **id == expert as i64).count();
    // Rows of a rank: tokens with at least one of its experts.
    let rows = |rank: usize| {
        let own = |id: &i64| usize::try_from(*id).is_ok_and(|id| id / local == rank);
        ids.chunks_exact(topk).filter(|row| row.iter().any(own)).count()
    };
    let results = on_ranks(RANKS, |comm| {
        let rank = comm.rank();
        let own = &ids[rank * tokens * topk..][..tokens * topk];
        let data = vec![bf16::ONE; tokens * 512];
        let config = GroupConfig::new()
            .num_experts(EXPERTS as u32)
            .max_dispatch_tokens_per_rank(tokens as u32)
            .max_token_bytes(1024);
        let group = Group::create(&comm, &config)?;
        let options = HandleConfig::new();
        let topk_n = TopK::N(topk as u32);
        let mut em = group.init_handle(Layout::ExpertMajor, &options, topk_n, None)?;
        let mut step = em.update(Tensor::new(own, &[tokens, topk])?, None, STREAM)?;
        let mut received = ExpertMajor::new(&group, tokens, 512);
        received.dispatch(&mut step, &data)?;
        drop(step);
        drop(em);
        group.destroy()?;

        let config = config
            .algorithm(Algorithm::HighThroughput)
            .max_recv_tokens_per_rank((RANKS * tokens) as u32);
        let group = Group::create(&comm, &config)?;
        let mut flat = group.init_handle(Layout::Flat, &options, topk_n, None)?;
        let (mut total, mut counters) = ([0_i64], vec![0_i32; local]);
        let mut info = LayoutInfo::new()
            .recv_total_counter(TensorMut::new(&mut total, &[1])?)
            .expert_counters(TensorMut::new(&mut counters, &[local])?);
        drop(flat.update(Tensor::new(own, &[tokens, topk])?, Some(&mut info), STREAM)?);
        drop(flat);
        group.destroy()?;
        Ok((received.counters, counters, total[0]))
    });
    let mut received = 0;
    for (rank, (low, high, total)) in results.iter().enumerate() {
        let expected: Vec<_> =
            (rank * local..(rank + 1) * local).map(|expert| copies(expert) as i32).collect();
        assert_eq!(low, &expected, "low latency, rank {rank}");
        assert_eq!(high, &expected, "high throughput, rank {rank}");
        assert_eq!(*total, rows(rank) as i64, "rank {rank}");
        received += low.iter().map(|count| *count as usize).sum::<usize>();
    }
    assert_eq!(received, ids.iter().filter(|id| **id >= 0).count());
}

/// Case R1.
#[test]
fn uniform_routing_loses_no_copy() {
    conserved(&drawn(4 * 64, 8, |u| (u * EXPERTS as f64) as usize), 8);
}

/// Case R1: the first experts get most of the tokens.
#[test]
fn skewed_routing_loses_no_copy() {
    let harmonic: Vec<f64> = (1..=EXPERTS).map(|rank| 1.0 / rank as f64).collect();
    let sum: f64 = harmonic.iter().sum();
    let draw = |u: f64| {
        let mut left = u * sum;
        harmonic.iter().position(|weight| {
            left -= weight;
            left < 0.0
        })
    };
    conserved(&drawn(4 * 64, 4, |u| draw(u).unwrap_or(EXPERTS - 1)), 4);
}

/// Case R1: expert loads from 0 to 184.
#[test]
fn recorded_routing_loses_no_copy() {
    let ids = recorded();
    let load = |expert: i64| ids.iter().filter(|id| **id == expert).count();
    let loads: Vec<_> = (0..EXPERTS as i64).map(load).collect();
    assert_eq!((loads.iter().min(), loads.iter().max()), (Some(&0), Some(&184)));
    conserved(&ids, 8);
}

/// Case R2: both numberings name the same experts, and no row beyond the count is there.
///
/// EP vectors B9 and B10.
#[test]
fn received_ids_are_typed_and_counted() {
    with_handle(2, &high_throughput(), Layout::Flat, |group, handle| {
        let (rank, placement) = (group.comm().rank(), group.placement());
        let mut step = handle.update(Tensor::new(&G2::IDS[rank], &[4, 2])?, None, STREAM)?;
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        let rows = [4, 5][rank];
        let mut named = Vec::new();
        for kind in [ExpertIdKind::Local, ExpertIdKind::Global, ExpertIdKind::Auto] {
            let mut received = Flat::new(16, 512, 2);
            received.dispatch(&mut step, &tokens, &weights, kind)?;
            let experts = ReceivedExperts::new(&received.ids, 2, rows, rank, placement, kind)?;
            assert!(experts.row(rows).is_none() && experts.row(usize::MAX).is_none());
            assert_eq!(experts.rows(), rows);
            let all: Vec<Vec<_>> =
                (0..experts.rows()).map(|row| experts.row(row).unwrap().collect()).collect();
            named.push(all);
        }
        assert_eq!(named[0], named[1]);
        assert_eq!(named[0], named[2]);
        // The third row of rank 0 is for both its experts, in ascending order.
        let row: Vec<_> = named[0][2].iter().map(|e| (e.choice, e.local, e.global)).collect();
        let expected: &[_] = match rank {
            0 => &[(0, LocalExpert(0), GlobalExpert(0)), (1, LocalExpert(1), GlobalExpert(1))],
            _ => &[(0, LocalExpert(0), GlobalExpert(2))],
        };
        assert_eq!(row, expected);
        let few = ReceivedExperts::new(&[0_i64; 3], 2, 2, rank, placement, ExpertIdKind::Local);
        assert!(matches!(few.map(drop), Err(Error::Invalid { .. })));
        Ok(())
    });
}
