//! Libraries and trees for tests, made by a C compiler.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use xshell::{Shell, TempDir, cmd};
use zip::write::SimpleFileOptions;

use crate::native::library_kind::{self, LibraryKind};

/// Files by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// A folder for one test.
pub(crate) struct Bench {
    pub(crate) sh: Shell,
    dir: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let sh = Shell::new().unwrap();
        let dir = sh.create_temp_dir().unwrap();
        Self { sh, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A library that is good for its kind and a CUDA major.
    pub(crate) fn library(&self, kind: &LibraryKind, major: u32) -> Vec<u8> {
        self.compile(kind.file, kind.functions, &mark(major))
    }

    /// A library of these functions.
    pub(crate) fn compile(&self, soname: &str, functions: &[&str], extra: &str) -> Vec<u8> {
        let (source, out) = (self.path("library.c"), self.path("library.so"));
        let code: String =
            functions.iter().map(|f| format!("int {f}(void) {{ return 0; }}\n")).collect();
        self.sh.write_file(&source, code + extra).unwrap();
        let soname = format!("-Wl,-soname,{soname}");
        cmd!(self.sh, "cc -shared -fPIC -Wl,--build-id=sha1 -o {out} {source} {soname}")
            .quiet()
            .run()
            .unwrap();
        std::fs::read(out).unwrap()
    }

    /// Every file of a whole wheel with these majors.
    pub(crate) fn wheel(&self, majors: &[u32]) -> Files {
        let mut files = Files::new();
        let mut put = |name: &str, bytes: &[u8]| files.insert(name.to_owned(), bytes.to_vec());
        for kind in [&library_kind::EP, &library_kind::M2N] {
            let folder = kind.wheel_folder;
            put(&format!("{folder}/include/{}", kind.header), &header(kind));
            let bare = kind.file.trim_end_matches(".0");
            for major in majors {
                // The older layout, whose name has no version.
                put(&format!("{folder}/lib/cu{major}/{bare}"), &self.library(kind, *major));
            }
        }
        put("nccl/ep/include/nccl_ep/ep_enums.h", b"");
        put("x-1.dist-info/METADATA", b"Name: x\nVersion: 1\n");
        put("x-1.dist-info/licenses/LICENSE.txt", b"license");
        files
    }

    /// Every file of a whole upstream build but the links.
    pub(crate) fn build(&self, major: u32) -> Files {
        let mut files = Files::new();
        for kind in [&library_kind::EP, &library_kind::M2N, &library_kind::NCCL] {
            files.insert(format!("include/{}", kind.header), header(kind));
        }
        files.insert("include/nccl_ep/ep_enums.h".into(), Vec::new());
        files.insert("include/nccl_device/core.h".into(), Vec::new());
        files.insert("include/nccl_device.h".into(), Vec::new());
        files.insert("lib/libnccl_ep.so.0.2.0".into(), self.library(&library_kind::EP, major));
        files.insert("lib/libnccl_m2n.so".into(), self.library(&library_kind::M2N, major));
        files.insert("lib/libnccl.so.2.30.7".into(), self.library(&library_kind::NCCL, major));
        files.insert("lib/libnccl_ep.a".into(), b"!<arch>\n".to_vec());
        files
    }

    /// Writes files below a folder.
    pub(crate) fn write(&self, folder: &str, files: &Files) -> PathBuf {
        let folder = self.path(folder);
        for (name, bytes) in files {
            self.sh.write_file(folder.join(name), bytes).unwrap();
        }
        folder
    }

    /// Writes a zip archive.
    pub(crate) fn zip(&self, name: &str, files: &Files) -> PathBuf {
        let path = self.path(name);
        let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        for (name, bytes) in files {
            zip.start_file(name.as_str(), SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
        path
    }
}

/// What the vendor's version string leaves in a library.
pub(crate) fn mark(major: u32) -> String {
    format!("const char mark[] = \"version 0.2.0+cuda{major}.3\";\n")
}

fn header(kind: &LibraryKind) -> Vec<u8> {
    let p = kind.macros;
    format!("#define {p}_MAJOR 0\n#define {p}_MINOR 2\n#define {p}_PATCH 0\n").into_bytes()
}

/// Every file below a folder with what is in it, links as what they lead to.
pub(crate) fn snapshot(folder: &Path) -> Files {
    fn walk(root: &Path, folder: &Path, files: &mut Files) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                walk(root, &path, files);
            } else if kind.is_symlink() {
                let target = std::fs::read_link(path).unwrap();
                files.insert(name, target.to_str().unwrap().as_bytes().to_vec());
            } else {
                files.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    let mut files = Files::new();
    walk(folder, folder, &mut files);
    files
}

#[track_caller]
pub(crate) fn assert_names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}
