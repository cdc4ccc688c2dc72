//! Staging from wheels made here: good ones with libraries linked by `cc`, and broken ones.

use std::io::Write;

use xshell::{TempDir, cmd};
use zip::write::SimpleFileOptions;

use super::*;
use crate::functions;

/// A folder with a wheel to come and a target that already holds a file.
struct Case {
    sh: Shell,
    dir: TempDir,
}

impl Case {
    fn new() -> Self {
        let sh = Shell::new().unwrap();
        let dir = sh.create_temp_dir().unwrap();
        sh.write_file(dir.path().join("native/ep/previous"), "kept").unwrap();
        Self { sh, dir }
    }

    fn wheel(&self) -> PathBuf {
        self.dir.path().join("x-1-py3-none-any.whl")
    }

    fn stage(&self) -> Result<()> {
        let args = Args {
            from: Source::Wheel(self.wheel()),
            with_nccl: false,
            prefix: Some(self.native()),
            cuda: vec![13],
            arch: None,
        };
        run(&args, &self.sh, self.dir.path())
    }

    fn native(&self) -> PathBuf {
        self.dir.path().join("native")
    }

    /// The message of a run that must fail and leave the target as it was.
    fn failure(&self) -> String {
        let message = format!("{:#}", self.stage().unwrap_err());
        let left: Vec<_> = std::fs::read_dir(self.native()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(self.native().join("ep/previous").exists());
        message
    }

    fn library(&self, soname: &str, functions: &[&str]) -> Vec<u8> {
        let source = self.dir.path().join("library.c");
        let out = self.dir.path().join("library.so");
        let text: String =
            functions.iter().map(|f| format!("int {f}(void) {{ return 0; }}\n")).collect();
        self.sh.write_file(&source, text).unwrap();
        let soname = format!("-Wl,-soname,{soname}");
        cmd!(self.sh, "cc -shared -fPIC -o {out} {source} {soname}").quiet().run().unwrap();
        std::fs::read(out).unwrap()
    }

    /// Every file of a whole wheel.
    fn whole(&self) -> Vec<(&'static str, Vec<u8>)> {
        let macros = |p: &str| {
            format!("#define {p}_MAJOR 0\n#define {p}_MINOR 2\n#define {p}_PATCH 0\n").into_bytes()
        };
        vec![
            ("nccl/ep/include/nccl_ep.h", macros("NCCL_EP")),
            ("nccl/ep/include/nccl_ep/ep_enums.h", Vec::new()),
            ("nccl/ep/lib/cu13/libnccl_ep.so", self.library("libnccl_ep.so.0", functions::EP)),
            ("nccl/m2n/include/nccl_m2n.h", macros("NCCL_M2N")),
            ("nccl/m2n/lib/cu13/libnccl_m2n.so", self.library("libnccl_m2n.so", functions::M2N)),
            ("x-1.dist-info/METADATA", b"Name: x\nVersion: 1\n".to_vec()),
            ("x-1.dist-info/licenses/LICENSE.txt", b"license".to_vec()),
        ]
    }

    fn write(&self, files: &[(&str, Vec<u8>)]) {
        let mut zip = zip::ZipWriter::new(std::fs::File::create(self.wheel()).unwrap());
        for (name, bytes) in files {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
    }

    /// The failure of a whole wheel after one change.
    fn failure_with(&self, change: impl FnOnce(&mut Vec<(&'static str, Vec<u8>)>)) -> String {
        let mut files = self.whole();
        change(&mut files);
        self.write(&files);
        self.failure()
    }
}

#[track_caller]
fn assert_names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn a_whole_wheel_is_staged_with_its_manifest() {
    let case = Case::new();
    case.write(&case.whole());
    case.stage().unwrap();
    let manifest = Manifest::load(&case.native()).unwrap();
    let paths: Vec<&str> = manifest.files.iter().map(|f| f.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "ep/include/nccl_ep.h",
            "ep/include/nccl_ep/ep_enums.h",
            "ep/lib/cu13/libnccl_ep.so.0",
            "licenses/LICENSE.txt",
            "m2n/include/nccl_m2n.h",
            "m2n/lib/cu13/libnccl_m2n.so",
        ]
    );
    let library = manifest.files[2].library.as_ref().unwrap();
    assert_eq!((library.version.as_str(), library.cuda_major), ("0.2.0", 13));
    assert_eq!(library.soname.as_deref(), Some("libnccl_ep.so.0"));
    assert!(!case.native().join("ep/previous").exists());
    assert_eq!(manifest.files[3].source, "x-1-py3-none-any.whl");
}

#[test]
fn an_nccl_that_is_not_restaged_stays_in_the_manifest() {
    let case = Case::new();
    case.sh.write_file(case.native().join("nccl/include/nccl.h"), "x").unwrap();
    let old = Entry::describe(&case.native(), "nccl/include/nccl.h", "y.whl").unwrap();
    Manifest::new(vec![old.clone()]).save(&case.native()).unwrap();
    case.write(&case.whole());
    case.stage().unwrap();
    assert!(Manifest::load(&case.native()).unwrap().files.contains(&old));
}

#[test]
fn a_file_that_is_no_archive_is_named() {
    let case = Case::new();
    std::fs::write(case.wheel(), "no zip").unwrap();
    assert_names(&case.failure(), &["x-1-py3-none-any.whl", "not a readable wheel", "6 bytes"]);
}

#[test]
fn a_missing_wheel_is_named() {
    assert_names(&Case::new().failure(), &["x-1-py3-none-any.whl", "cannot be opened"]);
}

#[test]
fn a_truncated_wheel_is_named() {
    let case = Case::new();
    case.write(&case.whole());
    let bytes = std::fs::read(case.wheel()).unwrap();
    for length in [0, 10, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(case.wheel(), &bytes[..length]).unwrap();
        assert_names(&case.failure(), &["x-1-py3-none-any.whl", &format!("{length} bytes")]);
    }
}

#[test]
fn a_damaged_entry_is_named() {
    let case = Case::new();
    case.write(&case.whole());
    let mut bytes = std::fs::read(case.wheel()).unwrap();
    let header = b"nccl/ep/include/nccl_ep.h";
    let at = bytes.windows(header.len()).position(|w| w == header).unwrap() + header.len() + 4;
    bytes[at] ^= 0xff;
    std::fs::write(case.wheel(), bytes).unwrap();
    assert_names(&case.failure(), &["x-1-py3-none-any.whl", "nccl_ep.h", "damaged"]);
}

#[test]
fn a_missing_library_is_named_with_what_is_there() {
    let case = Case::new();
    let message = case.failure_with(|files| files[2].0 = "nccl/ep/lib/cu12/libnccl_ep.so");
    assert_names(
        &message,
        &["x-1-py3-none-any.whl", "nccl/ep/lib/cu13/libnccl_ep.so", "cu12/libnccl_ep.so", "--cuda"],
    );
}

#[test]
fn an_empty_library_is_named() {
    let message = Case::new().failure_with(|files| files[4].1.clear());
    assert_names(&message, &["cu13/libnccl_m2n.so", "empty"]);
}

#[test]
fn a_library_that_is_no_elf_file_is_named() {
    let message = Case::new().failure_with(|files| files[4].1 = b"#!/bin/sh".to_vec());
    assert_names(&message, &["cu13/libnccl_m2n.so", "64-bit ELF"]);
}

#[test]
fn a_library_of_another_abi_is_refused() {
    let case = Case::new();
    let other = case.library("libnccl_ep.so.1", functions::EP);
    let message = case.failure_with(|files| files[2].1 = other);
    assert_names(&message, &["libnccl_ep.so`", "SONAME libnccl_ep.so.0", "found libnccl_ep.so.1"]);
}

#[test]
fn a_library_without_a_function_is_refused() {
    let case = Case::new();
    let old = case.library("libnccl_ep.so.0", &functions::EP[1..]);
    let message = case.failure_with(|files| files[2].1 = old);
    assert_names(&message, &["export 1 of the 18", functions::EP[0]]);
}

#[test]
fn a_library_for_another_machine_is_refused() {
    let message = Case::new().failure_with(|files| {
        // The machine's number is at offset 18 of an ELF header; 8 is MIPS.
        files[2].1[18] = 8;
    });
    assert_names(&message, &["libnccl_ep.so", "ELF machine 8", "--arch"]);
}

#[test]
fn an_entry_that_leaves_the_folder_is_refused() {
    let case = Case::new();
    let message = case.failure_with(|files| files.push(("../outside", b"x".to_vec())));
    assert_names(&message, &["../outside", "outside the archive"]);
    assert!(!case.dir.path().join("outside").exists());
}
