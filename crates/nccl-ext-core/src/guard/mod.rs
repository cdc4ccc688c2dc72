//! Calls of foreign functions that may throw.
//!
//! The vendor's extension libraries are C++ behind a C interface, and let C++ exceptions leave
//! their functions. Nothing in a Rust program catches such an exception, so it would end the
//! process. [`call`] is the place where it stops: the exception becomes [`Error::Exception`] with
//! its text, its object is destroyed, and the process goes on.
//!
//! ```text
//! guard::call        packs the arguments into words
//!   enter            a dozen instructions: loads the words into registers, calls
//!     the function   throws; the unwinder asks each caller's personality routine
//!   enter            its personality routine says: here; the exception comes back as a pointer
//! guard::call        reads the text, destroys the exception, returns the error
//! ```
//!
//! `enter` calls the function itself. No Rust frame lies between the two, so no exception unwinds
//! through Rust code (a callback that calls the library again without a guard aside), destructors
//! are not a question, and the guard works in programs built with `panic = "abort"` as well.
//!
//! By default `enter` is assembly (Linux on x86-64 and aarch64), and neither a C++ compiler nor a
//! C++ library is needed to build. The feature `guard-cc` builds it from `guard.cc` instead. On
//! other platforms the function is called as is. [`kind`] tells which one a program has.
//!
//! # Limits
//!
//! * A Rust panic that a callback starts passes through the guard untouched, as does a forced
//!   unwind (the end of a cancelled thread).
//! * With `guard-cc` every exception that is not C++'s passes, and a panic leaves traces in the
//!   C++ runtime: `std::uncaught_exceptions` stays one too high on that thread, and if a C++
//!   handler further out is active, the process ends.
//! * An exception in a thread that the library started itself never reaches its caller, and
//!   `abort`, `exit` and failed assertions are no exceptions.
//! * A library that hides a C++ runtime of its own (`-static-libstdc++` with hidden symbols) is
//!   guarded, but the assembly guard cannot read its texts. One with an unwinder of its own
//!   (`-static-libgcc`) ends the process as before.

#[cfg(all(
    not(feature = "guard-cc"),
    target_os = "linux",
    target_endian = "little",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64"),
))]
#[path = "assembly/mod.rs"]
mod entry;
#[cfg(all(
    feature = "guard-cc",
    target_os = "linux",
    target_endian = "little",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64"),
))]
#[path = "cc.rs"]
mod entry;
#[cfg(not(all(
    target_os = "linux",
    target_endian = "little",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64"),
)))]
#[path = "plain.rs"]
mod entry;
mod foreign;

pub use foreign::{Foreign, Word};

use crate::error::{Error, Result};

/// Calls `function`, and catches a C++ exception that leaves it.
///
/// `name` is the function's name, for the error.
///
/// ```
/// use nccl_ext_core::guard;
///
/// type Half = unsafe extern "C" fn(i32, *mut i32) -> i32;
///
/// unsafe extern "C" fn half(value: i32, out: *mut i32) -> i32 {
///     // SAFETY: the caller's `out` is valid for writes.
///     unsafe { out.write(value / 2) };
///     0
/// }
///
/// let mut out = 0;
/// // SAFETY: `out` outlives the call.
/// let code = unsafe { guard::call("half", half as Half, (8, &mut out)) }?;
/// assert_eq!((code, out), (0, 4));
/// # Ok::<(), nccl_ext_core::Error>(())
/// ```
///
/// # Errors
/// [`Error::Exception`]. What the call had done until then is the library's secret: its objects
/// are best not used again.
///
/// # Safety
/// As for the call `function(arguments..)`, except that C++ exceptions may leave it.
#[inline]
pub unsafe fn call<F: Foreign>(
    name: &'static str,
    function: F,
    arguments: F::Arguments,
) -> Result<F::Output> {
    // SAFETY: the caller vouches for the call.
    match unsafe { entry::call(function, arguments) } {
        Ok(output) => Ok(output),
        Err(what) => Err(Error::Exception { call: name, what }),
    }
}

/// What stands between a call and its exceptions: `"assembly"`, `"c++"` (feature `guard-cc`), or
/// `"none"` where an exception still ends the process.
#[must_use]
pub fn kind() -> &'static str {
    entry::KIND
}
