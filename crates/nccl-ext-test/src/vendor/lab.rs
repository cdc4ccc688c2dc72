//! What the cases need: the staged libraries, and stand-ins that a C compiler makes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use nccl_ext_core::raw::NcclApi;

use super::elf::Elf;

/// The CUDA majors that the vendor builds for.
pub const MAJORS: [u32; 2] = [12, 13];

/// What a test binary needs.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Where its stand-ins are built: the binary's `CARGO_TARGET_TMPDIR`.
    pub scratch: &'static str,
    /// The library that the cases call.
    pub subject: fn(&Lab, u32) -> PathBuf,
    /// Libraries that they read only.
    pub others: &'static [fn(&Lab, u32) -> PathBuf],
    /// C functions of the stand-in for NCCL. All that the library calls and these do not define
    /// give `ncclSystemError`.
    pub nccl_stub: &'static str,
}

/// The staged tree, and a folder for what is made here, which is gone when this is dropped.
#[derive(Debug)]
pub struct Lab {
    needs: Needs,
    native: PathBuf,
    scratch: PathBuf,
    no_compiler: OnceLock<Option<String>>,
    stubs: OnceLock<Result<(), String>>,
}

impl Lab {
    /// Nothing is built yet.
    pub(super) fn new(needs: Needs) -> Self {
        let tree = std::env::var_os("NCCL_EXTENSIONS_NATIVE_DIR").filter(|dir| !dir.is_empty());
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let native = tree.map_or_else(|| workspace.join("native"), PathBuf::from);
        let native = native.canonicalize().unwrap_or(native);
        let scratch = Path::new(needs.scratch).join(format!("vendor-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).unwrap();
        let (no_compiler, stubs) = (OnceLock::new(), OnceLock::new());
        Self { needs, native, scratch, no_compiler, stubs }
    }

    /// The folder for what is made here.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// The staged libnccl_ep.
    pub fn ep(&self, major: u32) -> PathBuf {
        self.native.join(format!("ep/lib/cu{major}/libnccl_ep.so.0"))
    }

    /// The staged libnccl_m2n.
    pub fn m2n(&self, major: u32) -> PathBuf {
        self.native.join(format!("m2n/lib/cu{major}/libnccl_m2n.so"))
    }

    /// The staged NCCL.
    pub fn nccl(&self) -> PathBuf {
        self.native.join("nccl/lib/libnccl.so.2")
    }

    /// The folder of the driver that fails every call.
    pub fn driver_stub(&self) -> PathBuf {
        self.scratch.join("driver")
    }

    /// The stand-in for NCCL.
    pub fn nccl_stub(&self) -> PathBuf {
        self.scratch.join("nccl/libnccl.so.2")
    }

    /// The staged libraries of a CUDA major, the subject first.
    fn libraries(&self, major: u32) -> impl Iterator<Item = PathBuf> {
        let others = self.needs.others.iter().map(move |file| file(self, major));
        [(self.needs.subject)(self, major)].into_iter().chain(others).chain([self.nccl()])
    }

    /// Why the cases of this CUDA major cannot run here.
    pub(super) fn lacks(&self, major: u32) -> Option<String> {
        let mut files = self.libraries(major).chain([self.native.join("manifest.toml")]);
        if let Some(file) = files.find(|file| !file.is_file()) {
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
    pub(super) fn build_stubs(&self) -> Result<(), String> {
        self.stubs.get_or_init(|| self.build_stubs_now()).clone()
    }

    fn build_stubs_now(&self) -> Result<(), String> {
        let read = |files: Vec<PathBuf>| -> Vec<Elf> {
            files.iter().filter(|file| file.is_file()).map(|file| Elf::read(file)).collect()
        };
        let all = read(MAJORS.into_iter().flat_map(|major| self.libraries(major)).collect());
        let driver = all.iter().flat_map(Elf::driver_imports).chain(["cuInit"]);
        let driver = failing(driver.collect::<BTreeSet<_>>(), NO_DEVICE);
        self.compile(&self.driver_stub().join("libcuda.so.1"), &driver)?;

        // What the library calls, and what the loader asks of an NCCL.
        let subject = read(MAJORS.map(|major| (self.needs.subject)(self, major)).to_vec());
        let asked = NcclApi::SYMBOLS.iter().map(|name| name.to_str().unwrap());
        let nccl: BTreeSet<_> = subject.iter().flat_map(Elf::nccl_imports).chain(asked).collect();
        let stub = self.needs.nccl_stub;
        let rest = nccl.into_iter().filter(|name| !stub.contains(&format!("{name}(")));
        self.compile(&self.nccl_stub(), &format!("{stub}{}", failing(rest, SYSTEM_ERROR)))
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
