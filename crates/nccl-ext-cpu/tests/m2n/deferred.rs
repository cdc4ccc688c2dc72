//! Reshards that run when the call has returned: what M2N 4.4 orders and what it does not. The table
//! is called directly, past the order that the safe layer makes.

use core::ffi::c_void;
use std::ptr::null_mut;

use nccl_ext_core::driver::{CuEvent, CuResult, DriverApi};
use nccl_ext_core::raw::{cudaStream_t, ncclDataType_t, ncclResult_t};
use nccl_ext_core::{Comm, Error, RacingUse};
use nccl_ext_cpu::{deferred_backend, run_ranks};
use nccl_ext_test::cpu::INVALID_ARGUMENT;
use nccl_ext_test::cpu::m2n::*;
use nccl_ext_test::worlds::deferred_config;

const BYTES: usize = 64;

fn driver() -> &'static DriverApi {
    deferred_backend().driver()
}

/// One of two ranks: rank 0's tile goes to rank 1's.
struct Rank<'a> {
    comm: &'a Comm,
    tile: *mut c_void,
    streams: [cudaStream_t; 2],
}

impl<'a> Rank<'a> {
    /// After the first call, which waits.
    fn new(comm: &'a Comm) -> Self {
        let mut tile = null_mut();
        // SAFETY: `tile` outlives the call.
        let code = unsafe { (deferred_backend().nccl().ncclMemAlloc)(&mut tile, BYTES) };
        assert!(code.is_success());
        let streams = [(); 2].map(|()| {
            let mut stream = null_mut();
            // SAFETY: `stream` outlives the call.
            let code = unsafe { driver().stream_create.unwrap()(&mut stream, 1) };
            assert_eq!(code, CuResult::SUCCESS);
            stream
        });
        let rank = Self { comm, tile, streams };
        assert_ok(rank.reshard(0, tile));
        assert!(rank.wait(0).is_ok());
        rank
    }

    fn reshard(&self, stream: usize, tile: *mut c_void) -> ncclResult_t {
        self.reshard_of(BYTES, stream, tile)
    }

    fn reshard_of(&self, bytes: usize, stream: usize, tile: *mut c_void) -> ncclResult_t {
        let case = ReshardCase::plain(bytes);
        let [mut src, mut dst] = [&case.src, &case.dst]
            .map(|side| OwnedDescriptor::new(side, ncclDataType_t::ncclUint8, tile.cast()));
        let (comm, stream) = (self.comm.as_raw(), self.streams[stream]);
        // SAFETY: live objects; the tile is this backend's memory, which it looks after.
        unsafe { (api().ncclReshard)(null_mut(), comm, src.raw(), dst.raw(), stream) }
    }

    fn fill(&self, to: *mut c_void, value: u8, stream: usize) {
        // SAFETY: the backend refuses what is in use; nothing is freed before the ranks end.
        let code = unsafe { driver().fill.unwrap()(to as u64, value, BYTES, self.streams[stream]) };
        assert_eq!(code, CuResult::SUCCESS);
    }

    fn wait(&self, stream: usize) -> Result<(), Error> {
        // SAFETY: a live stream.
        match unsafe { driver().stream_synchronize.unwrap()(self.streams[stream]) } {
            CuResult::SUCCESS => Ok(()),
            _ => Err((deferred_backend().hooks().unwrap().take_error)().unwrap()),
        }
    }

    /// What the two streams end with.
    fn race(&self) -> Option<[RacingUse; 2]> {
        let ends = [self.wait(0), self.wait(1)];
        ends.into_iter().find_map(|end| match end.err()? {
            Error::Race { first, second, .. } => Some([*first, *second]),
            Error::PeerFailed { .. } => None,
            other => panic!("{other}"),
        })
    }
}

/// What the two ranks of a world give.
fn ranks<T: Send>(body: impl Fn(&Rank<'_>) -> T + Sync) -> [T; 2] {
    let body = |comm: Comm| Ok::<_, Error>(body(&Rank::new(&comm)));
    let results = run_ranks(2, &deferred_config(), body);
    let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    results.try_into().ok().unwrap()
}

fn calls(race: &[RacingUse; 2]) -> Vec<(&'static str, bool)> {
    let mut calls: Vec<_> = race.iter().map(|used| (used.call, used.writes)).collect();
    calls.sort_unstable();
    calls
}

#[test]
fn a_source_written_on_another_stream_is_a_race() {
    let [source, _] = ranks(|rank| {
        let code = rank.reshard(0, rank.tile);
        if rank.comm.rank() == 0 {
            assert_ok(code); // the peer may have heard of the race before it calls
            rank.fill(rank.tile, 1, 1);
        }
        rank.race()
    });
    assert_eq!(calls(&source.unwrap()), [("cuMemsetD8Async", true), ("ncclReshard", false)]);
}

#[test]
fn a_destination_used_on_another_stream_is_a_race() {
    let [_, destination] = ranks(|rank| {
        assert_ok(rank.reshard(0, rank.tile));
        if rank.comm.rank() == 1 {
            rank.fill(rank.tile, 1, 1);
        }
        rank.race()
    });
    assert_eq!(calls(&destination.unwrap()), [("cuMemsetD8Async", true), ("ncclReshard", true)]);
}

#[test]
fn two_reshards_into_one_tile_on_two_streams_are_a_race() {
    let [_, destination] = ranks(|rank| {
        assert_ok(rank.reshard(0, rank.tile));
        let again = rank.reshard(rank.comm.rank(), rank.tile);
        // The peer may have heard of the race before it calls.
        assert!(rank.comm.rank() == 0 || again.is_success());
        rank.race()
    });
    assert_eq!(calls(&destination.unwrap()), [("ncclReshard", true); 2]);
}

/// M2N 4.4: the caller's stream waits for the call's work, so an event recorded there covers it; and
/// what the source did before is before the destination's write.
#[test]
fn streams_that_wait_for_the_call_come_after_it() {
    ranks(|rank| {
        for value in 1..20 {
            if rank.comm.rank() == 0 {
                rank.fill(rank.tile, value, 0);
            }
            assert_ok(rank.reshard(0, rank.tile));
            let mut event: CuEvent = null_mut();
            let [a, b] = rank.streams;
            // SAFETY: live objects.
            unsafe {
                assert_eq!(driver().event_create.unwrap()(&mut event, 0), CuResult::SUCCESS);
                for (from, to) in [(a, b), (b, a)] {
                    assert_eq!(driver().event_record.unwrap()(event, from), CuResult::SUCCESS);
                    let waits = driver().stream_wait_event.unwrap();
                    assert_eq!(waits(to, event, 0), CuResult::SUCCESS);
                    if from == a {
                        rank.fill(rank.tile, 0, 1);
                    }
                }
            }
            assert!(rank.wait(1).is_ok() && rank.wait(0).is_ok());
        }
    });
}

/// M2N 4.4: there is no barrier on the way out. The destination's memory is the source's to write
/// only when something else has said that the bytes are there.
#[test]
fn a_source_does_not_come_after_the_destinations_write() {
    let shared = std::sync::Mutex::new(0);
    let barrier = std::sync::Barrier::new(2);
    let [source, _] = ranks(|rank| {
        if rank.comm.rank() == 1 {
            *shared.lock().unwrap() = rank.tile.expose_provenance();
        }
        barrier.wait();
        assert_ok(rank.reshard(0, rank.tile));
        if rank.comm.rank() == 0 {
            let theirs = core::ptr::with_exposed_provenance_mut(*shared.lock().unwrap());
            rank.fill(theirs, 1, 0);
        }
        rank.race()
    });
    let [first, second] = source.unwrap();
    assert_eq!((first.call, first.writes, second.writes), ("ncclReshard", true, true));
    assert!(first.stream.contains("rank 1") && second.stream.contains("rank 0"));
}

#[test]
fn a_rank_that_is_refused_alone_knows_at_once_and_its_peer_when_the_work_has_run() {
    let [source, destination] = ranks(|rank| {
        let tile = if rank.comm.rank() == 1 { null_mut() } else { rank.tile };
        (rank.reshard(0, tile), last_text(), rank.wait(0))
    });
    assert!(source.0.is_success());
    let error = source.2.unwrap_err().to_string();
    assert!(error.contains("rank 1 cannot take part") && error.contains("dst->dataPtr"), "{error}");
    assert_eq!(destination.0, INVALID_ARGUMENT);
    assert!(destination.1.contains("dst->dataPtr") && destination.2.is_ok());
}

#[test]
fn a_group_that_fails_when_it_has_returned_says_which_entry() {
    let ends = ranks(|rank| {
        group_start();
        for tile in [rank.tile, rank.tile.wrapping_byte_add(BYTES / 2)] {
            let odd = rank.comm.rank() == 1 && tile != rank.tile;
            assert_ok(rank.reshard_of(if odd { 16 } else { 32 }, 1, tile));
        }
        assert_ok(group_end());
        rank.wait(1).unwrap_err().to_string()
    });
    for error in ends {
        let words = ["ncclM2nGroupEnd: entry 1 of 2 failed", "localShape"];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}
