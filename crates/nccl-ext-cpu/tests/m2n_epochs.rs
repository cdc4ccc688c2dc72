//! M2N 1.7, 2.8, 4.1: handles, epochs and the last error, which belong to the process or a thread.
//! Its tests set variables of the environment, which an epoch reads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::ptr::{dangling_mut, null, null_mut};
use std::sync::{Mutex, PoisonError};

use nccl_ext_test::cpu::m2n::*;
use nccl_ext_test::cpu::*;

/// Buckets of PACK, which an epoch reads.
const VARIABLE: &str = "NCCL_RESHARD_PACK_BUFFSIZES";

static PROCESS: Mutex<()> = Mutex::new(());

/// M2N vector L10.
#[test]
fn tokens_never_come_again() {
    let _process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut last = 0;
    for _ in 0..3 {
        let handles = [(); 2].map(|()| init_handle());
        for handle in handles {
            assert!(handle > last, "{handle} after {last}");
            last = handle;
        }
        handles.into_iter().for_each(finalize_handle);
    }
}

fn set(variable: &str, value: Option<&str>) {
    // SAFETY: tests that use the environment take turns, and no rank is running.
    unsafe {
        match value {
            Some(value) => std::env::set_var(variable, value),
            None => std::env::remove_var(variable),
        }
    }
}

/// What an epoch thinks of 3000 bytes, by a handle.
fn takes_3000(token: usize) -> bool {
    let case = ReshardCase::plain(3000);
    let codes = every_rank(2, |comm| {
        let mut tiles = case.pattern_tiles(comm.rank());
        (case.call_with(comm, token, &mut tiles), last_text())
    });
    assert_eq!(codes[0], codes[1]);
    let (code, text) = &codes[0];
    match *code {
        SUCCESS => true,
        INVALID_ARGUMENT if text.contains("largest configured") && text.contains("2048") => false,
        _ => panic!("{code:?}: {text}"),
    }
}

/// The environment is read when an epoch begins, and an epoch ends with its last handle.
#[test]
fn an_epoch_lasts_as_long_as_its_handles() {
    let _process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    finalize_handle(0);
    set(VARIABLE, Some("2048"));
    let (first, second) = (init_handle(), init_handle());
    set(VARIABLE, None);
    assert!(!takes_3000(first));
    finalize_handle(first);
    // The default handle joins the epoch and keeps it.
    assert!(!takes_3000(0));
    finalize_handle(second);
    assert!(!takes_3000(init_handle()));
    finalize_handle(0);
    // The last handle of `takes_3000(init_handle())` is still there.
    let last = init_handle();
    assert!(!takes_3000(last));
    finalize_handle(last);
    finalize_handle(last - 1);
    assert!(takes_3000(0));
    finalize_handle(0);
}

/// M2N 2.1 #1 to #25: these errors come before the default handle, so that they start no epoch.
#[test]
fn a_bad_descriptor_starts_no_epoch() {
    let _process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    finalize_handle(0);
    set(VARIABLE, Some("2048"));
    let mut bad = ReshardCase::plain(4);
    bad.src.placements = vec![-2];
    let mut tiles = RankTiles { src: None, dst: None };
    every_rank(1, |comm| {
        assert_eq!(bad.call(comm, &mut tiles.clone()), INVALID_ARGUMENT);
    });
    // Nor does a handle that nobody has.
    let case = ReshardCase::plain(4);
    // SAFETY: the handle is refused before the communicator is used.
    let code = unsafe { case.call_raw(dangling_mut(), usize::MAX, &mut tiles) };
    assert_eq!(code, INVALID_ARGUMENT);
    set(VARIABLE, None);
    assert!(takes_3000(0));
    finalize_handle(0);
}

#[test]
fn the_text_is_of_this_threads_last_call() {
    assert_eq!(last_text(), "");
    assert_eq!(group_end(), INVALID_USAGE);
    let text = last_text();
    assert!(text.contains("ncclM2nGroupEnd"), "{text}");
    std::thread::spawn(|| assert_eq!(last_text(), "")).join().unwrap();
    // Reading it does not clear it, any other call does.
    assert_eq!(last_text(), text);
    group_start();
    assert_eq!(last_text(), "");
    assert_eq!(
        // SAFETY: what is null is refused before it is read.
        unsafe { reshard(null_mut(), null(), null()) },
        SUCCESS
    );
    assert_eq!(group_end(), INVALID_ARGUMENT);
    assert!(last_text().contains("entry 0 of 1"));
    // SAFETY: the function has no arguments.
    assert_ok(unsafe { (api().ncclM2nGroupAbort)() });
    assert_eq!(last_text(), "");
}
