//! Choosing NCCL, and making sure that there is one.

use core::ffi::{CStr, c_int, c_void};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::cuda::Choice;
use super::mapped::{self, MappedFile};
use super::places::{Place, Step, bare_name};
use super::search::{Search, Trouble};
use super::{LoadOptions, Opened, content};
use crate::backend::LibraryInfo;
use crate::env_value::os_variable;
use crate::error::{Error, Result};
use crate::raw::{NcclApi, ncclResult_t};
use crate::version::Version;

pub(super) const LIBRARY: &str = "libnccl.so.2";
const VARIABLE: &str = "NCCL_LIBRARY";

/// An NCCL that will do.
pub(super) struct Nccl {
    pub(super) opened: Opened,
    pub(super) table: NcclApi,
    pub(super) info: LibraryInfo,
    pub(super) path: PathBuf,
}

/// What makes an NCCL acceptable.
struct Terms<'a> {
    floor: Version,
    choice: &'a Choice,
}

pub(super) fn load(
    options: &LoadOptions,
    floor: Version,
    steps: &[Step],
    choice: &Choice,
) -> Result<Nccl> {
    let terms = Terms { floor, choice };
    let there = mapped::nccls();
    if there.len() > 1 {
        return Err(Error::MultipleNccl { paths: there.into_iter().map(|f| f.path).collect() });
    }
    let mut search = Search::new(LIBRARY);
    let named = match (&options.nccl, os_variable(VARIABLE)) {
        (Some(path), _) => Some(("explicit path".to_owned(), path.clone())),
        (None, Some(path)) => Some((format!("{VARIABLE} is set"), path.into())),
        (None, None) => None,
    };
    if let Some((origin, path)) = named {
        if let Some(there) = there.first().filter(|there| is_another(&path, there)) {
            return Err(Error::MultipleNccl { paths: vec![path, there.path.clone()] });
        }
        return terms.open(&path, &origin).map_err(|trouble| {
            search.refuse(&origin, &path, trouble);
            search.fail()
        });
    }
    if let Some(there) = there.first() {
        // Whatever is wrong with it, a second one would not mend it.
        let origin = "mapped by the process already";
        let opened = Opened::mapped(Path::new(LIBRARY)).or_else(|| Opened::mapped(&there.path));
        let accepted = match opened {
            Some(opened) => terms.accept(opened, origin),
            None => terms.open(&there.path, origin),
        };
        return accepted.map_err(|trouble| {
            search.refuse(origin, &there.path, trouble);
            search.fail()
        });
    }
    for step in steps {
        let file = match &step.place {
            Place::Tree(tree) => tree.join("nccl/lib").join(LIBRARY),
            Place::Site(site) => site.join("nvidia/nccl/lib").join(LIBRARY),
            Place::Folder(folder) => folder.join(LIBRARY),
            Place::Nothing => {
                search.absent(&step.origin, LIBRARY.into());
                continue;
            }
            Place::Linker => break,
        };
        if !file.exists() {
            search.absent(&step.origin, file);
            continue;
        }
        match terms.open(&file, &step.origin) {
            Ok(nccl) => return Ok(nccl),
            Err(trouble) => search.refuse(&step.origin, &file, trouble),
        }
    }
    for (name, origin) in [(LIBRARY, "SONAME"), (bare_name(LIBRARY), "bare name")] {
        let (name, origin) = (Path::new(name), format!("the dynamic linker, {origin}"));
        match terms.open(name, &origin) {
            Ok(nccl) => return Ok(nccl),
            Err(Trouble::Unopened(reason)) => search.unknown_to_linker(&origin, name, reason),
            Err(trouble) => search.refuse(&origin, name, trouble),
        }
    }
    Err(search.fail())
}

/// Whether a file is there and is not the mapped one. Both are asked, since a layered file system
/// gives one file two inode numbers, and links give it two names.
fn is_another(path: &Path, mapped: &MappedFile) -> bool {
    let same_inode = path.metadata().map(|meta| meta.ino() == mapped.id.1);
    let same_name = path.canonicalize().is_ok_and(|path| path == mapped.path);
    same_inode.is_ok_and(|same| !same) && !same_name
}

impl Terms<'_> {
    fn open(&self, name: &Path, origin: &str) -> Result<Nccl, Trouble> {
        self.accept(Opened::open(name).map_err(Trouble::Unopened)?, origin)
    }

    fn accept(&self, opened: Opened, origin: &str) -> Result<Nccl, Trouble> {
        // The version first: an old library lacks symbols, and "too old" is the better message.
        let (version, path) = version(&opened, self.floor)?;
        if version < self.floor {
            let needs = self.floor;
            return Err(Error::TooOld { library: LIBRARY, found: version, needs, path }.into());
        }
        let cuda_major = content::cuda_major(&path);
        self.choice.check_driver(&path, cuda_major)?;
        // SAFETY: the handle is NCCL's, which stays mapped when it is accepted.
        let table = unsafe { NcclApi::resolve(|name| opened.symbol(name)) };
        let table = table.map_err(|symbols| Error::MissingSymbols {
            symbols,
            library: path.clone(),
            found: Some(version),
            needs: self.floor,
        })?;
        let mut info = LibraryInfo::new(LIBRARY, version).at(&path);
        info.build_id = mapped::build_id(opened.address());
        info.cuda_major = cuda_major;
        info.origin = Some(origin.into());
        Ok(Nccl { opened, table, info, path })
    }
}

const VERSION: &CStr = c"ncclGetVersion";

/// The version and file of the NCCL that `library` itself would call.
fn version(library: &Opened, floor: Version) -> Result<(Version, PathBuf)> {
    let pointer = library.symbol(VERSION);
    let path = library.file_of(pointer);
    if pointer.is_null() {
        return Err(Error::MissingSymbols {
            symbols: vec!["ncclGetVersion"],
            library: library.file_of(core::ptr::null()),
            found: None,
            needs: floor,
        });
    }
    // SAFETY: `ncclGetVersion` has had this signature since NCCL 2.0.
    let call = unsafe {
        core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> ncclResult_t>(
            pointer,
        )
    };
    let mut code = 0;
    // SAFETY: `code` outlives the call.
    let result = unsafe { call(&mut code) };
    if !result.is_success() {
        let detail = path.display().to_string();
        return Err(Error::Native { call: "ncclGetVersion", code: result, detail });
    }
    Ok((Version::from_nccl_code(code), path))
}

impl Nccl {
    /// Refuses an extension that would call another NCCL than this one: a library of its own, or
    /// one inside itself. One that links none has nothing to compare.
    pub(super) fn check_extension(&self, extension: &Opened, floor: Version) -> Result<()> {
        let pointer = extension.symbol(VERSION);
        if pointer.is_null() || pointer == self.opened.symbol(VERSION) {
            return Ok(());
        }
        let (version, path) = version(extension, floor)?;
        if version < floor {
            return Err(Error::TooOld { library: LIBRARY, found: version, needs: floor, path });
        }
        Err(Error::MultipleNccl { paths: vec![self.path.clone(), path] })
    }

    /// Refuses a process in which calls of an extension would not reach this NCCL alone.
    pub(super) fn check_alone(&self) -> Result<()> {
        let there = mapped::nccls();
        if there.len() > 1 {
            return Err(Error::MultipleNccl { paths: there.into_iter().map(|f| f.path).collect() });
        }
        match interposer(&self.opened) {
            Some(other) => Err(Error::MultipleNccl { paths: vec![self.path.clone(), other] }),
            None => Ok(()),
        }
    }
}

/// A library in the global scope that stands before NCCL: functions of the table that calls from
/// an extension would find there instead. `None` when there is none.
fn interposer(nccl: &Opened) -> Option<PathBuf> {
    NcclApi::SYMBOLS.into_iter().find_map(|name| {
        // SAFETY: the name is NUL-terminated; the address is compared, no more.
        let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        let differs = !global.is_null() && global != nccl.symbol(name);
        differs.then(|| mapped::file_of(global).unwrap_or_else(|| "the program itself".into()))
    })
}
