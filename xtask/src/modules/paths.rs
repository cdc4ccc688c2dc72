//! The paths in a piece of code.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::{ItemUse, UseTree};

/// One name that a `use` brings in.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// The name here; `None` for everything there is.
    pub(super) name: Option<String>,
    pub(super) re_export: bool,
}

/// The names of one `use`.
pub(super) fn imports(item: &ItemUse, re_export: bool) -> Vec<Import> {
    let mut imports = Vec::new();
    // A path that begins with `::` names another crate.
    if item.leading_colon.is_none() {
        flatten(&item.tree, &mut Vec::new(), re_export, &mut imports);
    }
    imports
}

fn flatten(tree: &UseTree, path: &mut Vec<String>, re_export: bool, imports: &mut Vec<Import>) {
    let mut import = |last: Option<String>, name: Option<String>| {
        let mut path = path.clone();
        path.extend(last.filter(|last| last != "self"));
        let name = name.map(|name| match (name.as_str(), path.last()) {
            ("self", Some(last)) => last.clone(),
            _ => name,
        });
        imports.push(Import { path, name, re_export });
    };
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            flatten(&tree.tree, path, re_export, imports);
            path.pop();
        }
        UseTree::Name(tree) => {
            let name = tree.ident.to_string();
            import(Some(name.clone()), Some(name));
        }
        UseTree::Rename(tree) => {
            import(Some(tree.ident.to_string()), Some(tree.rename.to_string()));
        }
        UseTree::Glob(_) => import(None, None),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, path, re_export, imports);
            }
        }
    }
}

/// Collects what code names: paths of two words at least, and what a `use` in a body brings in.
/// It reads tokens, so the arguments of macros are code as well.
pub(super) fn scan(
    tokens: TokenStream,
    mentions: &mut BTreeSet<Vec<String>>,
    imports: &mut Vec<Import>,
) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let is_separator = |at: usize| {
        let colon =
            |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
        colon(at) && colon(at + 1)
    };
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Group(group) => scan(group.stream(), mentions, imports),
            TokenTree::Ident(word) if word == "use" => {
                let is_end =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ';');
                let length = tokens[at..].iter().position(is_end).map_or(0, |length| length + 1);
                let item = tokens[at - 1..at + length].iter().cloned().collect();
                if let Ok(item) = syn::parse2::<ItemUse>(item) {
                    imports.extend(self::imports(&item, false));
                    at += length;
                }
            }
            TokenTree::Ident(word) => {
                // The rest of `<T as Trait>::Item::CONST` has no beginning that could be looked up.
                let is_rest = at >= 3 && is_separator(at - 3);
                let mut path = vec![word.to_string()];
                while is_separator(at)
                    && let Some(TokenTree::Ident(word)) = tokens.get(at + 2)
                {
                    path.push(word.to_string());
                    at += 3;
                }
                if path.len() > 1 && !is_rest {
                    mentions.insert(path);
                }
            }
            _ => {}
        }
    }
}
