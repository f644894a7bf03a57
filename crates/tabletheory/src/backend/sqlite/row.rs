//! A row between its columns and an [`Item`], with a checksum that tells a damaged one.

use rusqlite::Row;

use super::error::Fault;
use crate::error::Error;
use crate::item::{Item, Key};

/// The columns that [`decode`] reads, in its order.
pub(super) const COLUMNS: &str = "pk, sk, item, crc";

/// The item column and its checksum.
pub(super) fn encode(key: &Key, item: &Item) -> (String, u32) {
    let text = item.to_json_without_key();
    let crc = checksum(&key.pk, &key.sk, &text);
    (text, crc)
}

/// The item, or [`Kind::Corrupt`](crate::Kind::Corrupt) if it is not what was written.
pub(super) fn decode(row: &Row<'_>) -> Result<Item, Fault> {
    let pk = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
    let sk = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
    let text = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
    let crc: i64 = row.get(3)?;
    let key = Key::new(pk, sk);
    let damaged = || {
        Error::corrupt(format!(
            "the row {key} is damaged; restore the file from a backup, or delete the row to let it be made again"
        ))
    };
    if i64::from(checksum(pk, sk, text)) != crc {
        return Err(damaged().into());
    }
    let item = Item::from_json(text).map_err(|cause| damaged().caused_by(cause))?;
    Ok(item.with_key(&key))
}

/// Over the parts with a byte between them that occurs in no text.
fn checksum(pk: &str, sk: &str, text: &str) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for part in [pk, sk, text] {
        crc.update(part.as_bytes());
        crc.update(&[0xFF]);
    }
    crc.finalize()
}
