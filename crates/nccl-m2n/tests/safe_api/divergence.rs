//! Ranks that leave a group in different ways: nobody waits for the time-out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use nccl_ext_cpu::{CpuConfig, run_ranks, unique_id};
use nccl_ext_test::worlds::STREAM;
use nccl_m2n::{
    Agreement, Comm, Config, DistTensor, DistTensorMut, Error, Layout, Result, Runtime, Stream,
};

use crate::common::{layout, reshard};

const TIMEOUT: Duration = Duration::from_secs(10);

fn config() -> CpuConfig {
    CpuConfig::new().timeout(TIMEOUT)
}

fn pair(bytes: usize) -> (Layout, Layout) {
    let side = |start| layout(&format!("{{1}}@{start} [R] {bytes} uint8"));
    (side(0), side(1))
}

/// Each rank's error, if any, of what `body` does; all of them stay until the last is done, so that
/// none is told by another's end.
fn errors(ranks: usize, body: impl Fn(&Comm) -> Result<()> + Sync) -> Vec<Option<Error>> {
    let started = Instant::now();
    let done = Barrier::new(ranks);
    let results = run_ranks(ranks, &config(), |comm: Comm| {
        let result = catch_unwind(AssertUnwindSafe(|| body(&comm)));
        done.wait();
        let panicked = || Error::RankGone { reason: "the test's rank panicked".into() };
        Ok::<_, Error>(result.unwrap_or_else(|_| Err(panicked())).err())
    });
    assert!(started.elapsed() < TIMEOUT, "a rank waited for the time-out");
    results.into_iter().map(|result| result.unwrap()).collect()
}

/// Ranks 0 and 1 share one communicator, ranks 0 and 2 another. What goes wrong on the first does
/// so on both its ranks; rank 2 learns of it from rank 0.
fn ranks_of_another_communicator_are_told(second: &[(Layout, Layout)]) -> Vec<Option<Error>> {
    let (first_id, other_id) = (unique_id(&config()), unique_id(&config()));
    let (good, kept) = (pair(4), Mutex::new(Vec::new()));
    errors(3, |comm| {
        let rank = comm.rank();
        let join = |id, rank| Comm::init_rank(comm.backend(), 2, id, rank);
        let first = (rank < 2).then(|| join(&first_id, rank)).transpose()?;
        let other = (rank != 1).then(|| join(&other_id, rank / 2)).transpose()?;
        // Whoever leaves the world tells its peers, which is not what is tested.
        kept.lock().unwrap().extend(first.iter().chain(&other).cloned());
        let runtime = Runtime::new(comm.backend(), &Config::new())?;
        let own = [[7_u8; 8]; 3];
        let mut rooms = [[0_u8; 8]; 3];
        let mut rooms = own.iter().zip(&mut rooms);
        runtime.group(|group| {
            let mut add = |comm: &Comm, (from, to): &(Layout, Layout)| {
                let (own, room) = rooms.next().unwrap();
                let (from, to) = (DistTensor::new(own, from), DistTensorMut::new(room, to));
                group.reshard(comm, from, to, STREAM)
            };
            if let Some(other) = &other {
                add(other, &good)?;
            }
            if let Some(first) = &first {
                second.iter().try_for_each(|pair| add(first, pair))?;
            }
            Ok(())
        })
    })
}

#[test]
fn a_bad_entry_is_told_to_the_ranks_of_the_groups_other_communicators() {
    let bad = (pair(4).0, pair(6).1);
    let errors = ranks_of_another_communicator_are_told(&[bad]);
    assert!(matches!(errors[0], Some(Error::Entry { index: 1, .. })), "{errors:?}");
    assert!(matches!(errors[1], Some(Error::Entry { index: 0, .. })), "{errors:?}");
    assert!(matches!(errors[2], Some(Error::PeerFailed { rank: 0, .. })), "{errors:?}");
}

#[test]
fn entries_that_do_not_fuse_are_told_to_the_ranks_of_the_groups_other_communicators() {
    let errors = ranks_of_another_communicator_are_told(&[pair(4), pair(0)]);
    assert!(matches!(errors[0], Some(Error::Entry { index: 2, .. })), "{errors:?}");
    assert!(matches!(errors[1], Some(Error::Entry { index: 1, .. })), "{errors:?}");
    assert!(matches!(errors[2], Some(Error::PeerFailed { rank: 0, .. })), "{errors:?}");
}

/// Two reshards, the second of so many bytes; rank 1 has it on another stream or runtime.
fn fused_unlike(bytes: usize, by_runtime: bool) {
    let (first, second) = (pair(4), pair(bytes));
    let errors = errors(2, |comm| {
        let runtime = Runtime::new(comm.backend(), &Config::new())?;
        let other = Runtime::new(comm.backend(), &Config::new())?;
        let own = [[7_u8; 4]; 2];
        let mut rooms = [[0_u8; 4]; 2];
        let [room, last] = &mut rooms;
        // SAFETY: the name of the thread's own default stream; the CPU backend ignores it.
        let per_thread: Stream<'static> =
            unsafe { Stream::from_raw(core::ptr::without_provenance_mut(2)) };
        let unlike = comm.rank() == 1;
        let on = if unlike && by_runtime { &other } else { &runtime };
        let stream = if unlike && !by_runtime { per_thread } else { STREAM };
        runtime.group(|group| {
            let from = DistTensor::new(&own[0], &first.0);
            group.reshard(comm, from, DistTensorMut::new(room, &first.1), STREAM)?;
            let from = DistTensor::new(&own[1], &second.0);
            group.reshard_on(on, comm, from, DistTensorMut::new(last, &second.1), stream)
        })
    });
    for error in errors {
        let Some(Error::DigestMismatch { rank: 1, first_difference }) = error else {
            panic!("{error:?}")
        };
        let expected = "call 1, fused by runtime and stream with: call 0 on rank 0, call 1 on \
                        rank 1";
        assert_eq!(first_difference, expected);
    }
}

#[test]
fn streams_that_part_entries_in_another_way_are_a_digest_mismatch() {
    fused_unlike(4, false);
    fused_unlike(0, false);
}

#[test]
fn runtimes_that_part_entries_in_another_way_are_a_digest_mismatch() {
    fused_unlike(4, true);
    fused_unlike(0, true);
}

/// Rank 0 leaves before its first entry, with a communicator that its runtime knows.
fn leaves_at_once(agreement: Agreement, panics: bool) {
    let (from, to) = pair(4);
    let errors = errors(2, |comm| {
        let runtime = Runtime::new(comm.backend(), &Config::new().agreement(agreement))?;
        let own = [7_u8; 4];
        let mut room = [0_u8; 4];
        reshard(&runtime, comm, (&own, &from), (&mut room, &to))?;
        runtime.group(|group| {
            if comm.rank() == 0 {
                assert!(!panics, "as a user may");
                return Err(Error::RankGone { reason: "its file was not there".into() });
            }
            let from = DistTensor::new(&own, &from);
            group.reshard(comm, from, DistTensorMut::new(&mut room, &to), STREAM)
        })
    });
    assert!(matches!(errors[0], Some(Error::RankGone { .. })), "{errors:?}");
    assert!(matches!(errors[1], Some(Error::PeerFailed { rank: 0, .. })), "{errors:?}");
}

#[test]
fn an_error_before_the_first_entry_is_told_on_all_communicators_of_the_runtime() {
    leaves_at_once(Agreement::PerShape, false);
    leaves_at_once(Agreement::Off, false);
}

#[test]
fn a_panic_before_the_first_entry_is_told_on_all_communicators_of_the_runtime() {
    leaves_at_once(Agreement::PerShape, true);
}
