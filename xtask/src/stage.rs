//! `cargo xtask stage-native`: the vendor's libraries and headers, from its wheels into one folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use xshell::Shell;

use crate::arch::Arch;
use crate::manifest::{self, Entry, Manifest};
use crate::source::{self, Source};
use crate::swap::Staging;
use crate::tree::{self, Tree};
use crate::wheel::Wheel;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The nccl-extensions wheel: `wheel:PATH`, or `pypi:VERSION` to download it with pip.
    #[arg(long, value_name = "SOURCE")]
    from: Source,
    /// Stage NCCL too, in the version that the wheel's metadata pins for the newest major asked for.
    #[arg(long)]
    with_nccl: bool,
    /// Folder to stage into [default: native/].
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// CUDA majors to stage.
    #[arg(long, value_name = "MAJORS", value_delimiter = ',', default_values_t = [12, 13])]
    cuda: Vec<u32>,
    /// Architecture to stage for [default: this machine's].
    #[arg(long)]
    arch: Option<Arch>,
}

impl Args {
    /// Everything there is of a release, into the default folder.
    pub(crate) fn whole(from: &str) -> Result<Self> {
        let from = from.parse().map_err(anyhow::Error::msg)?;
        Ok(Self { from, with_nccl: true, prefix: None, cuda: vec![12, 13], arch: None })
    }
}

pub(crate) fn run(args: &Args, sh: &Shell, root: &Path) -> Result<()> {
    let prefix = args.prefix.clone().unwrap_or_else(|| root.join("native"));
    let arch = args.arch.map_or_else(Arch::host, Ok)?;
    let mut majors = args.cuda.clone();
    majors.sort_unstable();
    majors.dedup();
    let Some(newest) = majors.last().copied() else {
        bail!("--cuda: expected at least one CUDA major, found none; pass for instance --cuda 13");
    };

    let staging = Staging::new(&prefix)?;
    let path = args.from.fetch(sh, arch, &staging.download())?;
    let mut wheel = Wheel::open(&path)?;
    let mut tree = Tree::new(staging.tree(), arch);
    add_extensions(&mut tree, &mut wheel, &majors)?;
    if args.with_nccl {
        let pinned = wheel.requirement(&format!("nvidia-nccl-cu{newest}"))?;
        let path = source::download(sh, &pinned, arch, &staging.download().join("nccl"))?;
        add_nccl(&mut tree, &mut Wheel::open(&path)?, newest)?;
    }

    let mut files = tree.into_files();
    let mut parts = vec!["ep", "m2n", "licenses"];
    if args.with_nccl {
        parts.push("nccl");
    } else {
        files.extend(staged_nccl(&prefix));
    }
    let manifest = Manifest::new(files);
    manifest.save(&staging.tree())?;
    staging
        .swap(&parts, manifest::FILE)
        .with_context(|| format!("putting the staged files into {}", prefix.display()))?;
    report(&manifest, &prefix);
    Ok(())
}

/// Everything of the nccl-extensions wheel.
fn add_extensions(tree: &mut Tree, wheel: &mut Wheel, majors: &[u32]) -> Result<()> {
    let version = wheel.field("Version")?;
    println!("stage-native: unpacking {} (version {version})", wheel.name);
    for kind in [&tree::EP, &tree::M2N] {
        tree.add_headers(wheel, kind)?;
        for major in majors {
            let from = format!("{}/lib/cu{major}/", kind.wheel_folder);
            let to = format!("{}/lib/cu{major}/", kind.folder);
            tree.add_library(wheel, kind, &from, &to, *major)?;
        }
    }
    let licenses = wheel.dist_info()? + "licenses/";
    tree.add_folder(wheel, &licenses, "licenses/")
}

/// NCCL's library, headers and license: one folder that a user can leave out whole.
fn add_nccl(tree: &mut Tree, wheel: &mut Wheel, major: u32) -> Result<()> {
    println!("stage-native: unpacking {}", wheel.name);
    tree.add_headers(wheel, &tree::NCCL)?;
    tree.add_library(wheel, &tree::NCCL, "nvidia/nccl/lib/", "nccl/lib/", major)?;
    let licenses = wheel.dist_info()? + "licenses/";
    tree.add_folder(wheel, &licenses, "nccl/licenses/")
}

/// What the target's manifest says of an NCCL that stays as it is.
fn staged_nccl(prefix: &Path) -> Vec<Entry> {
    let files = Manifest::load(prefix).map(|manifest| manifest.files).unwrap_or_default();
    files
        .into_iter()
        .filter(|f| f.path.starts_with("nccl/") && prefix.join(&f.path).is_file())
        .collect()
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
