//! bindgen's output taken apart: functions for the tables, everything else as text.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use quote::ToTokens;
use syn::{ForeignItem, Item};

/// One C function, as bindgen declared it.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) parameters: Vec<(String, String)>,
    /// The Rust type it returns, if any.
    pub(crate) returns: Option<String>,
}

/// The items of one generated file.
pub(crate) struct Bindings {
    functions: Vec<Function>,
    items: Vec<Item>,
}

impl Bindings {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let file = syn::parse_file(text).context("bindgen's output is not a Rust file")?;
        let mut bindings = Self { functions: Vec::new(), items: Vec::new() };
        for item in file.items {
            match item {
                Item::ForeignMod(block) => bindings.add_extern_block(block.items)?,
                other => bindings.items.push(other),
            }
        }
        Ok(bindings)
    }

    fn add_extern_block(&mut self, items: Vec<ForeignItem>) -> Result<()> {
        for item in items {
            let ForeignItem::Fn(function) = item else {
                bail!("the headers declare `{}`: only functions fit a table", text(&item));
            };
            let signature = function.sig;
            let parameters = signature.inputs.iter().map(|input| match input {
                syn::FnArg::Typed(arg) => Ok((text(&arg.pat), text(&arg.ty))),
                _ => bail!("`{}` has a self parameter", signature.ident),
            });
            self.functions.push(Function {
                name: signature.ident.to_string(),
                parameters: parameters.collect::<Result<_>>()?,
                returns: match &signature.output {
                    syn::ReturnType::Default => None,
                    syn::ReturnType::Type(_, ty) => Some(text(ty)),
                },
            });
        }
        Ok(())
    }

    /// The functions named, in that order.
    pub(crate) fn select_functions(&self, names: &[&str]) -> Result<Vec<&Function>> {
        let find = |name: &&str| {
            self.functions.iter().find(|f| f.name == *name).with_context(|| {
                format!("the headers do not declare `{name}`, which the function table holds")
            })
        };
        names.iter().map(find).collect()
    }

    /// A function that the headers declare and `names` lacks.
    pub(crate) fn unlisted_function(&self, names: &[&str]) -> Option<&str> {
        self.functions.iter().map(|f| f.name.as_str()).find(|name| !names.contains(name))
    }

    /// Names of the types and constants defined here.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let name = |item: &Item| match item {
            Item::Struct(i) => Some(i.ident.to_string()),
            Item::Union(i) => Some(i.ident.to_string()),
            Item::Type(i) => Some(i.ident.to_string()),
            Item::Const(i) if i.ident != "_" => Some(i.ident.to_string()),
            _ => None,
        };
        self.items.iter().filter_map(name).collect()
    }

    /// Every identifier that types and functions mention.
    pub(crate) fn mentioned(&self) -> BTreeSet<String> {
        let mut all: Vec<String> = self.items.iter().map(text).collect();
        for function in &self.functions {
            all.extend(function.parameters.iter().map(|(_, ty)| ty.clone()));
            all.extend(function.returns.clone());
        }
        let not_identifier = |c: char| !c.is_alphanumeric() && c != '_';
        all.iter().flat_map(|t| t.split(not_identifier)).map(str::to_owned).collect()
    }

    /// Everything but the functions, one item a paragraph.
    pub(crate) fn types_text(&self) -> String {
        self.items.iter().map(|item| item_text(item) + "\n\n").collect()
    }
}

fn item_text(item: &Item) -> String {
    match item {
        // Sizes and offsets in the headers are those of 64-bit Unix, where the libraries exist.
        Item::Const(i) if i.ident == "_" => {
            format!("#[cfg(all(unix, target_pointer_width = \"64\"))]\n{}", text(item))
        }
        Item::Impl(i) if is_default(i) => format!(
            "impl Default for {} {{\n fn default() -> Self {{\n // SAFETY: the fields are integers, \
             raw pointers, optional functions, or structs and arrays\n // of these: zero bytes are a \
             value of each.\n unsafe {{ core::mem::zeroed() }}\n }}\n}}",
            text(&i.self_ty)
        ),
        _ => text(item),
    }
}

/// Whether this is bindgen's zero-filling `Default`, rewritten to say why it is sound.
fn is_default(item: &syn::ItemImpl) -> bool {
    text(item).contains("Default for") && text(item).contains("write_bytes")
}

fn text(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}
