//! A staged tree while it is built: files come in from wheels, are verified and recorded.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::arch::Arch;
use crate::elf;
use crate::functions;
use crate::manifest::{Entry, LibraryEntry, header_version};
use crate::wheel::Wheel;

/// One of the three native libraries: how a wheel holds it, and what a good copy is.
pub(crate) struct Kind {
    /// Folder in the staged tree.
    pub(crate) folder: &'static str,
    /// Folder in the wheel.
    pub(crate) wheel_folder: &'static str,
    /// Its one file name in the tree, which is also its SONAME.
    file: &'static str,
    /// Whether a library without a SONAME is accepted.
    soname_optional: bool,
    header: &'static str,
    /// Prefix of the header's version macros.
    macros: &'static str,
    functions: &'static [&'static str],
}

pub(crate) const EP: Kind = Kind {
    folder: "ep",
    wheel_folder: "nccl/ep",
    file: "libnccl_ep.so.0",
    soname_optional: false,
    header: "nccl_ep.h",
    macros: "NCCL_EP",
    functions: functions::EP,
};

pub(crate) const M2N: Kind = Kind {
    folder: "m2n",
    wheel_folder: "nccl/m2n",
    file: "libnccl_m2n.so",
    soname_optional: true,
    header: "nccl_m2n.h",
    macros: "NCCL_M2N",
    functions: functions::M2N,
};

pub(crate) const NCCL: Kind = Kind {
    folder: "nccl",
    wheel_folder: "nvidia/nccl",
    file: "libnccl.so.2",
    soname_optional: false,
    header: "nccl.h",
    macros: "NCCL",
    functions: functions::NCCL,
};

pub(crate) struct Tree {
    root: PathBuf,
    arch: Arch,
    files: Vec<Entry>,
}

impl Tree {
    pub(crate) fn new(root: PathBuf, arch: Arch) -> Self {
        Self { root, arch, files: Vec::new() }
    }

    pub(crate) fn into_files(self) -> Vec<Entry> {
        self.files
    }

    /// Adds every file below a folder of the wheel, under `to`.
    pub(crate) fn add_folder(&mut self, wheel: &mut Wheel, from: &str, to: &str) -> Result<()> {
        let files = wheel.files_below(from);
        ensure!(
            !files.is_empty(),
            "{}: has no files below `{from}`, which the staged `{to}` is made of; it is not a whole \
             wheel of this package",
            wheel.name
        );
        for entry in files {
            let path = format!("{to}{}", entry.strip_prefix(from).unwrap_or(&entry));
            wheel.extract(&entry, &self.root.join(&path))?;
            self.files.push(Entry::describe(&self.root, &path, &wheel.name)?);
        }
        Ok(())
    }

    /// Adds the headers of a library, without which its version is not known.
    pub(crate) fn add_headers(&mut self, wheel: &mut Wheel, kind: &Kind) -> Result<()> {
        let from = format!("{}/include/", kind.wheel_folder);
        self.add_folder(wheel, &from, &format!("{}/include/", kind.folder))
    }

    /// Adds the library that the wheel holds in `from`, as the one file of its kind in `to`.
    pub(crate) fn add_library(
        &mut self,
        wheel: &mut Wheel,
        kind: &Kind,
        from: &str,
        to: &str,
        cuda_major: u32,
    ) -> Result<()> {
        let entry = find_library(wheel, kind, from)?;
        let path = format!("{to}{}", kind.file);
        let shown = format!("{}: `{entry}`", wheel.name);
        println!("stage-native: {path}");
        wheel.extract(&entry, &self.root.join(&path))?;
        let library = elf::Library::read(&self.root.join(&path), &shown)?;
        verify(&library, kind, self.arch, &shown)?;
        let header = format!("{}/include/{}", kind.folder, kind.header);
        let text = std::fs::read_to_string(self.root.join(&header))
            .with_context(|| format!("{}: has no {}", wheel.name, kind.header))?;
        let version = header_version(&text, kind.macros).with_context(|| {
            format!("{header}: defines no {0}_MAJOR, {0}_MINOR and {0}_PATCH", kind.macros)
        })?;
        let mut file = Entry::describe(&self.root, &path, &wheel.name)?;
        file.library = Some(LibraryEntry {
            version,
            cuda_major,
            soname: library.soname,
            runpath: library.runpath,
            glibc: library.glibc,
            needed: library.needed,
            imports: library.imports.into_iter().collect(),
        });
        self.files.push(file);
        Ok(())
    }
}

/// The wheel's entry for a library. Wheels differ in the version suffix of its name.
fn find_library(wheel: &Wheel, kind: &Kind, from: &str) -> Result<String> {
    let stem = kind.file.split_inclusive(".so").next().unwrap_or(kind.file);
    let mut found = wheel.files_below(&format!("{from}{stem}"));
    let exact = format!("{from}{}", kind.file);
    if found.contains(&exact) {
        return Ok(exact);
    }
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(_), false) => bail!(
            "{}: has several `{from}{stem}*` and none is named {}; a tree holds exactly one, so \
             stage from a wheel of a release",
            wheel.name,
            kind.file
        ),
        (None, _) => {
            let libraries = wheel.files_below(&format!("{}/lib/", kind.wheel_folder));
            bail!(
                "{}: has no `{from}{stem}*`; libraries it has: {}; choose a CUDA major among them \
                 with --cuda, or another wheel with --from",
                wheel.name,
                if libraries.is_empty() { "none".to_owned() } else { libraries.join(", ") }
            )
        }
    }
}

fn verify(library: &elf::Library, kind: &Kind, arch: Arch, shown: &str) -> Result<()> {
    ensure!(
        library.machine == arch.elf_machine(),
        "{shown}: expected a library for {} (ELF machine {}), found ELF machine {}; take the wheel \
         of this platform, or pass --arch",
        arch.name(),
        arch.elf_machine().0,
        library.machine.0
    );
    let soname = library.soname.as_deref();
    ensure!(
        soname == Some(kind.file) || (soname.is_none() && kind.soname_optional),
        "{shown}: expected SONAME {}, found {}; the crates are built for the former's ABI, so stage \
         a release that has it",
        kind.file,
        soname.unwrap_or("none")
    );
    let missing: Vec<&str> =
        kind.functions.iter().copied().filter(|name| !library.exports.contains(*name)).collect();
    ensure!(
        missing.is_empty(),
        "{shown}: does not export {} of the {} functions that the crates call: {}; stage a newer \
         release",
        missing.len(),
        kind.functions.len(),
        missing.join(", ")
    );
    Ok(())
}
