//! What arrives, counted and typed (cases R1 and R2), on the CPU backend.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cpu;

use cpu::{ExpertMajor, Flat, G2, STREAM, handle, on_ranks};
use nccl_ep::{
    Algorithm, ExpertIdKind, GlobalExpert, GroupConfig, Layout, LayoutInfo, LocalExpert,
    ReceivedExperts, Tensor, TensorMut, bf16,
};

const RANKS: usize = 4;
const EXPERTS: usize = 128;

/// Routing of `tokens` tokens to `topk` different experts each; `draw` gives a rank's expert for a
/// uniform number in `0..1`.
fn routing(tokens: usize, topk: usize, draw: impl Fn(f64) -> usize) -> Vec<i64> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut ids = Vec::new();
    for _ in 0..tokens {
        let mut row = Vec::new();
        while row.len() < topk {
            let id = draw(next()) as i64;
            if !row.contains(&id) {
                row.push(id);
            }
        }
        ids.extend(row);
    }
    ids
}

/// The recorded routing of real text: what lies between the safetensors header and the weights.
fn recorded() -> Vec<i64> {
    let file = include_bytes!("../../nccl-ext/data/moe_text_4x128.safetensors");
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let ids = &file[8 + header..][..512 * 8 * 8];
    ids.chunks_exact(8).map(|id| i64::from_le_bytes(id.try_into().unwrap())).collect()
}

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
        let group = nccl_ep::Group::create(&comm, &config)?;
        let options = nccl_ep::HandleConfig::new();
        let topk_n = nccl_ep::TopK::N(topk as u32);
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
        let group = nccl_ep::Group::create(&comm, &config)?;
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

#[test]
fn r01_conservation_uniform() {
    conserved(&routing(4 * 64, 8, |u| (u * EXPERTS as f64) as usize), 8);
}

/// The first experts get most of the tokens.
#[test]
fn r01_conservation_zipf() {
    let harmonic: Vec<f64> = (1..=EXPERTS).map(|rank| 1.0 / rank as f64).collect();
    let sum: f64 = harmonic.iter().sum();
    let draw = |u: f64| {
        let mut left = u * sum;
        harmonic.iter().position(|weight| {
            left -= weight;
            left < 0.0
        })
    };
    conserved(&routing(4 * 64, 4, |u| draw(u).unwrap_or(EXPERTS - 1)), 4);
}

/// Expert loads from 0 to 184.
#[test]
fn r01_conservation_recorded() {
    let ids = recorded();
    let load = |expert: i64| ids.iter().filter(|id| **id == expert).count();
    let loads: Vec<_> = (0..EXPERTS as i64).map(load).collect();
    assert_eq!((loads.iter().min(), loads.iter().max()), (Some(&0), Some(&184)));
    conserved(&ids, 8);
}

/// Both numberings name the same experts, and no row beyond the count is there.
#[test]
fn r02_received_ids_are_typed_and_counted() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let (group, mut flat) = handle(&comm, &G2::ht(), Layout::Flat)?;
        let mut step = flat.update(Tensor::new(&G2::IDS[rank], &[4, 2])?, None, STREAM)?;
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        let rows = [4, 5][rank];
        let mut named = Vec::new();
        for kind in [ExpertIdKind::Local, ExpertIdKind::Global, ExpertIdKind::Auto] {
            let mut received = Flat::new(16, 512, 2);
            received.dispatch(&mut step, &tokens, &weights, kind)?;
            let placement = group.placement();
            let experts = ReceivedExperts::new(&received.ids, 2, rows, rank, placement, kind)?;
            assert!(experts.row(rows).is_none() && experts.row(usize::MAX).is_none());
            let all: Vec<Vec<_>> =
                (0..experts.rows()).map(|row| experts.row(row).unwrap().collect()).collect();
            named.push(all);
        }
        assert_eq!(named[0], named[1]);
        assert_eq!(named[0], named[2]);
        // B9 and B10: the third row of rank 0 is for both its experts, in ascending order.
        let row: Vec<_> = named[0][2].iter().map(|e| (e.choice, e.local, e.global)).collect();
        let expected: &[_] = match rank {
            0 => &[(0, LocalExpert(0), GlobalExpert(0)), (1, LocalExpert(1), GlobalExpert(1))],
            _ => &[(0, LocalExpert(0), GlobalExpert(2))],
        };
        assert_eq!(row, expected);
        let few =
            ReceivedExperts::new(&[0_i64; 3], 2, 2, rank, group.placement(), ExpertIdKind::Local);
        assert!(few.is_err());
        drop(step);
        drop(flat);
        group.destroy()?;
        Ok(())
    });
}
