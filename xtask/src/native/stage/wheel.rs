//! Reading Python wheels: zip archives with metadata in a `*.dist-info` folder.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use zip::ZipArchive;

use crate::files::write;

pub(crate) struct Wheel {
    archive: ZipArchive<File>,
    /// The file's name, for messages and the manifest.
    pub(crate) name: String,
    path: PathBuf,
}

impl Wheel {
    /// Opens a wheel. An archive with an entry that would leave the target folder is refused whole.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| {
            format!("{}: cannot be opened; check the path after `wheel:`", path.display())
        })?;
        let size = file.metadata().map(|meta| meta.len()).unwrap_or(0);
        let mut archive = ZipArchive::new(file).with_context(|| {
            format!(
                "{}: not a readable wheel (a zip archive), or cut short at {size} bytes; download \
                 it again",
                path.display()
            )
        })?;
        for index in 0..archive.len() {
            let entry = archive
                .by_index_raw(index)
                .with_context(|| format!("{}: entry {index} is damaged", path.display()))?;
            ensure!(
                write::stays_inside(entry.name()) && !entry.is_symlink(),
                "{}: entry `{}` points outside the archive's own folder, which no wheel needs; do \
                 not use this file",
                path.display(),
                entry.name()
            );
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { archive, name, path: path.to_owned() })
    }

    /// Names of the files below a folder (`"nccl/ep/include/"`), relative to the archive.
    pub(crate) fn files_below(&self, folder: &str) -> Vec<String> {
        let files =
            self.archive.file_names().filter(|n| n.starts_with(folder) && !n.ends_with('/'));
        let mut files: Vec<String> = files.map(str::to_owned).collect();
        files.sort();
        files
    }

    /// Writes one file of the archive. The archive's checksum is verified on the way.
    pub(crate) fn extract(&mut self, entry: &str, to: &Path) -> Result<()> {
        let damaged = damaged(&self.path, entry);
        let mut file = self.archive.by_name(entry).with_context(&damaged)?;
        let size = file.size();
        let copied = write::copy(&mut file, size, to, damaged)?;
        ensure!(
            copied == size,
            "{}: entry `{entry}` holds {size} bytes, of which {copied} could be read; download it \
             again",
            self.path.display()
        );
        Ok(())
    }

    pub(crate) fn text(&mut self, entry: &str) -> Result<String> {
        let damaged = damaged(&self.path, entry);
        let mut text = String::new();
        let mut file = self.archive.by_name(entry).with_context(&damaged)?;
        file.read_to_string(&mut text).with_context(&damaged)?;
        Ok(text)
    }

    /// The folder with the wheel's metadata, with a slash at its end.
    pub(crate) fn dist_info(&self) -> Result<String> {
        let metadata = self.archive.file_names().find_map(|n| n.strip_suffix("METADATA"));
        match metadata.filter(|dir| dir.ends_with(".dist-info/")) {
            Some(dir) => Ok(dir.to_owned()),
            None => {
                bail!("{}: has no *.dist-info/METADATA, so it is no wheel", self.path.display())
            }
        }
    }

    /// What the wheel requires of `package`, as pip takes it: `package==1.2.3`.
    pub(crate) fn requirement(&mut self, package: &str) -> Result<String> {
        let metadata = self.metadata()?;
        find_requirement(&metadata, package).with_context(|| {
            format!(
                "{}: METADATA has no `Requires-Dist: {package}...` line, so there is no pinned \
                 version to download; leave out --with-nccl or ask for another CUDA major",
                self.path.display()
            )
        })
    }

    fn metadata(&mut self) -> Result<String> {
        let entry = self.dist_info()? + "METADATA";
        self.text(&entry)
    }
}

fn damaged<'a>(path: &'a Path, entry: &'a str) -> impl Fn() -> String + 'a {
    move || format!("{}: entry `{entry}` is missing or damaged; download it again", path.display())
}

/// Values of a header field; the description that follows the first empty line is not searched.
fn field_values<'a>(metadata: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let header = metadata.lines().take_while(|line| !line.trim().is_empty());
    header.filter_map(move |line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

fn find_requirement(metadata: &str, package: &str) -> Option<String> {
    field_values(metadata, "Requires-Dist").find_map(|requirement| {
        let bare = requirement.split(';').next()?.trim();
        let version = bare.strip_prefix(package)?;
        // `nvidia-nccl-cu13` must not match a longer name that begins with it.
        let ends = version.is_empty() || version.starts_with([' ', '(', '=', '<', '>', '~', '!']);
        ends.then(|| bare.replace([' ', '(', ')'], ""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = "Name: nccl-extensions\n\
        Version: 1.2.3\n\
        Requires-Dist: nvidia-nccl-cu13-extra==9\n\
        Requires-Dist: nvidia-nccl-cu13 (==2.30.7) ; extra == \"cu13\"\n\
        \n\
        Requires-Dist: nvidia-nccl-cu12==1\n";

    #[test]
    fn a_requirement_is_read_without_its_marker() {
        let found = find_requirement(METADATA, "nvidia-nccl-cu13");
        assert_eq!(found.as_deref(), Some("nvidia-nccl-cu13==2.30.7"));
    }

    #[test]
    fn a_requirement_in_the_description_does_not_count() {
        assert_eq!(find_requirement(METADATA, "nvidia-nccl-cu12"), None);
    }
}
