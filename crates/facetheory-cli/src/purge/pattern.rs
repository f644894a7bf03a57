//! Parses the patterns of bans back into the tags and paths that they were made of.
//!
//! A cache such as Varnish compares a pattern with every page that it has. Here an invalidation names tags and paths. This works because
//! plugins generate their patterns in a few forms from lists of tags. What a pattern selects is always invalidated, and
//! possibly more; a pattern of another form is [`Unknown`](TagPattern::Unknown). The time is linear in its length.

use std::ops::Range;

/// The pages that a pattern of tags selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TagPattern {
    /// Pages with any tags.
    All,
    /// Pages with one of these tags.
    Tags(Vec<String>),
    /// The form of the pattern is not known.
    Unknown,
}

/// The pages that a pattern of URLs selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UrlPattern {
    All,
    /// Pages at or below this path, and no others.
    Below(String),
}

/// How a plugin writes a dot of a tag into a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dot {
    Escaped,
    /// As it is: the plugin writes tags into patterns without escaping them.
    Literal,
}

/// Patterns that select everything.
const ALL: [&str; 9] = ["", ".*", "^.*$", ".+", ".", "*", "/.*", "^/.*", "^"];
/// The expressions before a tag, which say that it begins there.
const BEFORE: [&str; 7] = ["(^|,)", "(,|^)", "(^|\\s)", "(^| )", "^", "\\b", ",?"];
/// The expressions after a tag, which say that it ends there.
const AFTER: [&str; 9] = ["(,|$)", "($|,)", "($|\\,)", "(\\,|$)", "(\\s|$)", "($|\\s)", "( |$)", "$", "\\b"];
/// The expressions after a path, which say that it ends there.
const ENDS_OF_URLS: [&str; 6] = ["$", "(/|$)", "($|/)", "(\\?|$)", "($|\\?)", "(\\?.*)?$"];

/// Parses a pattern that is compared with the tags of pages.
pub(crate) fn tags(pattern: &str, dot: Dot) -> TagPattern {
    Parser::new(pattern, dot).tags()
}

struct Parser<'a> {
    text: &'a str,
    dot: Dot,
    /// For each parenthesis the position of the one that belongs to it; itself for any other byte.
    partner: Vec<usize>,
    /// Whether the byte is behind a backslash that escapes it.
    is_escaped: Vec<bool>,
    is_balanced: bool,
    /// How many bytes were looked at.
    steps: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, dot: Dot) -> Self {
        let (mut partner, mut is_escaped): (Vec<usize>, Vec<bool>) =
            ((0..text.len()).collect(), vec![false; text.len()]);
        let (mut open, mut is_balanced) = (Vec::new(), true);
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if is_escaped[at] => {}
                b'\\' if at + 1 < text.len() => is_escaped[at + 1] = true,
                b'(' => open.push(at),
                b')' => match open.pop() {
                    Some(start) => (partner[start], partner[at]) = (at, start),
                    None => is_balanced = false,
                },
                _ => {}
            }
        }
        is_balanced &= open.is_empty();
        Parser { text, dot, partner, is_escaped, is_balanced, steps: text.len() }
    }

    fn tags(&mut self) -> TagPattern {
        if !self.is_balanced {
            return TagPattern::Unknown;
        }
        let whole = 0..self.text.len();
        let (mut found, mut left) = (Vec::new(), vec![whole]);
        while let Some(range) = left.pop() {
            let range = self.stripped(range);
            if ALL.contains(&&self.text[range.clone()]) {
                return TagPattern::All;
            }
            let bars = self.bars(range.clone());
            if bars.is_empty() {
                let Some(literal) = self.literal(range) else { return TagPattern::Unknown };
                found.extend(super::names(&literal).map(str::to_owned));
                continue;
            }
            let starts = std::iter::once(range.start).chain(bars.iter().map(|bar| bar + 1));
            let ends = bars.iter().copied().chain([range.end]);
            left.extend(starts.zip(ends).map(|(start, end)| start..end));
        }
        found.sort_unstable();
        found.dedup();
        if found.is_empty() { TagPattern::All } else { TagPattern::Tags(found) }
    }

    /// The part of a range without the parentheses around it, and without what says where a tag begins and ends.
    fn stripped(&mut self, mut range: Range<usize>) -> Range<usize> {
        loop {
            self.steps += 1;
            let part = &self.text[range.clone()];
            let is_group =
                part.len() > 1 && part.starts_with('(') && self.partner[range.start] + 1 == range.end;
            let starts = |before: &&&str| part.starts_with(**before);
            let ends = |after: &&&str| part.ends_with(**after) && !self.is_escaped[range.end - after.len()];
            range = if is_group {
                range.start + 1..range.end - 1
            } else if let Some(before) = BEFORE.iter().find(starts) {
                range.start + before.len()..range.end
            } else if let Some(after) = AFTER.iter().find(ends) {
                range.start..range.end - after.len()
            } else {
                return range;
            };
        }
    }

    /// The positions of the alternatives' bars outside of groups.
    fn bars(&mut self, range: Range<usize>) -> Vec<usize> {
        let (mut bars, mut at) = (Vec::new(), range.start);
        while at < range.end {
            self.steps += 1;
            if self.text.as_bytes()[at] == b'|' && !self.is_escaped[at] {
                bars.push(at);
            }
            // The group after its beginning is looked at once its parentheses are stripped.
            at = self.partner[at].max(at) + 1;
        }
        bars
    }

    /// The text that this part of the pattern stands for; `None` if it stands for several.
    fn literal(&mut self, range: Range<usize>) -> Option<String> {
        self.steps += range.len();
        literal_start(&self.text[range], self.dot).and_then(|(text, rest)| rest.is_empty().then_some(text))
    }
}

/// The literal text at the beginning of a pattern, and the rest of the pattern. `None` if it begins with an escape that is no
/// escaped punctuation.
fn literal_start(pattern: &str, dot: Dot) -> Option<(String, &str)> {
    let (mut text, mut chars) = (String::new(), pattern.char_indices());
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some((_, escaped)) if escaped.is_ascii_punctuation() || escaped == ' ' => text.push(escaped),
                _ if text.is_empty() => return None,
                _ => return Some((text, &pattern[at..])),
            },
            '.' if dot == Dot::Literal => text.push('.'),
            '.' | '*' | '+' | '?' | '[' | '(' | ')' | '{' | '^' | '$' | '|' => {
                return Some((text, &pattern[at..]));
            }
            plain => text.push(plain),
        }
    }
    Some((text, ""))
}

/// Parses a pattern that is compared with the URLs of pages.
///
/// A pattern that is not bound to the beginning of the URL may match anywhere in it.
pub(crate) fn url(pattern: &str) -> UrlPattern {
    let Some(pattern) = pattern.strip_prefix('^').filter(|_| !has_bar(pattern)) else {
        return UrlPattern::All;
    };
    let Some((mut literal, rest)) = literal_start(pattern, Dot::Escaped) else { return UrlPattern::All };
    // A quantifier belongs to the last character, which may be absent then.
    let last = if rest.starts_with(['*', '?', '{', '+']) { literal.pop() } else { None };
    // A pattern that does not name the end of the URL also selects longer names: `^/blog` matches `/blog-2024`.
    let ends = ENDS_OF_URLS.contains(&rest) || (last == Some('/') && rest == "?$");
    below(&literal, ends)
}

/// The pages whose URL begins with this text, or that have this URL, if it `ends` there.
pub(crate) fn below(url: &str, ends: bool) -> UrlPattern {
    let (path, ends) = match url.split_once('?') {
        Some((path, _)) => (path, true),
        None => (url, ends),
    };
    let end = if ends { path.len() } else { path.rfind('/').unwrap_or(0) };
    match path[..end].trim_end_matches('/') {
        path if path.starts_with('/') => UrlPattern::Below(path.to_owned()),
        _ => UrlPattern::All,
    }
}

/// Whether a pattern has alternatives outside of groups.
fn has_bar(pattern: &str) -> bool {
    let mut parser = Parser::new(pattern, Dot::Escaped);
    !parser.is_balanced || !parser.bars(0..pattern.len()).is_empty()
}

#[cfg(test)]
mod tests;
