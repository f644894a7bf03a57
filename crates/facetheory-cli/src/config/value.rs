//! Values of keys: each kind is read in one way, and says what it should be where it is not.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::section::shortened;
use super::{duration, size};

/// A text.
pub(crate) fn text<'a>(value: &'a DeValue<'a>) -> Result<&'a str, String> {
    match value {
        DeValue::String(text) => Ok(text),
        other => Err(format!("{} is no text; write it between quotes", told(other))),
    }
}

/// `true` or `false`.
pub(crate) fn yes_or_no(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("{} is neither `true` nor `false`", told(value)))
}

/// A whole number within these bounds.
pub(crate) fn number(least: u64, most: u64) -> impl Fn(&DeValue<'_>) -> Result<u64, String> {
    move |value| {
        let wrong = || format!("{} is not allowed; write a whole number from {least} to {most}", told(value));
        integer(value).filter(|number| (least..=most).contains(number)).ok_or_else(wrong)
    }
}

/// A number of bytes within these bounds, such as `"16KiB"`.
pub(crate) fn bytes(least: u64, most: u64) -> impl Fn(&DeValue<'_>) -> Result<u64, String> {
    move |value| {
        let bytes = match value {
            DeValue::String(text) => size::parse(text)?,
            other => {
                integer(other).ok_or_else(|| format!("{} is no size, such as \"16KiB\"", told(value)))?
            }
        };
        if (least..=most).contains(&bytes) {
            return Ok(bytes);
        }
        let (least, most) = (size::print(least), size::print(most));
        Err(format!("{} is not allowed; write a size from {least} to {most}", told(value)))
    }
}

/// A duration, such as `"10s"`.
pub(crate) fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    match value {
        DeValue::String(text) => duration::parse(text),
        DeValue::Integer(number) => {
            Err(format!("{number} has no unit; did you mean \"{number}s\"? Units are ms, s, m, h and d"))
        }
        other => Err(format!("{} is no duration; write one such as \"10s\", \"5m\" or \"1h\"", told(other))),
    }
}

/// A duration of at least this.
pub(crate) fn duration_from(least: Duration) -> impl Fn(&DeValue<'_>) -> Result<Duration, String> {
    move |value| {
        let fault = || format!("{} is too short; at least {} is needed", told(value), duration::print(least));
        let read = self::duration(value)?;
        if read < least { Err(fault()) } else { Ok(read) }
    }
}

/// A list of texts.
pub(crate) fn names(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let DeValue::Array(list) = value else {
        return Err(format!("{} is no list; write it in brackets: [\"a\", \"b\"]", told(value)));
    };
    list.iter().map(|item| text(item.get_ref()).map(str::to_owned)).collect()
}

/// An address to listen on.
pub(crate) fn address(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let text = text(value)?;
    let fault = || {
        let shown = shortened(text);
        format!(
            "`{shown}` is no address to listen on; write an IP address and a port, such as 127.0.0.1:8080"
        )
    };
    text.parse().map_err(|_| fault())
}

/// A path in the file system.
pub(crate) fn path(value: &DeValue<'_>) -> Result<PathBuf, String> {
    match text(value)? {
        "" => Err("it is empty; write a path".to_owned()),
        text if text.contains('\0') => Err("no path has a NUL".to_owned()),
        text => Ok(PathBuf::from(text)),
    }
}

/// A whole number that is not negative.
fn integer(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// A value as errors show it.
pub(crate) fn told(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{}\"", shortened(text)),
        DeValue::Integer(number) => shortened(&number.to_string()),
        DeValue::Float(number) => shortened(&number.to_string()),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
