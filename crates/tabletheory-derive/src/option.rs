//! Parses the options in `#[model(…)]` of fields and structs.

use std::fmt::Display;

use proc_macro2::Span;
use quote::ToTokens as _;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Error, LitStr, Path, Result, Token};

use crate::naming::{CASES, Case, nearest};

/// A field's special meaning for its row.
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

    /// Whether the attribute has the same name in every table, regardless of the field's name.
    pub(crate) fn has_fixed_attribute(self) -> bool {
        matches!(self, Role::Pk | Role::Sk | Role::Ttl)
    }

    pub(crate) fn is_key(self) -> bool {
        matches!(self, Role::Pk | Role::Sk)
    }

    pub(crate) fn is_time(self) -> bool {
        matches!(self, Role::CreatedAt | Role::UpdatedAt)
    }

    fn named(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// The options of a field.
#[derive(Default)]
pub(crate) struct FieldOptions {
    pub(crate) role: Option<Role>,
    pub(crate) omitempty: Option<Span>,
    pub(crate) rename: Option<LitStr>,
    pub(crate) with: Option<LitStr>,
}

/// The options of fields, as listed in messages.
const FIELD_OPTIONS: [&str; 9] =
    ["pk", "sk", "ttl", "version", "created_at", "updated_at", "omitempty", "rename", "with"];

/// The options of structs, as listed in messages.
const STRUCT_OPTIONS: [&str; 2] = ["table_env", "rename_all"];

impl FieldOptions {
    /// `place` is the beginning of messages, such as "field `etag`".
    pub(crate) fn parse(attributes: &[Attribute], place: &str) -> Result<FieldOptions> {
        let mut options = FieldOptions::default();
        each_option(attributes, place, |option| {
            if let Some(role) = Role::named(option.name) {
                option.check_no_value()?;
                return match options.role {
                    Some(first) if first != role => Err(option.error(format_args!(
                        "the field has the role {}, so it cannot have the role {} too",
                        first.name(),
                        option.name
                    ))),
                    _ => option.set(&mut options.role, role),
                };
            }
            match option.name {
                "omitempty" => {
                    option.check_no_value()?;
                    let span = option.meta.path.get_ident().map_or_else(Span::call_site, syn::Ident::span);
                    option.set(&mut options.omitempty, span)
                }
                "rename" => option.set(&mut options.rename, option.string()?),
                "with" => option.set(&mut options.with, option.string()?),
                _ => Err(option.unknown("a field", &FIELD_OPTIONS)),
            }
        })?;
        Ok(options)
    }

    /// Returns the module of the option `with`.
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

/// The options of a struct.
#[derive(Default)]
pub(crate) struct StructOptions {
    pub(crate) table_env: Option<String>,
    pub(crate) rename_all: Option<Case>,
}

impl StructOptions {
    pub(crate) fn parse(attributes: &[Attribute], place: &str) -> Result<StructOptions> {
        let mut options = StructOptions::default();
        each_option(attributes, place, |option| match option.name {
            "table_env" => {
                let variable = option.string()?;
                if variable.value().is_empty() {
                    let message = format!("{place}: table_env is empty; name an environment variable");
                    return Err(Error::new(variable.span(), message));
                }
                option.set(&mut options.table_env, variable.value())
            }
            "rename_all" => {
                let name = option.string()?;
                let text = name.value();
                let case = CASES.into_iter().find(|(known, _)| *known == text).ok_or_else(|| {
                    let problem = unknown_word("case", &text, "The cases", &CASES.map(|(known, _)| known));
                    Error::new(name.span(), format!("{place}: {problem}"))
                })?;
                option.set(&mut options.rename_all, case.1)
            }
            _ => Err(option.unknown("a struct", &STRUCT_OPTIONS)),
        })?;
        Ok(options)
    }
}

/// One option in `#[model(…)]`.
struct ModelOption<'a> {
    name: &'a str,
    meta: &'a ParseNestedMeta<'a>,
    place: &'a str,
}

/// Calls `take` with each option of all `#[model(…)]` attributes.
fn each_option(
    attributes: &[Attribute],
    place: &str,
    mut take: impl FnMut(ModelOption<'_>) -> Result<()>,
) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("model")) {
        attribute.parse_nested_meta(|meta| {
            let name = meta.path.to_token_stream().to_string().replace(' ', "");
            take(ModelOption { name: &name, meta: &meta, place })
        })?;
    }
    Ok(())
}

impl ModelOption<'_> {
    fn error(&self, problem: impl Display) -> Error {
        self.meta.error(format_args!("{}: {problem}", self.place))
    }

    fn unknown(&self, of: &str, known: &[&str]) -> Error {
        self.error(unknown_word("option", self.name, &format!("The options of {of}"), known))
    }

    fn check_no_value(&self) -> Result<()> {
        if self.meta.input.is_empty() || self.meta.input.peek(Token![,]) {
            return Ok(());
        }
        Err(self.error(format_args!("the option `{}` takes no value", self.name)))
    }

    fn string(&self) -> Result<LitStr> {
        let name = self.name;
        let value = self.meta.value().and_then(|value| value.parse::<LitStr>());
        value
            .map_err(|_| self.error(format_args!("the option `{name}` needs a string, as in {name} = \"…\"")))
    }

    /// Stores the value of the option, which may be given once.
    fn set<T>(&self, slot: &mut Option<T>, value: T) -> Result<()> {
        match slot.replace(value) {
            None => Ok(()),
            Some(_) => Err(self.error(format_args!("the option `{}` is given twice", self.name))),
        }
    }
}

fn unknown_word(what: &str, word: &str, all: &str, known: &[&str]) -> String {
    let suggestion = match nearest(word, known) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => ".".to_owned(),
    };
    format!("unknown {what} `{word}`{suggestion} {all} are {}", known.join(", "))
}
