//! The three native libraries: EP, M2N and NCCL.

use crate::functions;

/// How a library lies in a staged tree and in the vendor's wheels, and what a good copy is.
pub(crate) struct LibraryKind {
    /// Folder in the staged tree.
    pub(crate) folder: &'static str,
    /// Folder in the wheel.
    pub(crate) wheel_folder: &'static str,
    /// Its one file name in the tree, which is also its SONAME.
    pub(crate) file: &'static str,
    /// Whether a library without a SONAME is accepted.
    pub(crate) soname_optional: bool,
    /// Whether there is one for each CUDA major, in a folder `cuNN`.
    pub(crate) per_major: bool,
    pub(crate) header: &'static str,
    /// Prefix of the header's version macros.
    pub(crate) macros: &'static str,
    pub(crate) functions: &'static [&'static str],
}

pub(crate) const EP: LibraryKind = LibraryKind {
    folder: "ep",
    wheel_folder: "nccl/ep",
    file: "libnccl_ep.so.0",
    soname_optional: false,
    per_major: true,
    header: "nccl_ep.h",
    macros: "NCCL_EP",
    functions: functions::EP,
};

pub(crate) const M2N: LibraryKind = LibraryKind {
    folder: "m2n",
    wheel_folder: "nccl/m2n",
    file: "libnccl_m2n.so",
    soname_optional: true,
    per_major: true,
    header: "nccl_m2n.h",
    macros: "NCCL_M2N",
    functions: functions::M2N,
};

pub(crate) const NCCL: LibraryKind = LibraryKind {
    folder: "nccl",
    wheel_folder: "nvidia/nccl",
    file: "libnccl.so.2",
    soname_optional: false,
    per_major: false,
    header: "nccl.h",
    macros: "NCCL",
    functions: functions::NCCL,
};

impl LibraryKind {
    /// The kind whose folder a path of a staged tree begins with.
    pub(crate) fn of_path(path: &str) -> Option<&'static Self> {
        let folder = path.split('/').next()?;
        [&EP, &M2N, &NCCL].into_iter().find(|kind| kind.folder == folder)
    }

    /// Where the library lies in a staged tree.
    pub(crate) fn path(&self, major: u32) -> String {
        format!("{}/lib/{}{}", self.folder, self.major_folder(major), self.file)
    }

    /// `cu13/`, where there is a folder for each major.
    pub(crate) fn major_folder(&self, major: u32) -> String {
        if self.per_major { format!("cu{major}/") } else { String::new() }
    }
}
