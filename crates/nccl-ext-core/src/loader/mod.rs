//! Finding, checking and opening the native libraries.
//!
//! A candidate is opened, checked and closed again when it is refused; only an accepted library
//! stays mapped, for good. Every attempt is recorded, so that an error says where was looked and
//! why each place would not do.

mod library;

use core::ffi::{CStr, c_int};
use std::ffi::CString;
use std::path::{Path, PathBuf};

pub use library::Opened;

use crate::backend::{Backend, BackendBuilder, LibraryInfo, MemorySpace};
use crate::driver::DriverApi;
use crate::error::{Error, LoadAttempt, Result};
use crate::raw::{NcclApi, ncclResult_t};
use crate::version::Version;

const NCCL: &str = "libnccl.so.2";
const DRIVER: &str = "libcuda.so.1";

/// What the loader must know of an extension library. The sys crates have one each.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ExtensionSpec {
    /// The library's SONAME.
    pub library: &'static str,
    /// The environment variable that names its file.
    pub variable: &'static str,
    /// Its folder in a staged tree: `ep` in `ep/lib/cu13/libnccl_ep.so.0`.
    pub folder: &'static str,
    /// The oldest NCCL that it works with.
    pub nccl_floor: Version,
    /// Adds its table and [`LibraryInfo`] to a backend, or says what is missing.
    pub attach: fn(&Opened, BackendBuilder) -> Result<BackendBuilder>,
    /// Whether it starts a compiler at run time.
    pub compiles_kernels: bool,
}

impl ExtensionSpec {
    /// A library that has its kernels inside.
    #[must_use]
    pub const fn new(
        library: &'static str,
        variable: &'static str,
        folder: &'static str,
        nccl_floor: Version,
        attach: fn(&Opened, BackendBuilder) -> Result<BackendBuilder>,
    ) -> Self {
        Self { library, variable, folder, nccl_floor, attach, compiles_kernels: false }
    }

    /// The library compiles kernels at run time: see [`crate::jit`].
    #[must_use]
    pub const fn compiles_kernels(mut self) -> Self {
        self.compiles_kernels = true;
        self
    }
}

/// Where to look. Empty means: environment variables, then the dynamic linker.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    nccl: Option<PathBuf>,
    extensions: Vec<(&'static str, PathBuf)>,
}

impl LoadOptions {
    /// The default search.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes NCCL from this file only.
    #[must_use]
    pub fn nccl(mut self, path: impl Into<PathBuf>) -> Self {
        self.nccl = Some(path.into());
        self
    }

    /// Takes an extension from this file only.
    #[must_use]
    pub fn extension(mut self, spec: &ExtensionSpec, path: impl Into<PathBuf>) -> Self {
        self.extensions.push((spec.library, path.into()));
        self
    }

    fn extension_path(&self, library: &str) -> Option<&Path> {
        self.extensions.iter().rev().find(|(name, _)| *name == library).map(|(_, p)| p.as_path())
    }
}

impl Backend {
    /// Loads NCCL, the driver and the given extensions as a GPU backend.
    ///
    /// NCCL comes from the explicit path, else `NCCL_LIBRARY`, else what the process has mapped,
    /// else the dynamic linker; an extension from its explicit path, else its variable, else the
    /// dynamic linker. The environment is read, never written.
    ///
    /// # Errors
    /// [`Error::Load`] with every attempt, [`Error::TooOld`] (before an extension is opened),
    /// [`Error::MissingSymbols`], [`Error::Unsupported`] on platforms other than 64-bit Linux.
    pub fn load(options: &LoadOptions, extensions: &[&ExtensionSpec]) -> Result<Self> {
        if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
            return Err(Error::Unsupported {
                feature: "loading native libraries",
                library: "this platform".into(),
                found: format!("{}, {} bits", std::env::consts::OS, usize::BITS),
                needs: "64-bit Linux".into(),
            });
        }
        let driver = first(DRIVER, vec![Candidate::new("dynamic linker", DRIVER)])?;
        let nccl = load_nccl(options, extensions)?;
        let mut builder = Self::builder("native", MemorySpace::Device)
            // SAFETY: the handle is the driver's, which is pinned below.
            .driver(unsafe { DriverApi::resolve(|name| symbol(&driver, name)) })
            .nccl(nccl.table)
            .library(nccl.info);
        let mut opened = vec![driver, nccl.opened];
        for spec in extensions {
            let extension = first(spec.library, extension_candidates(options, spec))?;
            builder = (spec.attach)(&extension, builder)?;
            check_own_nccl(spec, &extension)?;
            opened.push(extension);
        }
        opened.into_iter().for_each(Opened::pin);
        // SAFETY: the tables come from the libraries of those names, mapped for good.
        Ok(unsafe { builder.build() })
    }
}

fn symbol(library: &Opened, name: &str) -> *mut core::ffi::c_void {
    CString::new(name).map_or(core::ptr::null_mut(), |name| library.symbol(&name))
}

struct Candidate {
    origin: String,
    path: PathBuf,
}

impl Candidate {
    fn new(origin: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self { origin: origin.into(), path: path.into() }
    }
}

/// A variable's value; empty counts as unset.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// What to try: an explicit path or a variable stand alone, since falling back to another file
/// than the one that was asked for would hide the mistake.
fn candidates(explicit: Option<&Path>, name: &str, soname: &'static str) -> Vec<Candidate> {
    if let Some(path) = explicit {
        return vec![Candidate::new("explicit path", path)];
    }
    if let Some(path) = variable(name) {
        return vec![Candidate::new(format!("{name} is set"), path)];
    }
    vec![Candidate::new(format!("dynamic linker, as {name} is not set"), soname)]
}

fn extension_candidates(options: &LoadOptions, spec: &ExtensionSpec) -> Vec<Candidate> {
    candidates(options.extension_path(spec.library), spec.variable, spec.library)
}

fn first(library: &'static str, candidates: Vec<Candidate>) -> Result<Opened> {
    let mut attempts = Vec::new();
    for Candidate { origin, path } in candidates {
        match Opened::open(&path) {
            Ok(opened) => return Ok(opened),
            Err(reason) => attempts.push(LoadAttempt { origin, candidate: path, reason }),
        }
    }
    Err(Error::Load { library, attempts })
}

struct Nccl {
    opened: Opened,
    table: NcclApi,
    info: LibraryInfo,
}

fn load_nccl(options: &LoadOptions, extensions: &[&ExtensionSpec]) -> Result<Nccl> {
    const VARIABLE: &str = "NCCL_LIBRARY";
    let asked_for = options.nccl.is_some() || variable(VARIABLE).is_some();
    let mapped = if asked_for { None } else { Opened::mapped(Path::new(NCCL)) };
    let opened = match mapped {
        Some(opened) => opened,
        None => first(NCCL, candidates(options.nccl.as_deref(), VARIABLE, NCCL))?,
    };
    let floor = extensions.iter().map(|spec| spec.nccl_floor).max();
    let floor = floor.unwrap_or(Version::NCCL_FLOOR_EP);
    // The version first: an old library lacks symbols, and "too old" is the better message.
    let (version, path) = nccl_version(&opened)?;
    if version < floor {
        return Err(Error::TooOld { library: NCCL, found: version, needs: floor, path });
    }
    // SAFETY: the handle is NCCL's, which stays mapped when it is accepted.
    let table = unsafe { NcclApi::resolve(|name| opened.symbol(name)) };
    let table = table.map_err(|symbols| Error::MissingSymbols {
        symbols,
        library: path.clone(),
        found: Some(version),
        needs: floor,
    })?;
    let info = LibraryInfo::new(NCCL, version).at(path);
    Ok(Nccl { opened, table, info })
}

/// The version and file of the NCCL that `library` itself would call.
fn nccl_version(library: &Opened) -> Result<(Version, PathBuf)> {
    const NAME: &CStr = c"ncclGetVersion";
    let pointer = library.symbol(NAME);
    let path = library.file_of(pointer);
    if pointer.is_null() {
        return Err(Error::MissingSymbols {
            symbols: vec!["ncclGetVersion"],
            library: library.file_of(core::ptr::null()),
            found: None,
            needs: Version::NCCL_FLOOR_EP,
        });
    }
    // SAFETY: `ncclGetVersion` has had this signature since NCCL 2.0.
    let call = unsafe {
        core::mem::transmute::<
            *mut core::ffi::c_void,
            unsafe extern "C" fn(*mut c_int) -> ncclResult_t,
        >(pointer)
    };
    let mut code = 0;
    // SAFETY: `code` outlives the call.
    let result = unsafe { call(&mut code) };
    if !result.is_success() {
        return Err(Error::Native {
            call: "ncclGetVersion",
            code: result,
            detail: path.display().to_string(),
        });
    }
    Ok((Version::from_nccl_code(code), path))
}

/// An extension that brought another NCCL than the one checked would run on that one. One that
/// links none has nothing to compare.
fn check_own_nccl(spec: &ExtensionSpec, extension: &Opened) -> Result<()> {
    if extension.symbol(c"ncclGetVersion").is_null() {
        return Ok(());
    }
    let (version, path) = nccl_version(extension)?;
    if version < spec.nccl_floor {
        return Err(Error::TooOld { library: NCCL, found: version, needs: spec.nccl_floor, path });
    }
    Ok(())
}
