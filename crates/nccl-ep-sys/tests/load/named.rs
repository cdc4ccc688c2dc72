//! Libraries that are named by a path or a variable.

use nccl_ep_sys::EpApi;
use nccl_ext_core::raw::NcclApi;

use crate::child::child;
use crate::libraries::{Libraries, source};

#[test]
fn libraries_named_by_variables_load_with_versions_and_paths() {
    let libraries = Libraries::new("variables");
    let nccl = libraries.nccl("libnccl.so.2", 23007);
    let ep = libraries.ep("libnccl_ep.so.0", "");
    let child = libraries.child("names").env("NCCL_LIBRARY", nccl).env("NCCL_EP_LIBRARY", ep);
    assert_eq!(
        child.says(),
        "libnccl.so.2 2.30.7 libnccl.so.2, libnccl_ep.so.0 0.2.0 libnccl_ep.so.0"
    );
}

#[test]
fn explicit_paths_win_over_variables() {
    let libraries = Libraries::new("explicit");
    let nccl = libraries.nccl("libnccl-explicit.so", 23004);
    let ep = libraries.ep("libep-explicit.so", "");
    let child = libraries.child("explicit").env("NCCL", nccl).env("EP", ep);
    let nowhere = "/nonexistent/lib.so";
    assert_eq!(
        child.env("NCCL_LIBRARY", nowhere).env("NCCL_EP_LIBRARY", nowhere).says(),
        "libnccl.so.2 2.30.4 libnccl-explicit.so, libnccl_ep.so.0 0.2.0 libep-explicit.so"
    );
}

/// Case L3.
#[test]
fn a_missing_driver_is_named() {
    // SAFETY: the driver's initialisers touch no Rust state.
    if unsafe { libloading::Library::new("libcuda.so.1") }.is_ok() {
        return; // a machine with a GPU, whose driver no search path hides
    }
    let message = child("names", None).says();
    assert!(
        message
            .starts_with("libcuda.so.1 was not found; tried libcuda.so.1 (the dynamic linker): "),
        "{message}"
    );
}

#[test]
fn a_variable_that_names_no_file_is_said_and_nothing_else_is_tried() {
    let libraries = Libraries::new("nowhere");
    let tree = libraries.tree("tree", &[13]);
    let child = libraries.child("names").env("NCCL_EXTENSIONS_NATIVE_DIR", tree);
    let message = child.env("NCCL_LIBRARY", "/nonexistent/libnccl.so.2").says();
    assert!(
        message.starts_with(
            "libnccl.so.2 was not found; tried /nonexistent/libnccl.so.2 (NCCL_LIBRARY is set): "
        ) && message.matches("; ").count() == 1,
        "{message}"
    );
}

/// An NCCL that is too old is refused before the extension is even looked for.
///
/// Case L1.
#[test]
fn an_old_nccl_is_refused_before_the_extension() {
    let libraries = Libraries::new("old-nccl");
    let nccl = libraries.nccl("libnccl.so.2", 22809);
    let child = libraries.child("names").env("NCCL_LIBRARY", &nccl);
    assert_eq!(
        child.env("NCCL_EP_LIBRARY", "/nonexistent/ep.so").says(),
        format!("libnccl.so.2 at {} is version 2.28.9; 2.30.4 or newer is needed", nccl.display())
    );
}

/// An NCCL of the right version without functions that are needed.
///
/// Case L2.
#[test]
fn an_nccl_without_needed_functions_is_refused_with_those_that_it_lacks() {
    let libraries = Libraries::new("no-device-functions");
    let with = "int ncclGetVersion(int *v) { *v = 23007; return 0; }";
    let kept = NcclApi::SYMBOLS
        .into_iter()
        .filter(|name| !matches!(name.to_str(), Ok("ncclTeamLsa" | "ncclCommQueryProperties")));
    let code = source(&kept.collect::<Vec<_>>(), with);
    let nccl = libraries.build("libnccl.so.2", "libnccl.so.2", &code);
    let message = libraries.child("names").env("NCCL_LIBRARY", &nccl).says();
    let path = nccl.display();
    assert!(message.starts_with(&format!("{path} (version 2.30.7) lacks ")), "{message}");
    assert!(message.contains("ncclTeamLsa") && message.contains("ncclCommQueryProperties"));
    assert!(!message.contains("ncclAllGather"));
}

/// Case L5.
#[test]
fn an_extension_with_one_function_is_refused_with_those_that_it_lacks() {
    let libraries = Libraries::new("one-function");
    let nccl = libraries.nccl("libnccl.so.2", 23007);
    let code = "int ncclEpCreateGroup(void) { return 0; }";
    let ep = libraries.build("libnccl_ep.so.0", "libnccl_ep.so.0", code);
    let child = libraries.child("names").env("NCCL_LIBRARY", nccl).env("NCCL_EP_LIBRARY", &ep);
    let missing = EpApi::SYMBOLS.iter().map(|name| name.to_str().unwrap());
    let missing: Vec<_> = missing.filter(|name| *name != "ncclEpCreateGroup").collect();
    assert_eq!(missing.len(), 17);
    assert_eq!(
        child.says(),
        format!("{} lacks {}; version 0.2.0 has them", ep.display(), missing.join(", "))
    );
}

#[test]
fn a_refused_candidate_is_closed_and_a_good_one_loads_afterwards() {
    let libraries = Libraries::new("again");
    let nccl = libraries.nccl("libnccl.so.2", 23007);
    let bad = libraries.build("bad/libnccl_ep.so.0", "libnccl_ep.so.0", "int x;");
    let good = libraries.ep("good/libnccl_ep.so.0", "");
    let child = libraries.child("refused, then good").env("NCCL_LIBRARY", nccl);
    assert_eq!(
        child.env("BAD", bad).env("GOOD", good).says(),
        "libnccl.so.2 2.30.7 libnccl.so.2, libnccl_ep.so.0 0.2.0 libnccl_ep.so.0"
    );
}

#[test]
fn what_is_no_regular_file_is_not_opened() {
    let libraries = Libraries::new("irregular");
    let nccl = libraries.nccl("libnccl.so.2", 23007);
    let folder = nccl.parent().unwrap().to_path_buf();
    let pipe = folder.join("pipe");
    // Whoever opened this to read it would wait until the child's time is over.
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for (path, what) in [(&folder, "a folder"), (&pipe, "something else")] {
        let found = format!("expected a regular file, found {what}");
        let message = libraries.child("names").env("NCCL_LIBRARY", path).says();
        assert!(message.contains("NCCL_LIBRARY") && message.contains(&found), "{message}");
        let child = libraries.child("names").env("NCCL_LIBRARY", &nccl);
        let message = child.env("NCCL_EP_LIBRARY", path).says();
        assert!(message.contains("NCCL_EP_LIBRARY") && message.contains(&found), "{message}");
    }
}
