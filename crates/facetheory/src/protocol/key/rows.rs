//! The keys of the rows of a page.

use tabletheory::Key;

use super::PageKey;
use crate::error::{Error, Result};
use crate::protocol::digest::sha256_hex;

impl PageKey {
    /// The partition of all rows of the page.
    ///
    /// ```
    /// assert!(facetheory::PageKey::new("/a")?.pk().starts_with("CACHE#"));
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn pk(&self) -> &str {
        self.pk.get_or_init(|| self.scheme.pk(self.tenant.as_ref(), &self.cache_key).into())
    }

    /// The key of the metadata row.
    ///
    /// ```
    /// assert_eq!(facetheory::PageKey::new("/a")?.meta().sk, "META");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn meta(&self) -> Key {
        Key::new(self.pk(), "META")
    }

    /// The key of the lease row.
    ///
    /// ```
    /// assert_eq!(facetheory::PageKey::new("/a")?.lock().sk, "LOCK");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn lock(&self) -> Key {
        Key::new(self.pk(), "LOCK")
    }

    /// The key of the version with this id.
    ///
    /// ```
    /// let page = facetheory::PageKey::new("/")?;
    /// assert_eq!(page.version("01").sk, "VER#01");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn version(&self, id: &str) -> Key {
        Key::new(self.pk(), format!("VER#{id}"))
    }

    /// The key of the request with this idempotency key, which a client chose.
    ///
    /// A plain key (letters, digits, `-`, `_`, `.` and `:`, at most 128 bytes) is used as it is. Any other is hashed, so that
    /// no text can name another row.
    ///
    /// ```
    /// use facetheory::PageKey;
    ///
    /// let page = PageKey::new("/a")?;
    /// assert_eq!(page.request("order-7")?.sk, "REQ#order-7");
    /// assert!(page.request("../META")?.sk.starts_with("REQ#sha256="));
    /// assert!(page.request("x".repeat(5000)).is_err());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn request(&self, idempotency_key: impl AsRef<str>) -> Result<Key> {
        /// Longer keys are rejected.
        const MAX_BYTES: usize = 4096;
        /// Longer plain keys are hashed as well.
        const MAX_PLAIN_BYTES: usize = 128;
        let key = idempotency_key.as_ref();
        Error::check_length("an idempotency key", key, MAX_BYTES)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        let sk = if key.len() <= MAX_PLAIN_BYTES && key.bytes().all(plain) {
            format!("REQ#{key}")
        } else {
            // A plain key contains no `=`, so it never equals a hashed one.
            format!("REQ#sha256={}", sha256_hex(key.as_bytes()))
        };
        Ok(Key::new(self.pk(), sk))
    }
}
