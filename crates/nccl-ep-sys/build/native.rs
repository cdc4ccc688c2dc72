//! What the build scripts of the sys crates do: say where the staged libraries lie, and which are
//! missing. Nothing is compiled or linked; the libraries are opened at run time.
//!
//! Each sys crate is published alone, so each has a copy of this file; a test in xtask compares
//! them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const NATIVE_DIR: &str = "NCCL_EXTENSIONS_NATIVE_DIR";
const REQUIRE: &str = "NCCL_EXTENSIONS_REQUIRE_NATIVE_LIBS";
const MARKER: &str = ".nccl-extensions-native";
const COMMAND: &str = "cargo xtask stage-native --from pypi:0.1.0 --with-nccl";

/// The majors of a tree whose manifest does not say which were asked for.
const MAJORS: [u32; 2] = [12, 13];

/// Both extensions.
const ALL: [Library; 2] = [
    Library { name: "libnccl_ep.so.0", folder: "ep" },
    Library { name: "libnccl_m2n.so", folder: "m2n" },
];

/// The library of a sys crate.
pub(crate) struct Library {
    /// Its file name.
    pub(crate) name: &'static str,
    /// Its folder in a staged tree.
    pub(crate) folder: &'static str,
}

/// Tells Cargo, dependent build scripts and the user what there is.
pub(crate) fn report(library: &Library) -> ExitCode {
    for file in ["build.rs", "build/native.rs"] {
        println!("cargo::rerun-if-changed={file}");
    }
    for variable in [NATIVE_DIR, REQUIRE] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let (required, root) = match (required(), root()) {
        (Ok(required), Ok(root)) => (required, root),
        (Err(problem), _) | (_, Err(problem)) => {
            println!("cargo::error={problem}");
            return ExitCode::FAILURE;
        }
    };
    let missing = library.look(root.as_deref());
    for problem in &missing {
        println!("cargo::{}={problem}", if required { "error" } else { "warning" });
    }
    if !required || missing.is_empty() {
        return ExitCode::SUCCESS;
    }
    // Cargo may stop before the other sys crate's script says what is missing for it.
    let root = root.unwrap_or_else(|| "native".into());
    for other in ALL.iter().filter(|other| other.name != library.name) {
        for major in majors(&root) {
            let file = other.file(&root, major);
            if !is_there(&file) {
                println!("cargo::error={}: missing or empty too", file.display());
            }
        }
    }
    ExitCode::FAILURE
}

fn is_there(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0)
}

/// A variable's value; empty counts as unset.
fn variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|v| !v.is_empty())
}

fn required() -> Result<bool, String> {
    match variable(REQUIRE).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(format!(
            "{REQUIRE}={other}: expected 1 (a missing native library is an error), 0 (a warning), \
             or not to be set"
        )),
    }
}

/// The staged tree: the one that the variable names, else a marked folder `native` above this crate.
fn root() -> Result<Option<PathBuf>, String> {
    if let Some(root) = variable(NATIVE_DIR).map(PathBuf::from) {
        if root.is_relative() {
            return Err(format!(
                "{NATIVE_DIR}={}: expected an absolute path, since a build script runs in the \
                 folder of its crate",
                root.display()
            ));
        }
        return Ok(Some(root));
    }
    let own = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let mut trees = own.ancestors().skip(1).map(|folder| folder.join("native"));
    Ok(trees.find(|tree| tree.join(MARKER).is_file()))
}

impl Library {
    /// Prints what dependent build scripts get, and returns a message for each missing library.
    fn look(&self, root: Option<&Path>) -> Vec<String> {
        let Some(root) = root else {
            let file = |major| self.file(Path::new("native"), major);
            return MAJORS.iter().map(|major| self.missing(&file(*major), *major)).collect();
        };
        metadata("root", root);
        for (key, folder) in [
            ("include", format!("{}/include", self.folder)),
            ("nccl_include", "nccl/include".to_owned()),
            ("nccl_lib", "nccl/lib".to_owned()),
        ] {
            metadata(key, &root.join(folder));
        }
        watch(root, &root.join("manifest.toml"));
        let mut missing = Vec::new();
        let mut newest = None;
        for major in majors(root) {
            let file = self.file(root, major);
            watch(root, &file);
            if is_there(&file) {
                let folder = file.parent().unwrap_or(root);
                metadata(&format!("lib_cu{major}"), folder);
                newest = Some(folder.to_owned());
            } else {
                missing.push(self.missing(&file, major));
            }
        }
        if let Some(folder) = newest {
            metadata("lib", &folder);
        }
        missing
    }

    fn file(&self, root: &Path, major: u32) -> PathBuf {
        root.join(self.folder).join(format!("lib/cu{major}")).join(self.name)
    }

    fn missing(&self, file: &Path, major: u32) -> String {
        format!(
            "{}: missing or empty, so this build is not self-contained: a {} for CUDA {major} will \
             be searched for on the machine that runs it; stage it with `{COMMAND}`, or name a \
             staged tree with {NATIVE_DIR}",
            file.display(),
            self.name
        )
    }
}

/// `DEP_NCCL_EP_INCLUDE` and so on for dependent build scripts; only what is there.
fn metadata(key: &str, folder: &Path) {
    if folder.is_dir() {
        println!("cargo::metadata={key}={}", folder.display());
    }
}

/// Runs this script again when `file` changes or, while it is missing, when it may have come: Cargo
/// would run it on every build for a name that does not exist.
fn watch(root: &Path, file: &Path) {
    let within = file.ancestors().take_while(|path| path.starts_with(root));
    if let Some(path) = within.into_iter().find(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// The majors that were asked for when the tree was staged, oldest first.
fn majors(root: &Path) -> Vec<u32> {
    let manifest = std::fs::read_to_string(root.join("manifest.toml")).unwrap_or_default();
    let line = manifest.lines().find_map(|line| line.strip_prefix("cuda = ["));
    let staged: Vec<u32> = line
        .and_then(|line| line.split(']').next())
        .map(|list| list.split(',').filter_map(|major| major.trim().parse().ok()).collect())
        .unwrap_or_default();
    if staged.is_empty() { MAJORS.to_vec() } else { staged }
}
