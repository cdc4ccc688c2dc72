//! The library as a file and as loaded.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nccl_ext_core::Backend;
use nccl_ext_test::vendor::{Elf, Lab, case};
use nccl_m2n_sys::{LIBRARY, M2nApi, NEEDS};

use crate::cases::expect;

type Case = fn(&Lab, u32) -> Result<(), String>;

pub(crate) const CASES: [(&str, Case); 5] = [
    ("exports_the_tables_8_functions_and_no_other_c_function", exports),
    ("all_functions_are_the_librarys_own", functions),
    ("versions_and_paths_over_nccl", versions),
    ("the_version_is_that_of_the_tree_around_the_file", other_trees),
    ("the_driver_is_the_stand_in", driver),
];

fn symbols() -> impl Iterator<Item = &'static str> {
    M2nApi::SYMBOLS.into_iter().map(|name| name.to_str().unwrap())
}

fn exports(lab: &Lab, major: u32) -> Result<(), String> {
    let (library, expected) = (Elf::read(&lab.m2n(major)), symbols().collect::<BTreeSet<_>>());
    let found = library.nccl_exports();
    match found == expected && found.len() == 8 {
        true => Ok(()),
        false => Err(format!("{found:?}, expected {expected:?}")),
    }
}

fn functions(lab: &Lab, major: u32) -> Result<(), String> {
    let expected: Vec<_> = symbols().map(str::to_owned).collect();
    expect(lab, "load functions", (lab.m2n(major), lab.nccl()), &[], &expected)
}

/// Loads, and compares the versions and files that the backend has.
fn loads(lab: &Lab, m2n: PathBuf, version: &str) -> Result<(), String> {
    let nccl = lab.nccl();
    let expected = [
        format!("libnccl.so.2 2.30.7 {}", nccl.display()),
        format!("{LIBRARY} {version} {}", m2n.display()),
    ];
    expect(lab, "load versions", (m2n, nccl), &[], &expected)
}

fn versions(lab: &Lab, major: u32) -> Result<(), String> {
    loads(lab, lab.m2n(major), "0.2.0")
}

fn other_trees(lab: &Lab, major: u32) -> Result<(), String> {
    let path = format!("m2n/lib/cu{major}/{LIBRARY}");
    let root = lab.scratch().join(format!("tree-{major}"));
    let file = root.join(&path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let size = std::fs::copy(lab.m2n(major), &file).map_err(|error| error.to_string())?;
    loads(lab, file.clone(), &NEEDS.to_string())?;
    let entry = format!("[[file]]\npath = \"{path}\"\nsize = {size}\nversion = \"7.8.9\"\n");
    std::fs::write(root.join("manifest.toml"), entry).unwrap();
    loads(lab, file, "7.8.9")
}

fn driver(lab: &Lab, major: u32) -> Result<(), String> {
    let expected = ["cuInit gives 100".to_owned()];
    expect(lab, "load driver", (lab.m2n(major), lab.nccl()), &[], &expected)
}

/// The child's half of the cases above.
pub(crate) fn run_in_child(name: &str, backend: Backend, m2n: &Path) {
    match name {
        "functions" => {
            // SAFETY: it is open already, and stays so.
            let library = unsafe { Library::open(Some(m2n), RTLD_NOW | RTLD_LOCAL) }.unwrap();
            let table = addresses(backend.extension::<M2nApi>().unwrap());
            for (name, in_table) in symbols().zip(table) {
                // SAFETY: the symbol is an address here, never called.
                let symbol = unsafe { library.get::<*const ()>(name) }.unwrap();
                if symbol.as_raw_ptr().cast_const().cast() == in_table {
                    case::report(name);
                }
            }
        }
        "versions" => {
            for library in backend.libraries() {
                let path = library.path.as_deref().unwrap().display();
                case::report(&format!("{} {} {path}", library.name, library.version));
            }
        }
        "driver" => {
            // SAFETY: the stand-in's function reads no argument.
            let code = unsafe { (backend.driver().init.unwrap())(0) };
            case::report(&format!("cuInit gives {}", code.0));
        }
        other => panic!("no case {other}"),
    }
}

/// In the order of [`M2nApi::SYMBOLS`].
fn addresses(api: &M2nApi) -> [*const (); 8] {
    [
        api.ncclM2nInit as *const (),
        api.ncclM2nFinalize as *const (),
        api.ncclM2nGetLastError as *const (),
        api.ncclM2nGroupStart as *const (),
        api.ncclM2nGroupEnd as *const (),
        api.ncclM2nGroupAbort as *const (),
        api.ncclReshardWithWindow as *const (),
        api.ncclReshard as *const (),
    ]
}
