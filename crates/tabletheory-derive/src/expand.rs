//! Code generation.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{DeriveInput, Result};

use crate::option::Role;
use crate::parse::{Field, ModelDescription, Storage};

/// Generates the code of `#[derive(Model)]` for this struct.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let model = ModelDescription::parse(input)?;
    let implementation = implementation(&model);
    let constants = constants(&model);
    Ok(quote! {
        #implementation
        #constants
    })
}

fn implementation(model: &ModelDescription) -> TokenStream {
    let name = &model.name;
    let text = name.unraw().to_string();
    let table_env = optional(model.table_env.as_deref());
    let [ttl, version, created_at, updated_at] = [Role::Ttl, Role::Version, Role::CreatedAt, Role::UpdatedAt]
        .map(|role| optional(model.role(role).map(|field| field.storage.attribute.as_str())));
    let optional_version = model.role(Role::Version).is_some_and(Field::is_option);
    let time_form = time_form(model.has_text_times());
    let key = [Role::Pk, Role::Sk].map(|role| model.role(role).map(|field| &field.name));
    let key = key.iter().flatten();
    let writes = model.fields.iter().filter_map(write);
    let reads = model.fields.iter().map(read);
    quote! {
        #[automatically_derived]
        impl ::tabletheory::Model for #name {
            const NAME: &'static str = #text;
            const TABLE_ENV: ::core::option::Option<&'static str> = #table_env;
            const ROLES: ::tabletheory::Roles = ::tabletheory::Roles {
                ttl: #ttl,
                version: #version,
                optional_version: #optional_version,
                created_at: #created_at,
                updated_at: #updated_at,
                time_form: #time_form,
            };

            fn key(&self) -> ::tabletheory::Key {
                ::tabletheory::Key::new(#(::core::clone::Clone::clone(&self.#key)),*)
            }

            fn to_item(&self) -> ::tabletheory::Result<::tabletheory::Item> {
                let mut row = ::tabletheory::__private::RowWriter::new(
                    #text,
                    ::tabletheory::Model::key(self),
                );
                #(#writes)*
                ::core::result::Result::Ok(row.finish())
            }

            fn from_item(item: ::tabletheory::Item) -> ::tabletheory::Result<Self> {
                let mut row = ::tabletheory::__private::RowReader::new(#text, item)?;
                ::core::result::Result::Ok(Self { #(#reads,)* })
            }
        }
    }
}

fn time_form(is_text: bool) -> TokenStream {
    if is_text { quote!(::tabletheory::TimeForm::Rfc3339) } else { quote!(::tabletheory::TimeForm::Seconds) }
}

fn optional(text: Option<&str>) -> TokenStream {
    match text {
        Some(text) => quote!(::core::option::Option::Some(#text)),
        None => quote!(::core::option::Option::None),
    }
}

/// Generates the code that writes a field; `None` for keys, which the writer has already.
fn write(field: &Field) -> Option<TokenStream> {
    if field.role.is_some_and(Role::is_key) {
        return None;
    }
    let Field { name, storage: Storage { attribute, omitempty, .. }, .. } = field;
    // The span makes the compiler point at the field if its type cannot be serialized.
    let span = field.ty.span();
    let serialize = match &field.storage.with {
        // A closure, so that a reference to the field is coerced to the function's parameter.
        Some(module) => quote!(|value, serializer| #module::serialize(value, serializer)),
        None if field.is_bytes() => {
            quote!(|bytes, serializer| { ::tabletheory::__private::bytes::serialize(bytes, serializer) })
        }
        None => quote_spanned!(span=> ::tabletheory::__private::Serialize::serialize),
    };
    let set = |value| quote!(row.set(#attribute, #value, #omitempty, #serialize)?;);
    // `None` is skipped here, because `with` modules of sets cannot serialize it.
    Some(if !field.is_option() {
        set(quote!(&self.#name))
    } else if field.is_bytes() {
        let set = set(quote!(bytes));
        quote!(if let ::core::option::Option::Some(bytes) = &self.#name { #set })
    } else {
        let set = set(quote!(&self.#name));
        quote!(if self.#name.is_some() { #set })
    })
}

fn read(field: &Field) -> TokenStream {
    let Field { name, storage: Storage { attribute, .. }, .. } = field;
    let value = match field.role {
        Some(Role::Pk) => quote!(row.pk()),
        Some(Role::Sk) => quote!(row.sk()),
        _ => {
            let may_be_absent = field.storage.omitempty || field.is_option();
            let method = if may_be_absent { quote!(get_or_default) } else { quote!(get) };
            let ty = field.type_text();
            let span = field.ty.span();
            let deserialize = match &field.storage.with {
                Some(module) => quote!(|value| #module::deserialize(value)),
                None if field.is_bytes() => quote!(::tabletheory::__private::bytes::deserialize),
                None => quote_spanned!(span=> ::tabletheory::__private::Deserialize::deserialize),
            };
            let value = quote!(row.#method(#attribute, #ty, #deserialize)?);
            if field.role.is_some_and(Role::is_time) {
                let form = time_form(field.is_text());
                quote!({
                    row.convert_time(#attribute, #form);
                    #value
                })
            } else {
                value
            }
        }
    };
    quote!(#name: #value)
}

/// Returns the type of values in conditions and updates: the form in which the field is stored.
fn attribute_type(field: &Field) -> TokenStream {
    let Some(module) = &field.storage.with else {
        let ty = field.value_type();
        return quote!(#ty);
    };
    match module.segments.last().map(|segment| segment.ident.to_string()).as_deref() {
        Some("string_set") => quote!(::tabletheory::Set<::std::string::String>),
        Some("number_set") => quote!(::tabletheory::Set<::tabletheory::Number>),
        Some("binary_set") => quote!(::tabletheory::Set<::std::vec::Vec<u8>>),
        // The stored form is known only to the module.
        _ => quote!(::tabletheory::Encoded),
    }
}

/// Generates the constants of typed attributes.
fn constants(model: &ModelDescription) -> TokenStream {
    let name = &model.name;
    let constants = model.fields.iter().map(|field| {
        let Field { name, visibility, storage: Storage { attribute, .. }, .. } = field;
        let constant = format_ident!("{}", name.unraw().to_string().to_uppercase(), span = name.span());
        let ty = attribute_type(field);
        let doc = format!("The attribute `{attribute}`.");
        quote! {
            #[doc = #doc]
            #visibility const #constant: ::tabletheory::Attr<#ty> = ::tabletheory::Attr::new(#attribute);
        }
    });
    quote! {
        #[allow(dead_code, non_upper_case_globals)]
        #[automatically_derived]
        impl #name {
            #(#constants)*
        }
    }
}
