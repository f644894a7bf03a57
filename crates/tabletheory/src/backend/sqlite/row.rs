//! Conversion between an [`Item`] and its columns, with a checksum to detect damage.

use rusqlite::Row;

use super::error::BackendError;
use crate::error::Error;
use crate::item::{Item, Key};

/// The columns that [`decode`] reads, in this order.
pub(super) const COLUMNS: &str = "pk, sk, item, crc";

/// Returns the item column and its checksum.
pub(super) fn encode(key: &Key, item: &Item) -> (String, u32) {
    let text = item.to_json_without_key();
    let crc = checksum(&key.pk, &key.sk, &text);
    (text, crc)
}

/// Returns the item, or [`Kind::Corrupt`](crate::Kind::Corrupt) if the checksum does not match.
pub(super) fn decode(row: &Row<'_>) -> Result<Item, BackendError> {
    let pk = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
    let sk = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
    let text = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
    let crc: i64 = row.get(3)?;
    let key = Key::new(pk, sk);
    let damaged = || {
        Error::corrupt(format!(
            "the row {key} is damaged; restore the file from a backup, or delete the row so that it is written again"
        ))
    };
    if i64::from(checksum(pk, sk, text)) != crc {
        return Err(damaged().into());
    }
    let item = Item::from_json(text).map_err(|cause| damaged().caused_by(cause))?;
    Ok(item.with_key(&key))
}

/// Covers the parts, separated by a byte that does not occur in UTF-8.
fn checksum(pk: &str, sk: &str, text: &str) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for part in [pk, sk, text] {
        crc.update(part.as_bytes());
        crc.update(&[0xFF]);
    }
    crc.finalize()
}
