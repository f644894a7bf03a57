//! Tenants, whose pages never share a row.

use std::fmt;

use crate::error::{Error, Result};

/// A tenant. Its name is a part of every key, so tenants never share a row.
///
/// ```
/// use facetheory::Tenant;
///
/// assert_eq!(Tenant::new("acme")?.as_str(), "acme");
/// assert!(Tenant::new("acme#CACHE#x").is_err(), "rejected, never escaped");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(String);

impl Tenant {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// The tenant with this name: 1 to 128 bytes, without `#` and control characters.
    ///
    /// ```
    /// let error = facetheory::Tenant::new("a\nb").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "a tenant contains the character '\\n'; `#` and control characters are not allowed"
    /// );
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        Error::check_length("a tenant", &name, Self::MAX_BYTES)?;
        if let Some(bad) = name.chars().find(|c| *c == '#' || c.is_control()) {
            return Err(Error::invalid(format!(
                "a tenant contains the character {bad:?}; `#` and control characters are not allowed"
            )));
        }
        Ok(Tenant(name))
    }

    /// The name.
    ///
    /// ```
    /// assert_eq!(facetheory::Tenant::new("acme")?.as_str(), "acme");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The prefix of the partition keys of a tenant; empty for pages without one.
    pub(in crate::protocol) fn prefix(tenant: Option<&Tenant>) -> String {
        tenant.map_or_else(String::new, |tenant| format!("TENANT#{tenant}#"))
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
