//! What has no order on a rank's streams is found, and named, and the peers hear of it.

use nccl_ep_sys::ncclEpLayout_t;
use nccl_ext_core::{Error, OwnedStream, Result};
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::worlds::{error_of, failed_peer};

use super::{SEEDS, on_two_streams};

/// Calls of rank 0 on two streams, in which something has no order; those of rank 1 are right.
type Calls = fn(&mut DeviceRank, [&OwnedStream; 2]) -> Result<()>;

fn right_calls(rank: &mut DeviceRank, [stream, _]: [&OwnedStream; 2]) -> Result<()> {
    let stream = stream.stream();
    rank.update(stream)?;
    rank.dispatch(stream)?;
    rank.combine(stream)
}

/// Rank 0 gets a race of the two calls, of a buffer that is called so; rank 1 hears of that where it
/// depends on rank 0.
#[track_caller]
fn assert_race(layout: ncclEpLayout_t, wrong_calls: Calls, names: [&str; 2], buffer: &str) {
    for seed in SEEDS {
        let ends = on_two_streams(seed, |comm, streams| {
            let mut rank = DeviceRank::new(comm, G2, layout, |_| ());
            let calls = if comm.rank() == 0 { wrong_calls } else { right_calls };
            let called = calls(&mut rank, streams);
            let [a, b] = streams.map(|stream| stream.stream().synchronize(comm));
            // A group does not end where its stream has failed.
            std::mem::forget(rank);
            let ends = [called, a, b];
            // One stream finds the race, others hear of it.
            let races = |end: &&Result<()>| matches!(end, Err(Error::Race { .. }));
            ends.iter()
                .find(races)
                .or(ends.iter().find(|end| end.is_err()))
                .cloned()
                .unwrap_or(Ok(()))
        });
        let error = error_of(&ends[0]);
        let Error::Race { first, second, buffer: found, .. } = error else { panic!("{error}") };
        let mut calls = [first.call, second.call];
        calls.sort_unstable();
        assert_eq!(calls, names, "{error}");
        assert!(found.contains(buffer) && first.stream != second.stream, "{error}");
        if ends[1].is_err() {
            let (rank, told) = failed_peer(error_of(&ends[1]));
            // A call that waits reports the race itself; then the rank leaves.
            assert!(rank == 0 && (told == error.to_string() || told.contains("left")), "{told}");
        }
    }
}

#[test]
fn tokens_written_on_another_stream_after_their_dispatch() {
    assert_race(
        EXPERT_MAJOR,
        |rank, [a, b]| {
            rank.update(a.stream())?;
            rank.dispatch(a.stream())?;
            rank.tokens.buffer.fill_bytes(0, b.stream())
        },
        ["cuMemsetD8Async", "ncclEpDispatch"],
        "128 bytes",
    );
}

#[test]
fn outputs_read_on_another_stream_before_the_dispatch_is_done() {
    assert_race(
        EXPERT_MAJOR,
        |rank, [a, b]| {
            rank.update(a.stream())?;
            rank.dispatch(a.stream())?;
            rank.out_tokens.buffer.to_vec(b.stream()).map(drop)
        },
        ["cuMemcpyDtoHAsync", "ncclEpDispatch"],
        "512 bytes",
    );
}

#[test]
fn a_total_read_before_the_update_is_done() {
    assert_race(
        FLAT,
        |rank, [a, b]| {
            rank.update(a.stream())?;
            rank.total.buffer.to_vec(b.stream()).map(drop)
        },
        ["cuMemcpyDtoHAsync", "ncclEpUpdateHandle"],
        "8 bytes",
    );
}

#[test]
fn a_combine_on_another_stream_than_its_dispatch() {
    assert_race(
        EXPERT_MAJOR,
        |rank, [a, b]| {
            rank.update(a.stream())?;
            rank.dispatch(a.stream())?;
            rank.combine(b.stream())
        },
        ["ncclEpCombine", "ncclEpDispatch"],
        "operations of an EP group share",
    );
}

#[test]
fn a_dispatch_that_waits_does_so_for_its_own_stream_only() {
    assert_race(
        FLAT,
        |rank, [a, b]| {
            rank.update(a.stream())?;
            rank.dispatch(b.stream())
        },
        ["ncclEpDispatch", "ncclEpUpdateHandle"],
        "operations of an EP group share",
    );
}

#[test]
fn handle_memory_overwritten_while_an_update_may_still_write_it() {
    assert_race(
        FLAT,
        |rank, [a, b]| {
            rank.update(a.stream())?;
            rank.memory.buffer.fill_bytes(0, b.stream())
        },
        ["cuMemsetD8Async", "ncclEpUpdateHandle"],
        "allocation",
    );
}

#[test]
fn handle_memory_overwritten_after_a_combine_that_is_not_over() {
    assert_race(
        EXPERT_MAJOR,
        |rank, [a, b]| {
            rank.update(a.stream())?;
            rank.dispatch(a.stream())?;
            a.stream().synchronize(rank.memory.buffer.device())?;
            rank.combine(a.stream())?;
            rank.memory.buffer.fill_bytes(0, b.stream())
        },
        ["cuMemsetD8Async", "ncclEpCombine"],
        "allocation",
    );
}

#[test]
fn an_import_before_the_update_is_done() {
    let import = |rank: &mut DeviceRank, [a, _]: [&OwnedStream; 2]| {
        rank.update(a.stream())?;
        rank.import().map(drop)
    };
    assert_race(FLAT, import, ["ncclEpUpdateHandle", "ncclExtImportHandle"], "allocation");
}

/// The work itself finds that, or the call that frees.
#[test]
fn handle_memory_freed_while_it_may_still_be_used() {
    for seed in SEEDS {
        let ends = on_two_streams(seed, |comm, [stream, _]| {
            let mut rank = DeviceRank::new(comm, G2, FLAT, |_| ());
            rank.update(stream.stream())?;
            let freed = if comm.rank() == 0 { rank.free_memory() } else { Ok(()) };
            let end = freed.and(stream.stream().synchronize(comm));
            std::mem::forget(rank);
            end
        });
        match error_of(&ends[0]) {
            Error::Race { first, second, .. } => {
                assert_eq!((first.call, second.call), ("ncclEpUpdateHandle", "ncclMemFree"));
            }
            error => assert!(error.to_string().contains("after it was freed"), "{error}"),
        }
    }
}
