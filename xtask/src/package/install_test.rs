//! Trying an archive as a user has it: unpacked somewhere else, on a machine with a driver.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::archive;
use crate::files::write;
use crate::native::manifest::Manifest;

/// Runs the tool of an archive, for each CUDA major. Where NCCL is left out, only that the tool
/// starts is tried.
pub(crate) fn run(sh: &Shell, packed: &Path, scratch: &Path) -> Result<()> {
    let into = scratch.join("somewhere-else");
    let root = archive::unpack(packed, &into)?;
    let manifest = Manifest::read(&root)?;
    let driver = scratch.join("driver");
    stand_in(sh, &manifest, &driver)?;
    let tool = root.join(archive::PROGRAM);
    let with_nccl = manifest.files.iter().any(|file| file.path.starts_with("nccl/lib/"));
    for major in &manifest.cuda {
        let mut command = cmd!(sh, "{tool} info --json").quiet();
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["NCCL", "CUDA", "NVCC", "LD_"].iter().any(|start| text.starts_with(start)) {
                command = command.env_remove(name);
            }
        }
        let text = command
            .env("LD_LIBRARY_PATH", &driver)
            .env("NCCL_EXTENSIONS_CUDA", major.to_string())
            .read()
            .context("running the archive's tool")?;
        let info: serde_json::Value = serde_json::from_str(&text).context("reading its output")?;
        let backends = info["backends"].as_array().cloned().unwrap_or_default();
        let native = backends.iter().find(|backend| backend["name"] == "native");
        let native = native.context("the tool lists no backend `native`")?;
        if !with_nccl {
            println!("package: the unpacked tool starts");
            continue;
        }
        let paths = native["libraries"].as_array().cloned().unwrap_or_default();
        let paths: BTreeSet<&str> = paths.iter().filter_map(|l| l["path"].as_str()).collect();
        for file in ["nccl/lib/libnccl.so.2", &format!("ep/lib/cu{major}/libnccl_ep.so.0")] {
            let path = root.join(file);
            ensure!(
                path.to_str().is_some_and(|path| paths.contains(path)),
                "the unpacked tool should load {file} with NCCL_EXTENSIONS_CUDA={major}; it says {native}"
            );
        }
        println!("package: the unpacked tool finds its libraries for CUDA {major}");
    }
    std::fs::remove_dir_all(&into).with_context(|| format!("{}", into.display()))
}

/// A driver with every function that the libraries call, each of which fails.
fn stand_in(sh: &Shell, manifest: &Manifest, folder: &Path) -> Result<()> {
    let libraries = manifest.files.iter().filter_map(|file| file.library.as_ref());
    let names: BTreeSet<&String> = libraries
        .flat_map(|library| &library.imports)
        .filter(|name| name.starts_with("cu"))
        .collect();
    let code: String =
        names.iter().map(|name| format!("int {name}(void) {{ return 100; }}\n")).collect();
    let (source, library) = (folder.join("driver.c"), folder.join("libcuda.so.1"));
    write::file(&source, code.as_bytes())?;
    cmd!(sh, "cc -shared -fPIC -w -Wl,-soname,libcuda.so.1 -o {library} {source}")
        .quiet()
        .run()
        .context("cc, which also links Rust programs")
}
