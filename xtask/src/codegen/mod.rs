//! `cargo xtask codegen`: Rust types and function tables from the vendor's C headers.
//!
//! Three files come out. The core crate's holds every type that both libraries share and the NCCL
//! table; the EP crate's holds `nccl_ep.h` and the M2N crate's `nccl_m2n.h`, with the shared types
//! imported from the core. None declares an `extern` function: a table is filled at run time, so
//! that no crate links the vendor.

mod bindings;
mod function_table;
mod headers;
mod libclang;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use self::bindings::Bindings;
use self::headers::Headers;
use crate::functions;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Generate in memory and fail when a checked-in file differs.
    #[arg(long)]
    check: bool,
    /// Folder with the staged headers (`ep/include`, `m2n/include`, `nccl/include`) [default:
    /// native/].
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
}

impl Args {
    /// `--check` against the default folder.
    pub(crate) fn check() -> Self {
        Self { check: true, prefix: None }
    }
}

const CORE_FILE: &str = "crates/nccl-ext-core/src/raw/nccl.rs";

pub(crate) fn run(args: &Args, sh: &Shell, root: &Path) -> Result<()> {
    let prefix = args.prefix.clone().unwrap_or_else(|| root.join("native"));
    let headers = Headers::find(sh, &prefix, root)?;
    libclang::select(sh)?;
    let core = core(&headers)?;
    let ep = extension(&headers, &core, &EP)?;
    let m2n = extension(&headers, &core, &M2N)?;
    for (file, text) in [(CORE_FILE, core.text), (EP.file, ep), (M2N.file, m2n)] {
        let text = format(sh, root, &text).with_context(|| format!("formatting {file}"))?;
        if args.check { check(root, file, &text)? } else { write(root, file, &text)? }
    }
    Ok(())
}

struct Core {
    text: String,
    /// Names that the file defines, for the EP file's import list.
    names: BTreeSet<String>,
}

fn core(headers: &Headers) -> Result<Core> {
    let mut builder = headers
        .builder(
            "#include <nccl.h>\n\
             #include <nccl_device/core.h>\n\
             static const int codegen_NCCL_CONFIG_UNDEF_INT = NCCL_CONFIG_UNDEF_INT;\n",
        )?
        .allowlist_type("cudaStream_t|cudaError_t|ncclDataType_t|ncclWindow_t")
        .allowlist_var("NCCL_(MAJOR|MINOR|PATCH|VERSION_CODE|UNIQUE_ID_BYTES|API_MAGIC)")
        .allowlist_var("NCCL_SPLIT_NOCOLOR|codegen_.*")
        .allowlist_var("NCCL_(WIN|CTA_POLICY)_.*");
    for name in functions::NCCL {
        builder = builder.allowlist_function(name);
    }
    let bindings = Bindings::parse(&headers::parse(builder, "nccl.h")?)?;
    let functions = bindings.select_functions(functions::NCCL)?;
    let mut text =
        head("C types that libnccl, libnccl_ep and libnccl_m2n share, and NCCL's table.");
    text += "use core::ffi::{CStr, c_void};\n\n";
    text += &bindings.types_text();
    text += &function_table::text("NcclApi", "libnccl", &functions);
    Ok(Core { text, names: bindings.names() })
}

/// One extension library, and the file that its header becomes.
struct Extension {
    library: &'static str,
    header: &'static str,
    /// What bindgen is given: the header, and constants for macros that are no plain literal.
    contents: &'static str,
    /// Headers whose items are the library's own.
    own: &'static [&'static str],
    table: &'static str,
    functions: &'static [&'static str],
    /// The name of `functions` in xtask, for the message when it is incomplete.
    list: &'static str,
    file: &'static str,
}

const EP: Extension = Extension {
    library: "libnccl_ep",
    header: "nccl_ep.h",
    contents: "#include <nccl_ep.h>\n",
    own: &[r".*/nccl_ep\.h", r".*/nccl_ep/ep_enums\.h"],
    table: "EpApi",
    functions: functions::EP,
    list: "functions::EP",
    file: "crates/nccl-ep-sys/src/bindings.rs",
};

const M2N: Extension = Extension {
    library: "libnccl_m2n",
    header: "nccl_m2n.h",
    contents: "#include <nccl_m2n.h>\n\
               static const int codegen_NCCL_M2N_CONFIG_UNDEF_INT = NCCL_M2N_CONFIG_UNDEF_INT;\n\
               static const int codegen_NCCL_M2N_MIN_NCCL_VERSION_CODE = \
               NCCL_M2N_MIN_NCCL_VERSION_CODE;\n",
    own: &[r".*/nccl_m2n\.h"],
    table: "M2nApi",
    functions: functions::M2N,
    list: "functions::M2N",
    file: "crates/nccl-m2n-sys/src/bindings.rs",
};

fn extension(headers: &Headers, core: &Core, of: &Extension) -> Result<String> {
    let mut builder = headers
        .builder(of.contents)?
        .allowlist_var("codegen_.*")
        // Types of other headers are named, not defined: they come from the core crate.
        .allowlist_recursively(false);
    for header in of.own {
        builder = builder.allowlist_file(header);
    }
    let bindings = Bindings::parse(&headers::parse(builder, of.header)?)?;
    let functions = bindings.select_functions(of.functions)?;
    if let Some(unknown) = bindings.unlisted_function(of.functions) {
        bail!(
            "{} declares `{unknown}`, which {} in xtask does not list; add it there (it becomes \
             part of the table, and every library must then export it)",
            of.header,
            of.list
        );
    }
    let mut used = bindings.mentioned();
    used.insert("ncclResult_t".to_owned());
    let own = bindings.names();
    let shared: Vec<&str> = core
        .names
        .iter()
        .filter(|n| used.contains(*n) && !own.contains(*n))
        .map(|n| &**n)
        .collect();
    let about = format!("The C API of {}: its types, constants and function table.", of.library);
    let mut text = head(&about);
    text += "use core::ffi::{CStr, c_void};\n\n";
    text += &format!("use nccl_ext_core::raw::{{{}}};\n\n", shared.join(", "));
    text += &bindings.types_text();
    text += &function_table::text(of.table, of.library, &functions);
    Ok(text)
}

fn head(about: &str) -> String {
    format!(
        "// Generated by `cargo xtask codegen`; do not edit.\n\
         \n\
         //! {about}\n\
         \n\
         #![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]\n\
         #![allow(dead_code, unused_imports, unreachable_pub)]\n\
         #![allow(clippy::all, clippy::pedantic)]\n\n"
    )
}

fn format(sh: &Shell, root: &Path, text: &str) -> Result<String> {
    let config = root.join("rustfmt.toml");
    let out = cmd!(sh, "rustfmt --edition 2024 --config-path {config} --emit stdout").quiet();
    let mut out =
        out.stdin(text).read().context("running rustfmt (rustup component add rustfmt)")?;
    out.push('\n');
    Ok(out)
}

fn write(root: &Path, file: &str, text: &str) -> Result<()> {
    let path = root.join(file);
    if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
        println!("codegen: {file} is up to date");
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    std::fs::write(&path, text).with_context(|| format!("writing {file}"))?;
    println!("codegen: wrote {file} ({} lines)", text.lines().count());
    Ok(())
}

fn check(root: &Path, file: &str, text: &str) -> Result<()> {
    let found = std::fs::read_to_string(root.join(file))
        .with_context(|| format!("{file}: cannot be read; run `cargo xtask codegen`"))?;
    if found == text {
        println!("codegen: {file} matches the headers");
        return Ok(());
    }
    let (line, expected, found) = first_difference(text, &found);
    bail!(
        "{file}:{line}: differs from what the headers give\n  expected: {expected}\n  found:    \
         {found}\nrun `cargo xtask codegen` and commit the result"
    );
}

/// The first differing line's number, and that line of each text.
fn first_difference<'a>(expected: &'a str, found: &'a str) -> (usize, &'a str, &'a str) {
    let (mut expected, mut found) = (expected.split('\n'), found.split('\n'));
    for line in 1.. {
        let (e, f) = (expected.next(), found.next());
        if e != f || e.is_none() {
            return (line, e.unwrap_or("<end of file>"), f.unwrap_or("<end of file>"));
        }
    }
    (0, "", "")
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn the_first_differing_line_is_found() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), (2, "b", "c"));
        assert_eq!(first_difference("a\nb\n", "a\n"), (2, "b", ""));
        assert_eq!(first_difference("a", "a\nb"), (2, "<end of file>", "b"));
    }
}
