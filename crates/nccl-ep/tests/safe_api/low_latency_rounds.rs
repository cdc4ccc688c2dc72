//! Low-latency rounds: a dispatch opens one, its combine ends it, and a group has one at a time.

use nccl_ep::{Error, Group, HandleConfig, Layout, Result, Step, Tensor, TopK};

use crate::support::*;

/// What `body` does with steps of two handles of one group, and what each receives, on the ranks of
/// a world with the ids of G2.
fn two_steps(
    ranks: usize,
    body: impl Fn(usize, [(Step<'_>, ExpertMajor); 2]) -> Result<()> + Sync,
) {
    with_handle(ranks, &low_latency(), Layout::ExpertMajor, |group, first| {
        let rank = group.comm().rank();
        let mut second = top2(group, Layout::ExpertMajor)?;
        let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
        let steps = [first.update(ids, None, STREAM)?, second.update(ids, None, STREAM)?];
        body(rank, steps.map(|step| (step, ExpertMajor::new(group, 4, 512))))
    });
}

#[track_caller]
fn is_busy(result: Result<()>) {
    assert!(matches!(result, Err(Error::Busy { .. })), "{result:?}");
}

/// Case E11.
#[test]
fn one_round_at_a_time() {
    two_steps(2, |rank, [(mut first, mut in_first), (mut second, mut in_second)]| {
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        in_first.dispatch(&mut first, &tokens)?;
        is_busy(in_second.dispatch(&mut second, &tokens));
        let combined = in_first.combine(&mut first, &weights)?;
        assert_eq!(row_values(&combined, 512), G2::WEIGHTED[rank]);
        in_second.dispatch(&mut second, &tokens)?; // the round is over
        is_busy(in_first.dispatch(&mut first, &tokens));
        let combined = in_second.combine(&mut second, &weights)?;
        assert_eq!(row_values(&combined, 512), G2::WEIGHTED[rank]);
        // A step that ends without its combine ends its round.
        in_first.dispatch(&mut first, &tokens)?;
        drop(first);
        in_second.dispatch(&mut second, &tokens)
    });
}

/// A second dispatch of a step belongs to its round.
#[test]
fn a_round_lasts_until_its_combine() {
    two_steps(2, |rank, [(mut first, mut in_first), (mut second, mut in_second)]| {
        let (tokens, weights) = (G2::tokens(rank, 512), G2::weights(rank));
        in_first.dispatch(&mut first, &tokens)?;
        in_first.dispatch(&mut first, &tokens)?;
        is_busy(in_second.dispatch(&mut second, &tokens));
        let combined = in_first.combine(&mut first, &weights)?;
        assert_eq!(row_values(&combined, 512), G2::WEIGHTED[rank]);
        in_second.dispatch(&mut second, &tokens)
    });
}

#[test]
fn a_combine_needs_a_dispatch() {
    two_steps(2, |rank, [(mut first, in_first), _]| {
        let error = in_first.combine(&mut first, &G2::weights(rank)).unwrap_err();
        assert!(error.to_string().contains("expected a dispatch before it"), "{error}");
        Ok(())
    });
}

/// Case A3: a handle with more choices may grow the buffer that an open round lies in.
#[test]
fn no_handle_is_made_inside_a_round_where_the_buffer_may_grow() {
    for sized in [false, true] {
        let config = if sized { low_latency().rdma_buffer_size(1 << 20) } else { low_latency() };
        with_handle(2, &config, Layout::ExpertMajor, |group, handle| {
            let rank = group.comm().rank();
            let wider =
                || group.init_handle(Layout::ExpertMajor, &HandleConfig::new(), TopK::N(4), None);
            let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
            let with_ids = || {
                let options = HandleConfig::new();
                group.create_handle(Layout::ExpertMajor, &options, ids, None, STREAM).map(drop)
            };
            let mut step = handle.update(ids, None, STREAM)?;
            let mut received = ExpertMajor::new(group, 4, 512);
            received.dispatch(&mut step, &G2::tokens(rank, 512))?;
            let made = [wider().map(drop), with_ids()];
            if sized {
                // Nothing can grow, so nothing is in the way.
                assert!(made.iter().all(Result::is_ok), "{made:?}");
            } else {
                made.into_iter().for_each(is_busy);
            }
            let combined = received.combine(&mut step, &G2::weights(rank))?;
            assert_eq!(row_values(&combined, 512), G2::WEIGHTED[rank]);
            drop(step);
            wider()?.destroy().map(drop)
        });
    }
}

/// Case D7: a step that is leaked in its round ends with its handle.
#[test]
fn the_round_of_a_leaked_step_ends_with_the_handle() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let group = Group::create(&comm, &low_latency())?;
        for by_drop in [false, true] {
            let mut leaked = top2(&group, Layout::ExpertMajor)?;
            let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
            let mut step = leaked.update(ids, None, STREAM)?;
            ExpertMajor::new(&group, 4, 512).dispatch(&mut step, &G2::tokens(rank, 512))?;
            std::mem::forget(step);
            if by_drop {
                drop(leaked);
            } else {
                leaked.destroy()?;
            }
            let mut next = top2(&group, Layout::ExpertMajor)?;
            let mut step = next.update(ids, None, STREAM)?;
            let mut received = ExpertMajor::new(&group, 4, 512);
            received.dispatch(&mut step, &G2::tokens(rank, 512))?;
            let combined = received.combine(&mut step, &G2::weights(rank))?;
            assert_eq!(row_values(&combined, 512), G2::WEIGHTED[rank]);
            drop(step);
            next.destroy()?;
        }
        group.destroy()?;
        comm.destroy()?;
        Ok(())
    });
}
