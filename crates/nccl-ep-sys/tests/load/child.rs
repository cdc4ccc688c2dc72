//! The child's half: loads as it is told, and prints what came of it.

use std::path::{Path, PathBuf};

use nccl_ep_sys::{SPEC, load_from};
use nccl_ext_core::loader::LoadOptions;
use nccl_ext_core::{Backend, Comm, Error, LibraryInfo, Result, Stream, UniqueId};
use nccl_ext_test::child::{Child, say};

const CASE: &str = "NCCL_EXT_TEST_CASE";

/// A child to be, of this binary or a copy of it, with an environment of its own: no Python, no
/// compiler, no home.
pub(crate) fn child(case: &str, program: Option<&Path>) -> Child {
    let child = program.map_or_else(Child::new, Child::of);
    child.env(CASE, case).env("PATH", "/nonexistent")
}

pub(crate) fn run() {
    let Ok(case) = std::env::var(CASE) else { return };
    // Without the step that would find what lies staged in this very workspace.
    let options = LoadOptions::new().workspace(path("WORKSPACE"));
    let load = || Backend::load(&options, &[&SPEC]);
    match case.as_str() {
        "names" => print(load(), names),
        "details" => print(load(), details),
        "probe" => {
            let probed = Backend::probe(&options, &[&SPEC]);
            say(probed.map_or_else(text, |libraries| details(&libraries)));
        }
        "available" => println!("child: {}", nccl_ep_sys::is_available()),
        "cuda 12" => print(Backend::load(&options.cuda(12), &[&SPEC]), details),
        "explicit" => {
            let options = options.nccl(path("NCCL").unwrap()).extension(&SPEC, path("EP").unwrap());
            print(Backend::load(&options, &[&SPEC]), names);
        }
        "refused, then good" => {
            let (bad, good) = (path("BAD").unwrap(), path("GOOD").unwrap());
            let refused = load_from(&bad);
            let refused = refused.map(drop).unwrap_err().to_string();
            assert!(refused.starts_with(bad.to_str().unwrap()), "{refused}");
            assert!(!is_mapped(&bad), "the refused file stays open");
            let loaded = load_from(&good);
            assert!(is_mapped(&good));
            print(loaded, names);
        }
        "mapped first" => {
            // As a Python package does that was imported before: by path, in the global scope.
            use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
            // SAFETY: a stub without initialisers.
            let other = unsafe { Library::open(path("OTHER"), RTLD_NOW | RTLD_GLOBAL) };
            std::mem::forget(other.unwrap());
            print(load(), details);
        }
        "older driver" => {
            let backend = load().unwrap();
            let id = UniqueId::new(backend).unwrap();
            let comm = Comm::init_rank(backend, 1, &id, 0).unwrap();
            let waited = Stream::DEFAULT.synchronize(&comm).map_or_else(text, |()| "fine".into());
            let capture = Stream::DEFAULT.is_capturing(&comm);
            let capture = capture.map_or_else(text, |on| on.to_string());
            say(format_args!("synchronize: {waited}; is_capturing: {capture}"));
        }
        other => panic!("no case {other}"),
    }
}

fn print(result: Result<Backend>, show: fn(&[LibraryInfo]) -> String) {
    say(result.map_or_else(text, |backend| show(backend.libraries())));
}

fn text(error: Error) -> String {
    error.to_string()
}

fn names(libraries: &[LibraryInfo]) -> String {
    let each = libraries.iter().map(|library| {
        let file = library.path.as_deref().and_then(Path::file_name).unwrap_or_default();
        format!("{} {} {}", library.name, library.version, file.display())
    });
    each.collect::<Vec<_>>().join(", ")
}

fn details(libraries: &[LibraryInfo]) -> String {
    let each = libraries.iter().map(|library| {
        let LibraryInfo { name, version, path, build_id, cuda_major, origin, .. } = library;
        let cuda = cuda_major.map_or_else(|| "cuda ?".into(), |major| format!("cuda {major}"));
        let (build, origin) = (build_id.as_deref().unwrap_or("no id"), origin.as_deref().unwrap());
        format!(
            "{name} {version} {} [{build}] {cuda} ({origin})",
            path.as_deref().unwrap().display()
        )
    });
    each.collect::<Vec<_>>().join(", ")
}

fn path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

fn is_mapped(file: &Path) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains(file.to_str().unwrap())
}
