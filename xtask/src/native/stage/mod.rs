//! `cargo xtask stage-native`: the vendor's libraries and headers, laid out in one folder.

mod folder;
pub(crate) mod source;
mod staged_source;
mod swap;
mod tree;
mod wheel;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xshell::Shell;

use self::folder::Folder;
use self::source::Source;
use self::staged_source::StagedSource;
use self::swap::Staging;
use self::tree::Tree;
use self::wheel::Wheel;
use super::arch::Arch;
use super::library_kind;
use super::manifest::{self, Entry, Manifest};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to stage: `pypi:VERSION` to download the nccl-extensions wheel with pip, `wheel:PATH`,
    /// `build:DIR` for a build of the upstream repository, `tree:DIR` for a tree that was staged.
    #[arg(long, value_name = "SOURCE")]
    pub(crate) from: Source,
    /// Stage NCCL too: in the version that the wheel's metadata pins for the newest major asked
    /// for, or as the folder has it.
    #[arg(long)]
    pub(crate) with_nccl: bool,
    /// Folder to stage into [default: native/].
    #[arg(long, value_name = "DIR")]
    pub(crate) prefix: Option<PathBuf>,
    /// CUDA majors to stage [default: 12,13 from a wheel, what is there from a folder].
    #[arg(long, value_name = "MAJORS", value_delimiter = ',')]
    pub(crate) cuda: Vec<u32>,
    /// Architecture to stage for [default: this machine's].
    #[arg(long)]
    pub(crate) arch: Option<Arch>,
}

impl Args {
    /// Everything there is of a release, into the default folder.
    pub(crate) fn whole(from: &str) -> Result<Self> {
        let from = from.parse().map_err(anyhow::Error::msg)?;
        Ok(Self { from, with_nccl: true, prefix: None, cuda: Vec::new(), arch: None })
    }
}

pub(crate) fn run(args: &Args, sh: &Shell, root: &Path) -> Result<()> {
    let prefix = args.prefix.clone().unwrap_or_else(|| root.join("native"));
    let arch = args.arch.map_or_else(Arch::host, Ok)?;
    let staging = Staging::new(&prefix)?;
    let mut origin = args.from.open(sh, arch, &staging.download())?;
    let majors = majors(args, &origin)?;
    let mut tree = Tree::new(staging.tree(), arch);
    println!("stage-native: from {}", origin.name());
    add_extensions(&mut tree, &mut origin, &majors)?;
    if args.with_nccl {
        let mut origin = nccl(origin, sh, arch, &majors, &staging)?;
        add_nccl(&mut tree, &mut origin, &majors)?;
    }

    let mut files = tree.into_files();
    let mut parts = vec!["ep", "m2n", "licenses"];
    if args.with_nccl {
        parts.push("nccl");
    } else {
        files.extend(staged_nccl(&prefix));
    }
    if let Source::Tree(from) = &args.from {
        keep_sources(&mut files, from);
    }
    let manifest = Manifest::new(arch, &majors, files);
    manifest.save(&staging.tree())?;
    staging
        .swap(&parts, manifest::FILE)
        .with_context(|| format!("putting the staged files into {}", prefix.display()))?;
    report(&manifest, &prefix);
    Ok(())
}

/// The majors to stage, oldest first.
fn majors(args: &Args, origin: &StagedSource) -> Result<Vec<u32>> {
    let mut majors = if args.cuda.is_empty() { origin.majors()? } else { args.cuda.clone() };
    majors.sort_unstable();
    majors.dedup();
    ensure!(
        !majors.is_empty(),
        "{}: no CUDA major can be told from {}; the file is no build of CUDA's compiler",
        origin.name(),
        library_kind::EP.file
    );
    if let (StagedSource::Build(_), [_, _, ..]) = (origin, &*majors) {
        bail!(
            "{}: a build tree holds libraries of one CUDA major, found {majors:?}; pass --cuda with \
             the one that it was built for",
            origin.name()
        );
    }
    Ok(majors)
}

/// Everything of the two extensions.
fn add_extensions(tree: &mut Tree, origin: &mut StagedSource, majors: &[u32]) -> Result<()> {
    for kind in [&library_kind::EP, &library_kind::M2N] {
        tree.add_headers(origin, kind)?;
        for major in majors {
            tree.add_library(origin, kind, Some(*major))?;
        }
    }
    let licenses = origin.licenses(None)?;
    match origin {
        StagedSource::Build(folder) => {
            // Beside the build's folder, in the repository's.
            let above = folder.path().parent().map(Path::to_owned);
            let here = !folder.files_below(&licenses).is_empty();
            let from = if here { Some(folder.path().to_owned()) } else { above };
            let folder = Folder::open("build", &from.unwrap_or_default())?;
            let mut files = folder.files_below(&licenses);
            files.retain(|file| !file.contains('/'));
            ensure!(
                !files.is_empty(),
                "{}: has no LICENSE*, nor has the folder above it; a staged tree carries the \
                 license of what is inside, so copy it there",
                origin.name()
            );
            let mut origin = StagedSource::Build(folder);
            for file in files {
                tree.add_files(&mut origin, &file, &format!("licenses/{file}"))?;
            }
            Ok(())
        }
        _ => tree.add_files(origin, &licenses, "licenses/"),
    }
}

/// Where NCCL comes from.
fn nccl(
    origin: StagedSource,
    sh: &Shell,
    arch: Arch,
    majors: &[u32],
    staging: &Staging,
) -> Result<StagedSource> {
    let StagedSource::Wheel(mut wheel) = origin else { return Ok(origin) };
    let newest = majors.last().copied().unwrap_or_default();
    let pinned = wheel.requirement(&format!("nvidia-nccl-cu{newest}"))?;
    let path = source::download(sh, &pinned, arch, &staging.download().join("nccl"))?;
    Wheel::open(&path).map(StagedSource::Wheel)
}

/// NCCL's library, headers and license: one folder that a user can leave out whole.
fn add_nccl(tree: &mut Tree, origin: &mut StagedSource, majors: &[u32]) -> Result<()> {
    println!("stage-native: NCCL from {}", origin.name());
    let missing = matches!(origin, StagedSource::Build(_) | StagedSource::Tree(_))
        && origin
            .library(&library_kind::NCCL, &origin.library_folder(&library_kind::NCCL, 0))
            .is_err();
    ensure!(
        !missing,
        "{}: has no {}; leave out --with-nccl, or stage NCCL from a wheel",
        origin.name(),
        library_kind::NCCL.file
    );
    tree.add_headers(origin, &library_kind::NCCL)?;
    // A folder has the NCCL that it has; the wheel is the one for the newest major.
    let major = majors.last().copied().filter(|_| matches!(origin, StagedSource::Wheel(_)));
    tree.add_library(origin, &library_kind::NCCL, major)?;
    if let StagedSource::Build(_) = origin {
        return Ok(());
    }
    let licenses = origin.licenses(Some(&library_kind::NCCL))?;
    tree.add_files(origin, &licenses, "nccl/licenses/")
}

/// What the target's manifest says of an NCCL that stays as it is.
fn staged_nccl(prefix: &Path) -> Vec<Entry> {
    let files = Manifest::read(prefix).map(|manifest| manifest.files).unwrap_or_default();
    files
        .into_iter()
        .filter(|f| f.path.starts_with("nccl/") && prefix.join(&f.path).is_file())
        .collect()
}

/// Files that are as the other tree's manifest has them come from where those came from.
fn keep_sources(files: &mut [Entry], tree: &Path) {
    let Ok(manifest) = Manifest::read(tree) else { return };
    for file in files {
        let known = manifest.files.iter().find(|f| f.path == file.path && f.sha256 == file.sha256);
        if let Some(known) = known {
            file.source.clone_from(&known.source);
        }
    }
}

fn report(manifest: &Manifest, prefix: &Path) {
    for file in &manifest.files {
        if let Some(library) = &file.library {
            println!("  {} {} ({} MiB)", file.path, library.version, file.size >> 20);
        }
    }
    println!("stage-native: {} files in {}", manifest.files.len(), prefix.display());
}

#[cfg(test)]
mod tests;
