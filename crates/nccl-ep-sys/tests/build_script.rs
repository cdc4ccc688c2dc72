//! The build script, compiled and run as Cargo does.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const DIR: &str = "NCCL_EXTENSIONS_NATIVE_DIR";
const REQUIRE: &str = "NCCL_EXTENSIONS_REQUIRE_NATIVE_LIBS";
const COMMAND: &str = "`cargo xtask stage-native --from pypi:0.1.0 --with-nccl`";

fn script() -> &'static Path {
    static SCRIPT: OnceLock<PathBuf> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("build-script-{}", std::process::id()));
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
        let built = Command::new(rustc)
            .args(["--edition=2024", "-o"])
            .args([&out, &source])
            .status()
            .unwrap();
        assert!(built.success());
        out
    })
}

/// A crate below a folder with a tree, gone when dropped.
struct Case(PathBuf);

impl Case {
    fn new(name: &str) -> Self {
        // Not below the checkout, whose own marked folder the script would find.
        let root = std::env::temp_dir();
        let case = Self(root.join(format!("build-{name}-{}", std::process::id())));
        std::fs::create_dir_all(case.0.join("crates/this")).unwrap();
        case
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Whether the script succeeds, and its lines of one kind.
    fn run(&self, variables: &[(&str, &str)]) -> Ended {
        let mut command = Command::new(script());
        command.env_clear().env("CARGO_MANIFEST_DIR", self.0.join("crates/this"));
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().all(|line| line.starts_with("cargo::")), "{text}");
        Ended { success: output.status.success(), text }
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Ended {
    success: bool,
    text: String,
}

impl Ended {
    fn lines(&self, kind: &str) -> Vec<&str> {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("cargo::"));
        lines.filter_map(|line| line.strip_prefix(kind)?.strip_prefix('=')).collect()
    }
}

#[test]
fn each_missing_library_is_a_warning_that_names_path_command_and_consequence() {
    let case = Case::new("warn");
    case.file("native/.nccl-extensions-native", "");
    for require in [None, Some((REQUIRE, "0")), Some((REQUIRE, ""))] {
        let ended = case.run(require.as_slice());
        assert!(ended.success);
        let warnings = ended.lines("warning");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        for (warning, major) in warnings.iter().zip([12, 13]) {
            let path = case.path(&format!("native/ep/lib/cu{major}/libnccl_ep.so.0"));
            for part in [&*path, COMMAND, "not self-contained", DIR] {
                assert!(warning.contains(part), "{part} in {warning}");
            }
        }
    }
}

#[test]
fn required_libraries_that_are_missing_are_errors() {
    let case = Case::new("require");
    case.file("native/.nccl-extensions-native", "");
    case.file("native/ep/lib/cu12/libnccl_ep.so.0", "elf");
    let ended = case.run(&[(REQUIRE, "1")]);
    assert!(!ended.success);
    let errors = ended.lines("error");
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[0].contains("cu13") && errors[0].contains(COMMAND), "{errors:?}");
    // Those of the other sys crate, whose script Cargo may not come to.
    for (error, major) in errors[1..].iter().zip([12, 13]) {
        let path = case.path(&format!("native/m2n/lib/cu{major}/libnccl_m2n.so"));
        assert_eq!(*error, format!("{path}: missing or empty too"));
    }
    case.file("native/ep/lib/cu13/libnccl_ep.so.0", "elf");
    let ended = case.run(&[(REQUIRE, "1")]);
    assert!(ended.success && !ended.text.contains("error"), "{}", ended.text);
}

#[test]
fn an_empty_file_is_no_library() {
    let case = Case::new("empty");
    case.file("tree/ep/lib/cu12/libnccl_ep.so.0", "elf");
    case.file("tree/ep/lib/cu13/libnccl_ep.so.0", "");
    let ended = case.run(&[(DIR, &case.path("tree")), (REQUIRE, "1")]);
    assert!(!ended.success && ended.lines("error")[0].contains("/tree/ep/lib/cu13/"));
    assert!(!ended.text.contains("cu12/libnccl_ep.so.0: missing"), "{}", ended.text);
}

#[test]
fn a_tree_of_one_major_is_whole_when_its_manifest_says_so() {
    let case = Case::new("one");
    case.file("native/.nccl-extensions-native", "");
    case.file("native/ep/lib/cu13/libnccl_ep.so.0", "elf");
    case.file("native/manifest.toml", "schema = 1\ncuda = [13]\n");
    let ended = case.run(&[(REQUIRE, "1")]);
    assert!(ended.success, "{}", ended.text);
}

#[test]
fn a_value_that_is_neither_0_nor_1_is_an_error() {
    let case = Case::new("value");
    for wrong in ["yes", "2", "true"] {
        let ended = case.run(&[(REQUIRE, wrong)]);
        assert!(!ended.success);
        assert!(ended.lines("error")[0].starts_with(&format!("{REQUIRE}={wrong}: expected 1")));
    }
    let ended = case.run(&[(DIR, "some/tree")]);
    assert!(!ended.success && ended.lines("error")[0].contains("absolute"), "{}", ended.text);
}

#[test]
fn the_variable_wins_over_the_marked_folder_and_dependents_get_the_folders() {
    let case = Case::new("variable");
    case.file("native/.nccl-extensions-native", "");
    for major in [12, 13] {
        case.file(&format!("tree/ep/lib/cu{major}/libnccl_ep.so.0"), "elf");
    }
    case.file("tree/ep/include/nccl_ep.h", "");
    let ended = case.run(&[(DIR, &case.path("tree"))]);
    assert!(ended.success && ended.lines("warning").is_empty(), "{}", ended.text);
    assert_eq!(
        ended.lines("metadata"),
        [
            format!("root={}", case.path("tree")),
            format!("include={}", case.path("tree/ep/include")),
            format!("lib_cu12={}", case.path("tree/ep/lib/cu12")),
            format!("lib_cu13={}", case.path("tree/ep/lib/cu13")),
            format!("lib={}", case.path("tree/ep/lib/cu13")),
        ]
    );
}

#[test]
fn only_what_exists_is_watched_and_nothing_is_linked() {
    let case = Case::new("watch");
    case.file("native/.nccl-extensions-native", "");
    case.file("native/ep/lib/cu12/libnccl_ep.so.0", "elf");
    let ended = case.run(&[]);
    let watched = ended.lines("rerun-if-changed");
    for path in &watched[2..] {
        assert!(Path::new(path).exists(), "{path}");
    }
    assert!(watched.contains(&&*case.path("native/ep/lib/cu12/libnccl_ep.so.0")), "{watched:?}");
    assert!(watched.contains(&&*case.path("native/ep/lib")), "{watched:?}");
    assert_eq!(ended.lines("rerun-if-env-changed"), [DIR, REQUIRE]);
    assert!(!ended.text.contains("rustc-link"), "{}", ended.text);
}

/// As a user of the published crate builds it.
#[test]
fn without_a_tree_the_warnings_say_what_it_would_be() {
    let case = Case::new("none");
    let ended = case.run(&[]);
    assert!(ended.success && ended.lines("warning").len() == 2, "{}", ended.text);
    assert!(ended.lines("metadata").is_empty());
    assert!(ended.lines("warning")[0].starts_with("native/ep/lib/cu12/libnccl_ep.so.0: missing"));
}
