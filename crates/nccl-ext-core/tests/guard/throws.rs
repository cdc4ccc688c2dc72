//! What the library does, and what the caller gets.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use nccl_ext_core::guard;

use crate::stub::{Callback, Stub};
use crate::{Case, text};

pub(crate) const TRIALS: &[Case] = &[
    ("values_go_in_and_come_back", values),
    ("the_text_of_an_exception_is_the_errors", texts),
    ("bases_are_found_in_the_object", bases),
    ("other_types_are_named", others),
    ("an_exception_is_destroyed_once", destroyed_once),
    ("an_exception_thrown_again_is_destroyed_once", thrown_twice),
    ("frames_between_are_unwound", frames_between),
    ("a_guard_works_inside_a_guard", nested),
    ("a_guard_works_inside_a_handler", inside_a_handler),
    ("eight_threads_catch_their_own", threads),
    ("a_hundred_thousand_exceptions_leave_nothing", many),
    ("registers_survive_an_exception", registers),
    ("locals_survive_an_exception", locals),
];

fn values(stub: &Stub) {
    let h = -5;
    // SAFETY: `weigh` reads one integer through its last argument; the others take any value.
    unsafe {
        let c = ptr::without_provenance_mut(3);
        let weight = guard::call("stub", stub.weigh, (-1, 2, c, -4, u32::MAX, 6, -7, &h)).unwrap();
        let expected = -1 + 20 + 300 - 4000 + 10_000 * i64::from(u32::MAX) + 600_000 - 7_000_000;
        assert_eq!(weight, expected - 5);
        assert_eq!(guard::call("stub", stub.nothing, ()).unwrap(), -7);
        let mut local = 1u8;
        let pointer = guard::call("stub", stub.echo, ((&raw mut local).cast(),)).unwrap();
        pointer.cast::<u8>().write(2);
        assert_eq!(local, 2);
    }
}

fn texts(stub: &Stub) {
    // SAFETY: C strings.
    unsafe {
        assert_eq!(text(guard::call("stub", stub.throw_text, (c"text".as_ptr(),))), "text");
        let bytes = c"not \xff UTF-8".as_ptr();
        let error = guard::call("stub", stub.throw_text, (bytes,)).unwrap_err();
        assert_eq!(error.to_string(), "stub threw an exception: not \u{fffd} UTF-8");
        assert_eq!(error.scope(), nccl_ext_core::Scope::Local);
    }
}

fn kind(stub: &Stub, kind: i32) -> String {
    // SAFETY: takes any integer.
    text(unsafe { guard::call("stub", stub.throw_kind, (kind,)) })
}

fn bases(stub: &Stub) {
    assert_eq!(kind(stub, 0), "from the second base");
    assert_eq!(kind(stub, 1), "from a virtual base");
    assert_eq!(kind(stub, 2), "std::bad_alloc");
    // SAFETY: no arguments.
    let again = unsafe { guard::call("stub", stub.throw_again, ()) };
    assert_eq!(text(again), "from the second base");
}

fn others(stub: &Stub) {
    assert!(kind(stub, 3).ends_with("without a text"), "{}", kind(stub, 3));
    let string = kind(stub, 4);
    assert!(string.starts_with("not a std::exception: std::"), "{string}");
    assert!(string.contains("basic_string<char"), "{string}");
    assert_eq!(kind(stub, 5), "not a std::exception: int");
    assert_eq!(kind(stub, 6), "not a std::exception: (anonymous namespace)::Hidden");
    assert_eq!(kind(stub, 7), "not a std::exception: char const*");
}

/// Nothing is left over, neither objects nor the runtime's own notes.
fn settled(stub: &Stub, alive: &AtomicI64) {
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    // SAFETY: no arguments.
    assert_eq!(unsafe { guard::call("stub", stub.in_flight, ()) }.unwrap(), 0);
}

fn destroyed_once(stub: &Stub) {
    let alive = AtomicI64::new(0);
    // SAFETY: the counter outlives the call.
    assert_eq!(text(unsafe { guard::call("stub", stub.throw_counted, (&alive,)) }), "counted");
    settled(stub, &alive);
}

fn thrown_twice(stub: &Stub) {
    let alive = AtomicI64::new(0);
    // SAFETY: the counter outlives the call.
    assert_eq!(text(unsafe { guard::call("stub", stub.throw_dependent, (&alive,)) }), "counted");
    settled(stub, &alive);
}

fn frames_between(stub: &Stub) {
    let alive = AtomicI64::new(0);
    // SAFETY: the counter outlives the call.
    assert_eq!(text(unsafe { guard::call("stub", stub.throw_deep, (20, &alive)) }), "counted");
    settled(stub, &alive);
}

/// A callback's data.
struct Inner<'s> {
    stub: &'s Stub,
    seen: Vec<String>,
}

unsafe extern "C-unwind" fn inner(data: *mut c_void) -> i32 {
    // SAFETY: every caller below passes an `Inner`.
    let inner = unsafe { &mut *data.cast::<Inner<'_>>() };
    // SAFETY: a C string.
    let result = unsafe { guard::call("stub", inner.stub.throw_text, (c"inner".as_ptr(),)) };
    inner.seen.push(text(result));
    41
}

fn nested(stub: &Stub) {
    let alive = AtomicI64::new(0);
    let mut data = Inner { stub, seen: Vec::new() };
    let callback = inner as Callback as *const c_void;
    // SAFETY: the callback gets its own data, which outlives the call, as does the counter.
    let result =
        unsafe { guard::call("stub", stub.call_back, (callback, (&raw mut data).cast(), &alive)) };
    assert_eq!(result.unwrap(), 42);
    assert_eq!(data.seen, ["inner"]);
    settled(stub, &alive);
}

fn inside_a_handler(stub: &Stub) {
    let mut data = Inner { stub, seen: Vec::new() };
    let callback = inner as Callback as *const c_void;
    // SAFETY: the callback gets its own data, which outlives the call.
    let result = unsafe {
        guard::call("stub", stub.call_back_in_handler, (callback, (&raw mut data).cast()))
    };
    assert_eq!(text(result), "outer");
    assert_eq!(data.seen, ["inner"]);
    settled(stub, &AtomicI64::new(0));
}

fn threads(stub: &Stub) {
    let alive = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (stub, alive) = (*stub, &alive);
            scope.spawn(move || {
                let own = std::ffi::CString::new(format!("thread {thread}")).unwrap();
                for _ in 0..1000 {
                    // SAFETY: a C string and a counter that outlive the calls.
                    unsafe {
                        let result = guard::call("stub", stub.throw_text, (own.as_ptr(),));
                        assert_eq!(text(result), own.to_str().unwrap());
                        let result = guard::call("stub", stub.throw_deep, (3, alive));
                        assert_eq!(text(result), "counted");
                    }
                }
            });
        }
    });
    settled(stub, &alive);
}

fn many(stub: &Stub) {
    let alive = AtomicI64::new(0);
    for _ in 0..50_000 {
        // SAFETY: the counter outlives the calls.
        unsafe {
            assert_eq!(text(guard::call("stub", stub.throw_counted, (&alive,))), "counted");
            assert_eq!(text(guard::call("stub", stub.throw_dependent, (&alive,))), "counted");
        }
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
    settled(stub, &alive);
}

unsafe extern "C-unwind" fn throw_away(data: *mut c_void) -> i32 {
    // SAFETY: the caller below passes a `Stub`.
    let stub = unsafe { &*data.cast::<Stub>() };
    assert_eq!(kind(stub, -1), "registers are gone");
    0
}

fn registers(stub: &Stub) {
    let mut data = *stub;
    let callback = throw_away as Callback as *const c_void;
    // SAFETY: the callback gets its own data, which outlives the call.
    let lost = unsafe { (stub.count_lost_registers)(callback, (&raw mut data).cast()) };
    assert_eq!(lost, 0);
}

fn locals(stub: &Stub) {
    let [a, b, c, d, e, f, g, h] = std::hint::black_box([1u64, 2, 3, 4, 5, 6, 7, 8]);
    let [p, q, r, s] = std::hint::black_box([0.5f64, 1.5, 2.5, 3.5]);
    for _ in 0..3 {
        assert_eq!(kind(stub, -1), "registers are gone");
        assert_eq!([a, b, c, d, e, f, g, h], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!([p, q, r, s], [0.5, 1.5, 2.5, 3.5]);
    }
}
