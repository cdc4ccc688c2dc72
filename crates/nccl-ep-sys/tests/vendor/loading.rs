//! The libraries as files and as loaded.

use std::collections::BTreeSet;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nccl_ep_sys::{EpApi, LIBRARY};
use nccl_ext_test::vendor::{Elf, Lab, case};

use crate::cases::{EP, NCCL, load};

const M2N: &str = "VENDOR_M2N";

/// The functions of `nccl_m2n.h`.
const M2N_FUNCTIONS: [&str; 8] = [
    "ncclM2nFinalize",
    "ncclM2nGetLastError",
    "ncclM2nGroupAbort",
    "ncclM2nGroupEnd",
    "ncclM2nGroupStart",
    "ncclM2nInit",
    "ncclReshard",
    "ncclReshardWithWindow",
];

type Case = fn(&Lab, u32) -> Result<(), String>;

pub(crate) const CASES: [(&str, Case); 6] = [
    ("load::names_and_dependencies", names_and_dependencies),
    ("load::ep_exports_its_18_functions_and_no_other_c_function", ep_exports),
    ("load::m2n_exports_its_8_functions_and_no_other_c_function", m2n_exports),
    ("load::ep_over_nccl_with_versions_and_paths", ep_loads),
    ("load::m2n_over_nccl_with_all_functions", m2n_loads),
    ("load::the_driver_is_the_stand_in", driver_fails),
];

fn equal<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{found:?}, expected {expected:?}")) }
}

fn names_and_dependencies(lab: &Lab, major: u32) -> Result<(), String> {
    let (ep, m2n) = (Elf::read(&lab.ep(major)), Elf::read(&lab.m2n(major)));
    equal(&ep.soname.as_deref(), &Some(LIBRARY))?;
    equal(&m2n.soname.as_deref(), &None)?;
    equal(&Elf::read(&lab.nccl()).soname.as_deref(), &Some("libnccl.so.2"))?;
    for library in [ep, m2n] {
        for name in ["libnccl.so.2", "libcuda.so.1"] {
            equal(&library.needed.contains(name), &true)?;
        }
    }
    Ok(())
}

fn ep_exports(lab: &Lab, major: u32) -> Result<(), String> {
    let functions: BTreeSet<_> = EpApi::SYMBOLS.iter().map(|name| name.to_str().unwrap()).collect();
    equal(&functions.len(), &18)?;
    equal(&Elf::read(&lab.ep(major)).nccl_exports(), &functions)
}

fn m2n_exports(lab: &Lab, major: u32) -> Result<(), String> {
    equal(&Elf::read(&lab.m2n(major)).nccl_exports(), &M2N_FUNCTIONS.into())
}

fn ep_loads(lab: &Lab, major: u32) -> Result<(), String> {
    let (ep, nccl) = (lab.ep(major), lab.nccl());
    let expected = [
        format!("libnccl.so.2 2.30.7 {}", nccl.display()),
        format!("libnccl_ep.so.0 0.2.0 {}", ep.display()),
    ];
    let ended = case::run(lab, "load ep", &[(EP, ep), (NCCL, nccl)])?;
    ended.expect(&expected)
}

fn m2n_loads(lab: &Lab, major: u32) -> Result<(), String> {
    let variables = [(M2N, lab.m2n(major)), (NCCL, lab.nccl())];
    let ended = case::run(lab, "load m2n", &variables)?;
    ended.expect(&M2N_FUNCTIONS)
}

fn driver_fails(lab: &Lab, major: u32) -> Result<(), String> {
    let ended = case::run(lab, "load driver", &[(EP, lab.ep(major)), (NCCL, lab.nccl())])?;
    ended.expect(&["cuInit gives 100", "no cuMemcpyHtoDAsync_v2"])
}

/// The child's half of the cases above.
pub(crate) fn run_in_child(name: &str) {
    match name {
        "ep" => {
            let backend = load(&case::file(NCCL), Some(&case::file(EP))).unwrap();
            for library in backend.libraries() {
                let path = library.path.as_deref().unwrap().display();
                case::report(&format!("{} {} {path}", library.name, library.version));
            }
        }
        "m2n" => {
            load(&case::file(NCCL), None).unwrap();
            // SAFETY: its initialisers may run on any thread; NCCL and the driver are loaded.
            let library = unsafe { Library::open(Some(case::file(M2N)), RTLD_NOW | RTLD_LOCAL) };
            let library = library.unwrap();
            for name in M2N_FUNCTIONS {
                // SAFETY: the symbol is an address here, never called.
                if unsafe { library.get::<*const ()>(name) }.is_ok() {
                    case::report(name);
                }
            }
            // Its own threads and exit handlers do not matter to a process that ends here.
            std::mem::forget(library);
        }
        "driver" => {
            let backend = load(&case::file(NCCL), Some(&case::file(EP))).unwrap();
            let driver = backend.driver();
            // SAFETY: the stand-in's function reads no argument.
            let code = unsafe { (driver.init.unwrap())(0) };
            case::report(&format!("cuInit gives {}", code.0));
            if driver.copy_to_device.is_none() {
                case::report("no cuMemcpyHtoDAsync_v2");
            }
        }
        other => panic!("no case {other}"),
    }
}
