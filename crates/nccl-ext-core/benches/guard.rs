//! What the guard costs a call that throws nothing: `cargo bench -p nccl-ext-core --bench guard`.
//!
//! Prints nanoseconds per call, plain and guarded, of a function with six arguments, as most of
//! the extension libraries' have. The best of several rounds, so that a busy machine matters less.

use std::ffi::c_void;
use std::hint::black_box;
use std::time::Instant;

use nccl_ext_core::guard;

type Function = unsafe extern "C" fn(*mut c_void, *const u8, *const u8, u64, i32, *mut i32) -> i32;

#[inline(never)]
unsafe extern "C" fn callee(
    _: *mut c_void,
    _: *const u8,
    _: *const u8,
    words: u64,
    word: i32,
    out: *mut i32,
) -> i32 {
    // SAFETY: both callers below pass a live integer.
    unsafe { *out = word };
    words as i32
}

fn main() {
    // As a test (`cargo test --benches`) it only has to run.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 20 } else { 1 };
    let plain = best(rounds, |function, out, i| {
        // SAFETY: `callee` only writes `out`.
        let code = unsafe { function(out.cast(), out.cast(), out.cast(), i, 7, out) };
        assert_eq!(code, i as i32);
    });
    let guarded = best(rounds, |function, out, i| {
        let arguments = (out.cast(), out.cast_const().cast(), out.cast_const().cast(), i, 7, out);
        // SAFETY: `callee` only writes `out`.
        let code = unsafe { guard::call("callee", function, arguments) };
        assert!(code.is_ok_and(|code| code == i as i32));
    });
    println!("guard: {}", guard::kind());
    println!("plain call: {plain:.2} ns");
    println!("guarded call: {guarded:.2} ns");
}

fn best(rounds: u32, call: impl Fn(Function, *mut i32, u64)) -> f64 {
    const CALLS: u64 = 2_000_000;
    let mut out = 0;
    let round = |_| {
        let start = Instant::now();
        for i in 0..CALLS {
            call(black_box(callee as Function), black_box(&mut out), black_box(i));
        }
        start.elapsed().as_nanos() as f64 / CALLS as f64
    };
    (0..rounds).map(round).fold(f64::INFINITY, f64::min)
}
