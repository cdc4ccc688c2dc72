//! Rounds that have an order give what they give where calls are complete when they return.

use std::rc::Rc;

use nccl_ep_sys::ncclEpLayout_t;
use nccl_ext_core::{OwnedStream, Result};
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::every_rank;

use super::rank::DeviceRank;
use crate::world::{on_deferred_ranks, order};

/// What each rank's round gives.
fn expected(layout: ncclEpLayout_t) -> Vec<Vec<f32>> {
    every_rank(G2.ranks, |comm| LowLatencyRank::new(comm, G2, layout).round_trip())
}

#[test]
fn rounds_on_one_stream_need_no_waiting() {
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        let expected = expected(layout);
        on_deferred_ranks(2, |comm| {
            let stream = OwnedStream::new(comm)?;
            let stream = stream.stream();
            let mut ll = DeviceRank::new(comm, G2, layout);
            for round in 0..5 {
                assert_ok(ll.dispatch(stream));
                assert_ok(ll.combine(stream));
                // A second combine of the same dispatch (EP 4.4.5).
                if round == 2 {
                    assert_ok(ll.combine(stream));
                }
            }
            assert_eq!(ll.sums(stream)?, expected[comm.rank()]);
            ll.end(comm, &[stream])
        });
    }
}

#[test]
fn a_round_on_two_streams_is_ordered_by_an_event() {
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        let expected = expected(layout);
        on_deferred_ranks(2, |comm| {
            let streams = [OwnedStream::new(comm)?, OwnedStream::new(comm)?];
            let [a, b] = [streams[0].stream(), streams[1].stream()];
            let mut ll = DeviceRank::new(comm, G2, layout);
            for _ in 0..3 {
                assert_ok(ll.dispatch(a));
                order(comm, a, b)?;
                assert_ok(ll.combine(b));
                order(comm, b, a)?;
            }
            assert_eq!(ll.sums(b)?, expected[comm.rank()]);
            ll.end(comm, &[a, b])
        });
    }
}

/// The receiving half runs on the stream of the send (EP 6.1).
#[test]
fn staged_halves_let_inputs_be_written_in_between() {
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        let expected = expected(layout);
        on_deferred_ranks(2, |comm| {
            let stream = OwnedStream::new(comm)?;
            let stream = stream.stream();
            let mut ll = DeviceRank::new(comm, G2, layout);
            let tokens = ll.tokens.buffer.to_vec(stream)?;
            ll.send_only = true;
            for _ in 0..3 {
                assert_ok(ll.dispatch(stream));
                ll.tokens.fill(0x7F, stream);
                assert_ok(complete(&ll.handle));
                assert_ok(ll.combine(stream));
                assert_ok(complete(&ll.handle));
                ll.tokens.buffer.write(&tokens, stream)?;
            }
            assert_eq!(ll.sums(stream)?, expected[comm.rank()]);
            ll.end(comm, &[stream])
        });
    }
}

#[test]
fn a_rank_that_stages_meets_one_that_does_not() {
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        let expected = expected(layout);
        on_deferred_ranks(2, |comm| {
            let stream = OwnedStream::new(comm)?;
            let stream = stream.stream();
            let mut ll = DeviceRank::new(comm, G2, layout);
            for round in 0..4 {
                ll.send_only = round % 2 == comm.rank();
                assert_ok(ll.dispatch(stream));
                assert_ok(complete(&ll.handle));
                assert_ok(ll.combine(stream));
                assert_ok(complete(&ll.handle));
            }
            assert_eq!(ll.sums(stream)?, expected[comm.rank()]);
            ll.end(comm, &[stream])
        });
    }
}

/// Handles of a group may interleave as long as their operations have an order (EP 4.11).
#[test]
fn two_handles_interleave_on_one_stream() {
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        let expected = expected(layout);
        on_deferred_ranks(2, |comm| {
            let stream = OwnedStream::new(comm)?;
            let stream = stream.stream();
            let group = Rc::new(TestGroup::new(comm, &G2.config(LOW_LATENCY, LL_HIDDEN)));
            let [mut one, mut other] =
                [(); 2].map(|()| DeviceRank::on(Rc::clone(&group), comm, G2, layout));
            drop(group);
            assert_ok(one.dispatch(stream));
            assert_ok(other.dispatch(stream));
            assert_ok(one.combine(stream));
            assert_ok(other.combine(stream));
            for ll in [one, other] {
                assert_eq!(ll.sums(stream)?, expected[comm.rank()]);
                ll.end(comm, &[stream])?;
            }
            Ok(())
        });
    }
}

/// The combine of the round before tells every sender that its receivers have read their windows.
#[test]
fn windows_are_used_again_after_a_combine() {
    let expected = expected(RANK_MAJOR);
    on_deferred_ranks(2, |comm| -> Result<()> {
        let stream = OwnedStream::new(comm)?;
        let stream = stream.stream();
        let mut ll = DeviceRank::new(comm, G2, RANK_MAJOR);
        ll.rows.register(comm);
        for _ in 0..3 {
            assert_ok(ll.dispatch(stream));
            assert_ok(ll.combine(stream));
        }
        assert_eq!(ll.sums(stream)?, expected[comm.rank()]);
        ll.end(comm, &[stream])
    });
}
