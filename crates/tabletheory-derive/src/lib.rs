//! `#[derive(Model)]` for `tabletheory`: a struct with named fields becomes a row.
//!
//! Use it through `tabletheory`, which re-exports it beside the trait of the same name and shows it at work.
//! The macro reads a struct into a description (`parse`) and writes code from that (`expand`); both are
//! pure functions of tokens, so that every message of a wrong model is tested in process.

mod expand;
mod naming;
mod option;
mod parse;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Makes a struct with named fields a row of a table.
///
/// # Options of a field, in `#[model(…)]`
///
/// | option | meaning |
/// |---|---|
/// | `pk`, `sk` | the two parts of the key, each a `String`; their attributes are named `pk` and `sk` |
/// | `ttl` | the epoch second after which the row may be collected; its attribute is named `ttl` |
/// | `version` | the optimistic lock: raised by one with every save, and a save over another one is refused |
/// | `created_at` | the epoch second of the first save |
/// | `updated_at` | the epoch second of the last save |
/// | `omitempty` | zero, `""`, `false` and what has no members are left out; absent reads as the default |
/// | `rename = "…"` | the attribute's name, if it is not the field's |
/// | `with = "…"` | a module whose `serialize` and `deserialize` convert the field, as in serde |
///
/// `ttl`, `version`, `created_at` and `updated_at` are integers or options of one.
///
/// # Options of the struct
///
/// | option | meaning |
/// |---|---|
/// | `table_env = "…"` | the environment variable that names the table |
/// | `rename_all = "…"` | the case of attribute names, as `camelCase` (see below) |
///
/// The cases are `camelCase`, `PascalCase`, `snake_case`, `SCREAMING_SNAKE_CASE` and `kebab-case`; a field's own
/// `rename` comes before them.
///
/// Each field's type needs serde's `Serialize` and `Deserialize`; the struct itself needs neither, and its
/// `#[serde(…)]` attributes mean nothing here. A field that is `None` is left out, whatever its options.
///
/// Each field also becomes a constant of the struct, as visible as the field, that is the typed attribute for
/// conditions and updates: `s3_key: String` becomes `S3_KEY: Attr<String>`, and so does `s3_key: Option<String>`.
#[proc_macro_derive(Model, attributes(model))]
pub fn derive_model(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
