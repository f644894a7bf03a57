//! Random bytes, split at random positions.

use proptest::prelude::*;

use super::super::rejection::{SUBSTITUTE, SUBSTITUTE_METHOD};
use super::server::Server;
use super::{Next, RequestLimits, read};

/// A piece of a request, valid or not.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "HEAD /a?b HTTP/1.0\r\n",
        "POST /p HTTP/1.1\r\n",
        "POST http://a/p HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "CONNECT a:1 HTTP/1.1\r\n",
        "Host: a\r\n",
        "Host: b\r\n",
        "host:a\r\n",
        "X: y\r\n",
        "Content-Length: 3\r\n",
        "Content-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Connection: close\r\n",
        "Connection: Upgrade\r\n",
        "Upgrade: x\r\n",
        "Expect: 100-continue\r\n",
        "X_Y: z\r\n",
        " folded\r\n",
        "\r\n",
        "\n",
        "\r",
        "abc",
        "3\r\nabc\r\n",
        "3;x=y\r\nabc\r\n",
        "0\r\n\r\n",
        "0\r\nT: u\r\n\r\n",
        ":",
        " ",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ]);
    prop_oneof![
        9 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ]
}

/// A few whole requests with a few bytes changed, removed or added.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop::sample::select(vec![
        "GET /a/b?c=d HTTP/1.1\r\nHost: a.b:80\r\nAccept: */*\r\n\r\n",
        "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: u\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nX-Y: z\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    ]);
    let change = (
        any::<prop::sample::Index>(),
        0..3_u8,
        prop::sample::select(b"\r\n\t :,;_0aA/#\\@%\0\x7f\xff".to_vec()),
    );
    (prop::collection::vec(whole, 1..4), prop::collection::vec(change, 0..3)).prop_map(|(whole, changes)| {
        let mut bytes = whole.concat().into_bytes();
        for (index, kind, byte) in changes {
            let at = index.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    })
}

fn connection() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(piece(), 0..12).prop_map(|pieces| pieces.concat()), mutated()]
}

/// Splits bytes at some positions.
fn split<'a>(bytes: &'a [u8], positions: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut positions: Vec<_> = positions.iter().map(|at| at.index(bytes.len() + 1)).collect();
    positions.extend([0, bytes.len()]);
    positions.sort_unstable();
    positions.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

/// Parses accepted bytes with an independent parser: every head, and how its body is framed.
fn parse(mut bytes: &[u8]) -> Result<Vec<String>, String> {
    let mut requests = Vec::new();
    while !bytes.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 200];
        let mut request = httparse::Request::new(&mut headers);
        let end = match request.parse(bytes).map_err(|error| error.to_string())? {
            httparse::Status::Complete(end) => end,
            httparse::Status::Partial => return Err("a head has not ended".into()),
        };
        let line = format!("{} {}", request.method.unwrap_or(""), request.path.unwrap_or(""));
        let all = |name: &str| -> Vec<String> {
            let of_name = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            of_name.map(|header| String::from_utf8_lossy(header.value).into_owned()).collect()
        };
        let (hosts, lengths, codings) = (all("host"), all("content-length"), all("transfer-encoding"));
        if hosts.len() != 1 || !facetheory::is_valid_host(&hosts[0]) {
            return Err(format!("{line} has the hosts {hosts:?}"));
        }
        if bytes[..end]
            .iter()
            .enumerate()
            .any(|(at, &byte)| byte == b'\n' && (at == 0 || bytes[at - 1] != b'\r'))
        {
            return Err(format!("{line} has a bare LF"));
        }
        if request.headers.iter().any(|header| header.name.contains('_')) {
            return Err(format!("{line} has an underscore in a name"));
        }
        let is_read = ["GET", "HEAD"].contains(&request.method.unwrap_or(""));
        bytes = &bytes[end..];
        bytes = match (&lengths[..], &codings[..]) {
            ([], []) => bytes,
            ([length], []) => {
                let length: usize = length.parse().map_err(|_| format!("{line} has the length {length}"))?;
                if is_read && length > 0 {
                    return Err(format!("{line} has a body"));
                }
                &bytes[length.min(bytes.len())..]
            }
            ([], [coding]) if coding.eq_ignore_ascii_case("chunked") && !is_read => dechunk(bytes)?,
            _ => return Err(format!("{line} is framed by {lengths:?} and {codings:?}")),
        };
        requests.push(line);
    }
    Ok(requests)
}

/// The bytes after a chunked body, whose end may be missing.
fn dechunk(mut bytes: &[u8]) -> Result<&[u8], String> {
    loop {
        let (from, size) = match httparse::parse_chunk_size(bytes).map_err(|_| "a chunk is malformed")? {
            httparse::Status::Complete(found) => found,
            httparse::Status::Partial => return Ok(b""),
        };
        bytes = &bytes[from..];
        if size == 0 {
            let mut headers = [httparse::EMPTY_HEADER; 200];
            return match httparse::parse_headers(bytes, &mut headers).map_err(|error| error.to_string())? {
                httparse::Status::Complete((end, _)) => Ok(&bytes[end..]),
                httparse::Status::Partial => Ok(b""),
            };
        }
        let size = usize::try_from(size).map_err(|_| "a chunk is too large")?;
        match bytes.get(size..size + 2) {
            Some(b"\r\n") => bytes = &bytes[size + 2..],
            Some(_) => return Err("a chunk does not end".into()),
            None => return Ok(b""),
        }
    }
}

proptest! {
    #[test]
    fn the_outcome_does_not_depend_on_how_the_bytes_are_split(
        bytes in connection(),
        positions in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let whole = read([&bytes[..]], RequestLimits::default());
        let pieces = read(split(&bytes, &positions), RequestLimits::default());
        prop_assert_eq!(&pieces.next, &whole.next);
        if pieces.body_is_rejected {
            // The head was accepted before its body was rejected.
            prop_assert!(pieces.accepted.starts_with(&whole.accepted));
        } else {
            prop_assert_eq!(pieces.accepted, whole.accepted);
        }
    }

    #[test]
    fn no_bytes_cause_a_panic(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10),
    ) {
        read(pieces.iter().map(Vec::as_slice), RequestLimits { header_bytes: 60, ..RequestLimits::default() });
    }

    #[test]
    fn accepted_bytes_have_one_meaning(bytes in connection()) {
        let outcome = read([&bytes[..]], RequestLimits::default());
        let parsed = parse(&outcome.accepted);
        prop_assert!(parsed.is_ok(), "{:?} of {:?}", parsed, String::from_utf8_lossy(&outcome.accepted));
    }

    #[test]
    fn hyper_calls_the_service_with_exactly_the_accepted_requests(
        bytes in connection(),
        positions in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let pieces = split(&bytes, &positions);
        let (responses, requests) = runtime.expect("a runtime").block_on(async {
            Server::start(100_000).converse_and_close(&pieces).await
        });
        let whole = read([&bytes[..]], RequestLimits::default());
        if whole.next == Next::Upgrade {
            return Ok(());
        }
        let expected = parse(&whole.accepted).expect("checked elsewhere");
        for (at, line) in requests.iter().enumerate() {
            prop_assert!(!line.contains(SUBSTITUTE_METHOD));
            // A body that is incomplete, or rejected in a later piece than its head, fails the last request.
            if let Some(expected) = expected.get(at) {
                prop_assert!(line.starts_with(expected.as_str()), "{} instead of {}", line, expected);
            } else {
                prop_assert!(line.ends_with("with a failed body") && at == expected.len(), "{} was not sent", line);
            }
        }
        prop_assert!(!responses.contains("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0"),
            "hyper rejected accepted bytes: {}", String::from_utf8_lossy(&whole.accepted));
    }
}

#[test]
fn the_substitute_has_one_meaning() {
    assert_eq!(parse(SUBSTITUTE), Ok(vec![format!("{SUBSTITUTE_METHOD} /")]));
}
