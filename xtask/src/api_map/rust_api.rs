//! Counterparts of C items in the sources of a safe crate.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use syn::{Attribute, Fields, ImplItem, Item, Meta, TraitItem, Type, Visibility};

use super::counterpart::{Counterpart, aliases};
use super::macros;

/// What the sources of one crate say.
#[derive(Debug, Default)]
pub(super) struct RustApi {
    pub(super) counterparts: Vec<Counterpart>,
    /// Public methods by the type that has them.
    pub(super) methods: BTreeMap<String, Vec<String>>,
}

impl RustApi {
    pub(super) fn parse(files: &[(PathBuf, String)]) -> Result<Self> {
        let mut api = Self::default();
        for (path, text) in files {
            let parsed = syn::parse_file(text).map_err(anyhow::Error::from);
            let added = parsed.and_then(|file| api.add(&file.items));
            added.with_context(|| format!("reading {}", path.display()))?;
        }
        Ok(api)
    }

    fn add(&mut self, items: &[Item]) -> Result<()> {
        for item in items {
            match item {
                Item::Mod(item) if !is_test(&item.attrs) => {
                    if let Some((_, items)) = &item.content {
                        self.add(items)?;
                    }
                }
                Item::Macro(item) => self.counterparts.extend(macros::counterpart(item)?),
                Item::Impl(item) if item.trait_.is_none() => {
                    let Some(owner) = last_name(&item.self_ty) else { continue };
                    for item in &item.items {
                        match item {
                            ImplItem::Fn(item) if public(&item.vis) => {
                                let methods = self.methods.entry(owner.clone()).or_default();
                                methods.push(item.sig.ident.to_string());
                                self.member(&owner, &item.sig.ident, &item.attrs)?;
                            }
                            ImplItem::Const(item) if public(&item.vis) => {
                                self.member(&owner, &item.ident, &item.attrs)?;
                            }
                            _ => {}
                        }
                    }
                }
                Item::Trait(item) if public(&item.vis) => {
                    let owner = item.ident.to_string();
                    self.named(owner.clone(), &item.attrs)?;
                    for item in &item.items {
                        if let TraitItem::Fn(item) = item {
                            self.member(&owner, &item.sig.ident, &item.attrs)?;
                        }
                    }
                }
                Item::Enum(item) if public(&item.vis) => {
                    self.named(item.ident.to_string(), &item.attrs)?;
                    for variant in &item.variants {
                        self.member(&item.ident, &variant.ident, &variant.attrs)?;
                    }
                }
                Item::Struct(item) if public(&item.vis) => self.structure(item)?,
                Item::Fn(item) if public(&item.vis) => {
                    self.named(item.sig.ident.to_string(), &item.attrs)?;
                }
                Item::Type(item) if public(&item.vis) => {
                    self.named(item.ident.to_string(), &item.attrs)?;
                }
                Item::Const(item) if public(&item.vis) => {
                    self.named(item.ident.to_string(), &item.attrs)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn structure(&mut self, item: &syn::ItemStruct) -> Result<()> {
        let rust = item.ident.to_string();
        let aliases = aliases(&item.attrs)?;
        let mut fields = Vec::new();
        if let Fields::Named(named) = &item.fields {
            for field in named.named.iter().filter(|field| public(&field.vis)) {
                let Some(name) = &field.ident else { continue };
                self.member(&rust, name, &field.attrs)?;
                fields.push((name.to_string(), None));
            }
        }
        if !aliases.is_empty() {
            self.counterparts.push(Counterpart { rust, aliases, fields });
        }
        Ok(())
    }

    fn member(
        &mut self,
        owner: &impl ToString,
        name: &syn::Ident,
        attributes: &[Attribute],
    ) -> Result<()> {
        self.named(format!("{}::{name}", owner.to_string()), attributes)
    }

    fn named(&mut self, rust: String, attributes: &[Attribute]) -> Result<()> {
        let aliases = aliases(attributes)?;
        if !aliases.is_empty() {
            self.counterparts.push(Counterpart { rust, aliases, fields: Vec::new() });
        }
        Ok(())
    }
}

fn public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        _ => false,
    })
}

fn last_name(ty: &Type) -> Option<String> {
    let Type::Path(path) = ty else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}
