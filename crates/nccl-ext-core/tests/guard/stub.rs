//! Builds and opens the throwing library.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI64;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// What a stub function calls back. It goes out as an untyped pointer.
pub(crate) type Callback = unsafe extern "C-unwind" fn(*mut c_void) -> i32;

macro_rules! stub {
    ($($name:ident: ($($argument:ty),*) -> $result:ty;)*) => {
        /// The stub's functions; `stub.cc` says what each does.
        #[derive(Clone, Copy)]
        pub(crate) struct Stub {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Stub {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those in `stub.cc`, and the library stays open.
                Ok(unsafe { Self { $($name: *library.get(stringify!($name))?,)* } })
            }
        }
    };
}

stub! {
    weigh: (i32, u64, *mut c_void, i32, u32, i64, i32, *const i64) -> i64;
    nothing: () -> i32;
    echo: (*mut c_void) -> *mut c_void;
    throw_text: (*const c_char) -> i32;
    throw_kind: (i32) -> i32;
    throw_counted: (*const AtomicI64) -> i32;
    throw_dependent: (*const AtomicI64) -> i32;
    throw_again: () -> i32;
    throw_deep: (i32, *const AtomicI64) -> i32;
    call_back: (*const c_void, *mut c_void, *const AtomicI64) -> i32;
    call_back_in_handler: (*const c_void, *mut c_void) -> i32;
    in_flight: () -> i32;
    raise_foreign: (*const AtomicI64) -> i32;
    end_thread: () -> i32;
    in_a_thread: (*const c_void, *mut c_void) -> i32;
    count_lost_registers: (*const c_void, *mut c_void) -> i32;
}

/// The stub, built and opened once; or why there is none.
pub(crate) fn get() -> Result<&'static Stub, String> {
    static STUB: OnceLock<Result<Stub, String>> = OnceLock::new();
    STUB.get_or_init(build).as_ref().map_err(Clone::clone)
}

fn build() -> Result<Stub, String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/guard/stub.cc");
    let library = format!("guard-stub-{}.so", std::process::id());
    let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(library);
    let mut command = Command::new(&compiler);
    command
        .args(["-std=c++17", "-O1", "-fPIC", "-shared", "-pthread", "-o"])
        .arg(&library)
        .arg(source);
    if let Ok(flags) = std::env::var("CXXFLAGS") {
        command.args(flags.split_whitespace());
    }
    let output = command.output().map_err(|e| format!("no C++ compiler ({compiler}: {e})"))?;
    // A compiler that fails is no reason to skip.
    assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    // SAFETY: the stub's initialisers do nothing.
    let opened = unsafe { Library::open(Some(&library), RTLD_NOW | RTLD_LOCAL) };
    std::fs::remove_file(&library).unwrap();
    let opened = opened.unwrap();
    let stub = Stub::of(&opened).unwrap();
    std::mem::forget(opened);
    Ok(stub)
}
