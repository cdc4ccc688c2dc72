//! `cargo xtask api-map`: a page with every item of the C APIs and its Rust counterpart.
//!
//! C items come from the generated bindings. Counterparts come from the sources of the safe crates:
//! `#[doc(alias = "...")]` on public items, the inputs of the macros that pair Rust items with C
//! ones, and for the fields of a structure the fields and methods of the same name. What has no
//! counterpart is listed by hand with a reason, in [`unwrapped`]. An item with neither is an error,
//! and so is a hand-written entry that is out of date.

mod c_api;
mod counterpart;
mod library;
mod macros;
mod matching;
mod page;
mod rust_api;
#[cfg(test)]
mod tests;
mod unwrapped;

use std::path::Path;

use anyhow::{Context, Result};

use c_api::CApi;
use library::LIBRARIES;
use matching::Map;
use rust_api::RustApi;

use crate::check_flag::CheckFlag;
use crate::files::{self, generated};

const PAGE: &str = "docs/src/api-map.md";

pub(crate) fn run(args: &CheckFlag, root: &Path) -> Result<()> {
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
    generated::Page { file: PAGE, task: "api-map", of: "the sources" }
        .write(root, &text, args.check)
}
