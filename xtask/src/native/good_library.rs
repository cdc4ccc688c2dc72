//! What a good library is. Staging and verifying ask the same.

use anyhow::{Result, ensure};

use super::arch::Arch;
use super::elf::Library;
use super::library_kind::LibraryKind;

/// Refuses a library that is not what its place in the tree says. `shown` is how messages name it.
pub(crate) fn check(
    library: &Library,
    kind: &LibraryKind,
    arch: Arch,
    major: u32,
    shown: &str,
) -> Result<()> {
    ensure!(
        library.machine == arch.elf_machine(),
        "{shown}: expected a library for {} (ELF machine {}), found ELF machine {}; take the one of \
         this platform, or pass --arch",
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
    let found: Vec<String> = library.cuda_majors.iter().map(u32::to_string).collect();
    ensure!(
        found == [major.to_string()],
        "{shown}: expected a library built for CUDA {major}, found {}; {}",
        match found.len() {
            0 => "no mark of a CUDA compiler in it".to_owned(),
            1 => format!("one for CUDA {}", found.join("")),
            _ => format!("marks of CUDA {} in one file", found.join(" and ")),
        },
        if found.is_empty() {
            "its symbols may be stripped too far, or it is no vendor library"
        } else {
            "the majors are mixed up, so take it from the release for that major"
        }
    );
    Ok(())
}
