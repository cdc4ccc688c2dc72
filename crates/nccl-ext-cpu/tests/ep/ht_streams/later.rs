//! What only the work itself can find out comes later, on the stream, and not in the call.

use nccl_ext_core::{Error, OwnedStream};
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::worlds::{error_of, failed_peer};

use super::on_two_streams;

/// The calls of a rank.
type Calls = fn(usize, &mut DeviceRank, &OwnedStream) -> Result<(), Error>;

/// All calls succeed; then rank 0's stream fails with an error of `call` that says `words`, and rank
/// 1's with that of its peer.
#[track_caller]
fn assert_fails_later(fixture: Fixture, calls: Calls, call: &str, words: &str) {
    let ends = on_two_streams(3, |comm, [stream, _]| {
        let mut rank = DeviceRank::new(comm, fixture, EXPERT_MAJOR, |_| ());
        let called = calls(comm.rank(), &mut rank, stream);
        let end = stream.stream().synchronize(comm);
        if comm.rank() == 0 {
            called.unwrap();
        }
        // A group does not end where its stream has failed.
        std::mem::forget(rank);
        end
    });
    let [first, second] = &ends[..] else { panic!("two ranks") };
    let Error::Native { call: found, detail, .. } = error_of(first) else { panic!("{first:?}") };
    assert_eq!(*found, call);
    assert!(detail.contains(words), "{detail}");
    let (rank, told) = failed_peer(error_of(second));
    assert!(rank == 0 && told.contains(words), "{told}");
}

#[test]
fn too_many_tokens_for_a_rank() {
    // Rank 0 receives all eight tokens.
    let fixture = Fixture { topk: 1, ids: |_| vec![0, 1, 0, 1], max_recv: 7, ..G2 };
    assert_fails_later(
        fixture,
        |_, rank, stream| rank.update(stream.stream()),
        "ncclEpUpdateHandle",
        "no more rows than its budget",
    );
}

#[test]
fn ids_that_name_no_expert() {
    let fixture = Fixture { ids: |r| if r == 0 { vec![4; 8] } else { vec![0; 8] }, ..G2 };
    assert_fails_later(
        fixture,
        |_, rank, stream| rank.update(stream.stream()),
        "ncclEpUpdateHandle",
        "topk_idx",
    );
}

#[test]
fn too_few_rows_for_a_combine() {
    assert_fails_later(
        G2,
        |me, rank, stream| {
            let stream = stream.stream();
            rank.update(stream)?;
            rank.dispatch(stream)?;
            // Of six and of eight.
            rank.shorten_received([5, 8][me]);
            rank.combine(stream)
        },
        "ncclEpCombine",
        "every row that was received",
    );
}
