//! `#[derive(Model)]` for `tabletheory`, which re-exports it together with the trait.
//!
//! The macro parses a struct into a description (`parse`) and generates code from it (`expand`). Both are pure functions of
//! tokens, so unit tests cover every error message.

mod expand;
mod naming;
mod option;
mod parse;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Implements `tabletheory::Model` for a struct with named fields.
///
/// # Options of a field, in `#[model(…)]`
///
/// | option | meaning |
/// |---|---|
/// | `pk`, `sk` | the partition key and the sort key, each a `String`; the attributes are named `pk` and `sk` |
/// | `ttl` | the epoch second after which the row may be deleted; the attribute is named `ttl` |
/// | `version` | version for optimistic locking: incremented by every save; a save over another version is refused |
/// | `created_at` | the time of the first save |
/// | `updated_at` | the time of the last save |
/// | `omitempty` | zero, `""`, `false` and empty collections are not stored; an absent attribute is read as the default |
/// | `rename = "…"` | the attribute's name, if it differs from the field's |
/// | `with = "…"` | a module whose `serialize` and `deserialize` convert the field, as in serde |
///
/// `ttl` and `version` must be integers or `Option`s of integers. A version that is an `Option` starts at 0, as in other
/// languages of TableTheory, and `None` is a row that was never saved; a version that is an integer starts at 1, and 0 is a row
/// that was never saved.
///
/// `created_at` and `updated_at` are integers (stored as epoch seconds) or `String`s (stored as RFC 3339 with nanoseconds, as
/// Go and TypeScript do), or `Option`s of one of them. Both forms are read, whichever one the model writes.
///
/// # Options of the struct
///
/// | option | meaning |
/// |---|---|
/// | `table_env = "…"` | the environment variable with the name of the table |
/// | `rename_all = "…"` | the case of attribute names, such as `camelCase` (see below) |
///
/// The cases are `camelCase`, `PascalCase`, `snake_case`, `SCREAMING_SNAKE_CASE` and `kebab-case`; the `rename`
/// of a field takes precedence.
///
/// The types of the fields must implement serde's `Serialize` and `Deserialize`. The struct itself need not, and its
/// `#[serde(…)]` attributes are ignored. A field that is `None` is never stored.
///
/// For each field the struct gets a constant with the visibility of the field: the typed attribute for conditions and
/// updates. Both `s3_key: String` and `s3_key: Option<String>` give `S3_KEY: Attr<String>`.
#[proc_macro_derive(Model, attributes(model))]
pub fn derive_model(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
