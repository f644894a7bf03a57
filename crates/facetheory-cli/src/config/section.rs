//! A table of the file, read key by key: what is not asked for is unknown.

use std::cell::RefCell;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::diagnostic::{Fault, Faults};
use super::suggestion::nearest;

/// A file, and what is wrong with it as far as it has been read.
pub(crate) struct Source {
    /// Where its lines end: a text that is all wrong has a fault in each, and none is looked for from the beginning.
    ends: Vec<usize>,
    faults: RefCell<Vec<Fault>>,
}

impl Source {
    /// The file of this text.
    pub(crate) fn new(text: &str) -> Self {
        Source { ends: memchr::memchr_iter(b'\n', text.as_bytes()).collect(), faults: RefCell::default() }
    }

    /// Notes that something is wrong here.
    pub(crate) fn fault(&self, span: Range<usize>, text: impl Into<String>) {
        self.faults.borrow_mut().push(Fault { line: Some(self.line(&span)), text: text.into() });
    }

    /// The line of a place, from 1.
    pub(crate) fn line(&self, span: &Range<usize>) -> usize {
        self.ends.partition_point(|end| *end < span.start) + 1
    }

    /// What was read, if nothing is wrong with it.
    pub(crate) fn finish<T>(self, read: T) -> Result<T, Faults> {
        let mut faults = self.faults.into_inner();
        faults.sort();
        faults.dedup();
        if faults.is_empty() { Ok(read) } else { Err(Faults(faults)) }
    }
}

/// Keys of earlier versions: the table, the old key and the new one.
pub(crate) const RENAMED: [(&str, &str, &str); 9] = [
    (TOP, "collection", "gc"),
    ("[store]", "believe", "metadata_max_age"),
    ("[gc]", "every", "interval"),
    ("[limits]", "new_keys_per_second", "new_pages_per_second"),
    (RULE, "swr", "stale_while_revalidate"),
    (RULE, "override", "ignore_origin_cache_control"),
    (RULE, "negative", "negative_ttl"),
    (RULE, "render_deadline", "render_timeout"),
    (RULE, "wait", "wait_timeout"),
];
/// The name of the top level of the file in errors.
pub(crate) const TOP: &str = "the file";
/// The name of a rule's table in errors.
pub(crate) const RULE: &str = "a rule";

/// One table of the file; one that is missing has no keys.
pub(crate) struct Section<'a> {
    pub(crate) source: &'a Source,
    /// What its keys are keys of, for errors: `[limits]`, or a rule.
    name: &'static str,
    table: Option<&'a DeTable<'a>>,
    /// The keys that were asked for, which are those that there are.
    asked: Vec<&'static str>,
    /// Keys that have an error of their own.
    misplaced: Vec<&'a str>,
}

impl<'a> Section<'a> {
    /// The table of this name.
    pub(crate) fn new(source: &'a Source, name: &'static str, table: Option<&'a DeTable<'a>>) -> Self {
        Section { source, name, table, asked: Vec::new(), misplaced: Vec::new() }
    }

    /// The value of a key as it is written, and where.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<(&'a DeValue<'a>, Range<usize>)> {
        self.asked.push(key);
        let value = self.table?.get(key)?;
        Some((value.get_ref(), value.span()))
    }

    /// The value of a key; one that is wrong is noted and left out.
    pub(crate) fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        let (value, span) = self.value(key)?;
        read(value).map_err(|fault| self.source.fault(span, format!("`{key}`: {fault}"))).ok()
    }

    /// The table under a key.
    pub(crate) fn section(&mut self, key: &'static str, name: &'static str) -> Section<'a> {
        let table = self.read(key, |value| match value {
            DeValue::Table(table) => Ok(table),
            _ => Err(format!("it must be a table: write `{name}` in a line of its own, and its keys below")),
        });
        Section::new(self.source, name, table)
    }

    /// The place of a key that there is for nothing but its own error.
    pub(crate) fn misplaced(&mut self, key: &'static str) -> Option<Range<usize>> {
        let (key, _) = self.table?.get_key_value(key)?;
        self.misplaced.push(key.get_ref());
        Some(key.span())
    }

    /// Whether it lacks one of these keys.
    pub(crate) fn lacks(&self, keys: &[&str]) -> bool {
        self.table.is_some_and(|table| keys.iter().any(|key| !table.contains_key(*key)))
    }

    /// Where a key stands; the beginning of the file where it does not.
    pub(crate) fn place(&self, key: &str) -> Range<usize> {
        self.table.and_then(|table| table.get_key_value(key)).map_or(0..0, |(key, _)| key.span())
    }

    /// Notes all keys that were not asked for.
    pub(crate) fn finish(self) {
        for (key, _) in self.table.into_iter().flat_map(DeTable::iter) {
            let written = key.get_ref().as_ref();
            if self.asked.contains(&written) || self.misplaced.contains(&written) {
                continue;
            }
            let is_renamed = |(table, old, _): &&(&str, &str, &str)| *table == self.name && *old == written;
            if let Some((_, _, new)) = RENAMED.iter().find(is_renamed) {
                self.source.fault(key.span(), format!("`{written}` was renamed: write `{new}` instead"));
                continue;
            }
            let hint = match nearest(written, &self.asked) {
                Some(meant) => format!("did you mean `{meant}`? "),
                None => String::new(),
            };
            let known = self.asked.join(", ");
            let name = self.name;
            let written = shortened(written);
            let fault = format!("`{written}` is no key of {name}; {hint}known keys: {known}");
            self.source.fault(key.span(), fault);
        }
    }
}

/// A text of the file as errors show it: not at any length, and on one line.
pub(crate) fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}
