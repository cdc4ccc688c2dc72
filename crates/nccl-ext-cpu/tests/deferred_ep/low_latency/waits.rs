//! What waits in the call.

use std::rc::Rc;

use nccl_ext_core::{Buffer, OwnedStream, Reduction};
use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::masks::{LONG_TIMEOUT, masked_group};
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::{INVALID_USAGE, SUCCESS};

use super::rank::DeviceRank;
use crate::world::on_deferred_ranks;

/// EP 3.4.
#[test]
fn a_handle_that_needs_a_larger_buffer_waits_for_the_device() {
    on_deferred_ranks(2, |comm| {
        let stream = OwnedStream::new(comm)?;
        let stream = stream.stream();
        let group = Rc::new(TestGroup::new(comm, &G2.config(LOW_LATENCY, LL_HIDDEN)));
        let mut ll = DeviceRank::on(Rc::clone(&group), comm, G2, RANK_MAJOR);
        for _ in 0..3 {
            assert_ok(ll.dispatch(stream));
            assert_ok(ll.combine(stream));
        }
        // A staged send would be lost.
        ll.send_only = true;
        assert_ok(ll.dispatch(stream));
        group.assert_handle_refused((EXPERT_MAJOR, 4, 0), INVALID_USAGE, FailureClass::Trap);
        assert_ok(complete(&ll.handle));
        let larger = group.handle(EXPERT_MAJOR, 4, 0);
        assert!(stream.is_done(comm)?);
        drop((larger, group));
        // Smaller ones fit.
        let smaller = ll.group.handle(RANK_MAJOR, 1, 0);
        drop(smaller);
        ll.end(comm, &[stream])
    });
}

/// EP 2.5.
#[test]
fn a_group_that_is_destroyed_waits_for_the_device() {
    on_deferred_ranks(2, |comm| {
        let stream = OwnedStream::new(comm)?;
        let stream = stream.stream();
        let mut ll = DeviceRank::new(comm, G2, EXPERT_MAJOR);
        assert_ok(ll.dispatch(stream));
        assert_ok(ll.combine(stream));
        let DeviceRank { handle, group, tokens, .. } = ll;
        drop((handle, group));
        assert!(stream.is_done(comm)?);
        drop(tokens);
        Ok(())
    });
}

/// EP 6.2.
#[test]
fn clean_waits_for_its_stream() {
    on_deferred_ranks(2, |comm| {
        let stream = OwnedStream::new(comm)?;
        let stream = stream.stream();
        let mut ll = DeviceRank::on(masked_group(comm, G2, LONG_TIMEOUT), comm, G2, RANK_MAJOR);
        assert_ok(ll.dispatch(stream));
        assert_ok(ll.combine(stream));
        // SAFETY: the group is live.
        let code = unsafe { (api().ncclEpMaskClean)(ll.group.raw, stream.as_raw()) };
        assert_eq!(code, SUCCESS);
        assert!(stream.is_done(comm)?);
        ll.end(comm, &[stream])
    });
}

/// Creation meets the ranks through the communicator, after what that was given before.
#[test]
fn a_group_is_created_while_the_communicator_has_work() {
    on_deferred_ranks(3, |comm| {
        let stream = OwnedStream::new(comm)?;
        let stream = stream.stream();
        let mine = Buffer::from_slice(comm, &[comm.rank() as i32])?;
        let mut sum = Buffer::<i32>::zeroed(comm, 1)?;
        for _ in 0..4 {
            comm.all_reduce(&mine, &mut sum, Reduction::Sum, stream)?;
            drop(TestGroup::new(comm, &G2_OF_3.config(LOW_LATENCY, LL_HIDDEN)));
        }
        assert_eq!(sum.to_vec(stream)?, [3]);
        Ok(())
    });
}

const G2_OF_3: Fixture = Fixture { ranks: 3, experts: 6, ..G2 };
