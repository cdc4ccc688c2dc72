//! `.crate` files: source alone, no native library.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;

use super::report::{Problem, Report};
use crate::files::write;

/// How the files of linkers, archivers and packers begin.
const BINARY: [(&[u8], &str); 5] = [
    (b"\x7fELF", "an ELF file"),
    (b"!<arch>\n", "an archive of object files"),
    (b"PK\x03\x04", "a zip archive, as wheels are"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\xfd7zXZ", "an xz archive"),
];

pub(crate) fn report(path: &Path) -> Report {
    match look(path) {
        Ok((files, problems)) => Report::new(path, "crate", problems).files(files),
        Err(error) => {
            let problem = Problem::new(path.display().to_string(), format!("{error:#}"));
            Report::new(path, "crate", vec![problem])
        }
    }
}

fn look(path: &Path) -> Result<(usize, Vec<Problem>)> {
    let damaged = || format!("{}: damaged or cut short; package it again", path.display());
    let file = File::open(path).with_context(|| format!("{}", path.display()))?;
    let mut tar = tar::Archive::new(GzDecoder::new(BufReader::new(file)));
    let (mut files, mut problems, mut manifest) = (0, Vec::new(), false);
    for entry in tar.entries().with_context(damaged)? {
        let mut entry = entry.with_context(damaged)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        files += 1;
        manifest |= name.split('/').nth(1) == Some("Cargo.toml");
        if !write::stays_inside(&name) || !entry.header().entry_type().is_file() {
            let message = "no regular file inside the package's folder; do not use this package";
            problems.push(Problem::new(&name, message));
            continue;
        }
        let mut start = [0; 8];
        let length = read_start(&mut entry, &mut start).with_context(damaged)?;
        let start = start.get(..length).unwrap_or_default();
        let binary = BINARY.iter().find(|(magic, _)| start.starts_with(magic));
        let library = name.rsplit('/').next().unwrap_or_default().contains(".so");
        let what = binary.map(|(_, what)| *what).or(library.then_some("a shared library's name"));
        if let Some(what) = what {
            let message = format!(
                "{what}: a package holds source alone, so leave it out with `exclude` in Cargo.toml"
            );
            problems.push(Problem::new(&name, message));
        }
    }
    if !manifest {
        problems.push(Problem::new("Cargo.toml", "a package has one; it was not made by cargo"));
    }
    Ok((files, problems))
}

fn read_start(entry: &mut dyn Read, start: &mut [u8; 8]) -> std::io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = start.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match entry.read(rest)? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}
