//! A crate's modules, as its files declare them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use quote::ToTokens;
use syn::{Attribute, Expr, ExprLit, ImplItem, Item, Lit, Meta, Visibility};

use super::paths::{self, Import};

/// A module in a file of its own, or inside its parent's.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Its name in its parent.
    pub(super) name: String,
    /// Index in [`Crate::files`].
    pub(super) file: usize,
    pub(super) parent: Option<usize>,
    pub(super) children: BTreeMap<String, usize>,
    /// Names that it defines.
    pub(super) items: BTreeSet<String>,
    pub(super) imports: Vec<Import>,
    /// Paths in its code, of two words at least.
    pub(super) mentions: BTreeSet<Vec<String>>,
}

#[derive(Debug, Default)]
pub(super) struct Crate {
    /// Paths in the folder of sources; the first is the crate's root.
    pub(super) files: Vec<PathBuf>,
    /// The first is the crate's root; a parent comes before its children.
    pub(super) modules: Vec<Module>,
}

impl Crate {
    pub(super) fn parse(root: &Path, sources: &BTreeMap<PathBuf, String>) -> Result<Self> {
        let mut parsed = Self::default();
        parsed.add_file(root.to_owned(), Path::new(""), None, sources)?;
        Ok(parsed)
    }

    /// The name of a file's module, as `ep::group`; empty for the root.
    pub(super) fn name_of(&self, module: usize) -> String {
        let Some(parent) = self.modules[module].parent else { return String::new() };
        let own = &self.modules[module].name;
        match self.name_of(parent) {
            outer if outer.is_empty() => own.clone(),
            outer => format!("{outer}::{own}"),
        }
    }

    fn add_file(
        &mut self,
        path: PathBuf,
        folder: &Path,
        parent: Option<usize>,
        sources: &BTreeMap<PathBuf, String>,
    ) -> Result<usize> {
        let shown = path.display().to_string();
        let text = sources.get(&path).with_context(|| format!("{shown}: is not there"))?;
        let file = syn::parse_file(text).with_context(|| format!("reading {shown}"))?;
        self.files.push(path);
        let index = self.files.len() - 1;
        self.add_module(index, &file.items, folder, parent, sources)
    }

    /// `folder` is where the files of its children lie.
    fn add_module(
        &mut self,
        file: usize,
        items: &[Item],
        folder: &Path,
        parent: Option<usize>,
        sources: &BTreeMap<PathBuf, String>,
    ) -> Result<usize> {
        let index = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        for item in items.iter().filter(|item| !attributes(item).iter().any(is_test)) {
            match item {
                Item::Mod(item) => {
                    let name = item.ident.to_string();
                    let inner = folder.join(&name);
                    let child = match &item.content {
                        Some((_, items)) => {
                            self.add_module(file, items, &inner, Some(index), sources)?
                        }
                        None => {
                            let here = self.files[file].parent().unwrap_or(Path::new(""));
                            let (path, inner) = match item.attrs.iter().find_map(path_of) {
                                Some(path) => {
                                    let path = here.join(path);
                                    let inner = path.parent().unwrap_or(here).to_owned();
                                    (path, inner)
                                }
                                None => {
                                    let flat = folder.join(format!("{name}.rs"));
                                    let own = inner.join("mod.rs");
                                    (if sources.contains_key(&own) { own } else { flat }, inner)
                                }
                            };
                            self.add_file(path, &inner, Some(index), sources)?
                        }
                    };
                    self.modules[child].name.clone_from(&name);
                    self.modules[index].children.insert(name, child);
                }
                Item::Use(item) => {
                    let re_export = !matches!(item.vis, Visibility::Inherited);
                    self.modules[index].imports.extend(paths::imports(item, re_export));
                }
                item => self.add_item(index, item),
            }
        }
        Ok(index)
    }

    fn add_item(&mut self, module: usize, item: &Item) {
        let name = match item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        let tokens = match item {
            Item::Impl(item) => {
                let mut item = item.clone();
                item.items.retain(|inner| !inner_attributes(inner).iter().any(is_test));
                item.to_token_stream()
            }
            item => item.to_token_stream(),
        };
        let module = &mut self.modules[module];
        module.items.extend(name.map(ToString::to_string));
        paths::scan(tokens, &mut module.mentions, &mut module.imports);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn inner_attributes(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]`, or `#[cfg(all(test, ..))]`.
fn is_test(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let tokens = list.tokens.to_string().replace(' ', "");
    list.path.is_ident("cfg") && (tokens == "test" || tokens.starts_with("all(test,"))
}

/// The file that `#[path = ".."]` names.
fn path_of(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if pair.path.is_ident("path") => {
            Some(text.value())
        }
        _ => None,
    }
}
