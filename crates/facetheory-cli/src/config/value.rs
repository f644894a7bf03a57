//! Parsers for the values of keys. An error says what to write instead.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::header::HeaderName;
use toml::de::DeValue;

use super::section::shortened;
use super::units::{format_duration, format_size, parse_duration, parse_size};

pub(crate) fn string<'a>(value: &'a DeValue<'a>) -> Result<&'a str, String> {
    match value {
        DeValue::String(text) => Ok(text),
        other => Err(format!("{} is not a string; write it between quotes", describe(other))),
    }
}

/// A value that may be missing.
pub(crate) fn optional<'a, T>(
    parse: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
) -> impl FnOnce(&'a DeValue<'a>) -> Result<Option<T>, String> {
    move |value| parse(value).map(Some)
}

pub(crate) fn boolean(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("{} is neither `true` nor `false`", describe(value)))
}

/// One of the words of an enum.
pub(crate) fn keyword<T: clap::ValueEnum>(value: &DeValue<'_>) -> Result<T, String> {
    value.as_str().and_then(|word| T::from_str(word, false).ok()).ok_or_else(|| {
        let words = T::value_variants().iter().filter_map(T::to_possible_value);
        let words: Vec<String> = words.map(|word| format!("\"{}\"", word.get_name())).collect();
        format!("{} is not allowed; write one of {}", describe(value), words.join(", "))
    })
}

/// A whole number within these bounds.
pub(crate) fn number(min: u64, max: u64) -> impl Fn(&DeValue<'_>) -> Result<u64, String> {
    move |value| {
        let error =
            || format!("{} is not allowed; write a whole number from {min} to {max}", describe(value));
        integer(value).filter(|number| (min..=max).contains(number)).ok_or_else(error)
    }
}

/// A number that may have a fraction.
pub(crate) fn decimal(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::Integer(number) => number.as_str().parse().ok().filter(|_| number.radix() == 10),
        _ => None,
    }
}

/// A share of a whole, from 0 to 1.
pub(crate) fn share(value: &DeValue<'_>) -> Result<f64, String> {
    // The range does not contain NaN.
    let share = decimal(value).filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| {
        format!("{} is not allowed; write a number from 0 to 1, such as 0.01", describe(value))
    })
}

/// A number of bytes within these bounds, such as `"16KiB"`.
pub(crate) fn bytes(min: u64, max: u64) -> impl Fn(&DeValue<'_>) -> Result<u64, String> {
    move |value| {
        let bytes = match value {
            DeValue::String(text) => parse_size(text)?,
            other => integer(other)
                .ok_or_else(|| format!("{} is not a size, such as \"16KiB\"", describe(value)))?,
        };
        if (min..=max).contains(&bytes) {
            return Ok(bytes);
        }
        let (min, max) = (format_size(min), format_size(max));
        Err(format!("{} is not allowed; write a size from {min} to {max}", describe(value)))
    }
}

/// A duration, such as `"10s"`.
pub(crate) fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    match value {
        DeValue::String(text) => parse_duration(text),
        DeValue::Integer(number) => {
            Err(format!("{number} has no unit; did you mean \"{number}s\"? Units are ms, s, m, h and d"))
        }
        other => {
            Err(format!("{} is not a duration; write one such as \"10s\", \"5m\" or \"1h\"", describe(other)))
        }
    }
}

/// A duration of at least `min`.
pub(crate) fn duration_from(min: Duration) -> impl Fn(&DeValue<'_>) -> Result<Duration, String> {
    move |value| match duration(value)? {
        short if short < min => {
            Err(format!("{} is too short; the minimum is {}", describe(value), format_duration(min)))
        }
        duration => Ok(duration),
    }
}

/// A list of strings.
pub(crate) fn strings<'a>(value: &'a DeValue<'a>) -> Result<Vec<String>, String> {
    list_of(|item| string(item).map(str::to_owned))(value)
}

/// The name of a header, in lower case.
pub(crate) fn header_name(value: &DeValue<'_>) -> Result<String, String> {
    let name = string(value)?;
    // Many servers take `_` for `-`.
    let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok() && !name.contains('_');
    let invalid = || format!("`{}` is not the name of a header, such as `x-purge-token`", shortened(name));
    is_name.then(|| name.to_ascii_lowercase()).ok_or_else(invalid)
}

/// A list of values.
pub(crate) fn list_of<'a, T>(
    parse: impl Fn(&'a DeValue<'a>) -> Result<T, String>,
) -> impl FnOnce(&'a DeValue<'a>) -> Result<Vec<T>, String> {
    move |value| {
        let DeValue::Array(list) = value else {
            return Err(format!("{} is not a list; write it in brackets: [\"a\", \"b\"]", describe(value)));
        };
        list.iter().map(|item| parse(item.get_ref())).collect()
    }
}

/// An address to listen on.
pub(crate) fn address(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let text = string(value)?;
    text.parse().map_err(|_| {
        let shown = shortened(text);
        format!(
            "`{shown}` is not an address to listen on; write an IP address and a port, such as 127.0.0.1:8080"
        )
    })
}

/// A path in the file system.
pub(crate) fn path(value: &DeValue<'_>) -> Result<PathBuf, String> {
    match string(value)? {
        "" => Err("the path is empty".to_owned()),
        text if text.contains('\0') => Err("a path cannot contain a NUL character".to_owned()),
        text => Ok(PathBuf::from(text)),
    }
}

/// A whole number that is not negative.
fn integer(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Describes a value in an error.
pub(crate) fn describe(value: &DeValue<'_>) -> String {
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
