//! Archives: one `.tar.zst` file with everything below one folder, the same bytes for the same
//! content.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tar::{Builder, EntryType, Header};

use crate::files::{self, write};

pub(crate) const EXTENSION: &str = ".tar.zst";

/// Fast enough for hundreds of MiB; higher levels save little on machine code.
const LEVEL: i32 = 9;

/// The program in an archive.
pub(crate) const PROGRAM: &str = "bin/nccl-ext";

/// Packs a folder's files in the order of their names, below a folder `name`. Owners, times and
/// permissions are the same whoever packs: only what is below `bin/` may be executed.
pub(crate) fn pack(root: &Path, name: &str, mtime: u64, to: &Path) -> Result<()> {
    let mut files = Vec::new();
    files::walk(root, Path::new(""), &mut files);
    files.sort();
    let out = File::create(to).map_err(|error| write::unwritable(to, &error))?;
    let packed = || -> io::Result<()> {
        let mut encoder = zstd::Encoder::new(out, LEVEL)?;
        encoder.include_checksum(true)?;
        // The number of threads does not change the bytes, but one thread and several do.
        encoder.multithread(2)?;
        let mut tar = Builder::new(encoder);
        for file in &files {
            let from = File::open(root.join(file))?;
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Regular);
            header.set_size(from.metadata()?.len());
            header.set_mode(if file.starts_with("bin/") { 0o755 } else { 0o644 });
            header.set_mtime(mtime);
            header.set_uid(0);
            header.set_gid(0);
            tar.append_data(&mut header, format!("{name}/{file}"), from)?;
        }
        tar.into_inner()?.finish()?.flush()
    };
    packed().map_err(|error| write::unwritable(to, &error))
}

/// Unpacks into an empty folder and returns the folder inside that has everything. Refuses entries
/// of other kinds than files and folders, and names that would leave the folder.
pub(crate) fn unpack(archive: &Path, into: &Path) -> Result<PathBuf> {
    let damaged = || format!("{}: damaged or cut short; make or fetch it again", archive.display());
    let file = File::open(archive).with_context(|| format!("{}", archive.display()))?;
    let decoder = zstd::Decoder::new(BufReader::new(file)).with_context(damaged)?;
    let mut tar = tar::Archive::new(decoder);
    let mut tops: BTreeMap<String, usize> = BTreeMap::new();
    for entry in tar.entries().with_context(damaged)? {
        let mut entry = entry.with_context(damaged)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        ensure!(
            write::stays_inside(&name),
            "{}: entry `{name}` points outside the archive's own folder; do not use this file",
            archive.display()
        );
        match entry.header().entry_type() {
            EntryType::Directory => continue,
            EntryType::Regular => {}
            other => bail!(
                "{}: entry `{name}` is no regular file ({other:?}); an archive holds nothing else, \
                 so do not use this file",
                archive.display()
            ),
        }
        let top = name.split('/').next().unwrap_or_default().to_owned();
        *tops.entry(top).or_default() += 1;
        let (size, mode) = (entry.size(), entry.header().mode().with_context(damaged)?);
        let to = into.join(&name);
        write::copy(&mut entry, size, &to, damaged)?;
        executable(&to, mode & 0o111 != 0)?;
    }
    // The end of the stream has the checksum, which nothing has read yet.
    io::copy(&mut tar.into_inner(), &mut io::sink()).with_context(damaged)?;
    let tops: Vec<String> = tops.into_keys().collect();
    match &*tops {
        [top] => Ok(into.join(top)),
        _ => bail!(
            "{}: expected one folder with everything in it, found {}; it was not made by `cargo \
             xtask package`",
            archive.display(),
            if tops.is_empty() { "nothing".to_owned() } else { tops.join(", ") }
        ),
    }
}

fn executable(file: &Path, yes: bool) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = if yes { 0o755 } else { 0o644 };
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("{}", file.display()))
}
