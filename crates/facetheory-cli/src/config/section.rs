//! Reads the tables of the file key by key, and collects all errors.

use std::cell::RefCell;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Diagnostics};
use super::suggestion::{renamed, suggest};

/// The name of the top level of the file in errors.
pub(crate) const TOP: &str = "the file";
/// The name of a rule's table in errors.
pub(crate) const RULE: &str = "a rule";

/// The error for a token in the configuration.
const TOKEN_IN_FILE: &str = "the token must not be in this file, which is copied and shown to people: write it to a \
                             separate file and name that in `token_file`, or set FACETHEORY_ADMIN_TOKEN";

/// A file, and the errors found in it so far.
pub(crate) struct Source {
    /// The positions of all line ends, so that finding the line of an error does not scan the file.
    line_ends: Vec<usize>,
    diagnostics: RefCell<Vec<Diagnostic>>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let line_ends = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
        Source { line_ends, diagnostics: RefCell::default() }
    }

    /// Adds an error.
    pub(crate) fn report(&self, span: Range<usize>, message: impl Into<String>) {
        let diagnostic = Diagnostic { line: self.line(&span), message: message.into() };
        self.diagnostics.borrow_mut().push(diagnostic);
    }

    /// Returns the line in which a span begins, from 1.
    pub(crate) fn line(&self, span: &Range<usize>) -> usize {
        self.line_ends.partition_point(|end| *end < span.start) + 1
    }

    /// Returns the parsed value, or all errors if there are any.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Diagnostics> {
        let mut diagnostics = self.diagnostics.into_inner();
        diagnostics.sort();
        diagnostics.dedup();
        if diagnostics.is_empty() { Ok(value) } else { Err(Diagnostics(diagnostics)) }
    }
}

/// A table of the file. A table that is missing has no keys.
///
/// The keys that are read are the known ones; [`Section::finish`] reports all others.
pub(crate) struct Section<'a> {
    pub(crate) source: &'a Source,
    /// The name of the table in errors: `[limits]`, or [`RULE`].
    name: &'static str,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(crate) fn new(source: &'a Source, name: &'static str, table: Option<&'a DeTable<'a>>) -> Self {
        Section { source, name, table, known: Vec::new() }
    }

    /// Returns the raw value of a key and its position.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<(&'a DeValue<'a>, Range<usize>)> {
        self.known.push(key);
        let value = self.table?.get(key)?;
        Some((value.get_ref(), value.span()))
    }

    /// Parses the value of a key. Returns `None` if the key is missing, or if its value is invalid, which is reported.
    pub(crate) fn read<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        let (value, span) = self.value(key)?;
        parse(value).map_err(|error| self.source.report(span, format!("`{key}`: {error}"))).ok()
    }

    /// Parses the value of a key into `target`, which stays as it is if the key is missing or its value is invalid.
    pub(crate) fn set<T>(
        &mut self,
        key: &'static str,
        target: &mut T,
        parse: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) {
        if let Some(value) = self.read(key, parse) {
            *target = value;
        }
    }

    /// Returns the table under a key.
    pub(crate) fn section(&mut self, key: &'static str, name: &'static str) -> Section<'a> {
        let table = self.read(key, |value| match value {
            DeValue::Table(table) => Ok(table),
            _ => Err(format!(
                "this must be a table: write `{name}` on a line of its own and its keys below it"
            )),
        });
        Section::new(self.source, name, table)
    }

    /// Whether the table itself is in the file.
    pub(crate) fn is_present(&self) -> bool {
        self.table.is_some()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Returns the position of a key, or the beginning of the file if the key is missing.
    pub(crate) fn position(&self, key: &str) -> Range<usize> {
        self.table.and_then(|table| table.get_key_value(key)).map_or(0..0, |(key, _)| key.span())
    }

    /// Returns the position of a key in the table under a key, if both are in the file.
    pub(crate) fn position_below(&self, table: &str, key: &str) -> Range<usize> {
        let below = self.table.and_then(|own| own.get(table)).and_then(|value| value.get_ref().as_table());
        below.and_then(|below| below.get_key_value(key)).map_or(0..0, |(key, _)| key.span())
    }

    /// Reports all keys that were not read.
    pub(crate) fn finish(self) {
        for (key, _) in self.table.into_iter().flat_map(DeTable::iter) {
            let written = key.get_ref().as_ref();
            if !self.known.contains(&written) {
                self.source.report(key.span(), self.unknown(written));
            }
        }
    }

    fn unknown(&self, written: &str) -> String {
        if (self.name, written) == ("[admin]", "token") {
            return TOKEN_IN_FILE.to_owned();
        }
        if let Some(new) = renamed(self.name, written) {
            return format!("`{written}` was renamed: write `{new}` instead");
        }
        let hint = suggest(written, &self.known).map(|meant| format!("did you mean `{meant}`? "));
        let (written, hint, name) = (shortened(written), hint.unwrap_or_default(), self.name);
        format!("unknown key `{written}`; {hint}keys of {name}: {}", self.known.join(", "))
    }
}

/// Defines a table of the file as a struct. Each key has a type, a default, a parser, and optionally the name of a function
/// that serializes its value. A method named after the keys reports keys that contradict each other.
macro_rules! table {
    ($(#[$attr:meta])* $name:ident {
        $($(#[$doc:meta])* $key:ident: $type:ty = $default:expr, $parse:expr $(, $serialize:tt)?;)*
    } $($check:ident)?) => {
        $(#[$attr])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
        pub(crate) struct $name {
            $(
                $(#[$doc])*
                $(#[serde(serialize_with = $serialize)])?
                pub(crate) $key: $type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($key: $default,)* }
            }
        }

        impl $name {
            pub(crate) fn read(mut section: $crate::config::section::Section<'_>) -> Self {
                let mut table = $name::default();
                $(section.set(stringify!($key), &mut table.$key, $parse);)*
                $(table.$check(&section);)?
                section.finish();
                table
            }
        }
    };
}
pub(crate) use table;

/// Shortens and escapes a text of the file for use in an error.
pub(crate) fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let mut shown: String = text.chars().take(MAX_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
