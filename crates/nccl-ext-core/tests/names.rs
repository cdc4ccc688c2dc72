//! This crate knows no extension: what it says of one comes from the extension.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};

const NAMES: [&str; 7] =
    ["nccl_ep", "NCCL_EP_", "ncclEp", "nccl_m2n", "NCCL_M2N", "ncclM2n", "NCCL_RESHARD"];

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn no_source_names_an_extension_outside_of_its_comments() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 30, "{}", files.len());
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.lines().enumerate().filter(|(_, line)| !line.trim().starts_with("//"));
        for (number, line) in code {
            if NAMES.iter().any(|name| line.contains(name)) {
                found.push(format!("{}:{}: {line}", file.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
