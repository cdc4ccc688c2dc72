//! `cargo xtask api-map`: a page with every item of the C APIs and its Rust counterpart.
//!
//! C items come from the generated bindings. Counterparts come from the sources of the safe crates:
//! `#[doc(alias = "...")]` on public items, the inputs of the macros that pair Rust items with C
//! ones, and for the fields of a structure the fields and methods of the same name. What has no
//! counterpart is listed by hand with a reason, in [`unwrapped`]. An item with neither is an error,
//! and so is a hand-written entry that is out of date.

mod c_api;
mod macros;
mod matching;
mod page;
mod rust_api;
#[cfg(test)]
mod tests;
mod unwrapped;

use std::path::Path;

use anyhow::{Context, Result, bail};

use c_api::CApi;
use matching::Map;
use rust_api::RustApi;
use unwrapped::Entry;

use crate::files;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fail when the checked-in page differs, instead of writing it.
    #[arg(long)]
    check: bool,
}

impl Args {
    pub(crate) fn check() -> Self {
        Self { check: true }
    }
}

const PAGE: &str = "docs/src/api-map.md";

/// A C library and the crate over it.
struct Library {
    /// The C library's name.
    name: &'static str,
    /// The safe crate's name in Rust.
    crate_name: &'static str,
    bindings: &'static str,
    sources: &'static str,
    /// How C names of this library begin. A Rust alias that begins so must be one of them.
    prefixes: &'static [&'static str],
    /// Macros of the header that bindings cannot hold.
    macros: &'static [&'static str],
    unwrapped: &'static [Entry],
}

const LIBRARIES: &[Library] = &[EP, M2N];

const EP: Library = Library {
    name: "libnccl_ep",
    crate_name: "nccl_ep",
    bindings: "crates/nccl-ep-sys/src/bindings.rs",
    sources: "crates/nccl-ep/src",
    prefixes: &["ncclEp", "NCCL_EP_"],
    macros: &[],
    unwrapped: unwrapped::EP,
};

const M2N: Library = Library {
    name: "libnccl_m2n",
    crate_name: "nccl_m2n",
    bindings: "crates/nccl-m2n-sys/src/bindings.rs",
    sources: "crates/nccl-m2n/src",
    prefixes: &[
        "ncclM2n",
        "ncclReshard",
        "ncclMesh",
        "ncclDistTensor",
        "NCCL_M2N_",
        "NCCL_RESHARD_",
    ],
    macros: &["NCCL_RESHARD_SHARD"],
    unwrapped: unwrapped::M2N,
};

pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let mut parts = Vec::new();
    for library in LIBRARIES {
        let bindings = files::read(&root.join(library.bindings))?;
        let c = CApi::parse(&bindings).with_context(|| format!("reading {}", library.bindings))?;
        let rust = RustApi::parse(&files::rust_sources(&root.join(library.sources))?)?;
        let map = Map::new(library, &c, &rust);
        let map = map.map_err(|problems| {
            anyhow::anyhow!("the API map of {} does not work out:\n{problems}", library.name)
        })?;
        parts.push(page::part(library, &c, &map));
    }
    let text = page::whole(&parts);
    let path = root.join(PAGE);
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    if found == text {
        println!("api-map: {PAGE} is up to date");
        return Ok(());
    }
    if args.check {
        let differs = |(expected, found): (&str, &str)| expected != found;
        let same = text.lines().zip(found.lines()).position(differs);
        let line = same.unwrap_or(text.lines().count().min(found.lines().count())) + 1;
        bail!(
            "{PAGE}:{line}: differs from what the sources give; run `cargo xtask api-map` and \
               commit the result"
        );
    }
    std::fs::write(&path, text).with_context(|| format!("writing {PAGE}"))?;
    println!("api-map: wrote {PAGE}");
    Ok(())
}
