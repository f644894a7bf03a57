//! Conversion between an [`Item`] and its columns, with a checksum to detect damage.

use rusqlite::{Connection, OptionalExtension as _, Row};

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

/// Returns the item, or [`Item::damaged`] if the checksum does not match.
///
/// Fails if the row is not the one with this key: then the file is damaged, and not only this row.
pub(super) fn decode(connection: &Connection, row: &Row<'_>) -> Result<Item, BackendError> {
    let pk = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
    let sk = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
    let key = Key::new(pk, sk);
    if let (Ok(text), Ok(crc)) = (row.get_ref(2)?.as_str(), row.get::<_, i64>(3))
        && i64::from(checksum(pk, sk, text)) == crc
        && let Ok(item) = Item::from_json(text)
    {
        return Ok(item.with_key(&key));
    }
    check_key(connection, &key)?;
    Ok(Item::damaged(&key))
}

/// Like [`decode`], for the row that a search for this key has found.
///
/// Fails if the row has another key. SQLite ends a search at a key that is less than the one that it searched, if the keys of the
/// index are not in their order.
pub(super) fn decode_found(connection: &Connection, row: &Row<'_>, key: &Key) -> Result<Item, BackendError> {
    if has_key(row, key)? { decode(connection, row) } else { Err(mismatch(key)) }
}

/// Whether a row that begins with the columns `pk` and `sk` has this key.
fn has_key(row: &Row<'_>, key: &Key) -> rusqlite::Result<bool> {
    Ok(row.get_ref(0)?.as_str() == Ok(&key.pk) && row.get_ref(1)?.as_str() == Ok(&key.sk))
}

/// Fails if the index on the keys leads from a key to a row with another key. Each of the two rows would be written in place
/// of the other.
fn check_key(connection: &Connection, key: &Key) -> Result<(), BackendError> {
    // Files of earlier versions have no such index, and no row numbers.
    let Ok(mut find) = connection.prepare_cached("SELECT rowid FROM item WHERE pk = ?1 AND sk = ?2") else {
        return Ok(());
    };
    let Some(number) = find.query_row([&key.pk, &key.sk], |row| row.get::<_, i64>(0)).optional()? else {
        return Err(mismatch(key));
    };
    let mut read = connection.prepare_cached("SELECT pk, sk FROM item WHERE rowid = ?1")?;
    if read.query_row([number], |row| has_key(row, key))? { Ok(()) } else { Err(mismatch(key)) }
}

/// The error if the rows and the index on their keys differ.
pub(super) fn mismatch(key: &Key) -> BackendError {
    BackendError::Damage(Error::corrupt(format!("the index of the table does not match the row {key}")))
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
