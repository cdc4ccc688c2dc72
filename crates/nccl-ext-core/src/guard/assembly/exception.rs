//! What a caught exception says, and its end.
//!
//! The exception's own runtime answers: the library that holds the exception's clean-up function.
//! It need not be called `libstdc++.so.6`, and its symbols need not be global; libraries that are
//! opened `RTLD_LOCAL`, as the loader does, bring it in without making it visible. What is asked
//! for is the Itanium C++ ABI, which libstdc++ and libc++abi share.

use core::ffi::{CStr, c_char, c_uint, c_void};
use core::ptr;

use super::abi::{Exception, TypeInfo};
use super::runtime::Runtime;

/// `type_info::__do_catch` in libstdc++, `can_catch` in libc++abi, which has no third argument:
/// whether a handler of this type takes an object of that type. Moves the pointer to the base.
type Catches =
    unsafe extern "C" fn(*const TypeInfo, *const TypeInfo, *mut *mut c_void, c_uint) -> bool;
/// Place of `Catches` among the methods of a type, in both.
const CATCHES: usize = 4;

/// `std::exception::what`.
type What = unsafe extern "C" fn(*mut c_void) -> *const c_char;
/// Its place among the methods of `std::exception`: after the two destructors.
const WHAT: usize = 2;

const GNU: u64 = u64::from_be_bytes(*b"GNUCC++\0");
const GNU_DEPENDENT: u64 = GNU + 1;
const CLANG: u64 = u64::from_be_bytes(*b"CLNGC++\0");
const CLANG_DEPENDENT: u64 = CLANG + 1;

unsafe extern "C" {
    fn _Unwind_DeleteException(exception: *mut Exception);
}

/// Reads what the exception says, and destroys it.
///
/// # Safety
/// The exception was raised, the unwinder landed with it, and nothing else will touch it.
#[cold]
pub(super) unsafe fn consume(exception: *mut Exception) -> String {
    // SAFETY: raised exceptions are readable.
    let class = unsafe { (*exception).class };
    let is_cxx = matches!(class, GNU | GNU_DEPENDENT | CLANG | CLANG_DEPENDENT);
    // SAFETY: this function's own contract.
    if let Some(runtime) = is_cxx.then(|| unsafe { Runtime::of(exception) }).flatten() {
        // SAFETY: the runtime that threw the exception; each function is called as its ABI says,
        // in the order of a handler: begin, use, end.
        unsafe {
            (runtime.begin_catch)(exception);
            let what = describe(&runtime, exception, class);
            (runtime.end_catch)();
            return what;
        }
    }
    // SAFETY: the way to destroy an exception of another language.
    unsafe { _Unwind_DeleteException(exception) };
    if is_cxx {
        "a C++ exception whose runtime library cannot be asked for its text".into()
    } else {
        format!("not a C++ exception: class {}", class.to_be_bytes().escape_ascii())
    }
}

/// # Safety
/// The exception's own runtime, while the exception is the one being handled.
unsafe fn describe(runtime: &Runtime, exception: *mut Exception, class: u64) -> String {
    // SAFETY: an exception is being handled, so it has a type, whose methods are those of the
    // ABI; a type's method moves the pointer within the object that was thrown.
    unsafe {
        let thrown = (runtime.current_type)();
        let mut object = object(exception, class);
        let handler = runtime.std_exception;
        let catches: Catches = core::mem::transmute(*(*handler).methods.add(CATCHES));
        if !catches(handler, thrown, &mut object, 1) {
            return format!("not a std::exception: {}", name(runtime, thrown));
        }
        // SAFETY: a `std::exception`, which starts with the pointer to its methods.
        let methods = *object.cast::<*const *const c_void>();
        let what: What = core::mem::transmute(*methods.add(WHAT));
        let text = what(object);
        if text.is_null() || *text == 0 {
            return format!("{}, without a text", name(runtime, thrown));
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// The object that was thrown. An exception that was thrown again from another place
/// (`std::rethrow_exception`) has a header of its own, which points to the object.
///
/// # Safety
/// A raised C++ exception of that class.
unsafe fn object(exception: *mut Exception, class: u64) -> *mut c_void {
    // SAFETY: the layout of the headers in front of `_Unwind_Exception`, in words, as both
    // runtimes have kept it since they have such exceptions.
    unsafe {
        match class {
            GNU_DEPENDENT => *exception.cast::<*mut c_void>().sub(10),
            CLANG_DEPENDENT => *exception.cast::<*mut c_void>().sub(11),
            _ => exception.add(1).cast(),
        }
    }
}

/// The name of a type, as in the source where it can be told.
///
/// # Safety
/// A type of the runtime's exceptions.
unsafe fn name(runtime: &Runtime, thrown: *const TypeInfo) -> String {
    // SAFETY: names are NUL-terminated. `__cxa_demangle` allocates its result with `malloc`.
    unsafe {
        let mut mangled = (*thrown).name;
        if *mangled == b'*' as c_char {
            mangled = mangled.add(1); // a mark of types that are compared by address
        }
        let mut status = 0;
        let name = (runtime.demangle)(mangled, ptr::null_mut(), ptr::null_mut(), &mut status);
        let text = CStr::from_ptr(if name.is_null() { mangled } else { name });
        let text = text.to_string_lossy().into_owned();
        libc::free(name.cast());
        text
    }
}
