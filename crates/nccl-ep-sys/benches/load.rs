//! How long `load` takes on the staged tree: search, content, opening, versions, symbols.
//!
//! Opened libraries stay open, so each sample is a process of its own; the first one warms the page
//! cache and does not count. Without a GPU's driver a stand-in is compiled. Prints one JSON object.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const SAMPLE: &str = "NCCL_EXT_BENCH_SAMPLE";
const SAMPLES: usize = 31;

fn main() {
    if std::env::var_os(SAMPLE).is_some() {
        let start = Instant::now();
        let loaded = nccl_ep_sys::load();
        let elapsed = start.elapsed();
        let backend = loaded.unwrap_or_else(|error| panic!("{error}"));
        println!("{}", elapsed.as_secs_f64() * 1e3);
        for library in backend.libraries() {
            let path = library.path.as_deref().unwrap_or(Path::new("-"));
            println!("{} {} {}", library.name, library.version, path.display());
        }
        return;
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let native = workspace.join("native");
    if !native.join("manifest.toml").is_file() {
        println!("{{\"skipped\": \"{} is not staged\"}}", native.display());
        return;
    }
    let driver = stand_in(&native);
    let mut samples = Vec::new();
    let mut libraries = Vec::new();
    for _ in 0..=SAMPLES {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(SAMPLE, "1").env("NCCL_EXTENSIONS_NATIVE_DIR", &native);
        command.env("LD_LIBRARY_PATH", &driver);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut lines = text.lines();
        samples.push(lines.next().unwrap().parse::<f64>().unwrap());
        libraries = lines.map(|line| format!("\"{line}\"")).collect();
    }
    samples.remove(0);
    samples.sort_by(f64::total_cmp);
    println!(
        "{{\"benchmark\": \"load\", \"unit\": \"ms\", \"samples\": {SAMPLES}, \"min\": {:.3}, \
         \"median\": {:.3}, \"max\": {:.3}, \"libraries\": [{}]}}",
        samples[0],
        samples[SAMPLES / 2],
        samples[SAMPLES - 1],
        libraries.join(", ")
    );
    let _ = std::fs::remove_dir_all(driver);
}

/// A folder with a driver that fails every call that the staged libraries make of it.
fn stand_in(native: &Path) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("nccl-ext-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let manifest = std::fs::read_to_string(native.join("manifest.toml")).unwrap();
    let mut names: Vec<&str> = manifest
        .split('"')
        .filter(|name| {
            let rest = name.strip_prefix("cu").and_then(|rest| rest.chars().next());
            rest.is_some_and(|first| first.is_ascii_uppercase())
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    let code: String =
        names.iter().map(|name| format!("int {name}(void) {{ return 100; }}\n")).collect();
    let (source, library) = (folder.join("driver.c"), folder.join("libcuda.so.1"));
    std::fs::write(&source, code).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o"]).args([library, source]);
    assert!(cc.status().unwrap().success(), "cc failed");
    folder
}
