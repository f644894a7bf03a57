//! The line of a request in the access log, in both formats.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::IpAddr;

use facetheory::{PageKey, Tenant};
use serde::{Serialize, Serializer};

/// A line of the access log, as its JSON format names the parts.
#[derive(Debug, Serialize)]
pub(super) struct AccessLine<'a> {
    pub(super) timestamp: &'a str,
    pub(super) level: &'static str,
    pub(super) message: &'static str,
    pub(super) peer: IpAddr,
    pub(super) method: &'a str,
    pub(super) host: Cow<'a, str>,
    pub(super) path: &'a str,
    pub(super) status: u16,
    pub(super) state: Cow<'a, str>,
    #[serde(rename = "key", serialize_with = "serialize_redacted")]
    pub(super) page: Option<&'a PageKey>,
    #[serde(serialize_with = "serialize_tenant")]
    pub(super) tenant: Option<&'a Tenant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    pub(super) bytes: Option<u64>,
    /// The time until the head of the response was ready.
    pub(super) duration_ms: f64,
}

fn serialize_redacted<S: Serializer>(page: &Option<&PageKey>, serializer: S) -> Result<S::Ok, S::Error> {
    match page {
        Some(page) => serializer.collect_str(&page.redacted()),
        None => serializer.serialize_none(),
    }
}

fn serialize_tenant<S: Serializer>(tenant: &Option<&Tenant>, serializer: S) -> Result<S::Ok, S::Error> {
    tenant.map(Tenant::as_str).serialize(serializer)
}

impl AccessLine<'_> {
    /// Appends the line in JSON.
    pub(super) fn add_json(&self, text: &mut Vec<u8>) {
        let start = text.len();
        match serde_json::to_writer(&mut *text, self) {
            Ok(()) => text.push(b'\n'),
            // A partial line would corrupt the next one.
            Err(_) => text.truncate(start),
        }
    }

    /// Appends the line for people.
    pub(super) fn add_human(&self, text: &mut Vec<u8>) {
        let mut line = HumanLine(text);
        line.raw(self.timestamp);
        line.displayed(self.peer);
        line.text(self.method);
        line.text(&self.host);
        line.text(self.path);
        line.displayed(self.status);
        line.text(&self.state);
        match self.bytes {
            Some(bytes) => line.displayed(format_args!("{bytes}B")),
            None => line.raw(" -B"),
        }
        line.displayed(format_args!("{:.1}ms", self.duration_ms));
        match self.page {
            Some(page) => line.displayed(page.redacted()),
            None => line.text(""),
        }
        if let Some(reason) = self.reason {
            line.raw(": ");
            line.raw(reason);
        }
        line.raw("\n");
    }
}

/// A line of words that are separated by spaces. Control characters in a word, which could end the line or control a
/// terminal, and spaces are escaped.
struct HumanLine<'a>(&'a mut Vec<u8>);

impl HumanLine<'_> {
    /// Appends a text as it is.
    fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Appends a word, or `-` if it is empty.
    fn text(&mut self, word: &str) {
        self.displayed(if word.is_empty() { "-" } else { word });
    }

    /// Appends a value as a word.
    fn displayed(&mut self, word: impl fmt::Display) {
        self.raw(" ");
        // Writing to a `Vec` cannot fail.
        let _ = write!(self, "{word}");
    }
}

/// Appends an escaped text.
impl fmt::Write for HumanLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_plain = |byte: &u8| matches!(byte, b'!'..=b'~');
        if text.as_bytes().iter().all(is_plain) {
            self.raw(text);
            return Ok(());
        }
        for c in text.chars() {
            if c.is_control() || c == ' ' {
                self.0.extend(c.escape_unicode().map(|c| c as u8));
            } else {
                self.0.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        Ok(())
    }
}
