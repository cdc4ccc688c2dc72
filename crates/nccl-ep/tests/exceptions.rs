//! C++ exceptions that leave the library become errors, and poison the group.
//!
//! The throwing library is compiled here; without a C++ compiler the tests are skipped.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::error::Error as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};
use nccl_ep::{
    Error, Group, GroupConfig, Handle, HandleConfig, Layout, MemorySpace, Stream, Tensor, TopK,
};
use nccl_ep_sys::EpApi;
use nccl_ext_test::stub::ep as stub;

const SOURCE: &str = r#"
#include <stdexcept>
extern "C" int throwing() { throw std::runtime_error("no memory for the workspace"); }
"#;

/// The library, or why it is not there.
fn library() -> Result<libloading::Library, String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let stem = format!("throwing-{}", std::process::id());
    let (source, library) =
        (folder.join(format!("{stem}.cc")), folder.join(format!("lib{stem}.so")));
    std::fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
    let mut compiler = Command::new("c++");
    match compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status() {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(format!("c++ ended with {status}")),
        Err(error) => return Err(format!("no C++ compiler: {error}")),
    }
    // SAFETY: it runs no initialiser but the C++ runtime's.
    let opened = unsafe { libloading::Library::new(&library) };
    for file in [&source, &library] {
        let _ = std::fs::remove_file(file);
    }
    opened.map_err(|error| error.to_string())
}

/// A rank whose table has one function that throws.
fn group(edit: impl Fn(&mut EpApi)) -> Group {
    let backend = stub::backend_with(MemorySpace::Host, edit);
    let config =
        GroupConfig::new().num_experts(8).max_dispatch_tokens_per_rank(4).max_token_bytes(1024);
    Group::create(&stub::comm_on(backend, 4), &config).unwrap()
}

fn handle(group: &Group) -> nccl_ep::Result<Handle> {
    group.init_handle(Layout::ExpertMajor, &HandleConfig::new(), TopK::N(2), None)
}

fn is_the_exception(error: &Error, function: &str) {
    match error {
        Error::Exception { call, what } => {
            assert_eq!((*call, &**what), (function, "no memory for the workspace"));
        }
        other => panic!("{other:?}"),
    }
}

fn update(throwing: *const core::ffi::c_void) {
    let group = group(|table| {
        // SAFETY: what it does with its arguments is nothing.
        table.ncclEpUpdateHandle = unsafe { core::mem::transmute_copy(&throwing) };
    });
    let mut first = handle(&group).unwrap();
    let ids = [0_i64; 8];
    let ids = Tensor::new(&ids, &[4, 2]).unwrap();
    let error = first.update(ids, None, Stream::DEFAULT).unwrap_err();
    is_the_exception(&error, "ncclEpUpdateHandle");
    // Every later call fails at once, and says why.
    let later = first.update(ids, None, Stream::DEFAULT).unwrap_err();
    assert!(matches!(later, Error::Poisoned { .. }), "{later:?}");
    is_the_exception(later.source().unwrap().downcast_ref().unwrap(), "ncclEpUpdateHandle");
    assert!(matches!(handle(&group), Err(Error::Poisoned { .. })));
    assert!(group.comm().is_marked_for_abort());
    drop(first);
    stub::take_calls();
    let refused = group.destroy().unwrap_err();
    assert!(matches!(*refused.error, Error::Poisoned { .. }));
    assert_eq!(stub::take_calls(), ["ncclCommAbort"], "no collective, but the abort");
}

fn creation(throwing: *const core::ffi::c_void) {
    let backend = stub::backend_with(MemorySpace::Host, |table| {
        // SAFETY: as in `update`.
        table.ncclEpCreateGroup = unsafe { core::mem::transmute_copy(&throwing) };
    });
    let config =
        GroupConfig::new().num_experts(8).max_dispatch_tokens_per_rank(4).max_token_bytes(1024);
    let comm = stub::comm_on(backend, 4);
    is_the_exception(&Group::create(&comm, &config).unwrap_err(), "ncclEpCreateGroup");
    assert!(comm.is_marked_for_abort());
}

fn destruction(throwing: *const core::ffi::c_void) {
    let group = group(|table| {
        // SAFETY: as in `update`.
        table.ncclEpGroupDestroy = unsafe { core::mem::transmute_copy(&throwing) };
    });
    is_the_exception(&group.destroy().unwrap_err().error, "ncclEpGroupDestroy");
}

fn main() -> ExitCode {
    let library = library();
    let throwing = library.as_ref().ok().map(|library| {
        // SAFETY: `throwing` is taken as an address; tables call it with the C convention.
        let symbol = unsafe { library.get::<unsafe extern "C" fn() -> i32>(b"throwing\0") };
        *symbol.unwrap() as usize
    });
    let trial = |name: &str, test: fn(*const core::ffi::c_void)| {
        let name = match &library {
            Ok(_) => name.to_owned(),
            Err(reason) => format!("{name} (skipped: {reason})"),
        };
        let run = move || {
            test(throwing.unwrap_or(0) as *const core::ffi::c_void);
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(throwing.is_none())
    };
    let trials = vec![
        trial("an_exception_in_update_poisons_the_group", update),
        trial("an_exception_in_creation_is_an_error", creation),
        trial("an_exception_in_destruction_is_an_error", destruction),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
