//! An HTTP/1 request parser with the strictest interpretation of every rule. It shares no code with the gateway.

use std::fmt;

/// A parsed request.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path and the query, also for a target in absolute form.
    pub(crate) target: String,
    pub(crate) host: String,
    /// Names in lower case, values trimmed.
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, Vec<u8>)>,
    /// Whether it requests an upgrade.
    pub(crate) is_upgrade: bool,
}

/// The result of parsing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A complete request, and its length.
    Complete(Request, usize),
    /// A request with an incomplete body, and the error in the rest if there is one.
    Part(Request, Option<&'static str>),
    /// The beginning of a request.
    Open,
    Invalid(&'static str),
}

/// The framing of a body.
enum Framing {
    Sized(usize),
    Chunked,
}

/// Why parsing stops.
enum ParseError {
    Missing,
    Invalid(&'static str),
}

type Read<T> = Result<T, ParseError>;

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} for {}", self.method, self.target, self.host)?;
        for (name, value) in self.fields.iter().chain(&self.trailers) {
            write!(f, ", {name}: {}", value.escape_ascii())?;
        }
        write!(f, ", body: `{}`", self.body.escape_ascii())
    }
}

impl Request {
    /// All values of a header with this lower-case name.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_slice())
    }
}

/// Parses the request at the start of these bytes.
pub(crate) fn read(bytes: &[u8]) -> Parsed {
    let mut rest = bytes;
    let (mut request, framing) = match head(&mut rest) {
        Ok(head) => head,
        Err(ParseError::Missing) => return Parsed::Open,
        Err(ParseError::Invalid(why)) => return Parsed::Invalid(why),
    };
    let outcome = match framing {
        Framing::Sized(length) => sized(&mut rest, length, &mut request.body),
        Framing::Chunked => chunked(&mut rest, &mut request),
    };
    match outcome {
        Ok(()) => Parsed::Complete(request, bytes.len() - rest.len()),
        Err(ParseError::Missing) => Parsed::Part(request, None),
        Err(ParseError::Invalid(why)) => Parsed::Part(request, Some(why)),
    }
}

fn invalid<T>(why: &'static str) -> Read<T> {
    Err(ParseError::Invalid(why))
}

/// The next line, without its line break.
fn line<'a>(rest: &mut &'a [u8]) -> Read<&'a [u8]> {
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    let Some(end) = rest.iter().position(is_control) else { return Err(ParseError::Missing) };
    match &rest[end..] {
        [b'\r', b'\n', after @ ..] => {
            let line = &rest[..end];
            *rest = after;
            Ok(line)
        }
        [b'\r'] => Err(ParseError::Missing),
        _ => invalid("a control character in a line"),
    }
}

fn head(rest: &mut &[u8]) -> Read<(Request, Framing)> {
    let first = line(rest)?;
    let mut words = first.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return invalid("the request line does not have three words");
    };
    if method.is_empty() || !method.iter().all(is_token) {
        return invalid("the method is not a token");
    }
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return invalid("the target has characters that must be encoded");
    }
    let is_http_11 = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ => return invalid("unsupported version"),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut request = Request { method: text(method), fields: fields(rest)?, ..Request::default() };
    if ["CONNECT", "TRACE"].contains(&request.method.as_str()) {
        return invalid("the method is never forwarded");
    }
    request.host = host(&request)?;
    request.target = path(&text(target), &request)?;
    let framing = framing(&request, is_http_11)?;
    let names = |name: &str, option: &[u8]| {
        let options = request.values(name).flat_map(|value| value.split(|byte| *byte == b','));
        options.into_iter().any(|given| given.trim_ascii().eq_ignore_ascii_case(option))
    };
    request.is_upgrade =
        is_http_11 && names("connection", b"upgrade") && request.values("upgrade").next().is_some();
    let is_bodiless = matches!(framing, Framing::Sized(0));
    if !is_bodiless && (request.is_upgrade || ["GET", "HEAD"].contains(&request.method.as_str())) {
        return invalid("a body is not allowed");
    }
    Ok((request, framing))
}

/// Parses header lines up to the empty line.
fn fields(rest: &mut &[u8]) -> Read<Vec<(String, Vec<u8>)>> {
    let mut fields = Vec::new();
    loop {
        let line = line(rest)?;
        if line.is_empty() {
            return Ok(fields);
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return invalid("a header line without a colon");
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(is_token) {
            return invalid("the header name is not a token");
        }
        fields.push((String::from_utf8_lossy(name).to_ascii_lowercase(), value.to_vec()));
    }
}

fn host(request: &Request) -> Read<String> {
    let mut hosts = request.values("host");
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return invalid("not exactly one Host") };
    match str::from_utf8(host) {
        Ok(host) if is_valid_host(host) => Ok(host.to_owned()),
        _ => invalid("invalid Host"),
    }
}

/// Whether this is a host name or an address, with or without a port.
pub(crate) fn is_valid_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (text, "0"),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_address = |name: &str| {
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
    };
    let is_name = !name.is_empty() && name.bytes().all(is_plain);
    (is_name || is_address(name)) && port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty()
}

fn path(target: &str, request: &Request) -> Read<String> {
    if target.starts_with('/') || (target == "*" && request.method == "OPTIONS") {
        return Ok(target.to_owned());
    }
    let Some((scheme, rest)) = target.split_once("://") else { return invalid("invalid target") };
    if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
        return invalid("the target has another scheme");
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if !authority.eq_ignore_ascii_case(&request.host) {
        return invalid("the target has another host");
    }
    Ok(if path.starts_with('/') { path.to_owned() } else { format!("/{path}") })
}

fn framing(request: &Request, is_http_11: bool) -> Read<Framing> {
    let lengths: Vec<&[u8]> = request.values("content-length").collect();
    let codings: Vec<&[u8]> = request.values("transfer-encoding").collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(Framing::Sized(0)),
        ([], [coding]) if is_http_11 && coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        ([length], []) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            let length = str::from_utf8(length).ok().and_then(|length| length.parse().ok());
            length.map_or(invalid("the length overflows"), |length| Ok(Framing::Sized(length)))
        }
        _ => invalid("the framing is ambiguous"),
    }
}

fn sized(rest: &mut &[u8], length: usize, body: &mut Vec<u8>) -> Read<()> {
    let (here, after) = rest.split_at(length.min(rest.len()));
    body.extend_from_slice(here);
    *rest = after;
    if here.len() < length { Err(ParseError::Missing) } else { Ok(()) }
}

fn chunked(rest: &mut &[u8], request: &mut Request) -> Read<()> {
    const DIGITS: usize = 16;
    const NOT_TRAILERS: [&str; 6] =
        ["content-length", "transfer-encoding", "host", "connection", "upgrade", "expect"];
    loop {
        let line = line(rest)?;
        let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
        if size.is_empty() || size.len() > DIGITS || !size.iter().all(u8::is_ascii_hexdigit) {
            return invalid("invalid chunk size");
        }
        if !line.is_ascii() {
            return invalid("the chunk extension is not text");
        }
        let size = usize::from_str_radix(&String::from_utf8_lossy(size), 16);
        let Ok(size) = size else { return invalid("the chunk size overflows") };
        if size == 0 {
            request.trailers = fields(rest)?;
            let is_late = request.trailers.iter().any(|(name, _)| NOT_TRAILERS.contains(&name.as_str()));
            return if is_late { invalid("forbidden trailer field") } else { Ok(()) };
        }
        sized(rest, size, &mut request.body)?;
        match rest {
            [b'\r', b'\n', after @ ..] => *rest = after,
            [] | [b'\r'] => return Err(ParseError::Missing),
            _ => return invalid("the chunk is longer than its size"),
        }
    }
}

pub(crate) fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(bytes: &str) -> Option<&'static str> {
        match read(bytes.as_bytes()) {
            Parsed::Invalid(why) | Parsed::Part(_, Some(why)) => Some(why),
            Parsed::Complete(..) | Parsed::Part(_, None) | Parsed::Open => None,
        }
    }

    #[test]
    fn a_request_ends_where_its_framing_says() {
        let bytes = "POST /a HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nt: u\r\n\r\nGET";
        let Parsed::Complete(request, end) = read(bytes.as_bytes()) else { panic!("a request") };
        assert_eq!((request.body.as_slice(), &bytes[end..]), (&b"abc"[..], "GET"));
        assert_eq!(request.trailers, [("t".to_owned(), b"u".to_vec())]);
        let cut = "POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\nab";
        assert!(matches!(read(cut.as_bytes()), Parsed::Part(request, None) if request.body == b"ab"));
        assert_eq!(read(b"GET / HTTP/1.1\r\nHost: b\r\n"), Parsed::Open);
    }

    #[test]
    fn ambiguous_requests_are_invalid() {
        for bytes in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n b: c\r\n\r\n",
            "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\nx",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy",
        ] {
            assert!(why(bytes).is_some(), "{bytes:?}");
        }
    }
}
