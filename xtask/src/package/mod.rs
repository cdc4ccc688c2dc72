//! `cargo xtask package`: what users get, an archive with libraries and tool, and `.crate` files.

mod cargo;
mod checkout;
mod install_test;
mod notices;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use xshell::Shell;

use self::cargo::{Build, PROGRAM};
use crate::files::{self, write};
use crate::native::arch::Arch;
use crate::native::manifest::{self, Entry, Manifest};
use crate::native::stage::{self, source::Source};
use crate::native::{RELEASE, REQUIRE};
use crate::{archive, verify};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the native libraries come from, as for stage-native.
    #[arg(long, value_name = "SOURCE", default_value = RELEASE)]
    from: Source,
    /// CUDA majors that the archive holds [default: as for stage-native].
    #[arg(long, value_name = "MAJORS", value_delimiter = ',')]
    cuda: Vec<u32>,
    /// Leave NCCL out: users bring their own.
    #[arg(long)]
    without_nccl: bool,
    /// Folder for the products [default: target/package].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, sh: &Shell, root: &Path) -> Result<()> {
    refuse_to_skip(std::env::var(REQUIRE).ok().as_deref())?;
    let arch = Arch::host()?;
    sh.change_dir(root);
    let time = checkout::time(sh)?;
    let scratch = sh.create_temp_dir().context("no folder for temporary files")?;
    let copy = scratch.path().join("checkout");
    println!("package: copying the checkout to {}", copy.display());
    checkout::copy(sh, root, &copy)?;
    sh.change_dir(&copy);
    let native = stage::Args {
        from: absolute(&args.from, root),
        with_nccl: !args.without_nccl,
        prefix: Some(copy.join("native")),
        cuda: args.cuda.clone(),
        arch: Some(arch),
    };
    stage::run(&native, sh, &copy)?;

    // Cargo keeps what it unpacked of a registry by the registry's path, also of the one that it
    // makes in here to verify packages: a path that was used before would bring back old sources.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let target = scratch.path().join(format!("target-{now}"));
    let build = Build { sh, copy: &copy, target: &target };
    let program = build.program()?;
    let crates = build.crates()?;

    let out = scratch.path().join("out");
    write::folder(&out)?;
    let name = format!("nccl-extensions-{}-linux-{}", env!("CARGO_PKG_VERSION"), arch.name());
    let tree = scratch.path().join(&name);
    assemble(sh, &copy, &program, arch, &tree)?;
    let packed = out.join(name.clone() + archive::EXTENSION);
    println!("package: packing {}", packed.file_name().unwrap_or_default().display());
    archive::pack(&tree, &name, time, &packed)?;
    for file in crates {
        let to = out.join(file.file_name().unwrap_or_default());
        std::fs::copy(&file, &to).map_err(|error| write::unwritable(&to, &error))?;
    }
    check(sh, &out)?;
    install_test::run(sh, &packed, scratch.path())?;
    sums(&out)?;
    let to = args.out.clone().unwrap_or_else(|| root.join("target/package"));
    publish(&out, &root.join(to))
}

/// A package without libraries is none, so the variable that allows it is a contradiction.
fn refuse_to_skip(value: Option<&str>) -> Result<()> {
    match value {
        None | Some("" | "1") => Ok(()),
        Some(other) => bail!(
            "{REQUIRE}={other}: a package holds the native libraries, so they are required; unset \
             the variable, or set it to 1"
        ),
    }
}

/// Paths of the command line are meant from where it was given, not from the copy.
fn absolute(source: &Source, root: &Path) -> Source {
    let here = std::env::current_dir().unwrap_or_else(|_| root.to_owned());
    match source {
        Source::Wheel(path) => Source::Wheel(here.join(path)),
        Source::Build(path) => Source::Build(here.join(path)),
        Source::Tree(path) => Source::Tree(here.join(path)),
        Source::Pypi(version) => Source::Pypi(version.clone()),
    }
}

/// Lays out what the archive holds, and lists it in the manifest.
fn assemble(sh: &Shell, copy: &Path, program: &Path, arch: Arch, tree: &Path) -> Result<()> {
    write::folder(tree)?;
    let staged = Manifest::read(&copy.join("native"))?;
    for file in &staged.files {
        let (from, to) = (copy.join("native").join(&file.path), tree.join(&file.path));
        to.parent().map_or(Ok(()), write::folder)?;
        // The copy is not used any more, and the libraries are large.
        std::fs::rename(&from, &to).map_err(|error| write::unwritable(&to, &error))?;
    }
    let tool = std::fs::read(program).with_context(|| format!("{}", program.display()))?;
    write::file(&tree.join(archive::PROGRAM), &tool)?;
    for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
        if let Ok(text) = std::fs::read(copy.join(file)) {
            write::file(&tree.join(file), &text)?;
        }
    }
    notices::write(sh, PROGRAM, &format!("{}-unknown-linux-gnu", arch.name()), tree)?;

    let mut all = Vec::new();
    files::walk(tree, Path::new(""), &mut all);
    let mut entries = staged.files.clone();
    let source = format!("nccl-ext-rs {}", env!("CARGO_PKG_VERSION"));
    for path in all {
        if !staged.files.iter().any(|file| file.path == path) {
            entries.push(Entry::describe(tree, &path, &source)?);
        }
    }
    Manifest::new(arch, &staged.cuda, entries).save(tree)
}

/// Every product, as its user would verify it.
fn check(sh: &Shell, out: &Path) -> Result<()> {
    for path in products(out)? {
        let report = verify::report(&path, sh)?;
        let name = path.file_name().unwrap_or_default().display();
        let problems: Vec<String> =
            report.problems.iter().map(|p| format!("{}: {}", p.file, p.message)).collect();
        ensure!(problems.is_empty(), "{name} is not good: {}", problems.join("; "));
        println!("package: {name} is good");
    }
    Ok(())
}

fn products(out: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(out).with_context(|| format!("{}", out.display()))?;
    let mut products: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    products.sort();
    Ok(products)
}

/// `SHA256SUMS`, as `sha256sum --check` reads it.
fn sums(out: &Path) -> Result<()> {
    let mut text = String::new();
    for path in products(out)? {
        let (_, sha256) = manifest::digest(&path)?;
        text += &format!("{sha256}  {}\n", path.file_name().unwrap_or_default().display());
    }
    write::file(&out.join("SHA256SUMS"), text.as_bytes())
}

/// Copies the products to where they were asked for; the sums, which name them all, last.
fn publish(out: &Path, to: &Path) -> Result<()> {
    write::folder(to)?;
    let mut products = products(out)?;
    products.sort_by_key(|path| path.ends_with("SHA256SUMS"));
    for path in products {
        let to = to.join(path.file_name().unwrap_or_default());
        let size = path.metadata()?.len();
        let mut from = std::fs::File::open(&path)?;
        write::copy(&mut from, size, &to, || format!("{}: cannot be read", path.display()))?;
        println!("package: {} ({} KiB)", to.display(), size.div_ceil(1024));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Bench, assert_names, snapshot};

    #[test]
    fn a_package_without_its_libraries_is_refused() {
        for fine in [None, Some(""), Some("1")] {
            assert!(refuse_to_skip(fine).is_ok());
        }
        let message = refuse_to_skip(Some("0")).unwrap_err().to_string();
        assert_names(&message, &["NCCL_EXTENSIONS_REQUIRE_NATIVE_LIBS=0", "unset", "1"]);
    }

    #[test]
    fn the_sums_name_every_product_and_are_put_in_place_with_them() {
        let bench = Bench::new();
        let out = bench.path("out");
        write::file(&out.join("a.crate"), b"a").unwrap();
        write::file(&out.join("b.tar.zst"), b"b").unwrap();
        sums(&out).unwrap();
        publish(&out, &bench.path("to")).unwrap();
        assert_eq!(snapshot(&bench.path("to")), snapshot(&out));
        let sums = std::fs::read_to_string(bench.path("to/SHA256SUMS")).unwrap();
        let expected =
            "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a.crate\n";
        assert!(sums.starts_with(expected) && sums.lines().count() == 2, "{sums}");
    }

    /// The sys crates are published alone, so each has a copy.
    #[test]
    fn the_build_scripts_of_the_sys_crates_share_their_logic() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let [ep, m2n] = ["nccl-ep-sys", "nccl-m2n-sys"].map(|name| {
            std::fs::read_to_string(crates.join(name).join("build/native.rs")).unwrap()
        });
        assert!(ep == m2n, "copy crates/nccl-ep-sys/build/native.rs to crates/nccl-m2n-sys/build/");
    }
}
