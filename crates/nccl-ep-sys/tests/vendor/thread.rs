//! A thread on which nothing catches.

use std::ffi::{c_int, c_ulong, c_void};

/// Runs `body` on a thread whose stack has no handler for exceptions.
///
/// `main` and the threads of `std` have one, which ends the process without a word about a C++
/// exception. Here the C++ runtime finds none and prints the message before it aborts.
pub(crate) fn run<F: FnOnce()>(body: F) {
    type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    unsafe extern "C" {
        fn pthread_create(
            thread: *mut c_ulong,
            attributes: *const c_void,
            start: Start,
            argument: *mut c_void,
        ) -> c_int;
        fn pthread_join(thread: c_ulong, result: *mut *mut c_void) -> c_int;
    }
    unsafe extern "C-unwind" fn start<F: FnOnce()>(argument: *mut c_void) -> *mut c_void {
        // SAFETY: `run` passes its `Option<F>` and waits.
        let body = unsafe { &mut *argument.cast::<Option<F>>() };
        body.take().unwrap()();
        core::ptr::null_mut()
    }

    let (mut thread, mut body) = (0, Some(body));
    let argument = (&raw mut body).cast();
    // SAFETY: the body outlives the thread, which is joined below, and is used by it alone.
    let created = unsafe { pthread_create(&mut thread, core::ptr::null(), start::<F>, argument) };
    assert_eq!(created, 0);
    // SAFETY: the thread was just made and is joined once.
    let joined = unsafe { pthread_join(thread, core::ptr::null_mut()) };
    assert_eq!(joined, 0);
    // A panic of the body aborted the process; a body that was not run is a mistake here.
    assert!(body.is_none());
}
