//! `#[derive(Pack)]`: layout of a type on the wire, per generation.
//!
//! On a struct: `args` (the arguments of a function: with one member present it is that member, with none it is
//! nothing), `unwrapped_before = VERSION` (the same rule, only before that generation), `transparent` (a newtype),
//! `memory_copied` (C memory image), `encode_only` (no decoder), `name = "..."` (name in docs).
//!
//! On a field: `since = VERSION`, `until = VERSION` (present from, absent from), `default = EXPR` (value when absent;
//! otherwise `Default`), `compatible = N` (an `Option` that travels after the payload), `was(Type, VERSION)` (before
//! that generation the field is a `Type`; `From` must exist both ways). On a variant: `since`, `until`.
//!
//! `VERSION` is any expression of type `yb_pack::Version`.
#![forbid(unsafe_code)]

mod attrs;
mod enums;
mod structs;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Data, DeriveInput, GenericParam, Lifetime, parse_macro_input};

/// See the crate documentation.
#[proc_macro_derive(Pack, attributes(pack))]
pub fn derive_pack(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    match &input.data {
        Data::Struct(data) => structs::expand(input, data),
        Data::Enum(data) => enums::expand(input, data),
        Data::Union(_) => Err(syn::Error::new_spanned(input, "a union has no wire layout")),
    }
}

/// Headers of the two impls: `impl<..> Pack for X<..>` and `impl<'a, ..> Unpack<'a> for X<..>`.
struct Headers {
    pack: TokenStream,
    unpack: TokenStream,
    lifetime: Lifetime,
}

fn headers(input: &DeriveInput) -> syn::Result<Headers> {
    let name = &input.ident;
    let mut lifetimes = input.generics.lifetimes();
    let first = lifetimes.next().map(|l| l.lifetime.clone());
    let unsupported = input.generics.params.iter().any(|p| !matches!(p, GenericParam::Lifetime(_)));
    if lifetimes.next().is_some() || unsupported {
        return Err(syn::Error::new_spanned(&input.generics, "Pack takes at most one lifetime and no type parameter"));
    }
    Ok(match first {
        Some(lifetime) => Headers {
            pack: quote!(impl<#lifetime> ::yb_pack::Pack for #name<#lifetime>),
            unpack: quote!(impl<#lifetime> ::yb_pack::Unpack<#lifetime> for #name<#lifetime>),
            lifetime,
        },
        None => {
            let lifetime = Lifetime::new("'de", Span::call_site());
            Headers {
                pack: quote!(impl ::yb_pack::Pack for #name),
                unpack: quote!(impl<#lifetime> ::yb_pack::Unpack<#lifetime> for #name),
                lifetime,
            }
        }
    })
}
