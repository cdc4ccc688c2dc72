//! A Rust item with the C names that it stands for.

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, Token};

/// A public Rust item, and the C names that it gives as its aliases.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counterpart {
    /// `Group::create`, without modules: the crates export every name at their root.
    pub(super) rust: String,
    pub(super) aliases: Vec<String>,
    /// Fields of a structure: name, and the C field where the source names it.
    pub(super) fields: Vec<(String, Option<String>)>,
}

/// The names in `#[doc(alias = "a")]` and `#[doc(alias("a", "b"))]`.
pub(super) fn aliases(attributes: &[Attribute]) -> syn::Result<Vec<String>> {
    let mut names = Vec::new();
    for attribute in attributes {
        let Meta::List(list) = &attribute.meta else { continue };
        if !list.path.is_ident("doc") {
            continue;
        }
        let inner = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
        for meta in inner.iter().filter(|meta| meta.path().is_ident("alias")) {
            match meta {
                Meta::NameValue(pair) => names.extend(text(&pair.value)),
                Meta::List(list) => {
                    let list =
                        list.parse_args_with(Punctuated::<Expr, Token![,]>::parse_terminated)?;
                    names.extend(list.iter().filter_map(text));
                }
                Meta::Path(_) => {}
            }
        }
    }
    Ok(names)
}

fn text(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}
