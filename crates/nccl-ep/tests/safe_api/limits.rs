//! Sizes, shapes and element types, and how an error names them.

use nccl_ep::{
    Algorithm, DataType, DispatchConfig, DispatchInputs, DispatchOutputs, Element, Error,
    ExpertIdKind, Group, GroupConfig, Layout, LayoutInfo, Presence, Scope, Tensor, TensorMut,
    Validation, bf16,
};
use nccl_ext_core::raw::ncclResult_t;

use crate::support::*;

/// Case E1.
#[test]
fn uneven_experts_name_the_rank_counts_that_work() {
    let config = low_latency().num_experts(256);
    for error in errors(3, |comm| Group::create(&comm, &config).map(drop)) {
        let text = error.to_string();
        assert_eq!(error.scope(), Scope::Uniform, "{text}");
        assert!(text.contains("256 experts over 1, 2, 4, 8, 16, 32, 64, 128, 256 ranks"), "{text}");
        assert!(text.contains("found 3 ranks"), "{text}");
    }
}

/// Case E2.
#[test]
fn too_many_tokens_are_refused_and_the_next_low_latency_update_works() {
    let config = low_latency().max_dispatch_tokens_per_rank(128);
    with_handle(2, &config, Layout::ExpertMajor, |group, handle| {
        let ids = vec![0_i64; 129 * 2];
        let error = handle.update(Tensor::new(&ids, &[129, 2])?, None, STREAM).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`topk_idx`: a rank dispatches at most the group's maximum; expected at most 128 \
             tokens, found 129"
        );
        // An LL update is local: nobody waited, and the next one works.
        let ids = G2::UNIQUE_IDS[group.comm().rank()];
        let step = handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
        assert_eq!(step.tokens(), 4);
        Ok(())
    });
}

/// Case E4.
#[test]
fn the_received_shape_is_exact() {
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
        let inputs = DispatchInputs::new(Tensor::new(&tokens, &[1, 128])?);
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut short, &[4, 64, 128])?);
        let mut info = LayoutInfo::new().expert_counters(TensorMut::new(&mut counters, &[8])?);
        let config = DispatchConfig::new();
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

/// Case E7.
#[test]
fn hidden_2880_works_with_high_throughput_only() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let config = high_throughput().max_token_bytes(5760);
        let (group, mut flat) = handle(&comm, &config, Layout::Flat)?;
        let mut step = flat.update(Tensor::new(&G2::IDS[rank], &[4, 2])?, None, STREAM)?;
        let mut received = Flat::new(16, 2880, 2);
        let (tokens, weights) = (G2::tokens(rank, 2880), G2::weights(rank));
        received.dispatch(&mut step, &tokens, &weights, ExpertIdKind::Auto)?;
        let combined = received.combine(&mut step)?;
        assert_eq!(row_values(&combined, 2880), G2::SUMMED[rank]);
        drop(step);
        drop(flat);
        group.destroy()?;

        let config = low_latency().max_token_bytes(6144);
        let (group, mut em) = handle(&comm, &config, Layout::ExpertMajor)?;
        let mut step = em.update(Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?, None, STREAM)?;
        meet(&comm)?;
        let error = ExpertMajor::new(&group, 4, 2880).dispatch(&mut step, &tokens).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("expected a hidden size that is a multiple of 256, found 2880"));
        Ok(())
    });
}

/// Case E8.
#[test]
fn no_tokens_on_one_rank_or_on_all() {
    on_ranks(2, |comm| {
        for idle in [1, 2] {
            let rank = comm.rank();
            let tokens = if rank + idle >= 2 { 0 } else { 4 };
            let ids = &G2::UNIQUE_IDS[rank][..tokens * 2];
            let data = &G2::tokens(rank, 512)[..tokens * 512];
            let weights = &G2::weights(rank)[..tokens * 2];

            let (group, mut em) = handle(&comm, &low_latency(), Layout::ExpertMajor)?;
            let mut step = em.update(Tensor::new(ids, &[tokens, 2])?, None, STREAM)?;
            let mut received = ExpertMajor::new(&group, 4, 512);
            received.dispatch(&mut step, data)?;
            let expected = match (idle, rank) {
                (1, 0) => [2, 2],
                (1, _) => [1, 1],
                _ => [0, 0],
            };
            assert_eq!(received.counters, expected, "idle {idle}, rank {rank}");
            let combined = row_values(&received.combine(&mut step, weights)?, 512);
            // Each choice gives the token times its weight.
            let expected = if tokens == 0 { &[][..] } else { &G2::WEIGHTED[rank] };
            assert_eq!(combined, expected, "idle {idle}, rank {rank}");
            drop(step);
            drop(em);
            group.destroy()?;

            let (group, mut flat) = handle(&comm, &high_throughput(), Layout::Flat)?;
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
fn flat_dispatch_error<W: Element, I: Element>() -> String {
    let errors = on_ranks(1, |comm| {
        let (_group, mut flat) = handle(&comm, &high_throughput(), Layout::Flat)?;
        let ids = [0_i64, 1, 2, 3, 0, 1, 2, 3];
        let mut step = flat.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
        let (tokens, weights) = (G2::tokens(0, 512), [W::default(); 8]);
        let inputs = DispatchInputs::new(Tensor::new(&tokens, &[4, 512])?)
            .topk_weights(Tensor::new(&weights, &[4, 2])?);
        let (mut rows, mut out_weights, mut out_ids) =
            (vec![bf16::ZERO; 16 * 512], vec![0.0_f32; 32], vec![I::default(); 32]);
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &[16, 512])?)
            .topk_weights(TensorMut::new(&mut out_weights, &[16, 2])?)
            .topk_idx(TensorMut::new(&mut out_ids, &[16, 2])?);
        let config = DispatchConfig::new();
        let sent = step.dispatch(&inputs, &mut outputs, None, &config, STREAM);
        Ok(sent.map_or_else(|error| error.to_string(), |()| String::from("sent")))
    });
    errors.into_iter().next().unwrap()
}

/// Case E9.
#[test]
fn element_types_are_named() {
    on_ranks(1, |comm| {
        let (_group, mut flat) = handle(&comm, &high_throughput(), Layout::Flat)?;
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

/// Case A12: a size from the configuration that no memory has room for is an error, not the end of
/// the process.
#[test]
fn a_handle_for_more_tokens_than_memory_holds_is_an_error() {
    for validation in [Validation::Host, Validation::Data] {
        for (algorithm, layout) in [
            (Algorithm::LowLatency, Layout::ExpertMajor),
            (Algorithm::HighThroughput, Layout::Flat),
        ] {
            let config = GroupConfig::new()
                .algorithm(algorithm)
                .num_experts(4)
                .max_dispatch_tokens_per_rank(u32::MAX)
                .max_token_bytes(1024)
                .validation(validation);
            for error in errors(1, |comm| handle(&comm, &config, layout).map(drop)) {
                let Error::Native { code, detail, .. } = &error else {
                    panic!("{validation:?}, {algorithm:?}: {error:?}");
                };
                assert_eq!(*code, ncclResult_t::ncclSystemError, "{error}");
                assert!(detail.contains("bytes are not to be had"), "{error}");
            }
        }
    }
}
