//! What a tree is staged from, once it is here: a wheel, an upstream build, a staged tree.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail, ensure};

use super::folder::Folder;
use super::wheel::Wheel;
use crate::native::elf;
use crate::native::library_kind::{self, LibraryKind};

pub(crate) enum StagedSource {
    Wheel(Wheel),
    /// `lib/` with versioned names and links to them, `include/`; one CUDA major.
    Build(Folder),
    /// The layout that this program writes.
    Tree(Folder),
}

impl StagedSource {
    /// How messages and the manifest name it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Wheel(wheel) => &wheel.name,
            Self::Build(folder) | Self::Tree(folder) => &folder.name,
        }
    }

    pub(crate) fn files_below(&self, start: &str) -> Vec<String> {
        match self {
            Self::Wheel(wheel) => wheel.files_below(start),
            Self::Build(folder) | Self::Tree(folder) => folder.files_below(start),
        }
    }

    pub(crate) fn extract(&mut self, file: &str, to: &Path) -> Result<()> {
        match self {
            Self::Wheel(wheel) => wheel.extract(file, to),
            Self::Build(folder) | Self::Tree(folder) => folder.extract(file, to),
        }
    }

    /// Where a library's headers are: starts of names, each with what replaces it below the staged
    /// `include/`.
    pub(crate) fn headers(&self, kind: &LibraryKind) -> Vec<(String, String)> {
        match self {
            Self::Wheel(_) => vec![(format!("{}/include/", kind.wheel_folder), String::new())],
            Self::Tree(_) => vec![(format!("{}/include/", kind.folder), String::new())],
            // One `include/` for all: the header, and the folder of the same name if there is one.
            Self::Build(_) => {
                let stem = kind.header.strip_suffix(".h").unwrap_or(kind.header);
                let mut starts = vec![kind.header.to_owned(), format!("{stem}/")];
                if kind.folder == library_kind::NCCL.folder {
                    starts.extend(["nccl_device.h", "nccl_device/"].map(str::to_owned));
                }
                starts.into_iter().map(|start| (format!("include/{start}"), start)).collect()
            }
        }
    }

    /// The folder of a library that is built for a CUDA major.
    pub(crate) fn library_folder(&self, kind: &LibraryKind, major: u32) -> String {
        let majors = kind.major_folder(major);
        match self {
            Self::Wheel(_) => format!("{}/lib/{majors}", kind.wheel_folder),
            Self::Tree(_) => format!("{}/lib/{majors}", kind.folder),
            Self::Build(_) => "lib/".to_owned(),
        }
    }

    /// Where the licenses of a library are.
    pub(crate) fn licenses(&self, kind: Option<&LibraryKind>) -> Result<String> {
        Ok(match (self, kind) {
            (Self::Wheel(wheel), _) => wheel.dist_info()? + "licenses/",
            (Self::Tree(_), Some(kind)) => format!("{}/licenses/", kind.folder),
            (Self::Tree(_), None) => "licenses/".to_owned(),
            (Self::Build(_), _) => "LICENSE".to_owned(),
        })
    }

    /// The one file of a library in the folder `from`. Sources differ in the version suffix of its
    /// name, so the start of the name finds it; its SONAME names it in the staged tree.
    pub(crate) fn library(&self, kind: &LibraryKind, from: &str) -> Result<String> {
        let stem = kind.file.split_inclusive(".so").next().unwrap_or(kind.file);
        let start = format!("{from}{stem}");
        let found = self.files_below(&start);
        let exact = format!("{from}{}", kind.file);
        match self {
            Self::Tree(_) => {
                let inside = self.files_below(from);
                ensure!(
                    inside.len() < 2 && found.iter().all(|file| *file == exact),
                    "{}: `{from}` holds {}; a staged tree has {} there and nothing else, so remove \
                     the rest, or stage from where the tree came from",
                    self.name(),
                    inside.join(", "),
                    kind.file
                );
            }
            Self::Build(folder) => {
                // The links of a build lead to one file; that of the SONAME decides among several.
                let exact = if found.contains(&exact) { vec![exact] } else { found };
                let real: Result<BTreeSet<String>> =
                    exact.iter().map(|file| folder.real(file)).collect();
                return one(self.name(), &start, real?.into_iter().collect(), || self.all(kind));
            }
            Self::Wheel(_) => {}
        }
        if found.contains(&exact) {
            return Ok(exact);
        }
        one(self.name(), &start, found, || self.all(kind))
    }

    /// Every library of a kind that is there, for messages.
    fn all(&self, kind: &LibraryKind) -> Vec<String> {
        let folder = match self {
            Self::Wheel(_) => format!("{}/lib/", kind.wheel_folder),
            Self::Tree(_) => format!("{}/lib/", kind.folder),
            Self::Build(_) => "lib/".to_owned(),
        };
        self.files_below(&folder)
    }

    /// The CUDA majors to stage when none were asked for.
    pub(crate) fn majors(&self) -> Result<Vec<u32>> {
        match self {
            Self::Wheel(_) => Ok(vec![12, 13]),
            Self::Tree(_) => {
                let files = self.files_below("ep/lib/cu");
                let majors = files.iter().filter_map(|file| {
                    file.strip_prefix("ep/lib/cu")?.split_once('/')?.0.parse().ok()
                });
                let majors: BTreeSet<u32> = majors.collect();
                ensure!(
                    !majors.is_empty(),
                    "{}: has no ep/lib/cuNN/{}, so it is no staged tree; for a build of the \
                     upstream repository pass --from build:DIR",
                    self.name(),
                    library_kind::EP.file
                );
                Ok(majors.into_iter().collect())
            }
            Self::Build(folder) => {
                let file = self.library(&library_kind::EP, "lib/")?;
                let shown = format!("{}: `{file}`", folder.name);
                let library = elf::Library::read(&folder.path().join(&file), &shown)?;
                Ok(library.cuda_majors.into_iter().collect())
            }
        }
    }
}

fn one(
    name: &str,
    start: &str,
    mut found: Vec<String>,
    all: impl Fn() -> Vec<String>,
) -> Result<String> {
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(last), false) => bail!(
            "{name}: has several files `{start}*` ({}, {last}) and nothing says which one counts; \
             a tree holds exactly one, so remove the others",
            found.join(", ")
        ),
        (None, _) => {
            let all = all();
            bail!(
                "{name}: has no `{start}*`; libraries it has: {}; choose a CUDA major among them \
                 with --cuda, or something else with --from",
                if all.is_empty() { "none".to_owned() } else { all.join(", ") }
            )
        }
    }
}
