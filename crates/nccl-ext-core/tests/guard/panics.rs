//! What unwinds and is not C++. Nothing here is particular to the vendor's libraries, which call
//! back into Rust for memory only; but a panic must not turn into something else on its way.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, Ordering};

use nccl_ext_core::guard;

use crate::stub::{Callback, Stub};
use crate::{Case, text};

pub(crate) const TRIALS: &[Case] = &[
    ("a_panic_passes_through", passes_through),
    ("a_guard_works_during_a_panic", during_a_panic),
    ("an_exception_drops_what_a_callback_owns", through_a_callback),
    ("a_thread_that_ends_itself_passes_the_guard", ended_thread),
];

/// In C++ such an exception passes, as a panic does.
pub(crate) const ASSEMBLY_ONLY: &[Case] =
    &[("an_exception_of_another_language_is_named", another_language)];

unsafe extern "C-unwind" fn panics(_: *mut c_void) -> i32 {
    resume_unwind(Box::new(String::from("payload")))
}

/// Through the guard, and through C++ frames, which are unwound.
fn passes_through(stub: &Stub) {
    let alive = AtomicI64::new(0);
    let callback = panics as Callback as *const c_void;
    let caught = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the callback ignores its data; the counter outlives the call.
        unsafe { guard::call("stub", stub.call_back, (callback, std::ptr::null_mut(), &alive)) }
    }));
    assert_eq!(*caught.unwrap_err().downcast::<String>().unwrap(), "payload");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    // C++ cannot catch a foreign exception without a trace.
    let left = i32::from(guard::kind() == "c++");
    // SAFETY: no arguments.
    assert_eq!(unsafe { guard::call("stub", stub.in_flight, ()) }.unwrap(), left);
    // SAFETY: `panics` ignores its data.
    let direct = || unsafe { guard::call("stub", panics as Callback, (std::ptr::null_mut(),)) };
    let caught = catch_unwind(direct);
    assert_eq!(*caught.unwrap_err().downcast::<String>().unwrap(), "payload");
}

/// Catches an exception in its destructor.
struct Catcher<'s>(&'s Stub, &'s mut Vec<String>);

impl Drop for Catcher<'_> {
    fn drop(&mut self) {
        // SAFETY: a C string.
        let result = unsafe { guard::call("stub", self.0.throw_text, (c"in drop".as_ptr(),)) };
        self.1.push(text(result));
    }
}

fn during_a_panic(stub: &Stub) {
    let mut seen = Vec::new();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _catcher = Catcher(stub, &mut seen);
        resume_unwind(Box::new(7));
    }));
    assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 7);
    assert_eq!(seen, ["in drop"]);
}

/// Counts down when dropped.
struct Local<'c>(&'c AtomicI64);

impl Drop for Local<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The only way for an exception to meet a Rust frame: the library calls back, and the callback
/// calls the library without a guard, through a pointer that says it may unwind.
unsafe extern "C-unwind" fn passes_on(data: *mut c_void) -> i32 {
    // SAFETY: the caller below passes these.
    let (stub, alive) = unsafe { *data.cast::<(&Stub, &AtomicI64)>() };
    alive.fetch_add(1, Ordering::SeqCst);
    let _local = Local(alive);
    // SAFETY: one calling convention; the new type says that the function may unwind.
    let throw: unsafe extern "C-unwind" fn(*const AtomicI64) -> i32 =
        unsafe { std::mem::transmute(stub.throw_counted) };
    // SAFETY: the counter outlives the call.
    unsafe { throw(alive) }
}

/// Rust drops what the callback owns, and the guard outside catches.
fn through_a_callback(stub: &Stub) {
    let alive = AtomicI64::new(0);
    let mut data = (stub, &alive);
    let callback = passes_on as Callback as *const c_void;
    // SAFETY: the callback gets its own data, which outlives the call, as does the counter.
    let result =
        unsafe { guard::call("stub", stub.call_back, (callback, (&raw mut data).cast(), &alive)) };
    assert_eq!(text(result), "counted");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

fn another_language(stub: &Stub) {
    let alive = AtomicI64::new(0);
    // SAFETY: the counter outlives the call.
    let what = text(unsafe { guard::call("stub", stub.raise_foreign, (&alive,)) });
    assert_eq!(what, "not a C++ exception: class STUBLANG");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

unsafe extern "C-unwind" fn ends_its_thread(data: *mut c_void) -> i32 {
    // SAFETY: the caller below passes a `Stub`; this frame and the guard's have no destructors
    // that the end of the thread could skip.
    unsafe { guard::call("stub", (*data.cast::<Stub>()).end_thread, ()) }.unwrap_or(-1)
}

/// A forced unwind reaches the start of its thread.
fn ended_thread(stub: &Stub) {
    let mut data = *stub;
    let callback = ends_its_thread as Callback as *const c_void;
    // SAFETY: the callback gets its own data, which outlives the thread.
    assert_eq!(unsafe { (stub.in_a_thread)(callback, (&raw mut data).cast()) }, 77);
}
