//! What an ELF file says about itself.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use object::elf::{self, FileHeader64};
use object::read::elf::ElfFile;
use object::{Endianness, Object, ObjectSymbol, ReadCache};

#[derive(Debug, Default)]
pub(crate) struct Elf {
    pub(crate) soname: Option<String>,
    pub(crate) needed: BTreeSet<String>,
    pub(crate) imports: BTreeSet<String>,
    pub(crate) exports: BTreeSet<String>,
}

impl Elf {
    /// Reads the dynamic section and symbols, and no more: NCCL has a quarter of a gigabyte.
    pub(crate) fn read(path: &Path) -> Self {
        let data = ReadCache::new(File::open(path).unwrap());
        let file = ElfFile::<FileHeader64<Endianness>, _>::parse(&data).unwrap();
        let mut read = Self::default();
        let dynamic = file.elf_dynamic_table().unwrap();
        for entry in &dynamic {
            let text = || String::from_utf8(dynamic.string(entry).unwrap().to_vec()).unwrap();
            match entry.tag {
                elf::DT_SONAME => read.soname = Some(text()),
                elf::DT_NEEDED => drop(read.needed.insert(text())),
                _ => {}
            }
        }
        for symbol in file.dynamic_symbols() {
            let name = symbol.name().unwrap().to_owned();
            if symbol.is_undefined() {
                read.imports.insert(name);
            } else {
                read.exports.insert(name);
            }
        }
        read
    }

    /// Functions of NCCL that another library must provide.
    pub(crate) fn nccl_imports(&self) -> impl Iterator<Item = &str> {
        self.imports.iter().map(String::as_str).filter(|name| name.starts_with("nccl"))
    }

    /// Functions of the CUDA driver that another library must provide.
    pub(crate) fn driver_imports(&self) -> impl Iterator<Item = &str> {
        let driver = |name: &&str| {
            let rest = name.strip_prefix("cu").and_then(|rest| rest.chars().next());
            rest.is_some_and(|first| first.is_ascii_uppercase())
        };
        self.imports.iter().map(String::as_str).filter(driver)
    }

    /// The C functions of NCCL's family that it offers.
    pub(crate) fn nccl_exports(&self) -> BTreeSet<&str> {
        self.exports.iter().map(String::as_str).filter(|name| name.starts_with("nccl")).collect()
    }
}
