//! Loading the driver, NCCL and extensions, in this order.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use super::cuda::{Choice, driver_major};
use super::nccl::{self, Nccl};
use super::places::{Majors, Place, Step, bare_name, steps};
use super::search::{Search, Trouble};
use super::{ExtensionSpec, LoadOptions, Opened, content, mapped};
use crate::backend::{Backend, BackendBuilder, LibraryInfo, MemorySpace};
use crate::driver::DriverApi;
use crate::env_value::os_variable;
use crate::error::Result;
use crate::jit::JitRoots;
use crate::version::Version;

const DRIVER: &str = "libcuda.so.1";

/// Everything, open and accepted.
pub(super) struct Loaded {
    builder: BackendBuilder,
    libraries: Vec<Opened>,
}

impl Loaded {
    /// Keeps the libraries for the rest of the process.
    pub(super) fn keep(self) -> Backend {
        self.libraries.into_iter().for_each(Opened::keep);
        // SAFETY: the tables come from the libraries of those names, mapped for good.
        unsafe { self.builder.build() }
    }

    /// Closes them again.
    pub(super) fn close(self) -> Vec<LibraryInfo> {
        self.builder.into_libraries()
    }
}

pub(super) fn load(options: &LoadOptions, extensions: &[&ExtensionSpec]) -> Result<Loaded> {
    let (driver, api) = load_driver()?;
    let choice = Choice::new(options, extensions, driver_major(&api, &driver))?;
    let floor = extensions.iter().map(|spec| spec.nccl_floor).max();
    let steps = steps(options);
    let floor = floor.unwrap_or(Version::NCCL_FLOOR);
    let nccl = nccl::load(options, floor, &steps, &choice)?;
    let mut builder = Backend::builder("native", MemorySpace::Device)
        .driver(api)
        .nccl(nccl.table)
        .library(nccl.info.clone());
    let mut libraries = Vec::new();
    for spec in extensions {
        let found =
            ExtensionSearch { spec, options, choice: &choice, nccl: &nccl }.search(&steps)?;
        builder = builder.absorb(found.part);
        if let Some(spec) = spec.jit {
            let (library, nccl) = (found.path, nccl.path.clone());
            builder = builder.jit(JitRoots { spec, library, nccl, cuda_major: found.cuda_major });
        }
        libraries.push(found.opened);
    }
    nccl.check_alone()?;
    libraries.extend([nccl.opened, driver]);
    Ok(Loaded { builder, libraries })
}

fn load_driver() -> Result<(Opened, DriverApi)> {
    let driver = Opened::open(Path::new(DRIVER)).map_err(|reason| {
        let mut search = Search::new(DRIVER);
        search.unknown_to_linker("the dynamic linker", Path::new(DRIVER), reason);
        search.fail()
    })?;
    let symbol =
        |name: &str| CString::new(name).map_or(core::ptr::null_mut(), |name| driver.symbol(&name));
    // SAFETY: the handle is the driver's, which is kept when everything is accepted.
    let api = unsafe { DriverApi::resolve(symbol) };
    Ok((driver, api))
}

/// The search for an extension.
struct ExtensionSearch<'a> {
    spec: &'a ExtensionSpec,
    options: &'a LoadOptions,
    choice: &'a Choice,
    nccl: &'a Nccl,
}

/// One that will do: its table and [`LibraryInfo`] are in `part`.
struct Found {
    opened: Opened,
    part: BackendBuilder,
    path: PathBuf,
    cuda_major: Option<u32>,
}

impl ExtensionSearch<'_> {
    fn search(&self, steps: &[Step]) -> Result<Found> {
        let ExtensionSpec { library, variable: name, folder, .. } = *self.spec;
        let mut search = Search::new(library);
        let explicit = self.options.extension_path(library).map(PathBuf::from);
        let named = match (explicit, os_variable(name)) {
            (Some(path), _) => Some(("explicit path".to_owned(), path)),
            (None, Some(path)) => Some((format!("{name} is set"), path.into())),
            (None, None) => None,
        };
        if let Some((origin, path)) = named {
            return self.open(&path, &origin, true).map_err(|trouble| {
                search.refuse(&origin, &path, trouble);
                search.fail()
            });
        }
        for step in steps {
            let file = match &step.place {
                Place::Tree(tree) => self.pick(&Majors::in_tree(tree, folder, library)),
                Place::Site(site) => self.pick(&Majors::in_site(site, folder, library)),
                Place::Folder(place) => {
                    let file = place.join(library);
                    if file.exists() { Ok(file) } else { Err(file) }
                }
                Place::Nothing => Err(library.into()),
                Place::Linker => break,
            };
            let file = match file {
                Ok(file) => file,
                Err(looked_for) => {
                    search.absent(&step.origin, looked_for);
                    continue;
                }
            };
            match self.open(&file, &step.origin, false) {
                Ok(found) => return Ok(found),
                Err(trouble) => search.refuse(&step.origin, &file, trouble),
            }
        }
        let bare = bare_name(library);
        let names = [(library, "SONAME"), (bare, "bare name")];
        for (name, kind) in names.into_iter().take(if bare == library { 1 } else { 2 }) {
            let (name, origin) = (Path::new(name), format!("the dynamic linker, {kind}"));
            match self.open(name, &origin, false) {
                Ok(found) => return Ok(found),
                Err(Trouble::Unopened(reason)) => search.unknown_to_linker(&origin, name, reason),
                Err(trouble) => search.refuse(&origin, name, trouble),
            }
        }
        Err(search.fail())
    }

    /// The file of the best major, or the pattern that no file matches.
    fn pick(&self, majors: &Majors) -> Result<PathBuf, PathBuf> {
        let picked = self.choice.pick(&majors.held());
        picked.and_then(|major| majors.file(major)).ok_or_else(|| majors.pattern())
    }

    fn open(&self, name: &Path, origin: &str, named: bool) -> Result<Found, Trouble> {
        let spec = self.spec;
        if let Some(reason) = super::library::irregular(name) {
            return Err(Trouble::Unopened(reason));
        }
        let is_file = name.exists();
        if is_file {
            // Before it is opened: initialisers of a library that will not do need not run.
            self.choice.check(name, content::cuda_major(name), spec, named)?;
        }
        let opened = Opened::open(name).map_err(Trouble::Unopened)?;
        let part = Backend::builder("part", MemorySpace::Device);
        let mut part = (spec.attach)(&opened, part)?;
        self.nccl.check_extension(&opened, spec.nccl_floor)?;
        let path = opened.path();
        let cuda_major = content::cuda_major(&path);
        if !is_file {
            self.choice.check(&path, cuda_major, spec, named)?;
        }
        if let Some(info) = part.last_library() {
            info.build_id = mapped::build_id(opened.address());
            info.cuda_major = cuda_major;
            info.origin = Some(origin.into());
            info.path = Some(path.clone());
        }
        Ok(Found { opened, part, path, cuda_major })
    }
}
