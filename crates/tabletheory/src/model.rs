//! Models: structs that are stored as rows.

use std::env::{self, VarError};

use crate::error::{Error, Result};
use crate::item::{Item, Key};
use crate::time_form::TimeForm;

/// A struct that is stored as a row: its key, and its conversion to and from attributes.
///
/// Derive this trait. [`TableExt::rows`](crate::TableExt::rows) saves and reads rows, and maintains versions and times as
/// declared by [`ROLES`](Model::ROLES).
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
/// // `None` is an absent attribute: the item has five attributes, not seven.
/// let item = page.to_item()?;
/// assert_eq!(item.len(), 5);
/// assert_eq!(CacheMetadata::from_item(item)?, page);
///
/// // Each field has a constant for conditions and updates.
/// let stale = CacheMetadata::GENERATED_AT.le(1_700_000_000);
/// assert_eq!(stale.to_string(), "generated_at <= 1700000000");
/// # Ok::<(), tabletheory::Error>(())
/// ```
///
/// An invalid model does not compile:
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
    /// Name of the struct, for messages.
    const NAME: &'static str;
    /// Environment variable with the name of the table, if the model declares one.
    const TABLE_ENV: Option<&'static str>;
    /// The attributes that the table layer maintains.
    const ROLES: Roles;

    /// Returns the key of the row.
    fn key(&self) -> Key;

    /// Returns all attributes of the row, including `pk` and `sk`.
    fn to_item(&self) -> Result<Item>;

    /// Creates the row from its attributes. Unknown attributes are ignored. A required attribute that is missing or of
    /// another type is an error that names the row and the attribute.
    fn from_item(item: Item) -> Result<Self>;

    /// Returns the name of the table, from the environment variable [`TABLE_ENV`](Model::TABLE_ENV).
    ///
    /// ```
    /// # use tabletheory::Model;
    /// # #[derive(Model)] struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    /// let error = Page::table_name().unwrap_err();
    /// assert_eq!(error.to_string(), "the model Page declares no environment variable for its table; add #[model(table_env = \"…\")]");
    /// ```
    fn table_name() -> Result<String> {
        Self::table_name_from(|variable| env::var(variable))
    }

    /// Like [`table_name`](Model::table_name), with variables from a function instead of the environment.
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
                "the model {name} declares no environment variable for its table; \
                 add #[model(table_env = \"…\")]"
            )));
        };
        let invalid = |problem: &str| {
            Error::invalid(format!(
                "the environment variable {variable} {problem}; it names the table of {name}"
            ))
        };
        match look_up(variable) {
            Ok(table) if table.is_empty() => Err(invalid("is empty")),
            Ok(table) => Ok(table),
            Err(VarError::NotPresent) => Err(invalid("is not set")),
            Err(VarError::NotUnicode(_)) => Err(invalid("is not UTF-8")),
        }
    }
}

/// Derives [`trait@Model`] for a struct with named fields.
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

/// The attributes of a model that the table layer maintains, by their stored names.
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
    /// Epoch second after which the row may be deleted; always named `ttl`.
    pub ttl: Option<&'static str>,
    /// Version for optimistic locking, incremented by every save.
    pub version: Option<&'static str>,
    /// Whether the version is an `Option`. `None` is then a row that was never saved, and its first save stores version 0, as
    /// in other languages of TableTheory. Otherwise 0 is a row that was never saved, and its first save stores version 1.
    pub optional_version: bool,
    /// The time of the first save.
    pub created_at: Option<&'static str>,
    /// The time of the last save.
    pub updated_at: Option<&'static str>,
    /// The form in which these times are stored.
    pub time_form: TimeForm,
}
