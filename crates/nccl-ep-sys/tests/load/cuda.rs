//! CUDA majors: which is taken, and what does not go together.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::libraries::Libraries;

const DIR: &str = "NCCL_EXTENSIONS_NATIVE_DIR";

/// A compiler that says this version.
fn nvcc(libraries: &Libraries, major: u32) -> PathBuf {
    let nvcc = libraries.path(&format!("cuda-{major}/bin/nvcc"));
    std::fs::create_dir_all(nvcc.parent().unwrap()).unwrap();
    let says = format!("#!/bin/sh\necho Cuda compilation tools, release {major}.4, V{major}.4.1\n");
    std::fs::write(&nvcc, says).unwrap();
    std::fs::set_permissions(&nvcc, Permissions::from_mode(0o755)).unwrap();
    nvcc
}

#[track_caller]
fn assert_takes(report: &str, tree: &Path, major: u32) {
    let file = tree.join(format!("ep/lib/cu{major}/libnccl_ep.so.0"));
    let taken = report.contains(&format!(" {} [", file.display()));
    assert!(taken && report.contains(&format!("] cuda {major} (")), "{report}");
}

#[test]
fn the_newest_major_that_the_driver_supports_is_taken() {
    let libraries = Libraries::new("newest");
    let tree = libraries.tree("tree", &[12, 13]);
    for (driver, taken) in [(12, 12), (13, 13), (14, 13)] {
        libraries.driver(driver);
        assert_takes(&libraries.child("details").env(DIR, &tree).says(), &tree, taken);
    }
}

#[test]
fn a_choice_wins_and_the_option_over_the_variable() {
    let libraries = Libraries::new("choice");
    let tree = libraries.tree("tree", &[12, 13]);
    for major in [12, 13] {
        let child = libraries.child("details").env(DIR, &tree);
        let report = child.env("NCCL_EXTENSIONS_CUDA", major.to_string()).says();
        assert_takes(&report, &tree, major);
    }
    let child = libraries.child("cuda 12").env(DIR, &tree).env("NCCL_EXTENSIONS_CUDA", "13");
    assert_takes(&child.says(), &tree, 12);
}

#[test]
fn the_major_of_the_compiler_is_preferred() {
    let libraries = Libraries::new("compiler");
    let tree = libraries.tree("tree", &[12, 13]);
    for major in [12, 13] {
        let child = libraries.child("details").env(DIR, &tree);
        assert_takes(&child.env("NVCC", nvcc(&libraries, major)).says(), &tree, major);
    }
}

/// Case L4.
#[test]
fn a_library_above_the_driver_is_refused_with_both() {
    let libraries = Libraries::new("above-the-driver");
    let tree = libraries.tree("tree", &[13]);
    libraries.driver(12);
    let message = libraries.child("details").env(DIR, &tree).says();
    assert_eq!(
        message,
        format!(
            "{} is built for CUDA 13, but the driver {} supports none newer than CUDA 12; update \
             the driver, or choose libraries with NCCL_EXTENSIONS_CUDA=12",
            tree.join("ep/lib/cu13/libnccl_ep.so.0").display(),
            libraries.path("driver/libcuda.so.1").display()
        )
    );
    // The content counts, not the folder.
    let wrong = libraries.ep_of("tree/ep/lib/cu12/libnccl_ep.so.0", 13);
    let message = libraries.child("details").env(DIR, &tree).says();
    assert!(message.starts_with(&format!("{} is built for CUDA 13", wrong.display())), "{message}");
}

/// Case L4.
#[test]
fn older_libraries_under_a_newer_driver_are_fine() {
    let libraries = Libraries::new("below-the-driver");
    let tree = libraries.tree("tree", &[12]);
    assert_takes(&libraries.child("details").env(DIR, &tree).says(), &tree, 12);
}

/// Cases L4 and L10.
#[test]
fn a_compiler_of_another_major_is_refused_with_both() {
    let libraries = Libraries::new("other-compiler");
    let tree = libraries.tree("tree", &[13]);
    let nvcc = nvcc(&libraries, 12);
    let message = libraries.child("details").env(DIR, &tree).env("NVCC", &nvcc).says();
    let compiler =
        format!("but the compiler that it would start, {}, is of CUDA 12; ", nvcc.display());
    assert!(message.contains("libnccl_ep.so.0 is built for CUDA 13, "), "{message}");
    assert!(message.contains(&compiler), "{message}");
}

#[test]
fn an_nccl_above_the_driver_is_refused() {
    let libraries = Libraries::new("nccl-above");
    let tree = libraries.tree("tree", &[12]);
    let mark = "const char mark[] = \"NCCL version 2.30.7+cuda13.3\";";
    let nccl = libraries.nccl_with("tree/nccl/lib/libnccl.so.2", 23007, mark);
    libraries.driver(12);
    let message = libraries.child("details").env(DIR, &tree).says();
    let start = format!("{} is built for CUDA 13, but the driver ", nccl.display());
    assert!(message.starts_with(&start), "{message}");
}

#[test]
fn a_choice_that_no_library_has_is_refused() {
    let libraries = Libraries::new("no-such");
    let tree = libraries.tree("tree", &[13]);
    let child = libraries.child("details").env(DIR, &tree);
    let message = child.env("NCCL_EXTENSIONS_CUDA", "12").says();
    assert!(
        message.contains(
            "is built for CUDA 13, but CUDA 12 was chosen by NCCL_EXTENSIONS_CUDA; stage libraries \
             of CUDA 12, or choose 13"
        ),
        "{message}"
    );
}

#[test]
fn a_choice_that_is_none_is_refused() {
    let libraries = Libraries::new("no-number");
    for wrong in ["11", "cu12", "newest"] {
        let message = libraries.child("details").env("NCCL_EXTENSIONS_CUDA", wrong).says();
        assert_eq!(
            message,
            format!(
                "`NCCL_EXTENSIONS_CUDA`: it chooses the CUDA major of the libraries to load; \
                 expected 12 or 13, or not to be set, found {wrong}"
            )
        );
    }
}
