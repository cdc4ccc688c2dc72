//! The macros of the safe crates that declare a Rust item with its C counterpart.

use anyhow::{Context, Result};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Ident, ItemMacro, LitStr, Token, Type, Visibility, braced};

use super::counterpart::{Counterpart, aliases};

/// What a macro call declares; nothing for other macros.
pub(super) fn counterpart(item: &ItemMacro) -> Result<Vec<Counterpart>> {
    let Some(name) = item.mac.path.segments.last().map(|segment| segment.ident.to_string()) else {
        return Ok(Vec::new());
    };
    let declared = match &*name {
        "binding_struct" => item.mac.parse_body::<BindingStruct>().map(|it| vec![it.0]),
        "bundle" => item.mac.parse_body::<Bundle>().map(|it| vec![it.0]),
        "c_enum" => item.mac.parse_body::<CEnum>().map(|it| it.0),
        _ => return Ok(Vec::new()),
    };
    declared.with_context(|| {
        format!("a call of `{name}!` is not of the form that xtask/src/api_map/macros.rs knows")
    })
}

/// `pub struct Name => c_type { pub field: Type = default => c_field, .. }`
struct BindingStruct(Counterpart);

impl Parse for BindingStruct {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        input.parse::<Token![struct]>()?;
        let rust = input.parse::<Ident>()?.to_string();
        input.parse::<Token![=>]>()?;
        input.parse::<Type>()?;
        let body;
        braced!(body in input);
        let mut fields = Vec::new();
        while !body.is_empty() {
            body.call(Attribute::parse_outer)?;
            body.parse::<Visibility>()?;
            let name = body.parse::<Ident>()?.to_string();
            body.parse::<Token![:]>()?;
            body.parse::<Type>()?;
            body.parse::<Token![=]>()?;
            body.parse::<Expr>()?;
            let c = match body.parse::<Option<Token![=>]>>()? {
                Some(_) => Some(body.parse::<Ident>()?.to_string()),
                None => None,
            };
            fields.push((name, c));
            if !body.is_empty() {
                body.parse::<Token![,]>()?;
            }
        }
        Ok(Self(Counterpart { rust, aliases: aliases(&attributes)?, fields }))
    }
}

/// `pub struct Name<'a>; required { tokens: Type } optional { field: Type, .. }`
struct Bundle(Counterpart);

impl Parse for Bundle {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        input.parse::<Token![struct]>()?;
        let rust = input.parse::<Ident>()?.to_string();
        input.parse::<syn::Generics>()?;
        input.parse::<Token![;]>()?;
        let mut fields = Vec::new();
        while !input.is_empty() {
            input.parse::<Ident>()?;
            let body;
            braced!(body in input);
            while !body.is_empty() {
                body.call(Attribute::parse_outer)?;
                fields.push((body.parse::<Ident>()?.to_string(), None));
                body.parse::<Token![:]>()?;
                body.parse::<Type>()?;
                if !body.is_empty() {
                    body.parse::<Token![,]>()?;
                }
            }
        }
        Ok(Self(Counterpart { rust, aliases: aliases(&attributes)?, fields }))
    }
}

/// `pub enum Name => c_type "c_type", default Variant { Variant = c_value "c_value", "text"; .. }`
struct CEnum(Vec<Counterpart>);

impl Parse for CEnum {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        input.parse::<Token![enum]>()?;
        let name = input.parse::<Ident>()?;
        input.parse::<Token![=>]>()?;
        input.parse::<Ident>()?;
        let mut all = aliases(&attributes)?;
        all.push(input.parse::<LitStr>()?.value());
        let fields = Vec::new;
        let mut declared =
            vec![Counterpart { rust: name.to_string(), aliases: all, fields: fields() }];
        input.parse::<Token![,]>()?;
        input.parse::<Token![default]>()?;
        input.parse::<Ident>()?;
        let body;
        braced!(body in input);
        while !body.is_empty() {
            let attributes = body.call(Attribute::parse_outer)?;
            let variant = body.parse::<Ident>()?;
            body.parse::<Token![=]>()?;
            body.parse::<Ident>()?;
            let mut names = aliases(&attributes)?;
            names.push(body.parse::<LitStr>()?.value());
            body.parse::<Token![,]>()?;
            body.parse::<LitStr>()?;
            body.parse::<Token![;]>()?;
            let rust = format!("{name}::{variant}");
            declared.push(Counterpart { rust, aliases: names, fields: fields() });
        }
        Ok(Self(declared))
    }
}
