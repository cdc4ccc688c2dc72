//! The items of a C API, from the generated bindings.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use syn::{Fields, ImplItem, Item, ItemStruct, Type};

/// What a header declares, by its C names.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CApi {
    pub(super) functions: Vec<String>,
    /// Opaque handles, and types of callbacks.
    pub(super) types: Vec<String>,
    pub(super) structs: Vec<Struct>,
    pub(super) enums: Vec<Enum>,
    pub(super) constants: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) fields: Vec<Field>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    /// Its type, where that is a plain name.
    pub(super) of: Option<String>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Enum {
    pub(super) name: String,
    pub(super) values: Vec<String>,
}

impl CApi {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let file = syn::parse_file(text)?;
        let mut api = Self::default();
        let renamed = typedefs(&file.items);
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for item in &file.items {
            match item {
                Item::Impl(item) if item.trait_.is_none() => {
                    let constants = item.items.iter().filter_map(|item| match item {
                        ImplItem::Const(item) => Some(item.ident.to_string()),
                        _ => None,
                    });
                    values
                        .entry(name_of(&item.self_ty).unwrap_or_default())
                        .or_default()
                        .extend(constants);
                }
                Item::Type(item) => {
                    let opaque = matches!(&*item.ty, Type::Ptr(_));
                    let callback = name_of(&item.ty).is_some_and(|name| name == "Option");
                    if opaque || callback {
                        api.types.push(item.ident.to_string());
                    }
                }
                Item::Const(item) if item.ident != "_" => {
                    api.constants.push(item.ident.to_string())
                }
                _ => {}
            }
        }
        for item in &file.items {
            if let Item::Struct(item) = item {
                api.add_struct(item, &renamed, &mut values);
            }
        }
        ensure!(!api.functions.is_empty(), "the bindings hold no table of functions");
        Ok(api)
    }

    /// A structure, an enumeration as bindgen writes it, or the table of functions.
    fn add_struct(
        &mut self,
        item: &ItemStruct,
        renamed: &BTreeMap<String, String>,
        values: &mut BTreeMap<String, Vec<String>>,
    ) {
        let ident = item.ident.to_string();
        let name = renamed.get(&ident).cloned().unwrap_or_else(|| ident.clone());
        match &item.fields {
            Fields::Named(fields) => {
                let named = fields.named.iter().filter_map(|field| {
                    let name = field.ident.as_ref()?.to_string();
                    Some((name, &field.ty))
                });
                let fields: Vec<_> = named.collect();
                if fields.iter().all(|(_, ty)| matches!(ty, Type::FnPtr(_))) {
                    self.functions.extend(fields.into_iter().map(|(name, _)| name));
                } else if fields.iter().all(|(name, _)| name != "_unused") {
                    let field = |(name, ty)| Field { name, of: name_of(ty) };
                    let fields = fields.into_iter().map(field).collect();
                    self.structs.push(Struct { name, fields });
                }
            }
            Fields::Unnamed(_) => {
                self.enums.push(Enum { name, values: values.remove(&ident).unwrap_or_default() });
            }
            Fields::Unit => {}
        }
    }

    /// The structure of this name.
    pub(super) fn structure(&self, name: &str) -> Option<&Struct> {
        self.structs.iter().find(|structure| structure.name == name)
    }

    /// Everything that needs a counterpart or a reason: functions, types, `structure::field`, enum
    /// values.
    pub(super) fn items(&self) -> Vec<String> {
        let mut items: Vec<_> = self.functions.iter().chain(&self.types).cloned().collect();
        for structure in &self.structs {
            items.push(structure.name.clone());
            items.extend(structure.fields.iter().map(|field| member(&structure.name, &field.name)));
        }
        for enumeration in &self.enums {
            items.push(enumeration.name.clone());
            items.extend(enumeration.values.iter().cloned());
        }
        items
    }

    /// Every name that a Rust item may give as its alias.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.items().into_iter().chain(self.constants.iter().cloned()).collect()
    }
}

pub(super) fn member(structure: &str, field: &str) -> String {
    format!("{structure}::{field}")
}

/// The last part of a type that is a path.
fn name_of(ty: &Type) -> Option<String> {
    let Type::Path(path) = ty else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}

/// `typedef struct x x_t`: from the structure's name to that of the type.
fn typedefs(items: &[Item]) -> BTreeMap<String, String> {
    let typedef = |item: &Item| match item {
        Item::Type(item) => Some((name_of(&item.ty)?, item.ident.to_string())),
        _ => None,
    };
    items.iter().filter_map(typedef).collect()
}
