//! The `#[pack(...)]` attributes.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Expr, LitInt, LitStr, Token, Type, parenthesized};

/// Attributes of a struct or enum.
#[derive(Default)]
pub struct ContainerAttrs {
    pub args: bool,
    pub transparent: bool,
    pub memory_copied: bool,
    pub encode_only: bool,
    pub unwrapped_before: Option<Expr>,
    pub name: Option<LitStr>,
}

/// Attributes of a field or variant.
#[derive(Default)]
pub struct MemberAttrs {
    pub since: Option<Expr>,
    pub until: Option<Expr>,
    pub default: Option<Expr>,
    pub compatible: Option<LitInt>,
    pub was: Option<(Type, Expr)>,
}

impl ContainerAttrs {
    pub fn parse(attrs: &[Attribute]) -> syn::Result<Self> {
        let mut parsed = ContainerAttrs::default();
        for attr in attrs.iter().filter(|a| a.path().is_ident("pack")) {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("args") {
                    parsed.args = true;
                } else if meta.path.is_ident("transparent") {
                    parsed.transparent = true;
                } else if meta.path.is_ident("memory_copied") {
                    parsed.memory_copied = true;
                } else if meta.path.is_ident("encode_only") {
                    parsed.encode_only = true;
                } else if meta.path.is_ident("unwrapped_before") {
                    parsed.unwrapped_before = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("name") {
                    parsed.name = Some(meta.value()?.parse()?);
                } else {
                    return Err(meta.error("unknown pack attribute of a type"));
                }
                Ok(())
            })?;
        }
        Ok(parsed)
    }
}

impl MemberAttrs {
    pub fn parse(attrs: &[Attribute]) -> syn::Result<Self> {
        let mut parsed = MemberAttrs::default();
        for attr in attrs.iter().filter(|a| a.path().is_ident("pack")) {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("since") {
                    parsed.since = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("until") {
                    parsed.until = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("default") {
                    parsed.default = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("compatible") {
                    parsed.compatible = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("was") {
                    let content;
                    parenthesized!(content in meta.input);
                    let ty = content.parse()?;
                    content.parse::<Token![,]>()?;
                    parsed.was = Some((ty, content.parse()?));
                } else {
                    return Err(meta.error("unknown pack attribute of a member"));
                }
                Ok(())
            })?;
        }
        Ok(parsed)
    }

    /// The condition, on a local `version`, under which the member exists; `None` = always.
    pub fn condition(&self) -> Option<TokenStream> {
        match (&self.since, &self.until) {
            (None, None) => None,
            (Some(since), None) => Some(quote!(version >= (#since))),
            (None, Some(until)) => Some(quote!(version < (#until))),
            (Some(since), Some(until)) => Some(quote!(version >= (#since) && version < (#until))),
        }
    }
}
