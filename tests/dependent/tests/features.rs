//! The features `cu12` and `cu13`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output};

fn cargo(arguments: &[&str]) -> Output {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    // A folder of its own: the one of the build that runs this test may be locked.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("features");
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(workspace);
    command.env("CARGO_TARGET_DIR", target).env_remove("RUSTFLAGS").output().unwrap()
}

#[test]
fn a_dependent_needs_neither() {
    let output = cargo(&["tree", "-p", "dependent", "-e", "features"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("nccl-ext-core") && !text.contains("cu1"), "{text}");
    // Loading says what is there, or why not; it needs no choice.
    match dependent::found() {
        Ok(libraries) => assert!(!libraries.is_empty()),
        Err(error) => assert!(!error.to_string().contains("cu1"), "{error}"),
    }
}

#[test]
fn both_at_once_do_not_compile_and_the_message_says_what_to_do() {
    let output = cargo(&["check", "-p", "nccl-ext-core", "--features", "cu12,cu13"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    for part in [
        "the features `cu12` and `cu13` are both on",
        "Only a final binary may turn one on",
        "cargo tree -e features -i nccl-ext-core",
        "NCCL_EXTENSIONS_CUDA",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
