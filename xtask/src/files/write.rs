//! Writing files, with errors that say what to do.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};

/// How often a long copy says how far it is.
const PROGRESS: Duration = Duration::from_secs(2);

/// Makes a folder and those above it.
pub(crate) fn folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| unwritable(path, &error))
}

/// Writes a whole file, with the folders above it.
pub(crate) fn file(path: &Path, bytes: &[u8]) -> Result<()> {
    path.parent().map_or(Ok(()), folder)?;
    std::fs::write(path, bytes).map_err(|error| unwritable(path, &error))
}

/// Copies a stream into a file, with the folders above it. `size` is for the progress alone;
/// `damaged` says what is wrong when the stream cannot be read.
pub(crate) fn copy(
    from: &mut dyn Read,
    size: u64,
    to: &Path,
    damaged: impl Fn() -> String,
) -> Result<u64> {
    to.parent().map_or(Ok(()), folder)?;
    let mut file = File::create(to).map_err(|error| unwritable(to, &error))?;
    let mut buffer = vec![0; 1 << 18];
    let (mut copied, mut last) = (0, Instant::now());
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).with_context(&damaged),
        };
        let bytes = buffer.get(..read).unwrap_or_default();
        file.write_all(bytes).map_err(|error| unwritable(to, &error))?;
        copied += read as u64;
        if last.elapsed() > PROGRESS {
            let name = to.file_name().unwrap_or_default().to_string_lossy();
            println!("  {name}: {} of {} MiB", copied >> 20, size >> 20);
            last = Instant::now();
        }
    }
    Ok(copied)
}

/// Whether an archive's entry of that name is unpacked below the folder that it is unpacked into.
pub(crate) fn stays_inside(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// What is wrong, and what to do about it.
pub(crate) fn unwritable(path: &Path, error: &io::Error) -> Error {
    let remedy: &dyn Display = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            &"the disk is full: free some space, or name a folder on another disk"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            &"the folder is not writable: change its permissions, or name another one"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            &"a file stands where a folder is needed: name another folder"
        }
        _ => &"check the folder, or name another one",
    };
    anyhow::anyhow!("{}: cannot be written ({error}); {remedy}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_damaged_source() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let damaged = || "x.whl: damaged".to_owned();
        let error = copy(&mut [1_u8; 10].as_slice(), 10, full, damaged).unwrap_err();
        let message = format!("{error:#}");
        for part in ["/dev/full", "No space left", "the disk is full", "another disk"] {
            assert!(message.contains(part), "{part} in {message}");
        }
        assert!(!message.contains("damaged"), "{message}");
    }

    #[test]
    fn a_read_only_folder_is_told() {
        let error =
            unwritable(Path::new("/p/f"), &io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(error.to_string().starts_with("/p/f: cannot be written"), "{error}");
        assert!(error.to_string().contains("not writable"), "{error}");
    }
}
