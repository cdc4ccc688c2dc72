//! Calls that nothing orders are found, whichever of the two comes second.

use std::rc::Rc;

use nccl_ep_sys::ncclEpLayout_t;
use nccl_ext_core::{Buffer, DeviceBufferMut, OwnedStream, Result, Stream};
use nccl_ext_test::cpu::ep::*;

use super::rank::DeviceRank;
use crate::world::{COMBINE, DISPATCH, FILL, Race, assert_calls, races};

/// The races of two ranks that do the same with two streams each.
#[track_caller]
fn races_of_two_streams(
    layout: ncclEpLayout_t,
    body: impl Fn(&mut DeviceRank, Stream<'_>, Stream<'_>) -> Result<()> + Sync,
) -> Vec<Race> {
    races(2, |comm| {
        let streams = [OwnedStream::new(comm)?, OwnedStream::new(comm)?];
        let [a, b] = [streams[0].stream(), streams[1].stream()];
        let mut ll = DeviceRank::new(comm, G2, layout);
        // A call on a stream that has failed already says so, and so does the wait for it.
        let _ = body(&mut ll, a, b);
        ll.end(comm, &[a, b])
    })
}

/// Both use what all operations of a group share (EP 4.11).
#[track_caller]
fn assert_shared(races: &[Race], calls: [&'static str; 2]) {
    assert_calls(races, calls);
    for race in races {
        assert!(race.buffer.contains("of an EP group share"), "{race:?}");
    }
}

#[test]
fn tokens_written_right_after_their_dispatch() {
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        let races = races_of_two_streams(layout, |ll, a, b| {
            ll.dispatch(a);
            ll.tokens.fill(0, b);
            Ok(())
        });
        assert_calls(&races, [DISPATCH, FILL]);
    }
}

#[test]
fn a_combine_on_another_stream_than_its_dispatch() {
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        let races = races_of_two_streams(layout, |ll, a, b| {
            ll.dispatch(a);
            ll.combine(b);
            Ok(())
        });
        assert_shared(&races, [DISPATCH, COMBINE]);
    }
}

/// The ids are read by dispatch and by combine (EP 3.5.1).
#[test]
fn ids_overwritten_before_the_combine() {
    let mut found = Vec::new();
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        found.extend(races_of_two_streams(layout, |ll, a, b| {
            ll.dispatch(a);
            a.synchronize(ll.ids.buffer.device())?;
            ll.ids.fill(0, b);
            ll.combine(a);
            Ok(())
        }));
    }
    assert_calls(&found, [COMBINE, FILL]);
}

#[test]
fn rows_read_before_the_dispatch_has_an_order_with_it() {
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        let races = races_of_two_streams(layout, |ll, a, b| {
            ll.dispatch(a);
            ll.rows.buffer.to_vec(b).map(drop)
        });
        assert_calls(&races, [DISPATCH, "cuMemcpyDtoHAsync"]);
    }
}

#[test]
fn rows_written_while_peers_may_read_them() {
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        let races = races_of_two_streams(layout, |ll, a, b| {
            ll.dispatch(a);
            a.synchronize(ll.ids.buffer.device())?;
            ll.combine(a);
            ll.rows.fill(0, b);
            Ok(())
        });
        assert_calls(&races, [COMBINE, FILL]);
    }
}

#[test]
fn sums_read_too_early() {
    let races = races_of_two_streams(EXPERT_MAJOR, |ll, a, b| {
        ll.dispatch(a);
        ll.combine(a);
        ll.sums(b).map(drop)
    });
    assert_calls(&races, [COMBINE, "cuMemcpyDtoHAsync"]);
}

/// Between a staged send and its completion the table of ids is written already (EP 6.1).
#[test]
fn an_output_used_between_send_and_completion() {
    let races = races_of_two_streams(RANK_MAJOR, |ll, a, b| {
        ll.send_only = true;
        ll.dispatch(a);
        if let Some(ids) = &mut ll.out_ids {
            ids.fill(0, b);
        }
        complete(&ll.handle);
        Ok(())
    });
    for race in &races {
        assert!(race.calls.contains(FILL), "{race:?}");
    }
}

#[test]
fn two_handles_of_a_group_on_two_streams() {
    for (_, layout) in LOW_LATENCY_LAYOUTS {
        let races = races(2, |comm| {
            let streams = [OwnedStream::new(comm)?, OwnedStream::new(comm)?];
            let [a, b] = [streams[0].stream(), streams[1].stream()];
            let group = Rc::new(TestGroup::new(comm, &G2.config(LOW_LATENCY, LL_HIDDEN)));
            let [mut one, mut other] =
                [(); 2].map(|()| DeviceRank::on(Rc::clone(&group), comm, G2, layout));
            one.dispatch(a);
            one.combine(a);
            other.dispatch(b);
            other.combine(b);
            std::mem::forget(group);
            one.end(comm, &[a, b])?;
            other.end(comm, &[a, b])
        });
        for race in &races {
            assert!(race.buffer.contains("of an EP group share"), "{race:?}");
            assert!(race.calls.contains(DISPATCH), "{race:?}");
        }
    }
}

#[test]
fn the_mask_asked_for_during_an_operation() {
    use nccl_ext_test::cpu::ep::masks::{LONG_TIMEOUT, masked_group};
    let races = races(2, |comm| {
        let streams = [OwnedStream::new(comm)?, OwnedStream::new(comm)?];
        let [a, b] = [streams[0].stream(), streams[1].stream()];
        let mut ll = DeviceRank::on(masked_group(comm, G2, LONG_TIMEOUT), comm, G2, EXPERT_MAJOR);
        let mut mask = Buffer::<i32>::zeroed(comm, 2)?;
        ll.dispatch(a);
        let out = mask.raw_mut().ptr.cast();
        // SAFETY: the group is live, and the mask has an element for each rank.
        let _ = unsafe { (api().ncclEpMaskQuery)(ll.group.raw, out, b.as_raw()) };
        std::mem::forget(mask);
        ll.end(comm, &[a, b])
    });
    assert_shared(&races, [DISPATCH, "ncclEpMaskQuery"]);
}
