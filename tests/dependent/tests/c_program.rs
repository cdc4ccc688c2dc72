//! A C program of a dependent crate, built with the folders that the sys crate's `links` metadata
//! gives: by `-l:libnccl_ep.so.0` with an RPATH, and by the library's full path.
//!
//! Needs `native/` as `cargo xtask stage-native --from pypi:0.1.0 --with-nccl` leaves it, and `cc`.
//! Without them the cases are skipped, and fail with `NCCL_EXTENSIONS_REQUIRE_NATIVE_LIBS=1`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

const REQUIRE: &str = "NCCL_EXTENSIONS_REQUIRE_NATIVE_LIBS";

/// What the metadata says; all absent unless a tree is staged.
const MAJORS: [(u32, Option<&str>); 2] =
    [(12, option_env!("DEP_NCCL_EP_LIB_CU12")), (13, option_env!("DEP_NCCL_EP_LIB_CU13"))];
const INCLUDE: Option<&str> = option_env!("DEP_NCCL_EP_INCLUDE");
const NCCL_INCLUDE: Option<&str> = option_env!("DEP_NCCL_EP_NCCL_INCLUDE");
const NCCL_LIB: Option<&str> = option_env!("DEP_NCCL_EP_NCCL_LIB");

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let required = std::env::var_os(REQUIRE).is_some_and(|value| value == "1");
    let mut trials = Vec::new();
    for (major, folder) in MAJORS {
        for by_path in [false, true] {
            let how = if by_path { "full_path" } else { "name_and_rpath" };
            let name = format!("cu{major}::linked_by_{how}");
            let staged = folder.filter(|_| NCCL_LIB.is_some() && cfg!(target_os = "linux"));
            trials.push(match staged {
                Some(folder) => Trial::test(name, move || link(major, folder, by_path)),
                None if required => Trial::test(name, || Err("nothing is staged".into())),
                None => Trial::test(name, || Ok(())).with_ignored_flag(true),
            });
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn link(major: u32, folder: &str, by_path: bool) -> Result<(), Failed> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let scratch = scratch.join(format!("c-{}-{major}-{by_path}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let result = build_and_run(&scratch, folder, by_path);
    std::fs::remove_dir_all(&scratch)?;
    let said = result?;
    if said == "0 200\n" { Ok(()) } else { Err(format!("it said {said:?}").into()) }
}

fn build_and_run(scratch: &Path, folder: &str, by_path: bool) -> Result<String, Failed> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (include, nccl_include) = (INCLUDE.ok_or("no include")?, NCCL_INCLUDE.ok_or("no NCCL")?);
    let nccl = NCCL_LIB.ok_or("no NCCL")?;
    stand_in(&scratch.join("libcuda.so.1"), folder)?;
    // Three type names stand in for CUDA's headers.
    let shim = own.ancestors().nth(2).ok_or("no workspace")?.join("native/shim");
    let program = scratch.join("version");
    let mut cc = Command::new("cc");
    cc.arg(own.join("tests/version.c")).arg("-o").arg(&program);
    for folder in [Path::new(include), Path::new(nccl_include), &shim] {
        cc.arg("-I").arg(folder);
    }
    if by_path {
        cc.arg(Path::new(folder).join("libnccl_ep.so.0"));
    } else {
        cc.arg(format!("-L{folder}")).arg("-l:libnccl_ep.so.0");
    }
    cc.arg(format!("-Wl,-rpath,{folder}:{nccl}"));
    // Where the linker finds what the library itself needs.
    cc.arg(format!("-Wl,-rpath-link,{nccl}:{}", scratch.display()));
    // Unlike the default, this RPATH counts for libraries of libraries too.
    output(cc.arg("-Wl,--disable-new-dtags"))?;
    output(Command::new(&program).env("LD_LIBRARY_PATH", scratch))
}

/// A driver with the functions that the library calls, each of which fails.
fn stand_in(driver: &PathBuf, folder: &str) -> Result<(), Failed> {
    let manifest = std::fs::read_to_string(Path::new(folder).join("../../../manifest.toml"))?;
    let is_driver = |name: &&str| {
        let rest = name.strip_prefix("cu").and_then(|rest| rest.chars().next());
        rest.is_some_and(|first| first.is_ascii_uppercase())
    };
    let names: std::collections::BTreeSet<&str> = manifest.split('"').filter(is_driver).collect();
    let code: String =
        names.iter().map(|name| format!("int {name}(void) {{ return 100; }}\n")).collect();
    let source = driver.with_extension("c");
    std::fs::write(&source, code)?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o"]).args([driver, &source]);
    output(&mut cc).map(drop)
}

fn output(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    let (out, words) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("{command:?}: {}: {words}", output.status).into());
    }
    Ok(String::from_utf8(out)?)
}
