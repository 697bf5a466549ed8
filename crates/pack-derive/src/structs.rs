//! Structs: members in order, arguments, newtypes, memory images.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{DataStruct, DeriveInput, Field, Member, Type};

use crate::attrs::{ContainerAttrs, MemberAttrs};
use crate::headers;

struct Item<'i> {
    member: Member,
    ty: &'i Type,
    attrs: MemberAttrs,
}

impl Item<'_> {
    fn name(&self) -> String {
        self.member.to_token_stream().to_string()
    }

    /// Wraps code so that it runs only in generations that have the member.
    fn guarded(&self, code: TokenStream) -> TokenStream {
        match self.attrs.condition() {
            Some(condition) => quote!(if #condition { #code }),
            None => code,
        }
    }

    /// `before` in generations where the member has its older type, else `now`.
    fn by_type(&self, before: impl FnOnce(&Type) -> TokenStream, now: TokenStream) -> TokenStream {
        match &self.attrs.was {
            Some((ty, changed)) => {
                let before = before(ty);
                quote!(if version < (#changed) { #before } else { #now })
            }
            None => now,
        }
    }

    fn literal(&self) -> TokenStream {
        let ty = self.ty;
        let now = quote!(<#ty as ::yb_pack::Pack>::literal(version, out););
        self.guarded(self.by_type(|was| quote!(<#was as ::yb_pack::Pack>::literal(version, out);), now))
    }

    fn write(&self) -> TokenStream {
        let (member, ty) = (&self.member, self.ty);
        let now = quote!(::yb_pack::Pack::write(&self.#member, w););
        self.guarded(self.by_type(
            |was| {
                quote!(::yb_pack::Pack::write(&<#was as ::core::convert::From<#ty>>::from(
                    ::core::clone::Clone::clone(&self.#member)), w);)
            },
            now,
        ))
    }

    fn read(&self) -> TokenStream {
        let ty = self.ty;
        let now = quote!(<#ty as ::yb_pack::Unpack>::read(r)?);
        let read = self.by_type(
            |was| quote!(<#ty as ::core::convert::From<#was>>::from(<#was as ::yb_pack::Unpack>::read(r)?)),
            now,
        );
        let absent = match &self.attrs.default {
            Some(value) => quote!(#value),
            None => quote!(::core::default::Default::default()),
        };
        match (&self.attrs.compatible, self.attrs.condition()) {
            (Some(_), _) => quote!(::core::option::Option::None),
            (None, Some(condition)) => quote!(if #condition { #read } else { #absent }),
            (None, None) => read,
        }
    }
}

pub fn expand(input: &DeriveInput, data: &DataStruct) -> syn::Result<TokenStream> {
    let container = ContainerAttrs::parse(&input.attrs)?;
    let items = data.fields.iter().enumerate().map(|(i, f)| item(i, f)).collect::<syn::Result<Vec<_>>>()?;
    if container.memory_copied {
        return memory_copied(input, &container, &items);
    }
    let (compatible, plain): (Vec<_>, Vec<_>) = items.iter().partition(|i| i.attrs.compatible.is_some());
    let shape = Shape { container: &container, input, plain: &plain };
    let pack = pack_impl(&shape, &items, &compatible)?;
    if container.encode_only {
        return Ok(pack);
    }
    let unpack = unpack_impl(input, &items, &plain)?;
    Ok(quote!(#pack #unpack))
}

fn item(index: usize, field: &Field) -> syn::Result<Item<'_>> {
    let attrs = MemberAttrs::parse(&field.attrs)?;
    if attrs.compatible.is_some() && attrs.was.is_some() {
        return Err(syn::Error::new_spanned(field, "a compatible member has one type"));
    }
    let member = match &field.ident {
        Some(ident) => Member::Named(ident.clone()),
        None => Member::Unnamed(index.into()),
    };
    Ok(Item { member, ty: &field.ty, attrs })
}

struct Shape<'s> {
    container: &'s ContainerAttrs,
    input: &'s DeriveInput,
    plain: &'s [&'s Item<'s>],
}

impl Shape<'_> {
    /// An expression: are the members wrapped in `fd .. ff` in this `version`?
    fn wrapped(&self) -> TokenStream {
        if self.container.transparent {
            return quote!(false);
        }
        let counts = self.plain.iter().map(|item| match item.attrs.condition() {
            Some(condition) => quote!(usize::from(#condition)),
            None => quote!(1usize),
        });
        let many = quote!((0usize #(+ #counts)*) >= 2);
        match (&self.container.unwrapped_before, self.container.args) {
            (Some(changed), _) => quote!(version >= (#changed) || #many),
            (None, true) => many,
            (None, false) => quote!(true),
        }
    }

    fn name(&self) -> String {
        match &self.container.name {
            Some(name) => name.value(),
            None => self.input.ident.to_string(),
        }
    }

    fn describe(&self) -> TokenStream {
        if !self.container.args && self.container.unwrapped_before.is_none() {
            let name = self.name();
            return quote!(out.push_str(#name););
        }
        let members = self.plain.iter().map(|item| {
            let (ty, name) = (item.ty, format!("{}: ", item.name()));
            let now = quote!(<#ty as ::yb_pack::Pack>::describe(version, out););
            let text = item.by_type(|was| quote!(<#was as ::yb_pack::Pack>::describe(version, out);), now);
            let label = if self.container.args {
                quote!(if !first { out.push_str(", "); } first = false; out.push_str(#name);)
            } else {
                TokenStream::new()
            };
            item.guarded(quote!(#label #text))
        });
        if self.container.args {
            return quote!(let mut first = true; #(#members)* let _ = first;);
        }
        let (name, wrapped) = (self.name(), self.wrapped());
        quote!(if #wrapped { out.push_str(#name); } else { #(#members)* })
    }
}

fn pack_impl(shape: &Shape<'_>, items: &[Item<'_>], compatible: &[&Item<'_>]) -> syn::Result<TokenStream> {
    let head = headers(shape.input)?.pack;
    let min_bytes = shape.plain.iter().filter(|i| i.attrs.condition().is_none() && i.attrs.was.is_none());
    let min_bytes = min_bytes.map(|i| {
        let ty = i.ty;
        quote!(<#ty as ::yb_pack::Pack>::MIN_BYTES)
    });
    let literals = shape.plain.iter().map(|i| i.literal());
    let (wrapped, describe) = (shape.wrapped(), shape.describe());
    let levels = items.iter().map(level_of);
    let writes = shape.plain.iter().map(|i| i.write());
    let write_compat = items.iter().map(write_compat);
    let write_compat = if compatible.is_empty() && items.is_empty() {
        TokenStream::new()
    } else {
        quote! {
            #[inline]
            fn write_compat(&self, w: &mut ::yb_pack::Writer<'_>, level: u8) {
                let version = w.version();
                let _ = (version, level);
                #(#write_compat)*
            }
        }
    };
    Ok(quote! {
        #[automatically_derived]
        #head {
            const MIN_BYTES: usize = 0 #(+ #min_bytes)*;
            fn literal(version: ::yb_pack::Version, out: &mut ::yb_pack::Literal) {
                let _ = version;
                let wrapped = #wrapped;
                if wrapped { out.push(::yb_pack::Literal::STRUCT); }
                #(#literals)*
                if wrapped { out.push(::yb_pack::Literal::END); }
            }
            fn describe(version: ::yb_pack::Version, out: &mut ::std::string::String) {
                let _ = version;
                #describe
            }
            #[inline]
            fn levels(version: ::yb_pack::Version) -> ::yb_pack::Levels {
                let _ = version;
                ::yb_pack::Levels::NONE #(.or(#levels))*
            }
            #[inline]
            fn write(&self, w: &mut ::yb_pack::Writer<'_>) {
                let version = w.version();
                let _ = version;
                #(#writes)*
            }
            #write_compat
        }
    })
}

fn level_of(item: &Item<'_>) -> TokenStream {
    let ty = item.ty;
    let levels = match &item.attrs.compatible {
        Some(level) => quote!(::yb_pack::Levels::one(#level)),
        None => quote!(<#ty as ::yb_pack::Pack>::levels(version)),
    };
    match item.attrs.condition() {
        Some(condition) => quote!(if #condition { #levels } else { ::yb_pack::Levels::NONE }),
        None => levels,
    }
}

fn write_compat(item: &Item<'_>) -> TokenStream {
    let (member, ty) = (&item.member, item.ty);
    item.guarded(match &item.attrs.compatible {
        Some(level) => quote!(if level == #level { ::yb_pack::Pack::write(&self.#member, w); }),
        None => quote! {
            if <#ty as ::yb_pack::Pack>::levels(version).contains(level) {
                ::yb_pack::Pack::write_compat(&self.#member, w, level);
            }
        },
    })
}

fn read_compat(item: &Item<'_>) -> TokenStream {
    let (member, ty) = (&item.member, item.ty);
    item.guarded(match &item.attrs.compatible {
        Some(level) => quote!(if level == #level { self.#member = r.compat_value()?; }),
        None => quote! {
            if <#ty as ::yb_pack::Pack>::levels(version).contains(level) {
                ::yb_pack::Unpack::read_compat(&mut self.#member, r, level)?;
            }
        },
    })
}

fn unpack_impl(input: &DeriveInput, items: &[Item<'_>], plain: &[&Item<'_>]) -> syn::Result<TokenStream> {
    let headers = headers(input)?;
    let (head, lifetime) = (headers.unpack, headers.lifetime);
    let fields = items.iter().map(|item| {
        let (member, read) = (&item.member, item.read());
        quote!(#member: #read)
    });
    let compats = items.iter().map(read_compat);
    let _ = plain;
    Ok(quote! {
        #[automatically_derived]
        #head {
            #[inline]
            fn read(r: &mut ::yb_pack::Reader<#lifetime>) -> ::core::result::Result<Self, ::yb_pack::DecodeError> {
                let version = r.version();
                let _ = version;
                Ok(Self { #(#fields),* })
            }
            #[inline]
            fn read_compat(
                &mut self,
                r: &mut ::yb_pack::Reader<#lifetime>,
                level: u8,
            ) -> ::core::result::Result<(), ::yb_pack::DecodeError> {
                let version = r.version();
                let _ = (version, level);
                #(#compats)*
                Ok(())
            }
        }
    })
}

fn memory_copied(input: &DeriveInput, container: &ContainerAttrs, items: &[Item<'_>]) -> syn::Result<TokenStream> {
    let headers = headers(input)?;
    let (pack, unpack, lifetime) = (headers.pack, headers.unpack, headers.lifetime);
    let ident = &input.ident;
    let name = container.name.as_ref().map_or_else(|| ident.to_string(), |n| n.value());
    let types: Vec<_> = items.iter().map(|i| i.ty).collect();
    let members: Vec<_> = items.iter().map(|i| &i.member).collect();
    Ok(quote! {
        #[automatically_derived]
        impl ::yb_pack::MemoryCopied for #ident {
            const SIZE: usize = {
                let mut at = 0usize;
                #(at = at.next_multiple_of(<#types as ::yb_pack::MemoryCopied>::ALIGN)
                    + <#types as ::yb_pack::MemoryCopied>::SIZE;)*
                at.next_multiple_of(<Self as ::yb_pack::MemoryCopied>::ALIGN)
            };
            const ALIGN: usize = {
                let mut align = 1usize;
                #(if <#types as ::yb_pack::MemoryCopied>::ALIGN > align {
                    align = <#types as ::yb_pack::MemoryCopied>::ALIGN;
                })*
                align
            };
        }
        #[automatically_derived]
        #pack {
            const MIN_BYTES: usize = <Self as ::yb_pack::MemoryCopied>::SIZE;
            fn literal(version: ::yb_pack::Version, out: &mut ::yb_pack::Literal) {
                out.push(::yb_pack::Literal::STRUCT);
                #(<#types as ::yb_pack::Pack>::literal(version, out);)*
                out.push_size(<Self as ::yb_pack::MemoryCopied>::ALIGN);
                out.push_size(<Self as ::yb_pack::MemoryCopied>::ALIGN);
                out.push(::yb_pack::Literal::END);
            }
            fn describe(_: ::yb_pack::Version, out: &mut ::std::string::String) {
                out.push_str(#name);
            }
            #[inline]
            fn write(&self, w: &mut ::yb_pack::Writer<'_>) {
                let mut at = 0usize;
                #(
                    let start = at.next_multiple_of(<#types as ::yb_pack::MemoryCopied>::ALIGN);
                    w.zeros(start - at);
                    ::yb_pack::Pack::write(&self.#members, w);
                    at = start + <#types as ::yb_pack::MemoryCopied>::SIZE;
                )*
                w.zeros(<Self as ::yb_pack::MemoryCopied>::SIZE - at);
            }
        }
        #[automatically_derived]
        #unpack {
            #[inline]
            fn read(r: &mut ::yb_pack::Reader<#lifetime>) -> ::core::result::Result<Self, ::yb_pack::DecodeError> {
                let from = r.position();
                let value = Self { #(#members: {
                    let at = r.position() - from;
                    r.take(at.next_multiple_of(<#types as ::yb_pack::MemoryCopied>::ALIGN) - at)?;
                    <#types as ::yb_pack::Unpack>::read(r)?
                }),* };
                r.take(<Self as ::yb_pack::MemoryCopied>::SIZE - (r.position() - from))?;
                Ok(value)
            }
        }
    })
}
