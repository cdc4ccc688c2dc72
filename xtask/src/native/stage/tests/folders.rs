//! Builds of the upstream repository, and staged trees.

use std::os::unix::fs::symlink;

use super::*;
use crate::fixture::assert_names;
use crate::native::library_kind;

impl Case {
    /// A build with the links that upstream's Makefile makes, below a folder with the license.
    fn built(&self, change: impl FnOnce(&mut Files)) -> Source {
        let mut files = self.bench.build(13);
        change(&mut files);
        let folder = self.bench.write("upstream/build", &files);
        self.bench.sh.write_file(self.bench.path("upstream/LICENSE.txt"), "license").unwrap();
        for (link, target) in [
            ("libnccl_ep.so.0", "libnccl_ep.so.0.2.0"),
            ("libnccl_ep.so", "libnccl_ep.so.0"),
            ("libnccl.so.2", "libnccl.so.2.30.7"),
            ("libnccl.so", "libnccl.so.2"),
        ] {
            symlink(target, folder.join("lib").join(link)).unwrap();
        }
        Source::Build(folder)
    }

    /// A staged tree that can be changed.
    fn tree(&self) -> PathBuf {
        let wheel = self.bench.zip("x-1-py3-none-any.whl", &self.bench.wheel(&[12, 13]));
        let other = self.bench.path("tree");
        let (from, prefix) = (Source::Wheel(wheel), Some(other.clone()));
        let args = Args { from, with_nccl: false, prefix, cuda: Vec::new(), arch: None };
        run(&args, &self.bench.sh, &self.bench.path("")).unwrap();
        other
    }
}

#[test]
fn a_build_is_staged_by_soname_and_its_links_are_followed() {
    let case = Case::new();
    case.stage(case.built(|_| {}), &[], true).unwrap();
    assert_eq!(
        case.paths(),
        [
            "ep/include/nccl_ep.h",
            "ep/include/nccl_ep/ep_enums.h",
            "ep/lib/cu13/libnccl_ep.so.0",
            "licenses/LICENSE.txt",
            "m2n/include/nccl_m2n.h",
            "m2n/lib/cu13/libnccl_m2n.so",
            "nccl/include/nccl.h",
            "nccl/include/nccl_device.h",
            "nccl/include/nccl_device/core.h",
            "nccl/lib/libnccl.so.2",
        ]
    );
    assert_eq!(case.manifest().cuda, [13]);
    let library = case.native().join("ep/lib/cu13/libnccl_ep.so.0");
    assert!(library.symlink_metadata().unwrap().is_file());
    assert!(case.manifest().files.iter().all(|file| file.source.starts_with("build:")));
}

#[test]
fn a_build_of_another_major_than_asked_for_is_refused() {
    let case = Case::new();
    let message = case.failure(case.built(|_| {}), &[12]);
    assert_names(&message, &["libnccl_ep.so.0.2.0", "built for CUDA 12, found one for CUDA 13"]);
    let both = case.failure(Source::Build(case.bench.path("upstream/build")), &[12, 13]);
    assert_names(&both, &["build:build", "one CUDA major"]);
}

#[test]
fn a_link_that_leads_nowhere_or_outside_is_named() {
    let case = Case::new();
    let source = case.built(|files| drop(files.remove("lib/libnccl_ep.so.0.2.0")));
    let message = case.failure(source, &[13]);
    assert_names(&message, &["lib/libnccl_ep.so", "leads nowhere"]);

    let case = Case::new();
    let source = case.built(|files| drop(files.remove("lib/libnccl_ep.so.0.2.0")));
    let outside = case.bench.path("outside.so");
    std::fs::write(&outside, case.bench.library(&library_kind::EP, 13)).unwrap();
    symlink(&outside, case.bench.path("upstream/build/lib/libnccl_ep.so.0.2.0")).unwrap();
    let message = case.failure(source, &[13]);
    assert_names(&message, &["lib/libnccl_ep.so", "outside"]);
}

#[test]
fn a_build_without_a_license_is_refused() {
    let case = Case::new();
    let source = case.built(|_| {});
    std::fs::remove_file(case.bench.path("upstream/LICENSE.txt")).unwrap();
    assert_names(&case.failure(source, &[13]), &["build:build", "LICENSE"]);
}

#[test]
fn a_tree_is_staged_as_it_is_with_the_sources_of_its_manifest() {
    let case = Case::new();
    let tree = case.tree();
    case.stage(Source::Tree(tree.clone()), &[], false).unwrap();
    assert_eq!(snapshot(&case.native()), snapshot(&tree));
    // One of its majors.
    case.stage(Source::Tree(tree), &[12], false).unwrap();
    assert_eq!(case.manifest().cuda, [12]);
    assert!(!case.native().join("ep/lib/cu13").exists());
}

#[test]
fn links_and_other_names_in_a_tree_are_refused() {
    for (name, linked) in
        [("libnccl_ep.so", true), ("libnccl_ep.so", false), ("libnccl_ep.so.0.2.0", false)]
    {
        let case = Case::new();
        let tree = case.tree();
        let folder = tree.join("ep/lib/cu13");
        if linked {
            symlink("libnccl_ep.so.0", folder.join(name)).unwrap();
        } else {
            std::fs::copy(folder.join("libnccl_ep.so.0"), folder.join(name)).unwrap();
        }
        let message = case.failure(Source::Tree(tree.clone()), &[]);
        assert_names(&message, &["tree:tree", "ep/lib/cu13/", name, "nothing else"]);
        // Under that name alone.
        std::fs::remove_file(folder.join("libnccl_ep.so.0")).unwrap();
        assert_names(&case.failure(Source::Tree(tree), &[13]), &[name]);
    }
}

#[test]
fn a_library_that_is_a_link_is_refused() {
    let case = Case::new();
    let tree = case.tree();
    let library = tree.join("ep/lib/cu13/libnccl_ep.so.0");
    std::fs::rename(&library, tree.join("moved.so")).unwrap();
    symlink("../../../moved.so", &library).unwrap();
    let message = case.failure(Source::Tree(tree), &[]);
    assert_names(&message, &["libnccl_ep.so.0", "expected a regular file, found a symbolic link"]);
}

#[test]
fn a_folder_that_is_neither_is_named() {
    let case = Case::new();
    let nowhere = case.bench.path("nowhere");
    let message = case.failure(Source::Tree(nowhere.clone()), &[]);
    assert_names(&message, &["nowhere", "no such folder", "tree:"]);
    std::fs::create_dir(&nowhere).unwrap();
    let message = case.failure(Source::Tree(nowhere.clone()), &[]);
    assert_names(&message, &["tree:nowhere", "no staged tree", "build:DIR"]);
    let message = case.failure(Source::Build(nowhere), &[]);
    assert_names(&message, &["build:nowhere", "lib/libnccl_ep.so", "none"]);
}
