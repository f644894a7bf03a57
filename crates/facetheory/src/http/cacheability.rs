//! What is kept of what a renderer answers: a pure decision, with a reason for every "no".

use std::fmt;
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, COOKIE, HOST, HeaderName, LOCATION, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};

use crate::http::compression::is_coded;
use crate::http::headers::{CACHE_TAG, SURROGATE_KEY, Unkept, kept};
use crate::http::hint::CacheHint;
use crate::http::semantics::cache_control::CacheControl;
use crate::http::semantics::vary::Vary;
use crate::protocol::epoch::Tag;

#[cfg(test)]
mod matrix;

/// What becomes of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is a page for everyone.
    Store(Kept),
    /// It is this visitor's own: sent, and nothing is stored.
    Decline(UncacheableReason),
    /// It is no answer: what is served stays, and the renderer is left alone for a while.
    Fail(UncacheableReason),
}

/// How a page is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// For how long it is fresh, where that is not for the policy to say.
    pub(crate) revalidate: Option<Duration>,
    /// What its renderer tags it with, each once.
    pub(crate) tags: Vec<Tag>,
    /// How many tags were left out, because they are none or too many.
    pub(crate) tags_left_out: usize,
    /// The headers that are kept with it.
    pub(crate) headers: Vec<(String, String)>,
}

/// What a route says of its pages, as far as keeping them is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// The headers that tell pages apart, and that the renderer sees.
    pub(crate) headers: &'a [HeaderName],
    /// Whether cookies do.
    pub(crate) cookies: bool,
    /// Whether the rule outweighs an answer that says that it is not to be kept.
    pub(crate) overrides: bool,
    /// Whether the route says for how long pages are fresh, whatever an answer says of it.
    pub(crate) fixed_interval: bool,
    /// For how long a page is fresh that says that there is none.
    pub(crate) negative: Duration,
    /// The longest page that is kept, in bytes.
    pub(crate) max_bytes: u64,
}

/// What a renderer answered, and to what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    /// The visitor's method.
    pub(crate) method: &'a Method,
    /// Whether the visitor sent `Authorization`.
    pub(crate) authorized: bool,
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) hint: Option<&'a CacheHint>,
    /// How long the body is, or how much of it has come so far.
    pub(crate) bytes: u64,
    /// Whether the body came to its end.
    pub(crate) complete: bool,
    /// Whether the page may be kept, if it was not before: there may be too many new ones.
    pub(crate) welcome: bool,
}

/// Why an answer is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UncacheableReason {
    ServerError(StatusCode),
    TooManyRequests,
    Informational,
    NotModified,
    Partial,
    Truncated,
    Method,
    Authorization,
    NeverKept,
    Status(StatusCode),
    Empty,
    TooLong { limit: u64 },
    SetCookie,
    Cookie,
    NoStore,
    Private,
    NoCache,
    NeverFresh,
    VaryAnything,
    Vary(HeaderName),
    Coded,
    NoLocation,
    UnreadableHeader(HeaderName),
    TooManyHeaders,
    TooManyPages,
}

impl UncacheableReason {
    /// Whether the renderer says by it that a page is not, or no longer, for everyone.
    pub(crate) fn takes_back(&self) -> bool {
        let is_visitors = matches!(
            self,
            UncacheableReason::Method | UncacheableReason::Authorization | UncacheableReason::Cookie
        );
        !is_visitors && !self.is_for_all()
    }

    /// Whether it is the same for all visitors, whatever else they send.
    pub(crate) fn is_for_all(&self) -> bool {
        self.is_limit()
            || matches!(
                self,
                UncacheableReason::Empty | UncacheableReason::Coded | UncacheableReason::NoLocation
            )
    }

    /// Whether it is a limit of ours.
    fn is_limit(&self) -> bool {
        use UncacheableReason::{TooLong, TooManyHeaders, TooManyPages, UnreadableHeader};
        matches!(self, TooLong { .. } | UnreadableHeader(_) | TooManyHeaders | TooManyPages)
    }
}

/// The most tags that a renderer may give a page: the epoch of each is looked up when the page is served.
pub(crate) const MAX_TAGS: usize = 64;

impl Verdict {
    /// What becomes of an answer.
    ///
    /// For how long it is fresh is said by its [`CacheHint`], else by its `s-maxage` where the route lets it, else by the route;
    /// `max-age` and `Expires` are for browsers and say nothing here.
    pub(crate) fn of(answer: &Answer<'_>, terms: &Terms<'_>) -> Verdict {
        if let Some(reason) = failure(answer) {
            return Verdict::Fail(reason);
        }
        match keep(answer, terms) {
            Ok(kept) => Verdict::Store(kept),
            Err(reason) => Verdict::Decline(reason),
        }
    }
}

/// Why an answer is none. The renderer was asked for all of a page, without conditions.
fn failure(answer: &Answer<'_>) -> Option<UncacheableReason> {
    let status = answer.status;
    match status {
        status if status.is_server_error() => Some(UncacheableReason::ServerError(status)),
        status if status.is_informational() => Some(UncacheableReason::Informational),
        StatusCode::TOO_MANY_REQUESTS => Some(UncacheableReason::TooManyRequests),
        // They are about one attempt, and none of a page.
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => Some(UncacheableReason::Status(status)),
        StatusCode::NOT_MODIFIED => Some(UncacheableReason::NotModified),
        StatusCode::PARTIAL_CONTENT => Some(UncacheableReason::Partial),
        _ if !answer.complete || !is_of_its_length(answer) => Some(UncacheableReason::Truncated),
        _ => None,
    }
}

/// Whether the body has the length that its headers tell, where they tell one.
fn is_of_its_length(answer: &Answer<'_>) -> bool {
    let told = answer.headers.get_all(CONTENT_LENGTH).iter();
    told.map(|length| length.to_str().ok().and_then(|length| length.trim().parse::<u64>().ok()))
        .all(|length| length == Some(answer.bytes))
}

fn keep(answer: &Answer<'_>, terms: &Terms<'_>) -> Result<Kept, UncacheableReason> {
    let (status, headers) = (answer.status, answer.headers);
    let refuse_if = |wrong: bool, reason: UncacheableReason| if wrong { Err(reason) } else { Ok(()) };
    let keyed = |name: &HeaderName| terms.headers.contains(name);

    refuse_if(*answer.method != Method::GET && *answer.method != Method::HEAD, UncacheableReason::Method)?;
    refuse_if(answer.authorized && !keyed(&http::header::AUTHORIZATION), UncacheableReason::Authorization)?;
    refuse_if(answer.hint.is_some_and(|hint| hint.never_kept), UncacheableReason::NeverKept)?;
    refuse_if(!STORED.contains(&status), UncacheableReason::Status(status))?;
    refuse_if(headers.contains_key(SET_COOKIE), UncacheableReason::SetCookie)?;

    let said = CacheControl::of(headers);
    if !terms.overrides {
        refuse_if(said.no_store, UncacheableReason::NoStore)?;
        refuse_if(said.private.is_some(), UncacheableReason::Private)?;
        refuse_if(said.no_cache.is_some(), UncacheableReason::NoCache)?;
        refuse_if(said.s_maxage == Some(Duration::ZERO), UncacheableReason::NeverFresh)?;
    }

    let Vary::On(names) = Vary::of(headers) else { return Err(UncacheableReason::VaryAnything) };
    // We choose the coding ourselves, and every key has the host or is of one site.
    let told_apart = |name: &HeaderName| {
        keyed(name) || *name == ACCEPT_ENCODING || *name == HOST || (*name == COOKIE && terms.cookies)
    };
    if let Some(name) = names.into_iter().find(|name| !told_apart(name)) {
        return Err(UncacheableReason::Vary(name));
    }

    refuse_if(is_coded(headers), UncacheableReason::Coded)?;
    refuse_if(status.is_redirection() && !headers.contains_key(LOCATION), UncacheableReason::NoLocation)?;
    refuse_if(status.is_success() && answer.bytes == 0, UncacheableReason::Empty)?;
    refuse_if(answer.bytes > terms.max_bytes, UncacheableReason::TooLong { limit: terms.max_bytes })?;
    refuse_if(!answer.welcome, UncacheableReason::TooManyPages)?;
    let headers = kept(headers).map_err(|unkept| match unkept {
        Unkept::Unreadable(name) => UncacheableReason::UnreadableHeader(name),
        Unkept::TooMany => UncacheableReason::TooManyHeaders,
    })?;

    let negative = matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE).then_some(terms.negative);
    let hinted = answer.hint.and_then(|hint| hint.fresh_for);
    let (tags, tags_left_out) = tags_of(answer.hint, answer.headers);
    let said = told_interval(&said, terms.fixed_interval);
    Ok(Kept { revalidate: hinted.or(said).or(negative), tags, tags_left_out, headers })
}

/// For how long an answer says that it is fresh, where that is for it to say. Zero is left only where the rule outweighs it.
fn told_interval(said: &CacheControl, fixed_interval: bool) -> Option<Duration> {
    said.s_maxage.filter(|time| !fixed_interval && !time.is_zero())
}

/// What may be a page for everyone: pages, redirects, and that there is none.
const STORED: [StatusCode; 9] = [
    StatusCode::OK,
    StatusCode::NON_AUTHORITATIVE_INFORMATION,
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
    StatusCode::NOT_FOUND,
    StatusCode::GONE,
];

/// The tags of a hint, of `Surrogate-Key` and of `Cache-Tag`, and how many others were left out.
pub(crate) fn tags_of(hint: Option<&CacheHint>, headers: &HeaderMap) -> (Vec<Tag>, usize) {
    let mut tags: Vec<Tag> = Vec::new();
    let mut left_out = 0;
    let mut add = |tag: Option<Tag>| match tag {
        Some(tag) if tags.contains(&tag) => {}
        Some(tag) if tags.len() < MAX_TAGS => tags.push(tag),
        _ => left_out += 1,
    };
    hint.into_iter().flat_map(|hint| &hint.tags).for_each(|tag| add(Some(tag.clone())));
    for (name, separator) in [(SURROGATE_KEY, ' '), (CACHE_TAG, ',')] {
        for line in headers.get_all(name) {
            let Ok(line) = std::str::from_utf8(line.as_bytes()) else {
                add(None);
                continue;
            };
            let names = line.split(separator).map(str::trim).filter(|name| !name.is_empty());
            names.for_each(|name| add(Tag::new(name).ok()));
        }
    }
    (tags, left_out)
}

impl fmt::Display for UncacheableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UncacheableReason::ServerError(status) => {
                write!(f, "the renderer failed with {}", status.as_u16())
            }
            UncacheableReason::TooManyRequests => f.write_str("the renderer asks for fewer requests (429)"),
            UncacheableReason::Informational => f.write_str("the renderer gave no final answer (1xx)"),
            UncacheableReason::NotModified => {
                f.write_str("the renderer said 304 although it was asked without a condition")
            }
            UncacheableReason::Partial => {
                f.write_str("the renderer sent a part (206) although it was asked for all")
            }
            UncacheableReason::Truncated => {
                f.write_str("the body ended early, or has another length than was told")
            }
            UncacheableReason::Method => f.write_str("only answers to GET and HEAD are kept"),
            UncacheableReason::Authorization => f.write_str(
                "the visitor sent Authorization; list that header in the route to keep a page for each",
            ),
            UncacheableReason::NeverKept => f.write_str("the renderer said that it is never kept"),
            UncacheableReason::Status(status) => {
                write!(f, "answers with status {} are not kept", status.as_u16())
            }
            UncacheableReason::Empty => f.write_str("the page is empty"),
            UncacheableReason::TooLong { limit } => write!(f, "the page is longer than {limit} bytes"),
            UncacheableReason::SetCookie => f.write_str("the response sets a cookie"),
            UncacheableReason::Cookie => {
                f.write_str("the visitor sent a cookie, and the response does not say how it is cached")
            }
            UncacheableReason::NoStore => f.write_str("the response says no-store"),
            UncacheableReason::Private => f.write_str("the response says private"),
            UncacheableReason::NoCache => f.write_str("the response says no-cache"),
            UncacheableReason::NeverFresh => f.write_str("the response says s-maxage=0"),
            UncacheableReason::VaryAnything => f.write_str("the response varies with anything (Vary: *)"),
            UncacheableReason::Vary(name) => {
                write!(
                    f,
                    "the response varies with {name}; list that header in the route to tell its pages apart"
                )
            }
            UncacheableReason::Coded => {
                f.write_str("the response has a Content-Encoding that nobody asked for")
            }
            UncacheableReason::NoLocation => f.write_str("the redirect has no Location"),
            UncacheableReason::UnreadableHeader(name) => {
                write!(f, "the value of the header {name} is no UTF-8")
            }
            UncacheableReason::TooManyHeaders => {
                f.write_str("the headers are too many or too long to be kept")
            }
            UncacheableReason::TooManyPages => f.write_str("too many pages are new in this second"),
        }
    }
}
