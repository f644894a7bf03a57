//! Epochs: since when everything with a tag is stale, in one row however many pages have it.

use tabletheory::{Item, Key};

use crate::attribute as name;
use crate::error::{Error, Result};
use crate::key::Tenant;
use crate::row::Reader;

/// A tag by which pages are invalidated together.
///
/// ```
/// use facetheory::{Tag, Tenant};
///
/// let tag = Tag::new("news")?;
/// assert_eq!(tag.key(None).pk, "TAG#news");
/// assert_eq!(tag.key(Some(&Tenant::new("acme")?)).pk, "TENANT#acme#TAG#news");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

impl Tag {
    /// The longest tag, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// The tag of this name: 1 to 1,024 bytes, without control characters.
    ///
    /// ```
    /// assert!(facetheory::Tag::new("a\r\nb").is_err());
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        if name.is_empty() || name.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "a tag has {} bytes; it must have 1 to {}",
                name.len(),
                Self::MAX_BYTES
            )));
        }
        if let Some(bad) = name.chars().find(|c| c.is_control()) {
            return Err(Error::invalid(format!(
                "a tag has the character {bad:?}; control characters are refused"
            )));
        }
        Ok(Tag(name))
    }

    /// The name.
    ///
    /// ```
    /// assert_eq!(facetheory::Tag::new("news")?.as_str(), "news");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of its epoch, for one tenant or for pages of nobody in particular.
    ///
    /// ```
    /// assert_eq!(facetheory::Tag::new("news")?.key(None).sk, "TAG");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn key(&self, tenant: Option<&Tenant>) -> Key {
        // A tenant has no `#`, so the tenant's part ends where it seems to, whatever the tag contains.
        let owner = tenant.map_or_else(String::new, |tenant| format!("TENANT#{tenant}#"));
        Key::new(format!("{owner}TAG#{}", self.0), "TAG")
    }
}

/// The row of a tag: everything that was generated until then is stale.
///
/// ```
/// use facetheory::Epoch;
///
/// let epoch = Epoch { invalidated_at: 1_700_000_000 };
/// assert_eq!(Epoch::read(&epoch.to_item())?, epoch);
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// When the tag was invalidated last, in epoch seconds.
    pub invalidated_at: i64,
}

impl Epoch {
    /// The row as the table has it.
    ///
    /// ```
    /// assert!(facetheory::Epoch::read(&tabletheory::Item::new()).is_err());
    /// ```
    pub fn read(item: &Item) -> Result<Self> {
        Ok(Epoch { invalidated_at: Reader::of("TAG", item).seconds(&name::INVALIDATED_AT)? })
    }

    /// The attributes of the row, without its key.
    ///
    /// ```
    /// assert_eq!(facetheory::Epoch { invalidated_at: 1 }.to_item().len(), 1);
    /// ```
    #[must_use]
    pub fn to_item(&self) -> Item {
        let mut item = Item::new();
        item.set(name::INVALIDATED_AT.name(), self.invalidated_at);
        item
    }
}
