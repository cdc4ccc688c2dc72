//! The vendor's headers, and bindgen set up to read them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use bindgen::callbacks::{DeriveTrait, ImplementsTrait, IntKind, ItemInfo, ParseCallbacks};
use xshell::Shell;

use super::libclang;

/// Where the headers lie. No path of it reaches the generated text.
pub(super) struct Headers {
    clang_args: Vec<String>,
}

impl Headers {
    pub(super) fn find(sh: &Shell, prefix: &Path, root: &Path) -> Result<Self> {
        let ep = prefix.join("ep/include");
        let m2n = prefix.join("m2n/include");
        let nccl = prefix.join("nccl/include");
        for needed in [
            ep.join("nccl_ep.h"),
            ep.join("nccl_ep/ep_enums.h"),
            m2n.join("nccl_m2n.h"),
            nccl.join("nccl.h"),
            nccl.join("nccl_device/core.h"),
        ] {
            ensure!(
                needed.is_file(),
                "{}: header not found; stage it with `cargo xtask stage-native --from \
                 pypi:VERSION --with-nccl`, or name the folder that has it with --prefix",
                needed.display()
            );
        }
        let shim = root.join("native/shim");
        let builtin = libclang::builtin_headers(sh)?;
        let own = [shim, ep, m2n, nccl];
        let clang_args = own.iter().map(|dir| ("-I", dir)).chain([("-isystem", &builtin)]);
        let clang_args =
            clang_args.flat_map(|(flag, dir)| [flag.to_owned(), dir.display().to_string()]);
        Ok(Self { clang_args: clang_args.collect() })
    }

    /// The settings that all generated files share.
    pub(super) fn builder(&self, contents: &str) -> Result<bindgen::Builder> {
        let target = bindgen::RustTarget::stable(88, 0)
            .map_err(|error| anyhow::anyhow!("bindgen does not know Rust 1.88: {error}"))?;
        Ok(bindgen::builder()
            .header_contents("codegen.h", contents)
            .clang_args(&self.clang_args)
            .parse_callbacks(Box::new(Choices))
            .rust_target(target)
            .rust_edition(bindgen::RustEdition::Edition2024)
            .use_core()
            .ctypes_prefix("core::ffi")
            // A C enum may hold any integer, so a Rust `enum` would be undefined behaviour.
            .default_enum_style(bindgen::EnumVariation::NewType {
                is_bitfield: false,
                is_global: false,
            })
            .prepend_enum_name(false)
            .derive_default(true)
            .generate_comments(false)
            .layout_tests(true)
            .disable_header_comment()
            .formatter(bindgen::Formatter::None))
    }
}

/// The text that bindgen makes of a header.
pub(super) fn parse(builder: bindgen::Builder, header: &str) -> Result<String> {
    let bindings = builder.generate().with_context(|| {
        format!(
            "bindgen could not parse {header}; are ep/, m2n/ and nccl/ of the prefix staged whole?"
        )
    })?;
    Ok(bindings.to_string())
}

/// What bindgen asks while it parses.
#[derive(Debug)]
struct Choices;

impl ParseCallbacks for Choices {
    /// Macros have no type: flags and sentinels get the `int` of the parameter they are passed as.
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        let unsigned = name == "NCCL_WIN_REQUIRED_ALIGNMENT";
        let int = ["NCCL_WIN_", "NCCL_CTA_POLICY_", "NCCL_SPLIT_NOCOLOR"];
        (!unsigned && int.iter().any(|prefix| name.starts_with(prefix))).then_some(IntKind::Int)
    }

    /// Macros that are no plain literal (a cast, a name of limits.h) reach bindgen as constants
    /// that carry this prefix, so that a compiler evaluates them.
    fn item_name(&self, item: ItemInfo<'_>) -> Option<String> {
        item.name.strip_prefix("codegen_").map(str::to_owned)
    }

    /// Shared types are plain C data; only `Default` is not certain of each.
    fn blocklisted_type_implements_trait(
        &self,
        _name: &str,
        derive: DeriveTrait,
    ) -> Option<ImplementsTrait> {
        Some(match derive {
            DeriveTrait::Default => ImplementsTrait::Manually,
            _ => ImplementsTrait::Yes,
        })
    }
}
