//! What stands in `#[model(…)]`, on a field and on the struct.

use proc_macro2::Span;
use quote::ToTokens as _;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Error, LitStr, Path, Result, Token};

use crate::naming::{Case, nearest};

/// What a field is to the row, beyond holding a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Pk,
    Sk,
    Ttl,
    Version,
    CreatedAt,
    UpdatedAt,
}

impl Role {
    pub(crate) const ALL: [Role; 6] =
        [Role::Pk, Role::Sk, Role::Ttl, Role::Version, Role::CreatedAt, Role::UpdatedAt];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Pk => "pk",
            Role::Sk => "sk",
            Role::Ttl => "ttl",
            Role::Version => "version",
            Role::CreatedAt => "created_at",
            Role::UpdatedAt => "updated_at",
        }
    }

    /// Whether every table has this attribute under one name, whatever the field is called.
    pub(crate) fn has_fixed_attribute(self) -> bool {
        matches!(self, Role::Pk | Role::Sk | Role::Ttl)
    }

    pub(crate) fn is_key(self) -> bool {
        matches!(self, Role::Pk | Role::Sk)
    }

    fn named(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// The options of a field, as they were written.
#[derive(Default)]
pub(crate) struct FieldOptions {
    pub(crate) role: Option<Role>,
    pub(crate) omitempty: Option<Span>,
    pub(crate) rename: Option<LitStr>,
    pub(crate) with: Option<LitStr>,
}

/// The options of a field, in the order in which a message lists them.
const OF_FIELD: [&str; 9] =
    ["pk", "sk", "ttl", "version", "created_at", "updated_at", "omitempty", "rename", "with"];

/// The options of a struct, likewise.
const OF_STRUCT: [&str; 2] = ["table_env", "rename_all"];

impl FieldOptions {
    /// `place` is what a message begins with, as in "field `etag`".
    pub(crate) fn parse(attributes: &[Attribute], place: &str) -> Result<FieldOptions> {
        let mut options = FieldOptions::default();
        each_option(attributes, |option, meta| {
            if let Some(role) = Role::named(option) {
                takes_no_value(meta, place, option)?;
                return match options.role.replace(role) {
                    Some(first) if first != role => Err(meta.error(format!(
                        "{place}: it has the role {}; it cannot have the role {option} too",
                        first.name()
                    ))),
                    first => once(meta, place, option, first.is_none()),
                };
            }
            match option {
                "omitempty" => {
                    takes_no_value(meta, place, option)?;
                    let first = options
                        .omitempty
                        .replace(meta.path.get_ident().map_or_else(Span::call_site, syn::Ident::span));
                    once(meta, place, option, first.is_none())
                }
                "rename" => {
                    let first = options.rename.replace(text(meta, place, option)?);
                    once(meta, place, option, first.is_none())
                }
                "with" => {
                    let first = options.with.replace(text(meta, place, option)?);
                    once(meta, place, option, first.is_none())
                }
                unknown => Err(meta.error(unknown_option(place, unknown, "a field", &OF_FIELD))),
            }
        })?;
        Ok(options)
    }

    /// The module that converts the field, if it names one.
    pub(crate) fn with_path(&self, place: &str) -> Result<Option<Path>> {
        let parse = |text: &LitStr| {
            text.parse::<Path>().map_err(|_| {
                Error::new(
                    text.span(),
                    format!("{place}: with = {:?} is not the path of a module", text.value()),
                )
            })
        };
        self.with.as_ref().map(parse).transpose()
    }
}

/// The options of the struct, as they were written.
#[derive(Default)]
pub(crate) struct StructOptions {
    pub(crate) table_env: Option<String>,
    pub(crate) rename_all: Option<Case>,
}

impl StructOptions {
    pub(crate) fn parse(attributes: &[Attribute], place: &str) -> Result<StructOptions> {
        let mut options = StructOptions::default();
        each_option(attributes, |option, meta| match option {
            "table_env" => {
                let variable = text(meta, place, option)?;
                if variable.value().is_empty() {
                    let message = format!("{place}: table_env is empty; name an environment variable");
                    return Err(Error::new(variable.span(), message));
                }
                let first = options.table_env.replace(variable.value());
                once(meta, place, option, first.is_none())
            }
            "rename_all" => {
                let case = text(meta, place, option)?;
                let known = Case::named(&case.value()).ok_or_else(|| {
                    let names = Case::ALL.map(|(name, _)| name);
                    let message = unknown_word(place, "case", &case.value(), "The cases", &names);
                    Error::new(case.span(), message)
                })?;
                let first = options.rename_all.replace(known);
                once(meta, place, option, first.is_none())
            }
            unknown => Err(meta.error(unknown_option(place, unknown, "a struct", &OF_STRUCT))),
        })?;
        Ok(options)
    }
}

/// Calls with every option of every `#[model(…)]`; other attributes belong to other macros.
fn each_option(
    attributes: &[Attribute],
    mut take: impl FnMut(&str, &ParseNestedMeta<'_>) -> Result<()>,
) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("model")) {
        attribute.parse_nested_meta(|meta| {
            let option = meta.path.to_token_stream().to_string().replace(' ', "");
            take(&option, &meta)
        })?;
    }
    Ok(())
}

fn takes_no_value(meta: &ParseNestedMeta<'_>, place: &str, option: &str) -> Result<()> {
    if meta.input.is_empty() || meta.input.peek(Token![,]) {
        return Ok(());
    }
    Err(meta.error(format!("{place}: the option `{option}` takes no value")))
}

fn text(meta: &ParseNestedMeta<'_>, place: &str, option: &str) -> Result<LitStr> {
    let value = meta.value().and_then(|value| value.parse::<LitStr>());
    value.map_err(|_| {
        meta.error(format!("{place}: the option `{option}` needs a text, as in {option} = \"…\""))
    })
}

fn once(meta: &ParseNestedMeta<'_>, place: &str, option: &str, is_first: bool) -> Result<()> {
    if is_first { Ok(()) } else { Err(meta.error(format!("{place}: the option `{option}` is given twice"))) }
}

fn unknown_option(place: &str, option: &str, of: &str, known: &[&str]) -> String {
    unknown_word(place, "option", option, &format!("The options of {of}"), known)
}

fn unknown_word(place: &str, what: &str, word: &str, all: &str, known: &[&str]) -> String {
    let guess = nearest(word, known.iter().copied())
        .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let stop = if guess.is_empty() { "." } else { "" };
    format!("{place}: unknown {what} `{word}`{guess}{stop} {all} are {}", known.join(", "))
}
