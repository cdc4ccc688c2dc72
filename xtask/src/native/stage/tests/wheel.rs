//! Wheels.

use super::*;
use crate::fixture::{assert_names, mark};
use crate::native::library_kind;

const NAME: &str = "x-1-py3-none-any.whl";
const EP: &str = "nccl/ep/lib/cu13/libnccl_ep.so";
const M2N: &str = "nccl/m2n/lib/cu13/libnccl_m2n.so";

impl Case {
    fn wheel(&self, files: &Files) -> Source {
        Source::Wheel(self.bench.zip(NAME, files))
    }

    /// The failure of a whole wheel after one change.
    fn failure_with(&self, change: impl FnOnce(&mut Files)) -> String {
        let mut files = self.bench.wheel(&[13]);
        change(&mut files);
        self.failure(self.wheel(&files), &[13])
    }

    fn failure_of(&self, entry: &str, bytes: Vec<u8>) -> String {
        self.failure_with(|files| drop(files.insert(entry.to_owned(), bytes)))
    }
}

#[test]
fn a_whole_wheel_is_staged_with_its_manifest() {
    let case = Case::new();
    case.stage(case.wheel(&case.bench.wheel(&[12, 13])), &[], false).unwrap();
    assert_eq!(
        case.paths(),
        [
            "ep/include/nccl_ep.h",
            "ep/include/nccl_ep/ep_enums.h",
            "ep/lib/cu12/libnccl_ep.so.0",
            "ep/lib/cu13/libnccl_ep.so.0",
            "licenses/LICENSE.txt",
            "m2n/include/nccl_m2n.h",
            "m2n/lib/cu12/libnccl_m2n.so",
            "m2n/lib/cu13/libnccl_m2n.so",
        ]
    );
    let manifest = case.manifest();
    assert_eq!(
        (manifest.arch.as_str(), &*manifest.cuda),
        (Arch::host().unwrap().name(), &[12, 13][..])
    );
    let library = manifest.files[3].library.as_ref().unwrap();
    assert_eq!((library.version.as_str(), library.cuda_major), ("0.2.0", 13));
    assert_eq!(library.soname.as_deref(), Some("libnccl_ep.so.0"));
    assert_eq!(library.build_id.as_ref().map(String::len), Some(40));
    assert_eq!(manifest.files[4].source, NAME);
    assert!(!case.native().join("ep/previous").exists());
}

#[test]
fn l13_either_name_becomes_the_one_of_the_soname() {
    for name in ["libnccl_ep.so", "libnccl_ep.so.0"] {
        let case = Case::new();
        let mut files = case.bench.wheel(&[13]);
        let library = files.remove(EP).unwrap();
        files.insert(format!("nccl/ep/lib/cu13/{name}"), library);
        case.stage(case.wheel(&files), &[13], false).unwrap();
        let folder = case.native().join("ep/lib/cu13");
        let names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["libnccl_ep.so.0"]);
    }
}

#[test]
fn an_nccl_that_is_not_restaged_stays_in_the_manifest() {
    let case = Case::new();
    case.bench.sh.write_file(case.native().join("nccl/include/nccl.h"), "x").unwrap();
    let old = Entry::describe(&case.native(), "nccl/include/nccl.h", "y.whl").unwrap();
    let arch = Arch::host().unwrap();
    Manifest::new(arch, &[13], vec![old.clone()]).save(&case.native()).unwrap();
    case.stage(case.wheel(&case.bench.wheel(&[13])), &[13], false).unwrap();
    assert!(case.manifest().files.contains(&old));
}

#[test]
fn a_file_that_is_no_archive_is_named() {
    let case = Case::new();
    let wheel = case.bench.path(NAME);
    std::fs::write(&wheel, "no zip").unwrap();
    let message = case.failure(Source::Wheel(wheel), &[]);
    assert_names(&message, &[NAME, "not a readable wheel", "6 bytes"]);
}

#[test]
fn a_missing_wheel_is_named() {
    let case = Case::new();
    let message = case.failure(Source::Wheel(case.bench.path(NAME)), &[]);
    assert_names(&message, &[NAME, "cannot be opened"]);
}

#[test]
fn l14_a_truncated_wheel_is_named() {
    let case = Case::new();
    case.wheel(&case.bench.wheel(&[13]));
    let wheel = case.bench.path(NAME);
    let bytes = std::fs::read(&wheel).unwrap();
    for length in [0, 10, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&wheel, &bytes[..length]).unwrap();
        let message = case.failure(Source::Wheel(wheel.clone()), &[13]);
        assert_names(&message, &[NAME, &format!("{length} bytes")]);
    }
}

#[test]
fn l14_a_damaged_entry_is_named() {
    let case = Case::new();
    case.wheel(&case.bench.wheel(&[13]));
    let wheel = case.bench.path(NAME);
    let mut bytes = std::fs::read(&wheel).unwrap();
    let header = b"nccl/ep/include/nccl_ep.h";
    let at = bytes.windows(header.len()).position(|w| w == header).unwrap() + header.len() + 4;
    bytes[at] ^= 0xff;
    std::fs::write(&wheel, bytes).unwrap();
    assert_names(&case.failure(Source::Wheel(wheel), &[13]), &[NAME, "nccl_ep.h", "damaged"]);
}

#[test]
fn a_missing_library_is_named_with_what_is_there() {
    let case = Case::new();
    let message = case.failure_with(|files| {
        let library = files.remove(EP).unwrap();
        files.insert(EP.replace("13", "12"), library);
    });
    assert_names(&message, &[NAME, EP, "cu12/libnccl_ep.so", "--cuda"]);
}

#[test]
fn several_libraries_without_the_soname_are_named() {
    let message = Case::new().failure_with(|files| {
        let library = files.get(EP).unwrap().clone();
        files.insert(format!("{EP}.0.2.0"), library);
    });
    assert_names(&message, &[NAME, EP, "libnccl_ep.so.0.2.0", "exactly one"]);
}

#[test]
fn an_empty_library_is_named() {
    let message = Case::new().failure_of(M2N, Vec::new());
    assert_names(&message, &["cu13/libnccl_m2n.so", "empty"]);
}

#[test]
fn a_library_that_is_no_elf_file_is_named() {
    let message = Case::new().failure_of(M2N, b"#!/bin/sh".to_vec());
    assert_names(&message, &["cu13/libnccl_m2n.so", "64-bit ELF"]);
}

#[test]
fn a_32_bit_library_is_named() {
    let case = Case::new();
    let mut library = case.bench.library(&library_kind::M2N, 13);
    library[4] = 1; // the class, after the magic number
    assert_names(&case.failure_of(M2N, library), &["cu13/libnccl_m2n.so", "64-bit ELF"]);
}

#[test]
fn a_library_cut_short_is_named() {
    let case = Case::new();
    let mut library = case.bench.library(&library_kind::M2N, 13);
    library.truncate(library.len() / 2);
    assert_names(&case.failure_of(M2N, library), &["cu13/libnccl_m2n.so", "damaged"]);
}

#[test]
fn a_library_of_another_abi_is_refused() {
    let case = Case::new();
    let other = case.bench.compile("libnccl_ep.so.1", library_kind::EP.functions, &mark(13));
    let message = case.failure_of(EP, other);
    assert_names(&message, &["libnccl_ep.so`", "SONAME libnccl_ep.so.0", "found libnccl_ep.so.1"]);
}

#[test]
fn a_library_without_a_function_is_refused() {
    let case = Case::new();
    let old =
        case.bench.compile(library_kind::EP.file, &library_kind::EP.functions[1..], &mark(13));
    let message = case.failure_of(EP, old);
    assert_names(&message, &["export 1 of the 18", library_kind::EP.functions[0]]);
}

#[test]
fn a_library_for_another_machine_is_refused() {
    let case = Case::new();
    let mut library = case.bench.library(&library_kind::EP, 13);
    library[18] = 8; // the machine's number in an ELF header; 8 is MIPS
    assert_names(&case.failure_of(EP, library), &["libnccl_ep.so", "ELF machine 8", "--arch"]);
}

/// The content tells, whatever the folder says.
#[test]
fn a_library_in_the_folder_of_another_major_is_refused() {
    let case = Case::new();
    let other = case.bench.library(&library_kind::EP, 12);
    let message = case.failure_of(EP, other);
    assert_names(&message, &[EP, "built for CUDA 13, found one for CUDA 12", "mixed up"]);
}

#[test]
fn a_library_with_marks_of_two_majors_or_none_is_refused() {
    let case = Case::new();
    let both = mark(12) + "const char more[] = \"Build cuda_13.3.r13.3\";";
    let both = case.bench.compile(library_kind::EP.file, library_kind::EP.functions, &both);
    let message = case.failure_of(EP, both);
    assert_names(&message, &[EP, "found marks of CUDA 12 and 13 in one file"]);
    let none = case.bench.compile(library_kind::EP.file, library_kind::EP.functions, "");
    assert_names(&case.failure_of(EP, none), &[EP, "no mark of a CUDA compiler"]);
}

#[test]
fn an_entry_that_leaves_the_folder_is_refused() {
    let case = Case::new();
    for outside in ["../outside", "/tmp/nccl-ext-outside", "nccl/../../outside"] {
        let message = case.failure_of(outside, b"x".to_vec());
        assert_names(&message, &[outside.trim_start_matches('/'), "outside"]);
        assert!(!case.bench.path("outside").exists());
    }
}

#[test]
fn a_prefix_that_cannot_be_written_is_named() {
    let case = Case::new();
    let wheel = case.wheel(&case.bench.wheel(&[13]));
    let prefix = Some(case.native().join("ep/previous/below-a-file"));
    let args = Args { from: wheel, with_nccl: false, prefix, cuda: vec![13], arch: None };
    let message = format!("{:#}", run(&args, &case.bench.sh, &case.bench.path("")).unwrap_err());
    assert_names(&message, &["ep/previous/below-a-file", "cannot be written", "another"]);
}
