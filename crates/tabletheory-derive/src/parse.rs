//! Parses a struct into the description of a model, or errors.

use std::collections::HashMap;

use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{
    Data, DeriveInput, Error, Fields, GenericArgument, Ident, Path, PathArguments, Result, Type, Visibility,
};

use crate::naming::{Case, convert};
use crate::option::{FieldOptions, Role, StructOptions};

/// Maximum length of an attribute's name in bytes.
const MAX_ATTRIBUTE_BYTES: usize = 255;

/// The integer types to which numbers can be converted.
const INTEGERS: [&str; 10] = ["i64", "i32", "i16", "i8", "isize", "u64", "u32", "u16", "u8", "usize"];

/// The description of a model.
pub(crate) struct ModelDescription {
    pub(crate) name: Ident,
    pub(crate) table_env: Option<String>,
    pub(crate) fields: Vec<Field>,
}

/// The description of a field.
pub(crate) struct Field {
    pub(crate) name: Ident,
    pub(crate) visibility: Visibility,
    pub(crate) ty: Type,
    pub(crate) role: Option<Role>,
    pub(crate) storage: Storage,
}

/// How the value of a field is stored.
pub(crate) struct Storage {
    /// The name of its attribute.
    pub(crate) attribute: String,
    /// The module that converts it, instead of its type.
    pub(crate) with: Option<Path>,
    /// Whether an empty value is left out.
    pub(crate) omitempty: bool,
}

impl ModelDescription {
    /// Parses the struct; reports the errors of all fields, not only the first.
    pub(crate) fn parse(input: &DeriveInput) -> Result<ModelDescription> {
        let place = format!("struct `{}`", input.ident);
        let options = StructOptions::parse(&input.attrs, &place)?;
        if !input.generics.params.is_empty() {
            let message = format!("{place}: a model cannot be generic; make a struct for each kind of row");
            return Err(Error::new_spanned(&input.generics, message));
        }
        let mut errors = Vec::new();
        let fields = named_fields(input)?
            .iter()
            .filter_map(|field| {
                Field::parse(field, options.rename_all).map_err(|error| errors.push(error)).ok()
            })
            .collect();
        // Stops here, because an invalid field would also cause errors of the whole struct.
        combined(errors)?;
        let model = ModelDescription { name: input.ident.clone(), table_env: options.table_env, fields };
        model.check_roles()?;
        model.check_time_forms()?;
        model.check_attributes_differ()?;
        Ok(model)
    }

    /// Returns the field with a role.
    pub(crate) fn role(&self, role: Role) -> Option<&Field> {
        self.fields.iter().find(|field| field.role == Some(role))
    }

    /// Whether the times of saves are stored as text, not as numbers.
    pub(crate) fn has_text_times(&self) -> bool {
        self.time_fields().any(Field::is_text)
    }

    fn time_fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| field.role.is_some_and(Role::is_time))
    }

    fn check_time_forms(&self) -> Result<()> {
        let text = self.time_fields().find(|field| field.is_text());
        let number = self.time_fields().find(|field| !field.is_text());
        let (Some(text), Some(number)) = (text, number) else { return Ok(()) };
        let message = format!(
            "struct `{}`: the field `{}` stores its time as text and the field `{}` as a number; \
             make both a String or both an integer",
            self.name, text.name, number.name
        );
        Err(Error::new(text.name.span(), message))
    }

    fn check_roles(&self) -> Result<()> {
        let mut errors = Vec::new();
        for role in Role::ALL {
            let mut fields = self.fields.iter().filter(|field| field.role == Some(role));
            match (fields.next(), fields.next()) {
                (None, _) if role.is_key() => errors.push(Error::new(
                    self.name.span(),
                    format!("struct `{}`: no field is the {}", self.name, key_part(role)),
                )),
                (Some(first), Some(second)) => errors.push(Error::new(
                    second.name.span(),
                    format!(
                        "field `{}`: the field `{}` has the role {} already",
                        second.name,
                        first.name,
                        role.name()
                    ),
                )),
                _ => {}
            }
        }
        combined(errors)
    }

    fn check_attributes_differ(&self) -> Result<()> {
        let mut errors = Vec::new();
        let mut taken: HashMap<&str, &Ident> = HashMap::new();
        for field in &self.fields {
            if let Some(first) = taken.insert(&field.storage.attribute, &field.name) {
                errors.push(Error::new(
                    field.name.span(),
                    format!(
                        "field `{}`: its attribute is named `{}`, like that of the field `{first}`",
                        field.name, field.storage.attribute
                    ),
                ));
            }
        }
        combined(errors)
    }
}

fn key_part(role: Role) -> &'static str {
    match role {
        Role::Sk => "sort key; mark a String with #[model(sk)]",
        _ => "partition key; mark a String with #[model(pk)]",
    }
}

fn named_fields(input: &DeriveInput) -> Result<&syn::punctuated::Punctuated<syn::Field, syn::Token![,]>> {
    let (what, name) = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => return Ok(&fields.named),
            Fields::Unnamed(_) => ("a tuple struct", &input.ident),
            Fields::Unit => ("a struct without fields", &input.ident),
        },
        Data::Enum(_) => ("an enum", &input.ident),
        Data::Union(_) => ("a union", &input.ident),
    };
    let message = format!("`{name}` is {what}; a model is a struct with named fields");
    Err(Error::new(name.span(), message))
}

impl Field {
    fn parse(field: &syn::Field, case: Option<Case>) -> Result<Field> {
        let Some(name) = field.ident.clone() else {
            return Err(Error::new(field.span(), "a model is a struct with named fields"));
        };
        let bare = name.unraw().to_string();
        let place = format!("field `{bare}`");
        let options = FieldOptions::parse(&field.attrs, &place)?;
        let with = options.with_path(&place)?;
        if let Some(role) = options.role {
            check_type(&place, role, &field.ty)?;
            check_options(&place, role, &options)?;
        }
        let attribute = attribute_name(&place, &bare, case, &options).map_err(|message| {
            let span = options.rename.as_ref().map_or(name.span(), syn::LitStr::span);
            Error::new(span, message)
        })?;
        Ok(Field {
            name,
            visibility: field.vis.clone(),
            ty: field.ty.clone(),
            role: options.role,
            storage: Storage { attribute, with, omitempty: options.omitempty.is_some() },
        })
    }

    /// Returns the type without `Option`.
    pub(crate) fn value_type(&self) -> &Type {
        in_option(&self.ty).unwrap_or(&self.ty)
    }

    /// Whether the field is stored as bytes, and not as a list of numbers.
    pub(crate) fn is_bytes(&self) -> bool {
        self.storage.with.is_none() && type_text(self.value_type()) == "Vec<u8>"
    }

    pub(crate) fn is_text(&self) -> bool {
        is_one_of(self.value_type(), &["String"])
    }

    pub(crate) fn is_option(&self) -> bool {
        in_option(&self.ty).is_some()
    }

    /// Returns the type as text, for messages.
    pub(crate) fn type_text(&self) -> String {
        type_text(&self.ty)
    }
}

fn attribute_name(
    place: &str,
    field: &str,
    case: Option<Case>,
    options: &FieldOptions,
) -> std::result::Result<String, String> {
    let rename = options.rename.as_ref().map(syn::LitStr::value);
    if let Some(role) = options.role.filter(|role| role.has_fixed_attribute()) {
        let fixed = role.name();
        return match rename {
            Some(other) if other != fixed => Err(format!(
                "{place}: the attribute of the role {fixed} is always named `{fixed}`; \
                 it cannot be renamed to `{other}`"
            )),
            _ => Ok(fixed.to_owned()),
        };
    }
    let name = rename.unwrap_or_else(|| case.map_or_else(|| field.to_owned(), |case| convert(field, case)));
    if name.is_empty() {
        return Err(format!("{place}: an attribute's name cannot be empty"));
    }
    if name.len() > MAX_ATTRIBUTE_BYTES {
        return Err(format!(
            "{place}: the attribute's name has {} bytes; the limit is {MAX_ATTRIBUTE_BYTES}",
            name.len()
        ));
    }
    let reserved = Role::ALL.into_iter().find(|role| role.has_fixed_attribute() && role.name() == name);
    match reserved {
        Some(_) => Err(format!(
            "{place}: the attribute `{name}` belongs to the role {name}; \
             mark the field with #[model({name})] or rename it"
        )),
        None => Ok(name),
    }
}

fn check_type(place: &str, role: Role, ty: &Type) -> Result<()> {
    let value = in_option(ty).unwrap_or(ty);
    let (fits, needs) = if role.is_key() {
        (is_one_of(ty, &["String"]), "a String")
    } else if role.is_time() {
        (
            is_one_of(value, &INTEGERS) || is_one_of(value, &["String"]),
            "an integer of up to 64 bits, a String, or an Option of one of them",
        )
    } else {
        (is_one_of(value, &INTEGERS), "an integer of up to 64 bits or an Option of one")
    };
    if fits {
        return Ok(());
    }
    let message = format!("{place}: the role {} needs {needs}, not {}", role.name(), type_text(ty));
    Err(Error::new_spanned(ty, message))
}

/// Rejects options that the role excludes.
fn check_options(place: &str, role: Role, options: &FieldOptions) -> Result<()> {
    if let Some(span) = options.omitempty.filter(|_| role.is_key()) {
        let message =
            format!("{place}: a key is never left out, so the role {} excludes `omitempty`", role.name());
        return Err(Error::new(span, message));
    }
    if let Some(with) = &options.with {
        let kind = match role {
            _ if role.is_key() => "a plain string",
            _ if role.is_time() => "a plain number or string",
            _ => "a plain number",
        };
        let message = format!("{place}: the role {} is {kind}, which excludes `with`", role.name());
        return Err(Error::new(with.span(), message));
    }
    Ok(())
}

/// Returns the type inside `Option<…>`, recognized by its name, because macros have no type information.
fn in_option(ty: &Type) -> Option<&Type> {
    let segment = last_segment(ty).filter(|segment| segment.ident == "Option")?;
    match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(GenericArgument::Type(inner)) => Some(inner),
            _ => None,
        },
        _ => None,
    }
}

fn is_one_of(ty: &Type, names: &[&str]) -> bool {
    last_segment(ty)
        .is_some_and(|segment| segment.arguments.is_none() && names.iter().any(|name| segment.ident == name))
}

fn last_segment(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        // A type from another macro is wrapped in an invisible group.
        Type::Group(group) => last_segment(&group.elem),
        Type::Paren(paren) => last_segment(&paren.elem),
        _ => None,
    }
}

/// Removes the spaces that tokens print around punctuation.
fn type_text(ty: &Type) -> String {
    let spaced = ty.to_token_stream().to_string();
    [(" :: ", "::"), (":: ", "::"), (" < ", "<"), (" >", ">"), (" ,", ","), ("& ", "&")]
        .iter()
        .fold(spaced, |text, (spaced, tight)| text.replace(spaced, tight))
}

/// Combines errors, so that one compiler run reports all of them.
fn combined(errors: Vec<Error>) -> Result<()> {
    let combine = |mut first: Error, next| {
        first.combine(next);
        first
    };
    errors.into_iter().reduce(combine).map_or(Ok(()), Err)
}
