//! One NCCL in a process, and reports of that one.

use std::path::Path;
use std::process::Command;

use crate::libraries::Libraries;

/// The build id of a file, as another tool reads it; `None` where that is not installed.
fn build_id(file: &Path) -> Option<String> {
    let output = Command::new("readelf").arg("-n").arg(file).output().ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.split_once("Build ID: ")?.1.split_whitespace().next()?.to_owned())
}

/// The Python environment has another NCCL than the process has mapped.
///
/// Case L8.
#[test]
fn reports_carry_the_mapped_nccl() {
    let libraries = Libraries::new("mapped");
    let mapped = libraries.nccl("mapped/libnccl.so.2", 23007);
    let python = "env/lib/python3.12/site-packages";
    libraries.nccl(&format!("{python}/nvidia/nccl/lib/libnccl.so.2"), 23010);
    let ep = libraries.ep_of(&format!("{python}/nccl/ep/lib/cu13/libnccl_ep.so"), 13);
    let child = libraries.child("mapped first").env("OTHER", &mapped);
    let report = child.env("VIRTUAL_ENV", libraries.path("env")).says();
    let (nccl, extension) = report.split_once(", ").unwrap();
    let start = format!("libnccl.so.2 2.30.7 {} [", mapped.display());
    assert!(nccl.starts_with(&start), "{report}");
    assert!(nccl.ends_with("] cuda ? (mapped by the process already)"), "{report}");
    assert!(
        extension.starts_with(&format!("libnccl_ep.so.0 0.2.0 {} [", ep.display())),
        "{report}"
    );
    assert!(extension.ends_with("] cuda 13 (Python packages, VIRTUAL_ENV)"), "{report}");
    if let Some(id) = build_id(&mapped) {
        assert!(nccl.contains(&format!("[{id}]")), "{id} in {report}");
    }
}

#[test]
fn a_second_nccl_is_refused_before_it_is_opened() {
    let libraries = Libraries::new("second");
    let mapped = libraries.nccl("mapped/libnccl.so.2", 23007);
    // Opening it would end the process.
    let abort = "#include <stdlib.h>\n__attribute__((constructor)) void a(void) { abort(); }";
    let named = libraries.nccl_with("named/libnccl.so.2", 23007, abort);
    let child = libraries.child("mapped first").env("OTHER", &mapped);
    let message = child.env("NCCL_LIBRARY", &named).says();
    let (named, mapped) = (named.display(), mapped.display());
    assert!(
        message.starts_with(&format!("the process holds 2 NCCLs: {named}, {mapped}; ")),
        "{message}"
    );
}

#[test]
fn the_mapped_file_under_another_name_is_the_same_nccl() {
    let libraries = Libraries::new("same");
    let mapped = libraries.nccl("mapped/libnccl.so.2", 23007);
    let ep = libraries.ep("libnccl_ep.so.0", "");
    let linked = libraries.path("other-name.so");
    std::os::unix::fs::symlink(&mapped, &linked).unwrap();
    let child = libraries.child("mapped first").env("OTHER", &mapped).env("NCCL_EP_LIBRARY", ep);
    let report = child.env("NCCL_LIBRARY", &linked).says();
    assert!(report.starts_with("libnccl.so.2 2.30.7 "), "{report}");
}

#[test]
fn an_old_nccl_that_is_mapped_is_not_worked_around() {
    let libraries = Libraries::new("mapped-old");
    let mapped = libraries.nccl("mapped/libnccl.so.2", 22809);
    let tree = libraries.tree("tree", &[13]);
    let child = libraries.child("mapped first").env("OTHER", &mapped);
    let message = child.env("NCCL_EXTENSIONS_NATIVE_DIR", tree).says();
    let start = format!("libnccl.so.2 at {} is version 2.28.9;", mapped.display());
    assert!(message.starts_with(&start), "{message}");
}

/// An extension's calls go to the global scope first, this crate's to the library that it opened.
#[test]
fn an_interposer_is_named() {
    let libraries = Libraries::new("interposer");
    let tree = libraries.tree("tree", &[13]);
    let code = "int ncclAllGather(void) { return 0; }";
    let other = libraries.build("libtrace.so", "libtrace.so", code);
    let child = libraries.child("names").env("LD_PRELOAD", &other);
    let message = child.env("NCCL_EXTENSIONS_NATIVE_DIR", &tree).says();
    let nccl = tree.join("nccl/lib/libnccl.so.2");
    let both = format!("the process holds 2 NCCLs: {}, {}; ", nccl.display(), other.display());
    assert!(message.starts_with(&both), "{message}");
}

/// What counts is the NCCL that the extension itself would call.
#[test]
fn an_extension_with_an_nccl_inside_is_refused() {
    let libraries = Libraries::new("inside");
    let nccl = libraries.nccl("libnccl.so.2", 23007);
    for (version, expected) in [
        (22809, "libnccl.so.2 at EP is version 2.28.9; 2.30.4 or newer is needed"),
        (23007, "the process holds 2 NCCLs: NCCL, EP; "),
    ] {
        let own = format!("int ncclGetVersion(int *v) {{ *v = {version}; return 0; }}");
        let ep = libraries.ep("libnccl_ep.so.0", &own);
        let child = libraries.child("names").env("NCCL_LIBRARY", &nccl);
        let message = child.env("NCCL_EP_LIBRARY", &ep).says();
        let message = message.replace(ep.to_str().unwrap(), "EP");
        let message = message.replace(nccl.to_str().unwrap(), "NCCL");
        assert!(message.starts_with(expected), "{message}");
    }
}
