//! What one rank gets wrong, or fails to do, and what its peers hear of it.

use std::time::{Duration, Instant};

use nccl_ep::{
    Comm, Error, ExpertIdKind, Group, HandleConfig, Layout, Result, Scope, Tensor, TopK,
};
use nccl_ext_cpu::{CpuConfig, RankFailure, run_ranks};

use crate::support::*;

/// Making a low-latency handle may grow the buffer, which takes every rank (EP 3.4).
#[test]
fn a_refused_low_latency_handle_is_known_to_all_ranks() {
    let start = Instant::now();
    let errors = errors(2, |comm| {
        let group = Group::create(&comm, &low_latency())?;
        let ids = G2::UNIQUE_IDS[comm.rank()];
        // Five rows on rank 1, where four are the most.
        let wrong = [0_i64; 10];
        let ids = if comm.rank() == 1 {
            Tensor::new(&wrong, &[5, 2])?
        } else {
            Tensor::new(&ids, &[4, 2])?
        };
        let config = HandleConfig::new();
        let made = group.create_handle(Layout::ExpertMajor, &config, ids, None, STREAM).map(drop);
        if comm.rank() == 1 {
            let after = group.init_handle(Layout::ExpertMajor, &config, TopK::N(2), None);
            assert!(matches!(after.unwrap_err(), Error::Diverged { .. }));
        }
        made.and_then(|()| meet(&comm))
    });
    let own = &errors[1];
    assert!(matches!(own, Error::Invalid { scope: Scope::Local, .. }), "{own}");
    assert_eq!(failed_peer(&errors[0]), (1, own.to_string()));
    assert!(start.elapsed() < Duration::from_secs(10), "nobody ran into a time-out");
}

/// Nothing in the panicking rank's drops waits for its peers, and they learn of it at once.
#[test]
fn a_rank_that_panics_runs_no_collective_and_its_peers_hear_of_it() {
    let start = Instant::now();
    let results: Vec<Outcome<()>> = outcomes(3, |comm| {
        let config = low_latency().num_experts(6);
        let (group, mut handle) = handle(&comm, &config, Layout::ExpertMajor)?;
        let ids = [0_i64, 1, 2, 3, 4, 5, 0, 5];
        let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
        let mut received = ExpertMajor::new(&group, 4, 512);
        received.dispatch(&mut step, &G2::tokens(0, 512))?;
        assert!(comm.rank() != 1, "rank 1 breaks");
        received.combine(&mut step, &[1.0; 8])?;
        Ok(())
    });
    assert!(matches!(&results[1], Err(RankFailure::Panic(text)) if text.contains("breaks")));
    for rank in [0, 2] {
        let (failed, reason) = failed_peer(error_of(&results[rank]));
        assert_eq!(failed, 1);
        assert!(reason.contains("panic"), "{reason}");
    }
    assert!(start.elapsed() < Duration::from_secs(10), "nobody ran into a time-out");
}

#[test]
fn a_rank_that_never_comes_is_named_after_the_time_out() {
    let config = CpuConfig::new().timeout(Duration::from_millis(300));
    let results: Vec<Outcome<()>> = run_ranks(4, &config, |comm: Comm| {
        let (_group, mut handle) = handle(&comm, &high_throughput().num_experts(8), Layout::Flat)?;
        if comm.rank() == 2 {
            std::thread::sleep(Duration::from_millis(1500));
            return Ok(());
        }
        handle.update(Tensor::new(&[0_i64; 8], &[4, 2])?, None, STREAM).map(drop)
    });
    for rank in [0, 1, 3] {
        match error_of(&results[rank]) {
            Error::Timeout { ranks, .. } => assert_eq!(*ranks, [2]),
            other => panic!("a time-out, not {other}"),
        }
    }
}

#[test]
fn ranks_that_disagree_are_told_alike() {
    let errors = errors(3, |comm| {
        let tokens = if comm.rank() == 2 { 16 } else { 8 };
        let config = low_latency().num_experts(6).max_dispatch_tokens_per_rank(tokens);
        Group::create(&comm, &config).map(drop)
    });
    for error in errors {
        assert_eq!(
            error.to_string(),
            "`max_dispatch_tokens_per_rank`: every rank gives the group the same configuration \
             and environment; expected 8, as rank 0 has, found 16 on rank 2"
        );
    }
}

/// Case E3.
#[test]
fn too_many_tokens_on_one_rank_name_both_numbers() {
    let errors = errors(2, |comm| {
        let config =
            high_throughput().max_dispatch_tokens_per_rank(1024).max_recv_tokens_per_rank(2048);
        let (_group, mut handle) = handle(&comm, &config, Layout::Flat)?;
        let tokens = if comm.rank() == 1 { 1025 } else { 1024 };
        let ids = vec![0_i64; tokens * 2];
        let first = handle.update(Tensor::new(&ids, &[tokens, 2])?, None, STREAM).map(drop);
        if comm.rank() == 1 {
            let ids = [0_i64; 2];
            let later = handle.update(Tensor::new(&ids, &[1, 2])?, None, STREAM).unwrap_err();
            assert!(matches!(later, Error::Diverged { .. }), "{later}");
        }
        first
    });
    match &errors[1] {
        Error::Invalid { argument, expected, found, scope, .. } => {
            assert_eq!((*argument, *scope), ("topk_idx", Scope::Local));
            assert_eq!((&**expected, &**found), ("at most 1024 tokens", "1025"));
        }
        other => panic!("{other}"),
    }
    let (rank, reason) = failed_peer(&errors[0]);
    assert_eq!(rank, 1);
    assert!(reason.contains("1024") && reason.contains("1025"), "{reason}");
}

/// Rank 0 of two gets something wrong: it is refused, and its peer hears of it at once, with the
/// words.
fn is_told(argument: &str, body: fn(&Comm) -> Result<()>) {
    let start = Instant::now();
    let errors = errors(2, |comm| body(&comm));
    assert!(matches!(errors[0], Error::Invalid { scope: Scope::Local, .. }), "{:?}", errors[0]);
    let (rank, reason) = failed_peer(&errors[1]);
    assert_eq!((rank, &*reason), (0, &*errors[0].to_string()));
    assert!(reason.contains(argument), "{reason}");
    assert!(start.elapsed() < Duration::from_secs(10), "nobody ran into a time-out");
}

#[test]
fn indices_of_a_wrong_type_on_one_rank_are_told() {
    is_told("topk_idx", |comm| {
        let (_group, mut flat) = handle(comm, &high_throughput(), Layout::Flat)?;
        let (right, wrong) = ([0_i64; 8], [0.0_f32; 8]);
        let ids = match comm.rank() {
            0 => Tensor::new(&wrong, &[4, 2])?,
            _ => Tensor::new(&right, &[4, 2])?,
        };
        flat.update(ids, None, STREAM).map(drop)
    });
}

#[test]
fn too_little_room_on_one_rank_is_told() {
    is_told("outputs.tokens", |comm| {
        let rank = comm.rank();
        let (_group, mut flat) = handle(comm, &high_throughput(), Layout::Flat)?;
        let mut step = flat.update(Tensor::new(&G2::IDS[rank], &[4, 2])?, None, STREAM)?;
        let mut received = Flat::new([15, 16][rank], 512, 2);
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        received.dispatch(&mut step, &tokens, &weights, ExpertIdKind::Auto)
    });
}

#[test]
fn a_short_buffer_of_a_collective_on_one_rank_is_told() {
    is_told("recv", |comm| {
        let mut recv = vec![0_i32; [3, 4][comm.rank()]];
        comm.all_gather(&[1_i32; 2], &mut recv, STREAM)
    });
}

/// A configuration that is wrong on one rank only differs from its peers' first of all, and every
/// rank hears the same.
#[test]
fn a_wrong_configuration_on_one_rank_is_a_difference() {
    let start = Instant::now();
    let errors = errors(2, |comm| {
        let bytes = [1000, 1024][comm.rank()];
        Group::create(&comm, &high_throughput().max_token_bytes(bytes)).map(drop)
    });
    let text = errors[0].to_string();
    assert!(text.starts_with("`max_token_bytes`: every rank gives"), "{text}");
    assert_eq!(errors[1].to_string(), text);
    assert!(start.elapsed() < Duration::from_secs(10), "nobody ran into a time-out");
}
