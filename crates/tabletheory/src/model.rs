//! A Rust struct as a row.

use std::env::{self, VarError};

use crate::error::{Error, Result};
use crate::item::{Item, Key};

/// A struct that is a row: where it lives, and how it becomes attributes and comes back.
///
/// It is derived. Rows are saved and read through [`TableExt::rows`](crate::TableExt::rows), which does what
/// the [`ROLES`](Model::ROLES) ask for.
///
/// ```
/// use tabletheory::{Key, Model};
///
/// #[derive(Model, Debug, PartialEq)]
/// #[model(table_env = "FACETHEORY_CACHE_TABLE_NAME")]
/// struct CacheMetadata {
///     #[model(pk)]
///     pk: String,
///     #[model(sk)]
///     sk: String,
///     s3_key: String,
///     generated_at: i64,
///     revalidate_seconds: i64,
///     etag: Option<String>,
///     #[model(ttl)]
///     ttl: Option<i64>,
/// }
///
/// let page = CacheMetadata {
///     pk: "CACHE#1".into(),
///     sk: "META".into(),
///     s3_key: "pages/1.html".into(),
///     generated_at: 1_700_000_000,
///     revalidate_seconds: 60,
///     etag: None,
///     ttl: None,
/// };
/// assert_eq!(page.key(), Key::new("CACHE#1", "META"));
///
/// // What is none is not there: five attributes, not seven.
/// let item = page.to_item()?;
/// assert_eq!(item.len(), 5);
/// assert_eq!(CacheMetadata::from_item(item)?, page);
///
/// // Each field is a word of conditions and updates, too.
/// let stale = CacheMetadata::GENERATED_AT.le(1_700_000_000);
/// assert_eq!(stale.to_string(), "generated_at <= 1700000000");
/// # Ok::<(), tabletheory::Error>(())
/// ```
///
/// What cannot be a row is not compiled:
///
/// ```compile_fail
/// // field `ttl`: the role ttl needs an integer of up to 64 bits or an Option of one, not String
/// #[derive(tabletheory::Model)]
/// struct Page {
///     #[model(pk)]
///     pk: String,
///     #[model(sk)]
///     sk: String,
///     #[model(ttl)]
///     ttl: String,
/// }
/// ```
///
/// ```compile_fail
/// // struct `Page`: no field is the sort key; mark a String with #[model(sk)]
/// #[derive(tabletheory::Model)]
/// struct Page {
///     #[model(pk)]
///     pk: String,
/// }
/// ```
///
/// ```compile_fail
/// // field `etag`: unknown option `omitemtpy`; did you mean `omitempty`?
/// #[derive(tabletheory::Model)]
/// struct Page {
///     #[model(pk)]
///     pk: String,
///     #[model(sk)]
///     sk: String,
///     #[model(omitemtpy)]
///     etag: String,
/// }
/// ```
pub trait Model: Sized + Send {
    /// The struct's name, for messages.
    const NAME: &'static str;
    /// The environment variable that names the table of these rows, if the model says one.
    const TABLE_ENV: Option<&'static str>;
    /// Which attributes mean something to the table layer.
    const ROLES: Roles;

    /// Where the row lives.
    fn key(&self) -> Key;

    /// All attributes of the row, `pk` and `sk` among them.
    fn to_item(&self) -> Result<Item>;

    /// The row of these attributes. Attributes that it does not know are ignored; one that it needs and that is
    /// missing, or of another type, is an error that names the row and the attribute.
    fn from_item(item: Item) -> Result<Self>;

    /// The name of the table of these rows, from the environment.
    ///
    /// ```
    /// # use tabletheory::Model;
    /// # #[derive(Model)] struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    /// let error = Page::table_name().unwrap_err();
    /// assert_eq!(error.to_string(), "the model Page names no environment variable for its table; give it #[model(table_env = \"…\")]");
    /// ```
    fn table_name() -> Result<String> {
        Self::table_name_from(|variable| env::var(variable))
    }

    /// The same from another environment than the process's, as a test has one.
    ///
    /// ```
    /// use std::env::VarError;
    /// # use tabletheory::Model;
    /// # #[derive(Model)]
    /// # #[model(table_env = "PAGES_TABLE")]
    /// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    ///
    /// assert_eq!(Page::table_name_from(|variable| Ok(format!("value of {variable}")))?, "value of PAGES_TABLE");
    /// let error = Page::table_name_from(|_| Err(VarError::NotPresent)).unwrap_err();
    /// assert_eq!(error.to_string(), "the environment variable PAGES_TABLE is not set; it names the table of Page");
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    fn table_name_from(look_up: impl FnOnce(&str) -> Result<String, VarError>) -> Result<String> {
        let name = Self::NAME;
        let Some(variable) = Self::TABLE_ENV else {
            return Err(Error::invalid(format!(
                "the model {name} names no environment variable for its table; \
                 give it #[model(table_env = \"…\")]"
            )));
        };
        let wrong = |what: &str| {
            Error::invalid(format!(
                "the environment variable {variable} {what}; it names the table of {name}"
            ))
        };
        match look_up(variable) {
            Ok(table) if table.is_empty() => Err(wrong("is empty")),
            Ok(table) => Ok(table),
            Err(VarError::NotPresent) => Err(wrong("is not set")),
            Err(VarError::NotUnicode(_)) => Err(wrong("is not text")),
        }
    }
}

/// Derives the trait of the same name: a struct says once what each field is to its row.
///
/// ```
/// use tabletheory::Model;
///
/// #[derive(Model)]
/// #[model(table_env = "PAGES_TABLE", rename_all = "camelCase")]
/// struct Page {
///     #[model(pk)]
///     site: String,
///     #[model(sk)]
///     path: String,
///     content_type: String,
///     #[model(rename = "hits_total", omitempty)]
///     hits: u64,
///     #[model(with = "tabletheory::string_set", omitempty)]
///     tags: Vec<String>,
///     #[model(ttl)]
///     expires: Option<i64>,
///     #[model(version)]
///     version: i64,
///     #[model(created_at)]
///     created_at: i64,
///     #[model(updated_at)]
///     updated_at: i64,
/// }
///
/// assert_eq!(Page::SITE.name(), "pk");
/// assert_eq!(Page::CONTENT_TYPE.name(), "contentType");
/// assert_eq!(Page::HITS.ge(10_u64).to_string(), "hits_total >= 10");
/// ```
#[cfg(feature = "derive")]
pub use tabletheory_derive::Model;

/// The attributes of a model that mean something to the table layer, by their names on the wire.
///
/// ```
/// use tabletheory::{Model, Roles};
///
/// #[derive(Model)]
/// struct Pointer {
///     #[model(pk)]
///     pk: String,
///     #[model(sk)]
///     sk: String,
///     #[model(version, rename = "v")]
///     version: i64,
/// }
/// assert_eq!(Pointer::ROLES, Roles { version: Some("v"), ..Roles::default() });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// The epoch second after which the row may be collected; always named `ttl`.
    pub ttl: Option<&'static str>,
    /// The optimistic lock: raised by one with every save, 0 or absent before the first.
    pub version: Option<&'static str>,
    /// The epoch second of the first save.
    pub created_at: Option<&'static str>,
    /// The epoch second of the last save.
    pub updated_at: Option<&'static str>,
}
