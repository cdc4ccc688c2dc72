//! What the dynamic linker sees of a shared library.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use object::elf::{self, FileHeader64, Machine};
use object::read::elf::{FileHeader, SectionHeader, Sym, VerneedIterator};
use object::{Endianness, StringTable};

use super::cuda_marks;

/// Facts read from an ELF file.
pub(crate) struct Library {
    pub(crate) machine: Machine,
    pub(crate) soname: Option<String>,
    pub(crate) needed: Vec<String>,
    pub(crate) runpath: Option<String>,
    /// Newest version of the C library that a symbol needs: `2.17`.
    pub(crate) glibc: Option<String>,
    pub(crate) exports: BTreeSet<String>,
    /// NCCL and CUDA driver functions that another library must provide.
    pub(crate) imports: BTreeSet<String>,
    /// The GNU build id, in hexadecimal.
    pub(crate) build_id: Option<String>,
    /// Majors of the CUDA toolkits whose compilers left their mark.
    pub(crate) cuda_majors: BTreeSet<u32>,
}

impl Library {
    /// Reads a 64-bit ELF file; `shown` is how messages name it.
    pub(crate) fn read(path: &Path, shown: &str) -> Result<Self> {
        let data = std::fs::read(path).with_context(|| format!("{shown}: cannot be read"))?;
        ensure!(!data.is_empty(), "{shown}: empty file; the archive is damaged, download it again");
        ensure!(
            data.starts_with(&elf::ELFMAG) && data.get(4) == Some(&elf::ELFCLASS64.0),
            "{shown}: expected a 64-bit ELF library, found a file that begins with {:02x?}",
            data.get(..5).unwrap_or(&data)
        );
        Self::parse(&data).with_context(|| format!("{shown}: its ELF structure is damaged"))
    }

    fn parse(data: &[u8]) -> Result<Self> {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let mut library = Self {
            machine: header.e_machine(endian),
            soname: None,
            needed: Vec::new(),
            runpath: None,
            glibc: None,
            exports: BTreeSet::new(),
            imports: BTreeSet::new(),
            build_id: None,
            cuda_majors: cuda_marks::majors(data),
        };
        let dynamic = sections.dynamic_table(endian, data)?;
        for entry in &dynamic {
            let text = || -> Result<String> {
                Ok(String::from_utf8_lossy(dynamic.string(entry)?).into_owned())
            };
            match entry.tag {
                elf::DT_SONAME => library.soname = Some(text()?),
                elf::DT_NEEDED => library.needed.push(text()?),
                // A library has one of the two; DT_RPATH is the older form.
                elf::DT_RUNPATH | elf::DT_RPATH => library.runpath = Some(text()?),
                _ => {}
            }
        }
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
        for symbol in symbols.iter() {
            let name = String::from_utf8_lossy(symbols.symbol_name(endian, symbol)?).into_owned();
            if symbol.is_undefined(endian) {
                if is_nccl_or_driver(&name) {
                    library.imports.insert(name);
                }
            } else if !symbol.is_local() {
                library.exports.insert(name);
            }
        }
        if let Some((needs, link)) = sections.gnu_verneed(endian, data)? {
            let strings = sections.strings(endian, data, link)?;
            library.glibc = newest_glibc(endian, needs, strings)?;
        }
        for section in sections.iter() {
            let Some(mut notes) = section.notes(endian, data)? else { continue };
            while let Some(note) = notes.next()? {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                    let hex = note.desc().iter().map(|byte| format!("{byte:02x}"));
                    library.build_id = Some(hex.collect());
                }
            }
        }
        Ok(library)
    }
}

fn is_nccl_or_driver(name: &str) -> bool {
    let driver = name.strip_prefix("cu").and_then(|rest| rest.chars().next());
    name.starts_with("nccl") || driver.is_some_and(|c| c.is_ascii_uppercase())
}

fn newest_glibc(
    endian: Endianness,
    mut needs: VerneedIterator<'_, FileHeader64<Endianness>>,
    strings: StringTable<'_>,
) -> Result<Option<String>> {
    let mut newest: Option<(Vec<u32>, String)> = None;
    while let Some((_, mut versions)) = needs.next()? {
        while let Some(version) = versions.next()? {
            let name = String::from_utf8_lossy(version.name(endian, strings)?).into_owned();
            let Some(number) = name.strip_prefix("GLIBC_") else { continue };
            let parts: Option<Vec<u32>> = number.split('.').map(|part| part.parse().ok()).collect();
            let Some(parts) = parts else { continue };
            if newest.as_ref().is_none_or(|(old, _)| *old < parts) {
                newest = Some((parts, number.to_owned()));
            }
        }
    }
    Ok(newest.map(|(_, number)| number))
}
