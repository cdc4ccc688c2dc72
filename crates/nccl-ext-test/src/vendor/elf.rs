//! What an ELF file says about itself.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use object::elf::{self, FileHeader64};
use object::read::elf::ElfFile;
use object::{Endianness, Object, ObjectSymbol, ReadCache};

/// The dynamic section and symbols of a file.
#[derive(Debug, Default)]
pub struct Elf {
    /// Its `DT_SONAME`.
    pub soname: Option<String>,
    /// The libraries that it needs.
    pub needed: BTreeSet<String>,
    /// Symbols that another library must provide.
    pub imports: BTreeSet<String>,
    /// Symbols that it offers.
    pub exports: BTreeSet<String>,
}

impl Elf {
    /// Reads the dynamic section and symbols, and no more: NCCL has a quarter of a gigabyte.
    ///
    /// # Panics
    /// If the file cannot be read, or is none.
    pub fn read(path: &Path) -> Self {
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
    pub fn nccl_imports(&self) -> impl Iterator<Item = &str> {
        self.imports.iter().map(String::as_str).filter(|name| name.starts_with("nccl"))
    }

    /// Functions of the CUDA driver that another library must provide.
    pub fn driver_imports(&self) -> impl Iterator<Item = &str> {
        let driver = |name: &&str| {
            let rest = name.strip_prefix("cu").and_then(|rest| rest.chars().next());
            rest.is_some_and(|first| first.is_ascii_uppercase())
        };
        self.imports.iter().map(String::as_str).filter(driver)
    }

    /// The C functions of NCCL's family that it offers.
    pub fn nccl_exports(&self) -> BTreeSet<&str> {
        self.exports.iter().map(String::as_str).filter(|name| name.starts_with("nccl")).collect()
    }
}
