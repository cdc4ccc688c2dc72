//! The libraries that the cases load, made by a C compiler.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use nccl_ep_sys::EpApi;
use nccl_ext_core::raw::NcclApi;
use nccl_ext_test::child::Child;

use crate::child::child;

/// A folder with libraries, gone when dropped. Its `driver/` has a driver for CUDA 13.
pub(crate) struct Libraries(PathBuf);

impl Libraries {
    pub(crate) fn new(name: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let libraries = Self(root.join(format!("load-{name}-{}", std::process::id())));
        libraries.driver(13);
        libraries
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Replaces the driver by one that supports this CUDA major.
    pub(crate) fn driver(&self, major: u32) {
        self.driver_with(major, &[]);
    }

    /// As [`driver`](Self::driver), with these functions beside the version's.
    pub(crate) fn driver_with(&self, major: u32, functions: &[&str]) {
        let version = format!("int cuDriverGetVersion(int *v) {{ *v = {major}020; return 0; }}\n");
        let others = functions.iter().map(|name| format!("int {name}(void) {{ return 0; }}\n"));
        let code = version + &others.collect::<String>();
        self.build("driver/libcuda.so.1", "libcuda.so.1", &code);
    }

    pub(crate) fn build(&self, file: &str, soname: &str, code: &str) -> PathBuf {
        let path = self.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let c = path.with_extension("c");
        std::fs::write(&c, code).unwrap();
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-Wl,--build-id=sha1"])
            .args([&format!("-Wl,-soname,{soname}"), "-o"])
            .args([&path, &c])
            .output()
            .unwrap();
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        path
    }

    /// An NCCL of a version, as `ncclGetVersion` encodes it.
    pub(crate) fn nccl(&self, file: &str, version: u32) -> PathBuf {
        self.nccl_with(file, version, "")
    }

    pub(crate) fn nccl_with(&self, file: &str, version: u32, extra: &str) -> PathBuf {
        let with = format!("int ncclGetVersion(int *v) {{ *v = {version}; return 0; }}\n{extra}");
        self.build(file, "libnccl.so.2", &source(&NcclApi::SYMBOLS, &with))
    }

    /// A libnccl_ep without a mark of CUDA.
    pub(crate) fn ep(&self, file: &str, extra: &str) -> PathBuf {
        let with = format!("int ncclEpGetVersion(int *v) {{ *v = 200; return 0; }}\n{extra}");
        self.build(file, "libnccl_ep.so.0", &source(&EpApi::SYMBOLS, &with))
    }

    /// A libnccl_ep that is built with this CUDA major.
    pub(crate) fn ep_of(&self, file: &str, major: u32) -> PathBuf {
        self.ep(file, &mark(major))
    }

    /// A staged tree with libraries of these majors, and NCCL.
    pub(crate) fn tree(&self, name: &str, majors: &[u32]) -> PathBuf {
        for major in majors {
            self.ep_of(&format!("{name}/ep/lib/cu{major}/libnccl_ep.so.0"), *major);
        }
        self.nccl(&format!("{name}/nccl/lib/libnccl.so.2"), 23007);
        self.path(name)
    }

    /// A child that finds the driver.
    pub(crate) fn child(&self, case: &str) -> Child {
        child(case, None).env("LD_LIBRARY_PATH", self.path("driver"))
    }

    /// A child that finds the driver and what is in this folder too.
    pub(crate) fn child_with(&self, case: &str, folder: &str) -> Child {
        let mut path = self.path(folder).into_os_string();
        path.push(":");
        path.push(self.path("driver"));
        child(case, None).env("LD_LIBRARY_PATH", path)
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the vendor's version string leaves in a library.
pub(crate) fn mark(major: u32) -> String {
    format!("const char mark[] = \"version 0.2.0+cuda{major}.1\";\n")
}

/// Functions that all return 0, but for those that `with` defines.
pub(crate) fn source(symbols: &[&CStr], with: &str) -> String {
    let mut code = String::from(with);
    for name in symbols.iter().map(|name| name.to_str().unwrap()) {
        if !with.contains(&format!("int {name}(")) {
            code.push_str(&format!("\nint {name}(void) {{ return 0; }}"));
        }
    }
    code
}
