//! Finds the libclang that bindgen parses headers with, and the builtin headers it needs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

/// Points bindgen at a libclang: `LIBCLANG_PATH`, else the Python package, else the system's.
pub(crate) fn select(sh: &Shell) -> Result<()> {
    if let Some(set) = std::env::var_os("LIBCLANG_PATH").filter(|set| !set.is_empty()) {
        let set = PathBuf::from(set);
        if set.is_file() || holds_libclang(&set) {
            return Ok(());
        }
        bail!(
            "LIBCLANG_PATH={}: neither a file nor a folder with libclang*.so*; correct it, or unset \
             it to let xtask search",
            set.display()
        );
    }
    let Some(dir) = python_package(sh).or_else(system_llvm) else {
        bail!(
            "codegen needs libclang and found none (LIBCLANG_PATH unset, no Python package \
             `libclang`, none below /usr/lib/llvm-*); install it with `pip install \
             libclang==18.1.1` or `apt-get install libclang-14-dev`"
        );
    };
    eprintln!("codegen: libclang from {}", dir.display());
    // SAFETY: xtask starts no thread, and those that xshell starts to feed a command end with it,
    // so nothing else reads the environment meanwhile.
    unsafe { std::env::set_var("LIBCLANG_PATH", &dir) };
    Ok(())
}

/// The compiler's own headers (`stddef.h`, `stdbool.h`), which the Python package does not carry.
pub(crate) fn builtin_headers(sh: &Shell) -> Result<PathBuf> {
    let from_cc = cmd!(sh, "cc -print-file-name=include").quiet().ignore_stderr().read();
    // A compiler that does not find the folder answers with the bare name.
    if let Some(dir) = from_cc.ok().map(PathBuf::from).filter(|d| d.join("stddef.h").is_file()) {
        return Ok(dir);
    }
    let from_clang = cmd!(sh, "clang -print-resource-dir").quiet().ignore_stderr().read();
    from_clang
        .ok()
        .map(|dir| Path::new(&dir).join("include"))
        .filter(|d| d.join("stddef.h").is_file())
        .context(
            "codegen needs a C compiler's stddef.h: neither `cc -print-file-name=include` nor \
             `clang -print-resource-dir` leads to one; install gcc or clang",
        )
}

fn python_package(sh: &Shell) -> Option<PathBuf> {
    let script = "import clang, os; print(os.path.join(os.path.dirname(clang.__file__), 'native'))";
    let dir = cmd!(sh, "python3 -c {script}").quiet().ignore_stderr().read().ok()?;
    Some(PathBuf::from(dir)).filter(|d| holds_libclang(d))
}

/// The newest LLVM below /usr/lib, where Debian and its kin install.
fn system_llvm() -> Option<PathBuf> {
    let version = |dir: &Path| -> Option<u32> {
        dir.file_name()?.to_str()?.strip_prefix("llvm-")?.parse().ok()
    };
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib")
        .ok()?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter_map(|dir| version(&dir).map(|v| (v, dir.join("lib"))))
        .filter(|(_, lib)| holds_libclang(lib))
        .collect();
    found.sort();
    found.pop().map(|(_, lib)| lib)
}

fn holds_libclang(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.filter_map(|entry| entry.ok()).any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // `libclang-cpp` is the C++ library, which has no C interface.
        name.starts_with("libclang") && !name.starts_with("libclang-cpp") && name.contains(".so")
    })
}
