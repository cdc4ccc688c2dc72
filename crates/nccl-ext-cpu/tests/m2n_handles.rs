//! M2N 1.7, 2.8, 4.1: handles, epochs and the last error, which belong to the process or a thread.

#![allow(clippy::unwrap_used, clippy::panic)]

mod m2n_common;

use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};

use m2n_common::*;
use nccl_ext_cpu::backend;
use nccl_m2n_sys::M2nApi;

static PROCESS: Mutex<()> = Mutex::new(());

#[test]
fn the_library_says_its_version() {
    let library = backend().library("libnccl_m2n.so").unwrap();
    assert_eq!(library.version.to_string(), "0.2.0");
    assert!(library.path.is_none());
    assert!(backend().extension::<M2nApi>().is_ok());
}

#[test]
fn l10_tokens_never_come_again() {
    let _process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut last = 0;
    for _ in 0..3 {
        let handles = [(); 2].map(|()| init());
        for handle in handles {
            assert!(handle > last, "{handle} after {last}");
            last = handle;
        }
        handles.into_iter().for_each(finalize);
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
    let case = Case::plain(3000);
    let codes = ranks(2, |comm| {
        let mut buffers = case.buffers(comm.rank(), pattern);
        case.call_with(comm.as_raw(), token, &mut buffers)
    });
    assert_eq!(codes[0], codes[1]);
    codes[0] == OK
}

/// The environment is read when an epoch begins, and an epoch ends with its last handle.
#[test]
fn an_epoch_lasts_as_long_as_its_handles() {
    const VARIABLE: &str = "NCCL_RESHARD_PACK_BUFFSIZES";
    let _process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    finalize(0);
    set(VARIABLE, Some("2048"));
    let (first, second) = (init(), init());
    set(VARIABLE, None);
    assert!(!takes_3000(first));
    finalize(first);
    // The default handle joins the epoch and keeps it.
    assert!(!takes_3000(0));
    finalize(second);
    assert!(!takes_3000(init()));
    finalize(0);
    // The last handle of `takes_3000(init())` is still there.
    let last = init();
    assert!(!takes_3000(last));
    finalize(last);
    finalize(last - 1);
    assert!(takes_3000(0));
    finalize(0);
}

/// Errors 1 to 25 come before the default handle, so they start no epoch.
#[test]
fn a_bad_descriptor_starts_no_epoch() {
    const VARIABLE: &str = "NCCL_RESHARD_PACK_BUFFSIZES";
    let _process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    finalize(0);
    set(VARIABLE, Some("2048"));
    let mut bad = Case::plain(4);
    bad.src.placements = vec![-2];
    let mut buffers = Buffers { src: None, dst: None };
    ranks(1, |comm| {
        assert_eq!(bad.call(comm.as_raw(), &mut buffers.clone()), ARGUMENT);
    });
    // Nor does a handle that nobody has.
    let case = Case::plain(4);
    assert_eq!(case.call_with(std::ptr::dangling_mut(), usize::MAX, &mut buffers), ARGUMENT);
    set(VARIABLE, None);
    assert!(takes_3000(0));
    finalize(0);
}

#[test]
fn the_text_is_of_this_threads_last_call() {
    assert_eq!(last_text(), "");
    assert_eq!(group_end(), USAGE);
    let text = last_text();
    assert!(text.contains("ncclM2nGroupEnd"), "{text}");
    std::thread::spawn(|| assert_eq!(last_text(), "")).join().unwrap();
    // Reading it does not clear it, any other call does.
    assert_eq!(last_text(), text);
    group_start();
    assert_eq!(last_text(), "");
    assert_eq!(
        // SAFETY: what is null is refused before it is read.
        unsafe { (api().ncclReshard)(null_mut(), null_mut(), null(), null(), null_mut()) },
        OK
    );
    assert_eq!(group_end(), ARGUMENT);
    assert!(last_text().contains("entry 0 of 1"));
    // SAFETY: the function has no arguments.
    ok(unsafe { (api().ncclM2nGroupAbort)() });
    assert_eq!(last_text(), "");
}
