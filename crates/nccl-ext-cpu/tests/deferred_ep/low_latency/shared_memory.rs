//! Memory that several ranks use, or nobody any more.

use core::ffi::c_void;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use nccl_ext_core::{Buffer, DeviceBuffer, OwnedStream, Result, bf16};
use nccl_ext_cpu::{RankFailure, deferred_backend, run_ranks};
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::worlds::config;

use super::rank::DeviceRank;
use crate::world::{DISPATCH, FILL, assert_calls, races};

/// A sender writes into a window from its own dispatch on, and its receiver may still read (EP 4.3).
#[test]
fn a_window_used_again_without_a_fence() {
    let races = races(2, |comm| {
        let stream = OwnedStream::new(comm)?;
        let stream = stream.stream();
        let mut ll = DeviceRank::new(comm, G2, RANK_MAJOR);
        ll.rows.register(comm);
        let rows = Buffer::<bf16>::zeroed(comm, ll.rows.buffer.len())?;
        // No combine: nobody tells the senders when the rows have been read.
        let rounds = || -> Result<()> {
            let mut rows = rows;
            for _ in 0..2 {
                ll.dispatch(stream);
                rows.copy_from(&ll.rows.buffer, stream)?;
            }
            std::mem::forget(rows);
            Ok(())
        };
        let _ = rounds();
        ll.end(comm, &[stream])
    });
    assert_calls(&races, [DISPATCH, "cuMemcpyDtoDAsync"]);
    for race in &races {
        let ranks = ["rank 0", "rank 1"];
        let named = |rank| race.streams.iter().any(|stream| stream.contains(rank));
        assert!(ranks.into_iter().all(named), "{race:?}");
    }
}

/// Either the free finds the dispatch, or the dispatch finds that its tokens are gone.
#[test]
fn tokens_freed_while_their_dispatch_may_read_them() {
    let free = |memory: *mut c_void| {
        // SAFETY: the memory is a tensor's that is forgotten afterwards; that it is in use is what is
        // found.
        let code = unsafe { (deferred_backend().nccl().ncclMemFree)(memory) };
        let error = || (deferred_backend().hooks().unwrap().take_error)().unwrap();
        if code.is_success() { Ok(()) } else { Err(error()) }
    };
    for seed in 0..8 {
        let ends = run_ranks(2, &config().deferred(seed), |comm| {
            let stream = OwnedStream::new(&comm)?;
            let mut ll = DeviceRank::new(&comm, G2, RANK_MAJOR);
            ll.dispatch(stream.stream());
            let freed = free(ll.tokens.buffer.raw().ptr);
            let ended = stream.stream().synchronize(&comm);
            std::mem::forget(ll);
            freed.and(ended)
        });
        for end in ends {
            let Err(RankFailure::Error(error)) = end else { panic!("seed {seed}: {end:?}") };
            let text = error.to_string();
            let told = text.contains("ncclMemFree") && text.contains(DISPATCH);
            assert!(told || text.contains("after it was freed"), "seed {seed}: {text}");
        }
    }
}

/// Memory of one rank that another uses.
#[test]
fn two_ranks_without_an_order() {
    let (send, receive) = channel::<usize>();
    let ends = Mutex::new((send, receive));
    let races = races(2, |comm| {
        let stream = OwnedStream::new(comm)?;
        let stream = stream.stream();
        let mut ll = DeviceRank::new(comm, G2, EXPERT_MAJOR);
        // All ranks meet, so what came before is not what is found.
        drop(TestGroup::new(comm, &G2.config(HIGH_THROUGHPUT, LL_HIDDEN)));
        if comm.rank() == 0 {
            let address = ll.tokens.buffer.raw().ptr.addr();
            ends.lock().unwrap().0.send(address).unwrap();
        } else {
            let address = loop {
                if let Ok(address) = ends.lock().unwrap().1.try_recv() {
                    break address;
                }
                std::thread::yield_now();
            };
            let fill = comm.backend().driver().fill.unwrap();
            // SAFETY: rank 0 keeps its tokens; that it uses them meanwhile is what is found.
            let _ = unsafe { fill(address as u64, 0, 64, stream.as_raw()) };
        }
        ll.dispatch(stream);
        ll.end(comm, &[stream])
    });
    assert_calls(&races, [DISPATCH, FILL]);
}
