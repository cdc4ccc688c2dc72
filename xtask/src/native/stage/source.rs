//! Where a tree is staged from: a wheel's file, a package index by way of pip, a folder.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

use super::folder::Folder;
use super::staged_source::StagedSource;
use super::wheel::Wheel;
use crate::files::write;
use crate::native::arch::Arch;

/// The value of `--from`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    Wheel(PathBuf),
    Pypi(String),
    Build(PathBuf),
    Tree(PathBuf),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        let plain = |version: &str| {
            version.chars().all(|c| c.is_ascii_alphanumeric() || ".+!-_".contains(c))
        };
        match value.split_once(':') {
            Some(("wheel", path)) if !path.is_empty() => Ok(Self::Wheel(path.into())),
            Some(("build", path)) if !path.is_empty() => Ok(Self::Build(path.into())),
            Some(("tree", path)) if !path.is_empty() => Ok(Self::Tree(path.into())),
            Some(("pypi", version)) if !version.is_empty() && plain(version) => {
                Ok(Self::Pypi(version.to_owned()))
            }
            _ => Err("expected pypi:VERSION (such as pypi:0.1.0), wheel:PATH, build:DIR (a build \
                      of the upstream repository) or tree:DIR (a staged tree)"
                .to_owned()),
        }
    }
}

impl Source {
    /// Opens it, after a download into `dir` where need be.
    pub(crate) fn open(&self, sh: &Shell, arch: Arch, dir: &Path) -> Result<StagedSource> {
        match self {
            Self::Wheel(path) => Wheel::open(path).map(StagedSource::Wheel),
            Self::Pypi(version) => {
                let dir = dir.join("extensions");
                let path = download(sh, &format!("nccl-extensions=={version}"), arch, &dir)?;
                Wheel::open(&path).map(StagedSource::Wheel)
            }
            Self::Build(path) => Folder::open("build", path).map(StagedSource::Build),
            Self::Tree(path) => Folder::open("tree", path).map(StagedSource::Tree),
        }
    }
}

/// Downloads the wheel that meets a requirement into the folder `dir`, which is made for it.
pub(crate) fn download(sh: &Shell, requirement: &str, arch: Arch, dir: &Path) -> Result<PathBuf> {
    write::folder(dir)?;
    if cmd!(sh, "python3 -m pip --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        bail!(
            "downloading {requirement} needs `python3 -m pip`, which does not run; install it \
             (`apt-get install python3-pip`), or fetch the wheel yourself and pass --from wheel:PATH"
        );
    }
    println!("stage-native: downloading {requirement} for {} with pip", arch.name());
    // Each manylinux tag is asked for by name: pip does not infer the older from the newer ones.
    let platforms: Vec<String> =
        ["manylinux_2_28", "manylinux_2_24", "manylinux_2_18", "manylinux2014"]
            .iter()
            .map(|tag| format!("--platform={tag}_{}", arch.name()))
            .collect();
    let options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check"];
    let python = ["--python-version=3.12", "--implementation=cp"];
    cmd!(
        sh,
        "python3 -m pip download {options...} {platforms...} {python...} --dest {dir} {requirement}"
    )
    .quiet()
    .run()
    .with_context(|| {
        format!(
            "pip could not download {requirement} for {}: check the version and the network, or \
                 fetch the wheel elsewhere and pass --from wheel:PATH",
            arch.name()
        )
    })?;
    let mut wheels: Vec<PathBuf> = std::fs::read_dir(dir)?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect();
    ensure!(wheels.len() == 1, "pip left {} wheels for {requirement}, expected one", wheels.len());
    wheels.pop().context("no wheel")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_a_kind_and_a_value() {
        assert_eq!("wheel:a/b.whl".parse(), Ok(Source::Wheel("a/b.whl".into())));
        assert_eq!("pypi:0.1.0".parse(), Ok(Source::Pypi("0.1.0".to_owned())));
        assert_eq!("build:a/b".parse(), Ok(Source::Build("a/b".into())));
        assert_eq!("tree:a".parse(), Ok(Source::Tree("a".into())));
        for wrong in
            ["", "0.1.0", "wheel:", "build:", "tree:", "pypi:", "pypi:1 --index-url=x", "git:main"]
        {
            assert!(wrong.parse::<Source>().is_err(), "{wrong:?}");
        }
    }
}
