//! The order of the search, and its record.

use std::path::Path;

use crate::child::child;
use crate::libraries::Libraries;

const DIR: &str = "NCCL_EXTENSIONS_NATIVE_DIR";

/// The origin of NCCL and of the extension in a report.
#[track_caller]
fn assert_origins(report: &str, nccl: &str, extension: &str) {
    let (first, second) = report.split_once(", libnccl_ep").unwrap_or_else(|| panic!("{report}"));
    assert!(first.ends_with(&format!(" ({nccl})")), "{nccl} in {report}");
    assert!(second.ends_with(&format!(" ({extension})")), "{extension} in {report}");
}

/// Every place has a library; the one in front is taken, then removed.
#[test]
fn places_are_tried_in_order() {
    let libraries = Libraries::new("order");
    let program = libraries.path("app/bin/program");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let native = libraries.tree("native", &[13]);
    let workspace = libraries.tree("workspace", &[13]);
    let beside = "beside the executable";
    libraries.tree("app", &[13]);
    libraries.tree("app/lib/nccl-extensions", &[13]);
    libraries.tree("app/bin", &[13]);
    libraries.nccl("app/lib/libnccl.so.2", 23007);
    libraries.ep("app/lib/libnccl_ep.so.0", "");
    libraries.nccl("app/bin/libnccl.so.2", 23007);
    libraries.ep("app/bin/libnccl_ep.so.0", "");
    for site in ["packages", "venv/lib/python3.12/site-packages"] {
        libraries.nccl(&format!("{site}/nvidia/nccl/lib/libnccl.so.2"), 23007);
        libraries.ep_of(&format!("{site}/nccl/ep/lib/cu13/libnccl_ep.so.0"), 13);
    }
    libraries.nccl("linker/libnccl.so.2", 23007);
    libraries.ep("linker/libnccl_ep.so.0", "");
    let child = || {
        let mut path = libraries.path("linker").into_os_string();
        path.push(":");
        path.push(libraries.path("driver"));
        child("details", Some(&program))
            .env("LD_LIBRARY_PATH", path)
            .env(DIR, &native)
            .env("WORKSPACE", &workspace)
            .env("PYTHONPATH", libraries.path("packages"))
            .env("VIRTUAL_ENV", libraries.path("venv"))
    };
    for (place, origin) in [
        ("native", "NCCL_EXTENSIONS_NATIVE_DIR is set"),
        ("workspace", "the workspace's staged tree"),
        ("app/ep", beside),
        ("app/lib/nccl-extensions", beside),
        ("app/bin/ep", beside),
        ("app/lib/libnccl_ep.so.0", beside),
        ("app/bin/libnccl_ep.so.0", beside),
        ("packages", "Python packages, PYTHONPATH"),
        ("venv", "Python packages, VIRTUAL_ENV"),
        ("linker", "the dynamic linker, SONAME"),
    ] {
        let report = child().says();
        let (_, extension) = report.split_once(", libnccl_ep").unwrap();
        let inside = libraries.path(place);
        assert!(extension.contains(inside.to_str().unwrap()), "{place} in {report}");
        assert!(extension.ends_with(&format!(" ({origin})")), "{origin} in {report}");
        if inside.is_dir() {
            std::fs::remove_dir_all(inside).unwrap();
        } else {
            std::fs::remove_file(inside).unwrap();
        }
    }
}

#[test]
fn nccl_follows_the_same_places() {
    let libraries = Libraries::new("nccl-order");
    let (native, workspace) = (libraries.tree("native", &[13]), libraries.tree("workspace", &[13]));
    let child = || libraries.child("details").env(DIR, &native).env("WORKSPACE", &workspace);
    let set = "NCCL_EXTENSIONS_NATIVE_DIR is set";
    assert_origins(&child().says(), set, set);
    // A tree without NCCL is a whole tree: staging it is a choice.
    std::fs::remove_dir_all(native.join("nccl")).unwrap();
    assert_origins(&child().says(), "the workspace's staged tree", set);
}

/// Case L7.
#[test]
fn only_the_versioned_name_is_there() {
    let libraries = Libraries::new("versioned");
    libraries.nccl("linker/libnccl.so.2", 23007);
    libraries.ep("linker/libnccl_ep.so.0", "");
    let origin = "the dynamic linker, SONAME";
    assert_origins(&libraries.child_with("details", "linker").says(), origin, origin);
}

#[test]
fn the_bare_name_is_tried_last() {
    let libraries = Libraries::new("bare");
    libraries.nccl("linker/libnccl.so.2", 23007);
    libraries.ep("linker/libnccl_ep.so", "");
    let report = libraries.child_with("details", "linker").says();
    assert_origins(&report, "the dynamic linker, SONAME", "the dynamic linker, bare name");
}

/// Case L13.
#[test]
fn a_python_package_of_either_layout_is_found() {
    for name in ["libnccl_ep.so", "libnccl_ep.so.0"] {
        let libraries = Libraries::new(&format!("package-{name}"));
        libraries.nccl("p/nvidia/nccl/lib/libnccl.so.2", 23007);
        let ep = libraries.ep_of(&format!("p/nccl/ep/lib/cu12/{name}"), 12);
        let report = libraries.child("details").env("PYTHONPATH", libraries.path("p")).says();
        assert!(report.contains(ep.to_str().unwrap()), "{report}");
    }
}

#[test]
fn every_attempt_is_on_record() {
    let libraries = Libraries::new("record");
    libraries.nccl("linker/libnccl.so.2", 23007);
    let child = libraries.child_with("names", "linker").env(DIR, "/nonexistent/tree");
    let message = child.env("WORKSPACE", "/nonexistent/workspace").says();
    assert!(message.starts_with("libnccl_ep.so.0 was not found; tried "), "{message}");
    let mut at = 0;
    for attempt in [
        "/nonexistent/tree/ep/lib/cu*/libnccl_ep.so.0 (NCCL_EXTENSIONS_NATIVE_DIR is set): no such",
        "/nonexistent/workspace/ep/lib/cu*/libnccl_ep.so.0 (the workspace's staged tree): no such",
        "/ep/lib/cu*/libnccl_ep.so.0 (beside the executable): no such file",
        "/lib/nccl-extensions/ep/lib/cu*/libnccl_ep.so.0 (beside the executable): no such file",
        "/lib/libnccl_ep.so.0 (beside the executable): no such file",
        "libnccl_ep.so.0 (the dynamic linker, SONAME): libnccl_ep.so.0: cannot open shared object",
        "libnccl_ep.so (the dynamic linker, bare name): libnccl_ep.so: cannot open shared object",
    ] {
        let found = message[at..].find(attempt);
        at += found.unwrap_or_else(|| panic!("{attempt} after {at} in {message}"));
    }
}

/// A place with a library that will not do does not end the search, and is not forgotten.
#[test]
fn a_refused_library_is_passed_over_and_told_when_nothing_else_will_do() {
    let libraries = Libraries::new("over");
    let native = libraries.tree("native", &[13]);
    let bad = libraries.build(
        "native/ep/lib/cu13/libnccl_ep.so.0",
        "libnccl_ep.so.0",
        "int ncclEpGetVersion(int *v) { *v = 100; return 0; }",
    );
    let workspace = libraries.tree("workspace", &[13]);
    let child = || libraries.child("details").env(DIR, &native);
    let report = child().env("WORKSPACE", &workspace).says();
    assert_origins(&report, "NCCL_EXTENSIONS_NATIVE_DIR is set", "the workspace's staged tree");

    let only = child().says();
    assert!(only.starts_with(&format!("{} lacks ncclEpTensorAlloc, ", bad.display())), "{only}");

    std::fs::write(workspace.join("ep/lib/cu13/libnccl_ep.so.0"), "no library").unwrap();
    let both = child().env("WORKSPACE", &workspace).says();
    assert!(both.starts_with("libnccl_ep.so.0 was not found; tried "), "{both}");
    for part in [bad.to_str().unwrap(), "lacks ncclEpTensorAlloc", "file too short"] {
        assert!(both.contains(part), "{part} in {both}");
    }
}

#[test]
fn probing_reports_the_same_and_keeps_nothing() {
    let libraries = Libraries::new("probe");
    let tree = libraries.tree("tree", &[13]);
    let says = |case| libraries.child(case).env(DIR, Path::new(&tree)).says();
    assert_eq!(says("probe"), says("details"));
}

#[test]
fn available_means_that_loading_would_work() {
    let libraries = Libraries::new("available");
    let good = libraries.tree("good", &[13]);
    let nccl = good.join("nccl/lib/libnccl.so.2");
    let bad = libraries.build("bad.so", "libnccl_ep.so.0", "int ncclEpCreateGroup(void);");
    for (extension, available) in
        [(good.join("ep/lib/cu13/libnccl_ep.so.0"), "true"), (bad, "false")]
    {
        let child = libraries.child("available").env("NCCL_LIBRARY", &nccl);
        assert_eq!(child.env("NCCL_EP_LIBRARY", extension).says(), available);
    }
}
