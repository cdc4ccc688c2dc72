//! The guard in C++, from `guard.cc`.

use core::ffi::{CStr, c_char, c_void};

use super::foreign::{Foreign, MOST, Slot};

pub(super) const KIND: &str = "c++";

/// Gets the text of an exception, or the name of its type, while the exception is handled.
type Report = unsafe extern "C" fn(*mut c_void, bool, *const c_char);

unsafe extern "C-unwind" {
    #[link_name = env!("NCCL_EXT_GUARD")]
    fn enter(
        function: *const c_void,
        slots: &[Slot; MOST],
        report: Report,
        to: *mut c_void,
    ) -> Slot;
}

/// # Safety
/// As for the call, which exceptions may leave.
#[inline]
pub(super) unsafe fn call<F: Foreign>(
    function: F,
    arguments: F::Arguments,
) -> Result<F::Output, String> {
    let slots = F::slots(arguments);
    let mut what = None::<String>;
    // SAFETY: `Foreign` is implemented for C functions of at most `MOST` words, which are in
    // `slots`; a call with the others, zeros, in registers or behind the arguments on the stack
    // is the same call. The caller vouches for it.
    let value = unsafe { enter(function.address(), &slots, report, (&raw mut what).cast()) };
    match what {
        // SAFETY: the function returned, and `enter` hands its result on.
        None => Ok(unsafe { F::output(value) }),
        Some(what) => Err(what),
    }
}

#[cold]
unsafe extern "C" fn report(to: *mut c_void, is_exception: bool, text: *const c_char) {
    // SAFETY: `guard.cc` passes NULL or a text that lives during this call.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    let text = text.map_or_else(Default::default, CStr::to_string_lossy);
    let what = match is_exception {
        true if text.is_empty() => "a std::exception without a text".into(),
        true => text.into_owned(),
        false => format!("not a std::exception: {text}"),
    };
    // SAFETY: the `Option<String>` that `call` passed, which nobody looks at meanwhile.
    unsafe { *to.cast() = Some(what) };
}
