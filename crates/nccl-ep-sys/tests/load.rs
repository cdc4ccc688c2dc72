//! Loading, over small C libraries that the test compiles.
//!
//! The dynamic linker reads its search path when a process starts, so each case runs in a child:
//! this test binary again, told by a variable what to do and what to print.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use nccl_ep_sys::{EpApi, SPEC, load, load_from};
use nccl_ext_core::Backend;
use nccl_ext_core::loader::LoadOptions;
use nccl_ext_core::raw::NcclApi;

const CASE: &str = "NCCL_EXT_TEST_CASE";

/// Functions of a stub library that all return 0, but for those that `with` defines.
fn source(symbols: &[&CStr], with: &str) -> String {
    let mut code = String::from(with);
    for name in symbols.iter().map(|name| name.to_str().unwrap()) {
        if !with.contains(&format!("int {name}(")) {
            code.push_str(&format!("\nint {name}(void) {{ return 0; }}"));
        }
    }
    code
}

struct Libraries(tempdir::Dir);

mod tempdir {
    use std::path::{Path, PathBuf};

    /// A folder below Cargo's own for tests, gone when dropped.
    pub(super) struct Dir(PathBuf);

    impl Dir {
        pub(super) fn new(name: &str) -> Self {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
                .join(format!("{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        pub(super) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

impl Libraries {
    fn new(name: &str) -> Self {
        let libraries = Self(tempdir::Dir::new(name));
        libraries.build("driver/libcuda.so.1", "libcuda.so.1", "int cuInit(int f) { return f; }");
        libraries
    }

    fn build(&self, file: &str, soname: &str, code: &str) -> PathBuf {
        let path = self.0.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let c = path.with_extension("c");
        std::fs::write(&c, code).unwrap();
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", &format!("-Wl,-soname,{soname}"), "-o"])
            .args([&path, &c])
            .status()
            .unwrap();
        assert!(status.success(), "cc failed on {file}");
        path
    }

    fn nccl(&self, file: &str, version: u32) -> PathBuf {
        let with = format!("int ncclGetVersion(int *v) {{ *v = {version}; return 0; }}");
        self.build(file, "libnccl.so.2", &source(&NcclApi::SYMBOLS, &with))
    }

    fn ep(&self, file: &str, extra: &str) -> PathBuf {
        let with = format!("int ncclEpGetVersion(int *v) {{ *v = 200; return 0; }}\n{extra}");
        self.build(file, "libnccl_ep.so.0", &source(&EpApi::SYMBOLS, &with))
    }

    /// What a child prints that runs `case` with these variables.
    fn child(&self, case: &str, driver: bool, variables: &[(&str, &Path)]) -> String {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env(CASE, case);
        command.env_remove("NCCL_LIBRARY").env_remove("NCCL_EP_LIBRARY");
        let path = if driver { self.0.path().join("driver") } else { "/nonexistent".into() };
        command.env("LD_LIBRARY_PATH", path).envs(variables.iter().copied());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let line = text.lines().find_map(|line| line.split_once("child: "));
        line.unwrap_or_else(|| panic!("{text}")).1.to_string()
    }
}

/// Not a test of its own: the cases, in a process that was started for one of them.
#[test]
fn child() {
    let Ok(case) = std::env::var(CASE) else { return };
    let show = |backend: Backend| {
        let libraries = backend.libraries().iter();
        let text = libraries.map(|library| {
            let file = library.path.as_deref().and_then(Path::file_name).unwrap_or_default();
            format!("{} {} {}", library.name, library.version, file.display())
        });
        text.collect::<Vec<_>>().join(", ")
    };
    let print = |result: nccl_ext_core::Result<Backend>| {
        println!("child: {}", result.map_or_else(|error| error.to_string(), show));
    };
    match case.as_str() {
        "environment" => print(load()),
        "refused, then good" => {
            let (bad, good) = (path("BAD"), path("GOOD"));
            let refused = load_from(&bad);
            assert!(refused.is_err());
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            assert!(!maps.contains(bad.to_str().unwrap()), "the refused file stays open");
            let loaded = load_from(&good);
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            assert!(maps.contains(good.to_str().unwrap()));
            print(loaded);
        }
        "explicit" => {
            let options = LoadOptions::new().nccl(path("NCCL")).extension(&SPEC, path("EP"));
            print(Backend::load(&options, &[&SPEC]));
        }
        other => panic!("no case {other}"),
    }
}

fn path(variable: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(variable).unwrap())
}

#[test]
fn libraries_named_by_variables_load_with_versions_and_paths() {
    let libraries = Libraries::new("variables");
    let nccl = libraries.nccl("libnccl.so.2", 23007);
    let ep = libraries.ep("libnccl_ep.so.0", "");
    let variables = [("NCCL_LIBRARY", &*nccl), ("NCCL_EP_LIBRARY", &*ep)];
    assert_eq!(
        libraries.child("environment", true, &variables),
        "libnccl.so.2 2.30.7 libnccl.so.2, libnccl_ep.so.0 0.2.0 libnccl_ep.so.0"
    );
}

#[test]
fn explicit_paths_win_over_variables() {
    let libraries = Libraries::new("explicit");
    let nccl = libraries.nccl("libnccl-explicit.so", 23004);
    let ep = libraries.ep("libep-explicit.so", "");
    let nowhere = Path::new("/nonexistent/lib.so");
    let variables =
        [("NCCL", &*nccl), ("EP", &*ep), ("NCCL_LIBRARY", nowhere), ("NCCL_EP_LIBRARY", nowhere)];
    assert_eq!(
        libraries.child("explicit", true, &variables),
        "libnccl.so.2 2.30.4 libnccl-explicit.so, libnccl_ep.so.0 0.2.0 libep-explicit.so"
    );
}

#[test]
fn no_driver_is_said() {
    let libraries = Libraries::new("driverless");
    let message = libraries.child("environment", false, &[]);
    assert!(message.starts_with("libcuda.so.1 was not found; tried libcuda.so.1"), "{message}");
}

#[test]
fn a_variable_that_names_no_file_is_said() {
    let libraries = Libraries::new("nowhere");
    let variables = [("NCCL_LIBRARY", Path::new("/nonexistent/libnccl.so.2"))];
    let message = libraries.child("environment", true, &variables);
    assert!(
        message.starts_with(
            "libnccl.so.2 was not found; tried /nonexistent/libnccl.so.2 (NCCL_LIBRARY is set): "
        ),
        "{message}"
    );
}

/// An NCCL that is too old is refused before the extension is even looked for.
#[test]
fn l01_old_nccl() {
    let libraries = Libraries::new("old");
    let nccl = libraries.nccl("libnccl.so.2", 22809);
    let variables =
        [("NCCL_LIBRARY", &*nccl), ("NCCL_EP_LIBRARY", Path::new("/nonexistent/ep.so"))];
    assert_eq!(
        libraries.child("environment", true, &variables),
        format!("libnccl.so.2 at {} is version 2.28.9; 2.30.4 or newer is needed", nccl.display())
    );
}

/// An NCCL of the right version without functions that are needed.
#[test]
fn l02_nccl_without_device_functions() {
    let libraries = Libraries::new("stripped");
    let with = "int ncclGetVersion(int *v) { *v = 23007; return 0; }";
    let kept = NcclApi::SYMBOLS
        .into_iter()
        .filter(|name| !matches!(name.to_str(), Ok("ncclTeamLsa" | "ncclCommQueryProperties")));
    let code = source(&kept.collect::<Vec<_>>(), with);
    let nccl = libraries.build("libnccl.so.2", "libnccl.so.2", &code);
    let message = libraries.child("environment", true, &[("NCCL_LIBRARY", &*nccl)]);
    let path = nccl.display();
    assert!(message.starts_with(&format!("{path} (version 2.30.7) lacks ")), "{message}");
    assert!(message.contains("ncclTeamLsa") && message.contains("ncclCommQueryProperties"));
    assert!(!message.contains("ncclAllGather"));
}

#[test]
fn l05_extension_with_one_function() {
    let libraries = Libraries::new("partial");
    let nccl = libraries.nccl("libnccl.so.2", 23007);
    let ep = libraries.build(
        "libnccl_ep.so.0",
        "libnccl_ep.so.0",
        "int ncclEpCreateGroup(void) { return 0; }",
    );
    let variables = [("NCCL_LIBRARY", &*nccl), ("NCCL_EP_LIBRARY", &*ep)];
    let message = libraries.child("environment", true, &variables);
    let missing = EpApi::SYMBOLS.iter().map(|name| name.to_str().unwrap());
    let missing: Vec<_> = missing.filter(|name| *name != "ncclEpCreateGroup").collect();
    assert_eq!(missing.len(), 17);
    assert_eq!(
        message,
        format!("{} lacks {}; version 0.2.0 has them", ep.display(), missing.join(", "))
    );
}

/// What counts is the NCCL that the extension itself would call.
#[test]
fn an_extension_that_brings_an_old_nccl_is_refused() {
    let libraries = Libraries::new("inside");
    let nccl = libraries.nccl("libnccl.so.2", 23007);
    let own = "int ncclGetVersion(int *v) { *v = 22809; return 0; }";
    let ep = libraries.ep("libnccl_ep.so.0", own);
    let variables = [("NCCL_LIBRARY", &*nccl), ("NCCL_EP_LIBRARY", &*ep)];
    let message = libraries.child("environment", true, &variables);
    let expected = format!("libnccl.so.2 at {} is version 2.28.9", ep.display());
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
fn a_refused_candidate_is_closed_and_a_good_one_loads_afterwards() {
    let libraries = Libraries::new("again");
    let nccl = libraries.nccl("libnccl.so.2", 23007);
    let bad = libraries.build("bad/libnccl_ep.so.0", "libnccl_ep.so.0", "int x;");
    let good = libraries.ep("good/libnccl_ep.so.0", "");
    let variables = [("NCCL_LIBRARY", &*nccl), ("BAD", &*bad), ("GOOD", &*good)];
    assert_eq!(
        libraries.child("refused, then good", true, &variables),
        "libnccl.so.2 2.30.7 libnccl.so.2, libnccl_ep.so.0 0.2.0 libnccl_ep.so.0"
    );
}
