//! Where libraries lie: the steps of the search, and what each holds.

use std::path::{Path, PathBuf};

use super::{LoadOptions, content, python};
use crate::env_value::os_variable;

const NATIVE_DIR: &str = "NCCL_EXTENSIONS_NATIVE_DIR";

/// A step of the search.
pub(super) struct Step {
    /// What named the place.
    pub(super) origin: String,
    pub(super) place: Place,
}

pub(super) enum Place {
    /// The root of a staged tree.
    Tree(PathBuf),
    /// Python's folder of packages.
    Site(PathBuf),
    /// A folder that has the file itself.
    Folder(PathBuf),
    /// There is no such place on this machine.
    Nothing,
    /// The dynamic linker's own search.
    Linker,
}

impl Step {
    fn new(origin: impl Into<String>, place: Place) -> Self {
        Self { origin: origin.into(), place }
    }
}

/// Everything between the paths that are given and those that are not found.
pub(super) fn steps(options: &LoadOptions) -> Vec<Step> {
    let mut steps = Vec::new();
    if let Some(tree) = os_variable(NATIVE_DIR) {
        steps.push(Step::new(format!("{NATIVE_DIR} is set"), Place::Tree(tree.into())));
    }
    if let Some(tree) = &options.workspace {
        steps.push(Step::new("the workspace's staged tree", Place::Tree(tree.clone())));
    }
    steps.extend(beside_the_executable());
    let sites = python::sites();
    if sites.is_empty() {
        steps.push(Step::new("no Python environment was found", Place::Nothing));
    }
    let site = |(origin, site): (String, PathBuf)| Step::new(origin, Place::Site(site));
    steps.extend(sites.into_iter().map(site));
    steps.push(Step::new("the dynamic linker", Place::Linker));
    steps
}

fn beside_the_executable() -> Vec<Step> {
    const ORIGIN: &str = "beside the executable";
    // The kernel's link to the file: a symbolic link to an unpacked archive's program is followed.
    let Some(folder) = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()))
    else {
        return Vec::new();
    };
    let mut places = Vec::new();
    if let Some(above) = folder.parent() {
        places.push(Place::Tree(above.into()));
        places.push(Place::Tree(above.join("lib/nccl-extensions")));
        places.push(Place::Tree(folder.clone()));
        places.push(Place::Folder(above.join("lib")));
    }
    places.push(Place::Folder(folder));
    places.into_iter().map(|place| Step::new(ORIGIN, place)).collect()
}

/// The libraries of one extension in a folder with a subfolder for each CUDA major.
pub(super) struct Majors {
    folder: PathBuf,
    names: Vec<String>,
}

impl Majors {
    /// In a staged tree: `FOLDER/lib/cu13/LIBRARY`.
    pub(super) fn in_tree(tree: &Path, folder: &str, library: &str) -> Self {
        Self { folder: tree.join(folder).join("lib"), names: vec![library.into()] }
    }

    /// In Python's packages: `nccl/FOLDER/lib/cu13/LIBRARY`, by SONAME in newer releases.
    pub(super) fn in_site(site: &Path, folder: &str, library: &str) -> Self {
        let folder = site.join("nccl").join(folder).join("lib");
        Self { folder, names: vec![library.into(), bare_name(library).into()] }
    }

    /// Where the file of a major is; `None` when there is none.
    pub(super) fn file(&self, major: u32) -> Option<PathBuf> {
        let folder = self.folder.join(format!("cu{major}"));
        self.names.iter().map(|name| folder.join(name)).find(|file| file.exists())
    }

    /// The majors that are there.
    pub(super) fn held(&self) -> Vec<u32> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        let majors = entries.filter_map(|entry| content::folder_major(&entry.ok()?.file_name()));
        majors.filter(|major| self.file(*major).is_some()).collect()
    }

    /// What an attempt that found nothing says.
    pub(super) fn pattern(&self) -> PathBuf {
        self.folder.join("cu*").join(self.names.first().map_or("", String::as_str))
    }
}

/// `libnccl.so` of `libnccl.so.2`.
pub(super) fn bare_name(library: &str) -> &str {
    library.find(".so").and_then(|at| library.get(..at + 3)).unwrap_or(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_have_no_version() {
        assert_eq!(bare_name("libnccl.so.2"), "libnccl.so");
        assert_eq!(bare_name("libother.so"), "libother.so");
    }

    #[test]
    fn the_steps_come_in_the_documented_order() {
        let options = LoadOptions::new().workspace(Some("/w/native".into()));
        let steps = steps(&options);
        let at = |wanted: fn(&Step) -> bool| steps.iter().position(wanted);
        let workspace = at(|step| step.origin == "the workspace's staged tree");
        let beside = at(|step| step.origin == "beside the executable");
        let site = at(|step| matches!(step.place, Place::Site(_) | Place::Nothing));
        assert!(workspace < beside && beside < site, "{workspace:?} {beside:?} {site:?}");
        assert!(matches!(steps.last().map(|step| &step.place), Some(Place::Linker)));
    }
}
