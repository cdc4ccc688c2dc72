//! Lifetimes, drops and failures of groups and handles on the CPU backend.

#![allow(clippy::unwrap_used, clippy::panic)]

mod cpu;

use std::time::{Duration, Instant};

use cpu::{ExpertMajor, Flat, G2, STREAM, handle, meet, on_ranks, outcomes, row_values};
use nccl_ep::{
    Buffer, Comm, DataType, Error, ExpertIdKind, Group, GroupConfig, HandleConfig, Layout,
    MemorySpace, Presence, Result, Scope, Tensor, TopK, bf16,
};
use nccl_ext_cpu::{CpuConfig, RankFailure, run_ranks};
use nccl_ext_test::stub::ep as stub;

type Outcome<T> = Result<T, RankFailure<Error>>;

fn error<T: std::fmt::Debug>(outcome: &Outcome<T>) -> &Error {
    match outcome {
        Err(RankFailure::Error(error)) => error,
        other => panic!("an error, not {other:?}"),
    }
}

/// The rank that failed and why, of a `PeerFailed`.
fn peer<T: std::fmt::Debug>(outcome: &Outcome<T>) -> (usize, String) {
    match error(outcome) {
        Error::PeerFailed { rank, error } => (*rank, error.to_string()),
        other => panic!("PeerFailed, not {other}"),
    }
}

#[test]
fn e12_drops_in_any_order_and_again() {
    on_ranks(2, |comm| {
        for order in 0..3 {
            let (group, handle) = handle(&comm, &G2::ht(), Layout::Flat)?;
            match order {
                0 => {
                    drop(group); // first: the handle keeps what it needs
                    drop(handle);
                }
                1 => drop((handle, group)),
                _ => {
                    handle.destroy()?;
                    group.destroy()?;
                }
            }
        }
        let again = comm.clone();
        let (group, handle) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
        drop(comm); // the group has a share of its own
        handle.destroy()?;
        group.destroy()?;
        assert_eq!(again.size(), 2);
        Ok(())
    });
}

#[test]
fn e12_destroy_with_live_handles_is_busy_and_gives_the_group_back() {
    on_ranks(2, |comm| {
        let (group, handle) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
        let refused = group.destroy().unwrap_err();
        assert!(matches!(*refused.error, Error::Busy { .. }), "{refused}");
        let group = refused.value.unwrap();
        let busy = comm.clone().destroy().unwrap_err();
        assert!(matches!(*busy.error, Error::Busy { .. }), "{busy}");
        drop(busy);
        handle.destroy()?;
        group.destroy()?;
        comm.destroy()?;
        Ok(())
    });
}

#[test]
fn a_dropped_group_dooms_its_communicator() {
    on_ranks(2, |comm| {
        let group = Group::create(&comm, &G2::ll())?;
        assert!(!comm.is_doomed());
        drop(group);
        assert!(comm.is_doomed());
        Ok(())
    });
}

/// Making a low-latency handle may grow the buffer, which takes every rank (EP 3.4).
#[test]
fn a_refused_low_latency_handle_is_known_to_all_ranks() {
    let start = Instant::now();
    let results: Vec<Outcome<()>> = outcomes(2, |comm| {
        let group = Group::create(&comm, &G2::ll())?;
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
    let own = error(&results[1]);
    assert!(matches!(own, Error::Invalid { scope: Scope::Local, .. }), "{own}");
    assert_eq!(peer(&results[0]), (1, own.to_string()));
    assert!(start.elapsed() < Duration::from_secs(10), "nobody ran into a time-out");
}

/// Nothing in the panicking rank's drops waits for its peers, and they learn of it at once.
#[test]
fn a_rank_that_panics_runs_no_collective_and_its_peers_hear_of_it() {
    let start = Instant::now();
    let results: Vec<Outcome<()>> = outcomes(3, |comm| {
        let config = G2::ll().num_experts(6);
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
        let (failed, reason) = peer(&results[rank]);
        assert_eq!(failed, 1);
        assert!(reason.contains("panic"), "{reason}");
    }
    assert!(start.elapsed() < Duration::from_secs(10), "nobody ran into a time-out");
}

#[test]
fn a_rank_that_never_comes_is_named_after_the_time_out() {
    let config = CpuConfig::new().timeout(Duration::from_millis(300));
    let results: Vec<Outcome<()>> = run_ranks(4, &config, |comm: Comm| {
        let (_group, mut handle) = handle(&comm, &G2::ht().num_experts(8), Layout::Flat)?;
        if comm.rank() == 2 {
            std::thread::sleep(Duration::from_millis(1500));
            return Ok(());
        }
        handle.update(Tensor::new(&[0_i64; 8], &[4, 2])?, None, STREAM).map(drop)
    });
    for rank in [0, 1, 3] {
        match error(&results[rank]) {
            Error::Timeout { ranks, .. } => assert_eq!(*ranks, [2]),
            other => panic!("a time-out, not {other}"),
        }
    }
}

#[test]
fn e01_uneven_experts_name_the_rank_counts_that_work() {
    let results: Vec<Outcome<()>> =
        outcomes(3, |comm| Group::create(&comm, &G2::ll().num_experts(256)).map(drop));
    let text = error(&results[0]).to_string();
    assert_eq!(error(&results[0]).scope(), Scope::Uniform);
    assert!(text.contains("256 experts over 1, 2, 4, 8, 16, 32, 64, 128, 256 ranks"), "{text}");
    assert!(text.contains("found 3 ranks"), "{text}");
}

#[test]
fn e02_too_many_tokens_low_latency() {
    on_ranks(2, |comm| {
        let config = G2::ll().max_dispatch_tokens_per_rank(128);
        let (group, mut handle) = handle(&comm, &config, Layout::ExpertMajor)?;
        let ids = vec![0_i64; 129 * 2];
        let error = handle.update(Tensor::new(&ids, &[129, 2])?, None, STREAM).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`topk_idx`: a rank dispatches at most the group's maximum; expected at most 128 \
             tokens, found 129"
        );
        // An LL update is local: nobody waited, and the next one works.
        let ids = G2::UNIQUE_IDS[comm.rank()];
        handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
        drop(handle);
        group.destroy()?;
        Ok(())
    });
}

#[test]
fn e03_too_many_tokens_on_one_rank_high_throughput() {
    let results: Vec<Outcome<()>> = outcomes(2, |comm| {
        let config = G2::ht().max_dispatch_tokens_per_rank(1024).max_recv_tokens_per_rank(2048);
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
    match error(&results[1]) {
        Error::Invalid { argument, expected, found, scope, .. } => {
            assert_eq!((*argument, *scope), ("topk_idx", Scope::Local));
            assert_eq!((&**expected, &**found), ("at most 1024 tokens", "1025"));
        }
        other => panic!("{other}"),
    }
    let (rank, reason) = peer(&results[0]);
    assert_eq!(rank, 1);
    assert!(reason.contains("1024") && reason.contains("1025"), "{reason}");
}

#[test]
fn e04_receive_shape_is_exact() {
    on_ranks(4, |comm| {
        let config = GroupConfig::new()
            .num_experts(32)
            .max_dispatch_tokens_per_rank(16)
            .max_token_bytes(1024);
        let (group, mut handle) = handle(&comm, &config, Layout::ExpertMajor)?;
        let spec = handle.recv_spec(128, DataType::Float32).unwrap();
        assert_eq!(spec.tokens.shape[..], [8, 64, 128]);
        assert_eq!(spec.tokens.data_types, [DataType::Float32]);
        assert_eq!(spec.expert_counters.shape[..], [8]);
        assert_eq!(spec.expert_counters.presence, Presence::Required);
        assert_eq!(spec.topk_idx.presence, Presence::Forbidden);
        let ids = [0_i64; 2];
        meet(&comm)?;
        let mut step = handle.update(Tensor::new(&ids, &[1, 2])?, None, STREAM)?;
        let tokens = [0.5_f32; 128];
        let mut short = vec![0.0_f32; 4 * 64 * 128];
        let mut counters = [0_i32; 8];
        let inputs = nccl_ep::DispatchInputs::new(Tensor::new(&tokens, &[1, 128])?);
        let mut outputs =
            nccl_ep::DispatchOutputs::new(nccl_ep::TensorMut::new(&mut short, &[4, 64, 128])?);
        let mut info = nccl_ep::LayoutInfo::new()
            .expert_counters(nccl_ep::TensorMut::new(&mut counters, &[8])?);
        let config = nccl_ep::DispatchConfig::new();
        let error =
            step.dispatch(&inputs, &mut outputs, Some(&mut info), &config, STREAM).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("expected [8, 64, 128] of fp32, found [4, 64, 128] of fp32"),
            "{text}"
        );
        // Its peers were told: only this rank knows its tensors.
        let later = handle.update(Tensor::new(&ids, &[1, 2])?, None, STREAM).map(drop);
        assert!(matches!(later, Err(Error::Diverged { .. })), "{later:?}");
        drop(group);
        Ok(())
    });
}

#[test]
fn e07_hidden_2880() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let config = G2::ht().max_token_bytes(5760);
        let (group, mut flat) = handle(&comm, &config, Layout::Flat)?;
        let mut step = flat.update(Tensor::new(&G2::IDS[rank], &[4, 2])?, None, STREAM)?;
        let mut received = Flat::new(16, 2880, 2);
        let (tokens, weights) = (G2::tokens(rank, 2880), G2::weights(rank));
        received.dispatch(&mut step, &tokens, &weights, ExpertIdKind::Auto)?;
        let combined = received.combine(&mut step)?;
        let expected = [[2.0, 4.0, 3.0, 0.0], [5.0, 6.0, 7.0, 8.0]];
        assert_eq!(row_values(&combined, 2880), expected[rank]);
        drop(step);
        drop(flat);
        group.destroy()?;

        let config = G2::ll().max_token_bytes(6144);
        let (group, mut em) = handle(&comm, &config, Layout::ExpertMajor)?;
        let mut step = em.update(Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?, None, STREAM)?;
        meet(&comm)?;
        let error = ExpertMajor::new(&group, 4, 2880).dispatch(&mut step, &tokens).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("expected a hidden size that is a multiple of 256, found 2880"));
        Ok(())
    });
}

#[test]
fn e08_no_tokens_on_one_rank_and_on_all() {
    on_ranks(2, |comm| {
        for idle in [1, 2] {
            let rank = comm.rank();
            let tokens = if rank + idle >= 2 { 0 } else { 4 };
            let ids = &G2::UNIQUE_IDS[rank][..tokens * 2];
            let data = &G2::tokens(rank, 512)[..tokens * 512];
            let weights = &G2::weights(rank)[..tokens * 2];

            let (group, mut em) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
            let mut step = em.update(Tensor::new(ids, &[tokens, 2])?, None, STREAM)?;
            let mut received = ExpertMajor::new(&group, 4, 512);
            received.dispatch(&mut step, data)?;
            let expected = match (idle, rank) {
                (1, 0) => [2, 2],
                (1, _) => [1, 1],
                _ => [0, 0],
            };
            assert_eq!(received.counters, expected, "idle {idle}, rank {rank}");
            let combined = received.combine(&mut step, weights)?;
            assert_eq!(combined.len(), tokens * 512);
            drop(step);
            drop(em);
            group.destroy()?;

            let (group, mut flat) = handle(&comm, &G2::ht(), Layout::Flat)?;
            let mut step = flat.update(Tensor::new(ids, &[tokens, 2])?, None, STREAM)?;
            let mut received = Flat::new(16, 512, 2);
            received.dispatch(&mut step, data, weights, ExpertIdKind::Auto)?;
            let combined = row_values(&received.combine(&mut step)?, 512);
            let expected: &[f32] = if tokens == 0 { &[] } else { &[2.0, 4.0, 3.0, 0.0] };
            assert_eq!(combined, expected);
            drop(step);
            drop(flat);
            group.destroy()?;
        }
        Ok(())
    });
}

/// What a flat dispatch of one rank says to weights of `weights` and indices of `ids`.
fn flat_dispatch_error<W: nccl_ep::Element, I: nccl_ep::Element>() -> String {
    let errors = on_ranks(1, |comm| {
        let (_group, mut flat) = handle(&comm, &G2::ht(), Layout::Flat)?;
        let ids = [0_i64, 1, 2, 3, 0, 1, 2, 3];
        let mut step = flat.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
        let (tokens, weights) = (G2::tokens(0, 512), [W::default(); 8]);
        let inputs = nccl_ep::DispatchInputs::new(Tensor::new(&tokens, &[4, 512])?)
            .topk_weights(Tensor::new(&weights, &[4, 2])?);
        let (mut rows, mut out_weights, mut out_ids) =
            (vec![bf16::ZERO; 16 * 512], vec![0.0_f32; 32], vec![I::default(); 32]);
        let mut outputs =
            nccl_ep::DispatchOutputs::new(nccl_ep::TensorMut::new(&mut rows, &[16, 512])?)
                .topk_weights(nccl_ep::TensorMut::new(&mut out_weights, &[16, 2])?)
                .topk_idx(nccl_ep::TensorMut::new(&mut out_ids, &[16, 2])?);
        let config = nccl_ep::DispatchConfig::new();
        let sent = step.dispatch(&inputs, &mut outputs, None, &config, STREAM);
        Ok(sent.map_or_else(|error| error.to_string(), |()| String::from("sent")))
    });
    errors.into_iter().next().unwrap()
}

#[test]
fn e09_element_types_are_named() {
    on_ranks(1, |comm| {
        let (_group, mut flat) = handle(&comm, &G2::ht(), Layout::Flat)?;
        let error = flat.update(Tensor::new(&[0.0_f32; 8], &[4, 2])?, None, STREAM).unwrap_err();
        assert!(error.to_string().contains("of int32 or int64, found [4, 2] of fp32"), "{error}");
        Ok(())
    });
    assert_eq!(flat_dispatch_error::<f32, i64>(), "sent");
    let error = flat_dispatch_error::<bf16, i64>();
    assert!(error.contains("expected [4, 2] of fp32, found [4, 2] of bf16"), "{error}");
    // Flat receives int64 indices, whatever the routing had.
    let error = flat_dispatch_error::<f32, i32>();
    assert!(error.contains("of int64, found [16, 2] of int32"), "{error}");
}

#[test]
fn e11_one_low_latency_round_at_a_time() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let (group, mut a) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
        let mut b =
            group.init_handle(Layout::ExpertMajor, &HandleConfig::new(), TopK::N(2), None)?;
        let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        let mut first = a.update(ids, None, STREAM)?;
        let mut second = b.update(ids, None, STREAM)?;
        let (mut in_a, mut in_b) =
            (ExpertMajor::new(&group, 4, 512), ExpertMajor::new(&group, 4, 512));
        in_a.dispatch(&mut first, &tokens)?;
        let busy = in_b.dispatch(&mut second, &tokens).unwrap_err();
        assert!(matches!(busy, Error::Busy { .. }), "{busy}");
        let expected = [[2.25, 8.5, 18.75, 0.0], [25.0, 36.0, 100.0, 130.0]];
        assert_eq!(row_values(&in_a.combine(&mut first, &weights)?, 512), expected[rank]);
        in_b.dispatch(&mut second, &tokens)?; // the round is over
        let busy = in_a.dispatch(&mut first, &tokens).unwrap_err();
        assert!(matches!(busy, Error::Busy { .. }), "{busy}");
        assert_eq!(row_values(&in_b.combine(&mut second, &weights)?, 512), expected[rank]);
        // A step that ends without its combine ends its round.
        in_a.dispatch(&mut first, &tokens)?;
        drop(first);
        in_b.dispatch(&mut second, &tokens)?;
        drop(second);
        drop((a, b));
        group.destroy()?;
        Ok(())
    });
}

#[test]
fn a_low_latency_combine_needs_a_dispatch() {
    on_ranks(2, |comm| {
        let (group, mut em) = handle(&comm, &G2::ll(), Layout::ExpertMajor)?;
        let ids = Tensor::new(&G2::UNIQUE_IDS[0], &[4, 2])?;
        let mut step = em.update(ids, None, STREAM)?;
        let received = ExpertMajor::new(&group, 4, 512);
        let error = received.combine(&mut step, &[0.0; 8]).unwrap_err();
        assert!(error.to_string().contains("expected a dispatch before it"), "{error}");
        drop(step);
        drop(em);
        group.destroy()?;
        Ok(())
    });
}

#[test]
fn b23_handle_memory_of_the_caller_is_used_and_given_back() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let group = Group::create(&comm, &G2::ht())?;
        let options = HandleConfig::new();
        let size = group.handle_mem_size(Layout::Flat, &options, TopK::N(2))?;
        assert!(size > 0);
        let short = Buffer::<u8>::zeroed(&comm, size - 1)?;
        let refused = group.init_handle(Layout::Flat, &options, TopK::N(2), Some(Box::new(short)));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(&format!("expected {size} bytes")), "{text}");
        let memory = Buffer::<u8>::zeroed(&comm, size)?;
        let mut handle =
            group.init_handle(Layout::Flat, &options, TopK::N(2), Some(Box::new(memory)))?;
        let mut step = handle.update(Tensor::new(&G2::IDS[rank], &[4, 2])?, None, STREAM)?;
        let mut received = Flat::new(16, 512, 2);
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        received.dispatch(&mut step, &tokens, &weights, ExpertIdKind::Auto)?;
        assert_eq!(received.values(3), [[1.0, 2.0, 3.0], [1.0, 2.0, 5.0]][rank]);
        drop(step);
        assert!(handle.destroy()?.is_some());
        group.destroy()?;
        Ok(())
    });
}

#[test]
fn automatic_topk_is_the_groups_or_an_error_that_names_both_ways() {
    on_ranks(2, |comm| {
        let group = Group::create(&comm, &G2::ll())?;
        let options = HandleConfig::new();
        let made = group.init_handle(Layout::ExpertMajor, &options, TopK::Auto, None);
        let text = made.unwrap_err().to_string();
        assert!(text.contains("GroupConfig::num_topk") && text.contains("TopK::N"), "{text}");
        group.destroy()?;
        let group = Group::create(&comm, &G2::ll().num_topk(2))?;
        let handle = group.init_handle(Layout::ExpertMajor, &options, TopK::Auto, None)?;
        assert_eq!(handle.num_topk(), 2);
        drop(handle);
        group.destroy()?;
        Ok(())
    });
}

#[test]
fn ranks_that_disagree_are_told_alike() {
    let results: Vec<Outcome<()>> = outcomes(3, |comm| {
        let tokens = if comm.rank() == 2 { 16 } else { 8 };
        let config = G2::ll().num_experts(6).max_dispatch_tokens_per_rank(tokens);
        Group::create(&comm, &config).map(drop)
    });
    for result in &results {
        assert_eq!(
            error(result).to_string(),
            "`max_dispatch_tokens_per_rank`: every rank gives the group the same configuration \
             and environment; expected 8, as rank 0 has, found 16 on rank 2"
        );
    }
}

#[test]
fn two_backends_in_one_process_do_not_mix() {
    let foreign = stub::comm(1);
    let elsewhere = stub::comm_on(stub::backend(MemorySpace::Device), 1);
    on_ranks(1, |comm| {
        let config = G2::ht();
        let (group, mut handle) = handle(&comm, &config, Layout::Flat)?;
        let ids = Buffer::from_slice(&foreign, &[0_i64; 8])?;
        let error = handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("expected host memory of backend cpu"), "{text}");
        assert!(text.contains("found host memory of backend stub"), "{text}");
        drop(handle);
        drop(group);
        Ok(())
    });
    // Host memory on a backend with device memory.
    let (device, mut handle) = handle(&elsewhere, &G2::ht(), Layout::Flat).unwrap();
    let error = handle.update(Tensor::new(&[0_i64; 8], &[4, 2]).unwrap(), None, STREAM);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("expected device memory of backend stub, found host memory"), "{text}");
    drop((device, handle));
    // Both work side by side.
    let group = Group::create(&foreign, &G2::ht()).unwrap();
    on_ranks(2, |comm| {
        let group = Group::create(&comm, &G2::ll())?;
        group.destroy()?;
        Ok(())
    });
    group.destroy().unwrap();
}

/// One rank's wrong tensor, buffer or configuration: the peers hear of it at once, and of a
/// configuration every rank hears the same.
#[test]
fn errors_of_one_rank_reach_its_peers_before_the_time_out() {
    let start = Instant::now();
    let told = |results: [Outcome<()>; 2], part: &str| {
        match error(&results[0]) {
            Error::Invalid { scope, .. } => assert_eq!(*scope, Scope::Local),
            other => panic!("{other}"),
        }
        let (rank, reason) = peer(&results[1]);
        assert!(rank == 0 && reason.contains(part), "{reason}");
    };
    let both = |body: fn(Comm) -> Result<()>| -> [Outcome<()>; 2] {
        outcomes(2, body).try_into().unwrap()
    };
    told(
        both(|comm| {
            let (_group, mut flat) = handle(&comm, &G2::ht(), Layout::Flat)?;
            let (wide, floats) = ([0_i64; 8], [0.0_f32; 8]);
            let wrong = comm.rank() == 0;
            let ids =
                if wrong { Tensor::new(&floats, &[4, 2])? } else { Tensor::new(&wide, &[4, 2])? };
            flat.update(ids, None, STREAM).map(drop)
        }),
        "topk_idx",
    );
    told(
        both(|comm| {
            let rank = comm.rank();
            let (_group, mut flat) = handle(&comm, &G2::ht(), Layout::Flat)?;
            let mut step = flat.update(Tensor::new(&G2::IDS[rank], &[4, 2])?, None, STREAM)?;
            let capacity = if rank == 0 { 15 } else { 16 };
            let mut received = Flat::new(capacity, 512, 2);
            let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
            received.dispatch(&mut step, &tokens, &weights, ExpertIdKind::Auto)
        }),
        "outputs.tokens",
    );
    told(
        both(|comm| {
            let mut recv = vec![0_i32; if comm.rank() == 0 { 3 } else { 4 }];
            comm.all_gather(&[1_i32; 2], &mut recv, STREAM)
        }),
        "recv",
    );
    // A configuration that is wrong on one rank alone differs from its peers' first of all.
    let results = both(|comm| {
        let bytes = if comm.rank() == 0 { 1000 } else { 1024 };
        Group::create(&comm, &G2::ht().max_token_bytes(bytes)).map(drop)
    });
    for result in &results {
        assert!(error(result).to_string().starts_with("`max_token_bytes`: every rank gives"));
    }
    assert!(start.elapsed() < Duration::from_secs(10), "nobody ran into a time-out");
}

/// A second dispatch of a step belongs to its round.
#[test]
fn a_round_lasts_until_its_combine() {
    on_ranks(1, |comm| {
        let config = G2::ll();
        let (group, mut a) = handle(&comm, &config, Layout::ExpertMajor)?;
        let options = HandleConfig::new();
        let mut b = group.init_handle(Layout::ExpertMajor, &options, TopK::N(2), None)?;
        let ids = [0_i64, 1, 2, 3];
        let ids = Tensor::new(&ids, &[2, 2])?;
        let tokens = &G2::tokens(0, 512)[..1024];
        let (mut first, mut second) = (a.update(ids, None, STREAM)?, b.update(ids, None, STREAM)?);
        let (mut in_a, mut in_b) =
            (ExpertMajor::new(&group, 4, 512), ExpertMajor::new(&group, 4, 512));
        in_a.dispatch(&mut first, tokens)?;
        in_a.dispatch(&mut first, tokens)?;
        let busy = in_b.dispatch(&mut second, tokens).unwrap_err();
        assert!(matches!(busy, Error::Busy { .. }), "{busy}");
        in_a.combine(&mut first, &[1.0; 4])?;
        in_b.dispatch(&mut second, tokens)?;
        drop((first, second));
        drop((a, b));
        group.destroy()?;
        Ok(())
    });
}
