//! What the cases need: the staged libraries, and stand-ins that a C compiler makes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use nccl_ext_core::raw::NcclApi;

use crate::elf::Elf;

/// The CUDA majors that the vendor builds for.
pub(crate) const MAJORS: [u32; 2] = [12, 13];

/// The staged tree, and a folder for what is made here, which is gone when this is dropped.
pub(crate) struct Lab {
    native: PathBuf,
    scratch: PathBuf,
    no_compiler: OnceLock<Option<String>>,
    stubs: OnceLock<Result<(), String>>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let tree = std::env::var_os("NCCL_EXTENSIONS_NATIVE_DIR").filter(|dir| !dir.is_empty());
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let native = tree.map_or_else(|| workspace.join("native"), PathBuf::from);
        let name = format!("vendor-m2n-{}", std::process::id());
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&scratch).unwrap();
        let native = native.canonicalize().unwrap_or(native);
        Self { native, scratch, no_compiler: OnceLock::new(), stubs: OnceLock::new() }
    }

    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    pub(crate) fn m2n(&self, major: u32) -> PathBuf {
        self.native.join(format!("m2n/lib/cu{major}/libnccl_m2n.so"))
    }

    pub(crate) fn nccl(&self) -> PathBuf {
        self.native.join("nccl/lib/libnccl.so.2")
    }

    /// The folder of the driver that fails every call.
    pub(crate) fn driver_stub(&self) -> PathBuf {
        self.scratch.join("driver")
    }

    /// An NCCL whose communicators point to their number of ranks and their rank.
    pub(crate) fn nccl_stub(&self) -> PathBuf {
        self.scratch.join("nccl/libnccl.so.2")
    }

    /// Why the cases of this CUDA major cannot run here.
    pub(crate) fn lacks(&self, major: u32) -> Option<String> {
        let files = [self.m2n(major), self.nccl(), self.native.join("manifest.toml")];
        if let Some(file) = files.iter().find(|file| !file.is_file()) {
            let how = "cargo xtask stage-native --from pypi:0.1.0 --with-nccl";
            return Some(format!("{} is not staged: {how}", file.display()));
        }
        let cc = || {
            let mut cc = Command::new("cc");
            let status = cc.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.err().map(|error| format!("cc, a C compiler, cannot be run: {error}"))
        };
        self.no_compiler.get_or_init(cc).clone()
    }

    /// Builds the stand-ins, once.
    pub(crate) fn build_stubs(&self) -> Result<(), String> {
        self.stubs.get_or_init(|| self.build_stubs_now()).clone()
    }

    fn build_stubs_now(&self) -> Result<(), String> {
        let staged = MAJORS.into_iter().map(|major| self.m2n(major)).filter(|file| file.is_file());
        let m2n: Vec<_> = staged.map(|file| Elf::read(&file)).collect();

        // The CUDA runtime inside the library looks up the rest, and does without.
        let driver = m2n.iter().flat_map(Elf::driver_imports).chain(["cuInit"]);
        let driver = failing(driver.collect::<BTreeSet<_>>(), NO_DEVICE);
        self.compile(&self.driver_stub().join("libcuda.so.1"), &driver)?;

        // What the library calls, and what the loader asks of an NCCL.
        let asked = NcclApi::SYMBOLS.iter().map(|name| name.to_str().unwrap());
        let nccl: BTreeSet<_> = m2n.iter().flat_map(Elf::nccl_imports).chain(asked).collect();
        let rest = nccl.into_iter().filter(|name| !NCCL_STUB.contains(&format!("{name}(")));
        self.compile(&self.nccl_stub(), &format!("{NCCL_STUB}{}", failing(rest, SYSTEM_ERROR)))
    }

    fn compile(&self, library: &Path, code: &str) -> Result<(), String> {
        std::fs::create_dir_all(library.parent().unwrap()).unwrap();
        let source = library.with_extension("c");
        std::fs::write(&source, code).unwrap();
        let soname = library.file_name().unwrap().to_str().unwrap();
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", &format!("-Wl,-soname,{soname}"), "-o"])
            .args([library, &source])
            .output()
            .map_err(|error| error.to_string())?;
        let words = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("cc: {soname}: {words}")) }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// Functions that give this code.
fn failing<'a>(names: impl IntoIterator<Item = &'a str>, code: i32) -> String {
    let names = names.into_iter();
    names.map(|name| format!("int {name}(void) {{ return {code}; }}\n")).collect()
}

/// `CUDA_ERROR_NO_DEVICE`
const NO_DEVICE: i32 = 100;

/// `ncclSystemError`
const SYSTEM_ERROR: i32 = 2;

const NCCL_STUB: &str = r#"
int ncclGetVersion(int *version) { *version = 23007; return 0; }
int ncclCommCount(const int *comm, int *count) { *count = comm[0]; return 0; }
int ncclCommUserRank(const int *comm, int *rank) { *rank = comm[1]; return 0; }
int ncclCommGetAsyncError(const int *comm, int *error) { *error = 0; return 0; }
const char *ncclGetErrorString(int code) { return "stub"; }
const char *ncclGetLastError(void *comm) { return "stub"; }
"#;
