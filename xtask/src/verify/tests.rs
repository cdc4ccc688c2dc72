//! Good and spoilt trees, archives and packages.

use std::os::unix::fs::symlink;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::*;
use crate::fixture::{Bench, assert_names};
use crate::native::manifest::Manifest;
use crate::native::stage;

struct Case {
    bench: Bench,
}

impl Case {
    /// With a good tree.
    fn new() -> Self {
        let bench = Bench::new();
        let wheel = bench.zip("x-1-py3-none-any.whl", &bench.wheel(&[12, 13]));
        let args = stage::Args {
            from: stage::source::Source::Wheel(wheel),
            with_nccl: false,
            prefix: Some(bench.path("tree")),
            cuda: Vec::new(),
            arch: None,
        };
        stage::run(&args, &bench.sh, &bench.path("")).unwrap();
        Self { bench }
    }

    fn tree(&self) -> PathBuf {
        self.bench.path("tree")
    }

    fn report(&self, path: &Path) -> Report {
        report(path, &self.bench.sh).unwrap()
    }

    /// The one problem of the tree.
    #[track_caller]
    fn problem(&self) -> String {
        let report = self.report(&self.tree());
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        format!("{}: {}", report.problems[0].file, report.problems[0].message)
    }

    /// An archive of these entries.
    fn archive(&self, entries: &[(&str, EntryType, &[u8])]) -> PathBuf {
        let path = self.bench.path("x.tar.zst");
        std::fs::write(&path, zstd::encode_all(&*tar_of(entries), 1).unwrap()).unwrap();
        path
    }

    fn package(&self, entries: &[(&str, EntryType, &[u8])]) -> PathBuf {
        let path = self.bench.path("x-1.0.0.crate");
        let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
        std::io::Write::write_all(&mut gz, &tar_of(entries)).unwrap();
        std::fs::write(&path, gz.finish().unwrap()).unwrap();
        path
    }
}

/// A tar file of any names, which the `tar` crate's own checks would refuse.
fn tar_of(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, kind, bytes) in entries {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, *bytes).unwrap();
    }
    tar.into_inner().unwrap()
}

const FILE: EntryType = EntryType::Regular;
const LIBRARY: &str = "ep/lib/cu13/libnccl_ep.so.0";

#[test]
fn a_staged_tree_is_good_and_its_report_is_json() {
    let case = Case::new();
    // Others may lie in the folder.
    case.bench.sh.write_file(case.tree().join("README.md"), "x").unwrap();
    let report = case.report(&case.tree());
    assert!(report.ok, "{:?}", report.problems);
    let json: serde_json::Value =
        serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(
        (&json["kind"], &json["ok"], &json["files"]),
        (&"tree".into(), &true.into(), &8.into())
    );
    assert_eq!(json["libraries"].as_array().unwrap().len(), 4);
    assert_eq!(json["libraries"][1]["file"], LIBRARY);
    assert_eq!(json["libraries"][1]["cuda_major"], 13);
}

#[test]
fn a_changed_a_short_and_a_missing_file_are_told_apart() {
    let case = Case::new();
    let header = case.tree().join("m2n/include/nccl_m2n.h");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text.replace('2', "3")).unwrap();
    assert_names(&case.problem(), &["m2n/include/nccl_m2n.h: expected SHA-256"]);
    std::fs::write(&header, &text[..9]).unwrap();
    assert_names(&case.problem(), &["m2n/include/nccl_m2n.h: expected", "bytes, found 9"]);
    std::fs::remove_file(&header).unwrap();
    assert_names(&case.problem(), &["m2n/include/nccl_m2n.h: listed in the manifest"]);
}

#[test]
fn leftover_links_and_other_names_are_found() {
    let case = Case::new();
    let folder = case.tree().join("ep/lib/cu13");
    symlink("libnccl_ep.so.0", folder.join("libnccl_ep.so")).unwrap();
    assert_names(&case.problem(), &["cu13/libnccl_ep.so: a symbolic link that the manifest"]);
    std::fs::rename(folder.join("libnccl_ep.so"), folder.join("libnccl_ep.so.0.2.0")).unwrap();
    assert_names(&case.problem(), &["cu13/libnccl_ep.so.0.2.0: a symbolic link"]);
    std::fs::remove_file(folder.join("libnccl_ep.so.0.2.0")).unwrap();
    let library = case.tree().join(LIBRARY);
    std::fs::rename(&library, case.tree().join("elsewhere")).unwrap();
    symlink("../../../elsewhere", &library).unwrap();
    assert_names(&case.problem(), &[LIBRARY, "expected a regular file, found a symbolic link"]);
}

#[test]
fn pipes_linked_folders_and_paths_out_of_the_tree_are_not_read() {
    let case = Case::new();
    let library = case.tree().join(LIBRARY);
    std::fs::remove_file(&library).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&library).status().unwrap();
    assert!(made.success());
    assert_names(&case.problem(), &[LIBRARY, "expected a regular file"]);

    let case = Case::new();
    let folder = case.tree().join("ep/lib/cu13");
    std::fs::rename(&folder, case.bench.path("cu13")).unwrap();
    symlink(case.bench.path("cu13"), &folder).unwrap();
    let report = case.report(&case.tree());
    assert!(
        report.problems.iter().any(|problem| {
            problem.file == LIBRARY && problem.message.contains("a symbolic link on the way to it")
        }),
        "{:?}",
        report.problems
    );

    let case = Case::new();
    let mut manifest = Manifest::read(&case.tree()).unwrap();
    let mut entry = manifest.files[0].clone();
    entry.path = "../outside".into();
    manifest.files.push(entry);
    manifest.save(&case.tree()).unwrap();
    assert_names(&case.problem(), &["../outside", "inside the tree"]);
}

/// The manifest agrees with the files, and the content is what is wrong.
#[test]
fn majors_that_are_mixed_up_are_found_by_the_content() {
    let case = Case::new();
    let tree = case.tree();
    std::fs::copy(tree.join("ep/lib/cu12/libnccl_ep.so.0"), tree.join(LIBRARY)).unwrap();
    let mut manifest = Manifest::read(&tree).unwrap();
    let entry = manifest.files.iter_mut().find(|file| file.path == LIBRARY).unwrap();
    (entry.size, entry.sha256) = manifest::digest(&tree.join(LIBRARY)).unwrap();
    manifest.save(&tree).unwrap();
    assert_names(&case.problem(), &[LIBRARY, "built for CUDA 13, found one for CUDA 12"]);
}

#[test]
fn a_tree_without_a_major_that_it_claims_is_not_whole() {
    let case = Case::new();
    let mut manifest = Manifest::read(&case.tree()).unwrap();
    manifest.files.retain(|file| file.path != "m2n/lib/cu12/libnccl_m2n.so");
    manifest.save(&case.tree()).unwrap();
    std::fs::remove_file(case.tree().join("m2n/lib/cu12/libnccl_m2n.so")).unwrap();
    assert_names(&case.problem(), &["m2n/lib/cu12/libnccl_m2n.so: a whole tree has it"]);
}

#[test]
fn no_manifest_and_a_newer_one_are_told() {
    let case = Case::new();
    let manifest = case.tree().join(manifest::FILE);
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("schema = 1", "schema = 9")).unwrap();
    assert_names(&case.problem(), &["manifest.toml", "expected schema 1, found 9"]);
    std::fs::remove_file(&manifest).unwrap();
    assert_names(&case.problem(), &["manifest.toml", "stage again"]);
}

#[test]
fn an_archive_of_a_tree_lacks_what_a_package_has() {
    let case = Case::new();
    let path = case.bench.path("x.tar.zst");
    archive::pack(&case.tree(), "x", 0, &path).unwrap();
    let report = case.report(&path);
    let files: Vec<&str> = report.problems.iter().map(|problem| problem.file.as_str()).collect();
    assert_eq!(files, ["bin/nccl-ext", "LICENSE", "licenses/NOTICE.md"]);
    assert!(!report.ok && report.kind == "archive");
}

#[test]
fn the_same_content_gives_the_same_archive() {
    let case = Case::new();
    let (a, b) = (case.bench.path("a.tar.zst"), case.bench.path("b.tar.zst"));
    archive::pack(&case.tree(), "x", 1, &a).unwrap();
    let copy = case.bench.path("copy");
    for file in crate::fixture::snapshot(&case.tree()) {
        case.bench.sh.write_file(copy.join(file.0), file.1).unwrap();
    }
    archive::pack(&copy, "x", 1, &b).unwrap();
    assert_eq!(std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
}

#[test]
fn an_archive_that_is_cut_short_is_named() {
    let case = Case::new();
    let path = case.bench.path("x.tar.zst");
    archive::pack(&case.tree(), "x", 0, &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for length in [0, 3, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let report = case.report(&path);
        assert_eq!(report.problems.len(), 1, "{length}: {:?}", report.problems);
        assert_names(&report.problems[0].message, &["x.tar.zst"]);
    }
}

#[test]
fn entries_that_leave_the_folder_and_links_are_refused() {
    let case = Case::new();
    for (name, kind) in [
        ("../outside", FILE),
        ("/tmp/nccl-ext-outside", FILE),
        ("x/../../outside", FILE),
        ("x/link", EntryType::Symlink),
        ("x/link", EntryType::Link),
        ("x/device", EntryType::Char),
    ] {
        let archive = case.archive(&[("x/a", FILE, b"a"), (name, kind, b"")]);
        let report = case.report(&archive);
        assert_names(&report.problems[0].message, &["x.tar.zst", name, "do not use this file"]);
        assert!(
            !case.bench.path("outside").exists() && !Path::new("/tmp/nccl-ext-outside").exists()
        );
    }
    let two = case.archive(&[("x/a", FILE, b"a"), ("y/a", FILE, b"a")]);
    assert_names(&case.report(&two).problems[0].message, &["one folder", "x, y"]);
}

#[test]
fn a_package_of_source_is_good_and_one_with_a_library_is_not() {
    let case = Case::new();
    let source: [(&str, EntryType, &[u8]); 2] =
        [("x-1.0.0/Cargo.toml", FILE, b"[package]"), ("x-1.0.0/src/lib.rs", FILE, b"")];
    assert!(case.report(&case.package(&source)).ok);
    let library = std::fs::read(case.tree().join(LIBRARY)).unwrap();
    for (name, bytes, what) in [
        ("x-1.0.0/native/lib.bin", &*library, "an ELF file"),
        ("x-1.0.0/libx.a", b"!<arch>\nmore", "an archive of object files"),
        ("x-1.0.0/libnccl_ep.so.0", b"", "a shared library's name"),
        ("x-1.0.0/y.whl", b"PK\x03\x04....", "wheels"),
    ] {
        let mut entries = source.to_vec();
        entries.push((name, FILE, bytes));
        let report = case.report(&case.package(&entries));
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        assert_eq!(report.problems[0].file, name);
        assert_names(&report.problems[0].message, &[what, "source alone"]);
    }
    let outside = case.package(&[source[0], ("x-1.0.0/../../outside", FILE, b"x")]);
    assert_names(&case.report(&outside).problems[0].file, &["outside"]);
    let short = case.package(&source);
    let bytes = std::fs::read(&short).unwrap();
    std::fs::write(&short, &bytes[..bytes.len() / 2]).unwrap();
    assert_names(&case.report(&short).problems[0].message, &["x-1.0.0.crate", "cut short"]);
}

#[test]
fn other_files_are_not_guessed_at() {
    let case = Case::new();
    let message = report(&case.tree().join("manifest.toml"), &case.bench.sh).unwrap_err();
    assert_names(&message.to_string(), &["manifest.toml", "expected a staged tree"]);
    let message = report(&case.bench.path("nowhere"), &case.bench.sh).unwrap_err();
    assert_names(&message.to_string(), &["nowhere", "no such file"]);
}
