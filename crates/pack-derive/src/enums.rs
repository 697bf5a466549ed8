//! Enums are variants: an index among the alternatives of the generation, then the alternative.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DataEnum, DeriveInput, Fields, Ident, Type};

use crate::attrs::{ContainerAttrs, MemberAttrs};
use crate::headers;

struct Alternative<'i> {
    ident: &'i Ident,
    ty: &'i Type,
    attrs: MemberAttrs,
}

impl Alternative<'_> {
    fn exists(&self) -> TokenStream {
        self.attrs.condition().unwrap_or_else(|| quote!(true))
    }

    fn guarded(&self, code: TokenStream) -> TokenStream {
        let exists = self.exists();
        quote!(if #exists { #code })
    }
}

pub fn expand(input: &DeriveInput, data: &DataEnum) -> syn::Result<TokenStream> {
    let container = ContainerAttrs::parse(&input.attrs)?;
    let mut alternatives = Vec::new();
    for variant in &data.variants {
        let Fields::Unnamed(fields) = &variant.fields else {
            return Err(syn::Error::new_spanned(variant, "an alternative holds exactly one unnamed value"));
        };
        let (Some(field), 1) = (fields.unnamed.first(), fields.unnamed.len()) else {
            return Err(syn::Error::new_spanned(variant, "an alternative holds exactly one unnamed value"));
        };
        alternatives.push(Alternative {
            ident: &variant.ident,
            ty: &field.ty,
            attrs: MemberAttrs::parse(&variant.attrs)?,
        });
    }
    let pack = pack_impl(input, &container, &alternatives)?;
    if container.encode_only {
        return Ok(pack);
    }
    let unpack = unpack_impl(input, &alternatives)?;
    Ok(quote!(#pack #unpack))
}

fn pack_impl(
    input: &DeriveInput,
    container: &ContainerAttrs,
    alternatives: &[Alternative<'_>],
) -> syn::Result<TokenStream> {
    let head = headers(input)?.pack;
    let enum_name = container.name.as_ref().map_or_else(|| input.ident.to_string(), |n| n.value());
    let literals = alternatives.iter().map(|a| {
        let ty = a.ty;
        a.guarded(quote!(<#ty as ::yb_pack::Pack>::literal(version, out);))
    });
    let levels = alternatives.iter().map(|a| {
        let (ty, exists) = (a.ty, a.exists());
        quote!(.or(if #exists { <#ty as ::yb_pack::Pack>::levels(version) } else { ::yb_pack::Levels::NONE }))
    });
    let writes = alternatives.iter().enumerate().map(|(position, a)| {
        let (ident, exists) = (a.ident, a.exists());
        let before = alternatives[..position].iter().map(|b| {
            let exists = b.exists();
            quote!(+ u8::from(#exists))
        });
        let name = ident.to_string();
        quote! {
            Self::#ident(value) => if #exists {
                w.byte(0u8 #(#before)*);
                ::yb_pack::Pack::write(value, w);
            } else {
                w.fail(::yb_pack::EncodeError::NoSuchAlternative { variant: #name, version });
            }
        }
    });
    let compats = alternatives.iter().map(|a| {
        let (ident, ty) = (a.ident, a.ty);
        quote!(Self::#ident(value) => if <#ty as ::yb_pack::Pack>::levels(w.version()).contains(level) {
            ::yb_pack::Pack::write_compat(value, w, level);
        })
    });
    Ok(quote! {
        #[automatically_derived]
        #head {
            const MIN_BYTES: usize = 1;
            fn literal(version: ::yb_pack::Version, out: &mut ::yb_pack::Literal) {
                out.push(::yb_pack::Literal::VARIANT);
                #(#literals)*
                out.push(::yb_pack::Literal::END);
            }
            fn describe(_: ::yb_pack::Version, out: &mut ::std::string::String) {
                out.push_str(#enum_name);
            }
            #[inline]
            fn levels(version: ::yb_pack::Version) -> ::yb_pack::Levels {
                ::yb_pack::Levels::NONE #(#levels)*
            }
            #[inline]
            fn write(&self, w: &mut ::yb_pack::Writer<'_>) {
                let version = w.version();
                match self { #(#writes)* }
            }
            #[inline]
            fn write_compat(&self, w: &mut ::yb_pack::Writer<'_>, level: u8) {
                match self { #(#compats)* }
            }
        }
    })
}

fn unpack_impl(input: &DeriveInput, alternatives: &[Alternative<'_>]) -> syn::Result<TokenStream> {
    let headers = headers(input)?;
    let (head, lifetime) = (headers.unpack, headers.lifetime);
    let enum_name = input.ident.to_string();
    let reads = alternatives.iter().map(|a| {
        let (ident, ty) = (a.ident, a.ty);
        a.guarded(quote! {
            if left == 0 {
                return Ok(Self::#ident(<#ty as ::yb_pack::Unpack>::read(r)?));
            }
            left -= 1;
        })
    });
    let compats = alternatives.iter().map(|a| {
        let (ident, ty) = (a.ident, a.ty);
        quote!(Self::#ident(value) => if <#ty as ::yb_pack::Pack>::levels(r.version()).contains(level) {
            ::yb_pack::Unpack::read_compat(value, r, level)?;
        })
    });
    Ok(quote! {
        #[automatically_derived]
        #head {
            #[inline]
            fn read(r: &mut ::yb_pack::Reader<#lifetime>) -> ::core::result::Result<Self, ::yb_pack::DecodeError> {
                let version = r.version();
                let _ = version;
                let index = r.byte()?;
                let mut left = index;
                #(#reads)*
                let _ = left;
                Err(::yb_pack::DecodeError::NoSuchAlternative { variant: #enum_name, index })
            }
            #[inline]
            fn read_compat(
                &mut self,
                r: &mut ::yb_pack::Reader<#lifetime>,
                level: u8,
            ) -> ::core::result::Result<(), ::yb_pack::DecodeError> {
                match self { #(#compats)* }
                Ok(())
            }
        }
    })
}
