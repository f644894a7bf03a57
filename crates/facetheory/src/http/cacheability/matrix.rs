//! Method, status, headers and visitor against what is kept: one row each.

use super::*;
use http::HeaderValue;

/// method, status, headers of the response (`;;` between them), what the visitor sent, and what becomes of it.
///
/// The route keys on `accept-language` and on a cookie where the fourth column says `keyed`, and on `authorization`
/// where it says `partitioned`; its interval holds whatever an answer says of it where it says `fixed`. A body of `<p>hello</p>`
/// comes with it, unless the fourth column says otherwise.
const ROWS: &[(&str, u16, &str, &str, &str)] = &[
    // Methods.
    ("GET", 200, "", "", "store"),
    ("HEAD", 200, "", "", "store"),
    ("POST", 200, "", "", "decline: only answers to GET and HEAD are kept"),
    ("PUT", 200, "", "", "decline: only answers to GET and HEAD are kept"),
    ("DELETE", 200, "", "", "decline: only answers to GET and HEAD are kept"),
    ("OPTIONS", 200, "", "", "decline: only answers to GET and HEAD are kept"),
    ("PATCH", 404, "", "", "decline: only answers to GET and HEAD are kept"),
    ("POST", 500, "", "", "fail: the renderer failed with 500"),
    // Statuses.
    ("GET", 101, "", "", "fail: the renderer gave no final answer (1xx)"),
    ("GET", 103, "", "", "fail: the renderer gave no final answer (1xx)"),
    ("GET", 201, "", "", "decline: answers with status 201 are not kept"),
    ("GET", 203, "", "", "store"),
    ("GET", 204, "", "empty", "decline: answers with status 204 are not kept"),
    ("GET", 205, "", "empty", "decline: answers with status 205 are not kept"),
    ("GET", 206, "", "", "fail: the renderer sent a part (206) although it was asked for all"),
    ("GET", 300, "location: /b", "", "decline: answers with status 300 are not kept"),
    ("GET", 301, "location: /b", "", "store"),
    ("GET", 301, "location: /b", "empty", "store"),
    ("GET", 302, "location: /b", "empty", "store"),
    ("GET", 303, "location: /b", "empty", "store"),
    ("GET", 304, "", "empty", "fail: the renderer said 304 although it was asked without a condition"),
    ("GET", 307, "location: /b", "empty", "store"),
    ("GET", 308, "location: /b", "empty", "store"),
    ("GET", 302, "", "", "decline: the redirect has no Location"),
    ("GET", 308, "", "empty", "decline: the redirect has no Location"),
    ("GET", 400, "", "", "decline: answers with status 400 are not kept"),
    ("GET", 401, "", "", "decline: answers with status 401 are not kept"),
    ("GET", 403, "", "", "decline: answers with status 403 are not kept"),
    ("GET", 404, "", "", "store for 10 s"),
    ("GET", 404, "", "empty", "store for 10 s"),
    ("HEAD", 410, "", "", "store for 10 s"),
    ("GET", 404, "cache-control: s-maxage=3", "", "store for 3 s"),
    ("GET", 404, "cache-control: no-store", "", "decline: the response says no-store"),
    ("GET", 429, "", "", "fail: the renderer asks for fewer requests (429)"),
    ("GET", 451, "", "", "decline: answers with status 451 are not kept"),
    ("GET", 500, "", "", "fail: the renderer failed with 500"),
    ("GET", 500, "cache-control: public, s-maxage=60", "", "fail: the renderer failed with 500"),
    ("GET", 502, "", "", "fail: the renderer failed with 502"),
    ("GET", 503, "", "empty", "fail: the renderer failed with 503"),
    ("GET", 504, "", "", "fail: the renderer failed with 504"),
    // Cache-Control.
    ("GET", 200, "cache-control: public", "", "store"),
    ("GET", 200, "cache-control: max-age=5", "", "store"),
    ("GET", 200, "cache-control: max-age=0, must-revalidate", "", "store"),
    ("GET", 200, "cache-control: s-maxage=5", "", "store for 5 s"),
    ("GET", 200, "cache-control: max-age=9;;cache-control: S-MAXAGE=\"5\"", "", "store for 5 s"),
    ("GET", 200, "cache-control: s-maxage=5", "fixed", "store"),
    ("GET", 404, "cache-control: s-maxage=5", "fixed", "store for 10 s"),
    ("GET", 200, "cache-control: s-maxage=0", "fixed", "decline: the response says s-maxage=0"),
    ("GET", 200, "cache-control: s-maxage=0", "", "decline: the response says s-maxage=0"),
    ("GET", 200, "cache-control: s-maxage=-1", "", "decline: the response says s-maxage=0"),
    ("GET", 200, "cache-control: no-store", "", "decline: the response says no-store"),
    ("GET", 200, "cache-control: public, s-maxage=9, No-Store", "", "decline: the response says no-store"),
    ("GET", 200, "cache-control: must-understand, no-store", "", "decline: the response says no-store"),
    ("HEAD", 200, "cache-control: no-store", "", "decline: the response says no-store"),
    ("GET", 301, "location: /b;;cache-control: no-store", "", "decline: the response says no-store"),
    ("GET", 200, "cache-control: private", "", "decline: the response says private"),
    ("GET", 200, "cache-control: public;;cache-control: PRIVATE", "", "decline: the response says private"),
    ("GET", 200, "cache-control: private=\"x-name\"", "", "decline: the response says private"),
    ("GET", 200, "cache-control: no-cache", "", "decline: the response says no-cache"),
    ("GET", 200, "cache-control: no-cache=\"set-cookie\"", "", "decline: the response says no-cache"),
    ("GET", 200, "cache-control: nonsense, =, max-age", "", "store"),
    ("GET", 200, "expires: 0;;pragma: no-cache", "", "store"),
    // Cookies.
    ("GET", 200, "set-cookie: a=1", "", "decline: the response sets a cookie"),
    (
        "GET",
        200,
        "set-cookie: a=1;;cache-control: public, s-maxage=9",
        "",
        "decline: the response sets a cookie",
    ),
    ("HEAD", 200, "set-cookie: a=1", "", "decline: the response sets a cookie"),
    ("GET", 404, "set-cookie: a=1", "", "decline: the response sets a cookie"),
    ("GET", 302, "location: /b;;set-cookie: a=1", "", "decline: the response sets a cookie"),
    ("GET", 503, "set-cookie: a=1", "", "fail: the renderer failed with 503"),
    ("GET", 200, "set-cookie: a=1", "keyed", "decline: the response sets a cookie"),
    // Authorization.
    ("GET", 200, "", "authorization", AUTHORIZATION),
    ("HEAD", 200, "", "authorization", AUTHORIZATION),
    ("GET", 404, "", "authorization", AUTHORIZATION),
    ("GET", 200, "cache-control: public, s-maxage=60", "authorization", AUTHORIZATION),
    ("GET", 200, "", "authorization partitioned", "store"),
    ("GET", 200, "cache-control: private", "authorization partitioned", "decline: the response says private"),
    ("GET", 200, "vary: authorization", "authorization partitioned", "store"),
    (
        "GET",
        200,
        "vary: authorization",
        "",
        "decline: the response varies with authorization; list that header in the route to tell its pages apart",
    ),
    ("GET", 500, "", "authorization", "fail: the renderer failed with 500"),
    // Vary.
    ("GET", 200, "vary: Accept-Encoding, Host", "", "store"),
    ("GET", 200, "vary: *", "", "decline: the response varies with anything (Vary: *)"),
    (
        "GET",
        200,
        "vary: accept-encoding;;vary: *",
        "keyed",
        "decline: the response varies with anything (Vary: *)",
    ),
    ("GET", 200, "vary: Accept-Language", "keyed", "store"),
    ("GET", 200, "vary: Cookie", "keyed", "store"),
    (
        "GET",
        200,
        "vary: Cookie",
        "",
        "decline: the response varies with cookie; list that header in the route to tell its pages apart",
    ),
    (
        "GET",
        200,
        "vary: user-agent",
        "keyed",
        "decline: the response varies with user-agent; list that header in the route to tell its pages apart",
    ),
    // Bodies.
    ("GET", 200, "", "empty", "decline: the page is empty"),
    ("HEAD", 200, "", "empty", "decline: the page is empty"),
    ("GET", 200, "content-length: 12", "", "store"),
    ("GET", 200, "content-length: 13", "", TRUNCATED),
    ("GET", 200, "content-length: nonsense", "", TRUNCATED),
    ("GET", 404, "", "cut", TRUNCATED),
    ("GET", 200, "", "cut", TRUNCATED),
    ("GET", 200, "", "long", "decline: the page is longer than 100 bytes"),
    (
        "GET",
        200,
        "content-encoding: gzip",
        "",
        "decline: the response has a Content-Encoding that nobody asked for",
    ),
    ("GET", 200, "content-encoding: identity", "", "store"),
    // What a renderer says by a handle.
    ("GET", 200, "", "hint", "store for 7 s"),
    ("GET", 200, "cache-control: s-maxage=9", "hint", "store for 7 s"),
    ("GET", 200, "cache-control: s-maxage=9", "hint fixed", "store for 7 s"),
    ("GET", 404, "", "hint", "store for 7 s"),
    ("GET", 200, "", "never", "decline: the renderer said that it is never kept"),
    ("GET", 200, "cache-control: no-store", "hint", "decline: the response says no-store"),
];

const AUTHORIZATION: &str =
    "decline: the visitor sent Authorization; list that header in the route to keep a page for each";
const TRUNCATED: &str = "fail: the body ended early, or has another length than was told";

fn verdict(row: &(&str, u16, &str, &str, &str)) -> String {
    let (method, status, headers, visit, _) = *row;
    let line = |line: &str| {
        let (name, value) = line.split_once(": ").expect("a header");
        (HeaderName::try_from(name).expect("a name"), HeaderValue::try_from(value).expect("a value"))
    };
    let headers: HeaderMap = headers.split(";;").filter(|text| !text.is_empty()).map(line).collect();
    let mut keyed = Vec::new();
    if visit.contains("keyed") {
        keyed.push(http::header::ACCEPT_LANGUAGE);
    }
    if visit.contains("partitioned") {
        keyed.push(http::header::AUTHORIZATION);
    }
    let hint = match visit {
        "hint" | "hint fixed" => Some(CacheHint::new().fresh_for(Duration::from_secs(7))),
        "never" => Some(CacheHint::new().never_kept()),
        _ => None,
    };
    let answer = Answer {
        method: &Method::try_from(method).expect("a method"),
        authorized: visit.contains("authorization"),
        status: StatusCode::from_u16(status).expect("a status"),
        headers: &headers,
        hint: hint.as_ref(),
        bytes: match visit {
            "empty" => 0,
            "long" => 101,
            _ => 12,
        },
        complete: visit != "cut",
        welcome: true,
    };
    let terms = Terms {
        headers: &keyed,
        cookies: visit.contains("keyed"),
        overrides: false,
        fixed_interval: visit.contains("fixed"),
        negative: Duration::from_secs(10),
        max_bytes: 100,
    };
    match Verdict::of(&answer, &terms) {
        Verdict::Store(Kept { revalidate: None, .. }) => "store".to_owned(),
        Verdict::Store(Kept { revalidate: Some(time), .. }) => format!("store for {} s", time.as_secs()),
        Verdict::Decline(reason) => format!("decline: {reason}"),
        Verdict::Fail(reason) => format!("fail: {reason}"),
    }
}

/// `cargo test -p facetheory --all-features --lib matrix -- --nocapture` prints the table.
#[test]
fn the_matrix_says_what_is_kept() {
    assert!(ROWS.len() >= 60, "{} rows", ROWS.len());
    println!(
        "{:<8} {:<6} {:<52} {:<26} verdict",
        "method", "status", "response headers", "visitor and route"
    );
    for row in ROWS {
        let (method, status, headers, visit, expected) = *row;
        println!("{method:<8} {status:<6} {headers:<52} {visit:<26} {expected}");
        assert_eq!(verdict(row), expected, "{row:?}");
    }
}

#[test]
fn tags_come_from_headers_and_hints_each_once_and_not_too_many() {
    let tagged = |lines: &[(HeaderName, &str)], hint: Option<&CacheHint>| {
        let headers: HeaderMap = lines
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_bytes(value.as_bytes()).expect("a value")))
            .collect();
        let answer = Answer {
            method: &Method::GET,
            authorized: false,
            status: StatusCode::OK,
            headers: &headers,
            hint,
            bytes: 1,
            complete: true,
            welcome: true,
        };
        let terms = Terms {
            headers: &[],
            cookies: false,
            overrides: false,
            fixed_interval: false,
            negative: Duration::ZERO,
            max_bytes: 1,
        };
        let Verdict::Store(kept) = Verdict::of(&answer, &terms) else { panic!("a page") };
        assert!(kept.headers.is_empty(), "tags are for us, not for visitors");
        let names: Vec<String> = kept.tags.iter().map(|tag| tag.as_str().to_owned()).collect();
        (names, kept.tags_left_out)
    };
    let hint = CacheHint::new().tag(Tag::new("typed").expect("a tag"));
    let (tags, left_out) =
        tagged(&[(SURROGATE_KEY, "a b  typed"), (CACHE_TAG, "b, c d,,e,path=/x")], Some(&hint));
    assert_eq!(tags, ["typed", "a", "b", "c d", "e"]);
    assert_eq!(left_out, 1, "`path=` is no tag of a renderer");
    let many: Vec<String> = (0..MAX_TAGS + 3).map(|n| n.to_string()).collect();
    let (tags, left_out) = tagged(&[(CACHE_TAG, &many.join(","))], None);
    assert_eq!((tags.len(), left_out), (MAX_TAGS, 3));
    let long = "x".repeat(Tag::MAX_BYTES + 1);
    assert_eq!(tagged(&[(SURROGATE_KEY, &long)], None), (vec![], 1));
}

#[test]
fn headers_that_a_row_cannot_hold_keep_a_page_out() {
    let headers: HeaderMap =
        [(http::header::LINK, HeaderValue::from_bytes(b"\xff").expect("a value"))].into_iter().collect();
    let answer = Answer {
        method: &Method::GET,
        authorized: false,
        status: StatusCode::OK,
        headers: &headers,
        hint: None,
        bytes: 1,
        complete: true,
        welcome: true,
    };
    let terms = Terms {
        headers: &[],
        cookies: false,
        overrides: false,
        fixed_interval: false,
        negative: Duration::ZERO,
        max_bytes: 1,
    };
    assert_eq!(
        Verdict::of(&answer, &terms),
        Verdict::Decline(UncacheableReason::UnreadableHeader(http::header::LINK))
    );
}

#[test]
fn a_rule_that_overrides_keeps_what_forbids_it_but_never_a_cookie() {
    let headers = |line: &'static str| -> HeaderMap {
        [(http::header::CACHE_CONTROL, HeaderValue::from_static(line))].into_iter().collect()
    };
    let verdict = |headers: &HeaderMap, overrides| {
        let answer = Answer {
            method: &Method::GET,
            authorized: false,
            status: StatusCode::OK,
            headers,
            hint: None,
            bytes: 1,
            complete: true,
            welcome: true,
        };
        Verdict::of(
            &answer,
            &Terms {
                headers: &[],
                cookies: false,
                overrides,
                fixed_interval: false,
                negative: Duration::ZERO,
                max_bytes: 1,
            },
        )
    };
    for line in ["no-store", "private", "no-cache", "s-maxage=0", "private, no-cache, no-store, max-age=0"] {
        assert!(matches!(verdict(&headers(line), false), Verdict::Decline(_)), "{line}");
        let Verdict::Store(kept) = verdict(&headers(line), true) else { panic!("{line} is outweighed") };
        assert_eq!(kept.revalidate, None, "{line}");
    }
    let mut cookie = headers("no-store");
    cookie.insert(http::header::SET_COOKIE, HeaderValue::from_static("a=1"));
    assert_eq!(verdict(&cookie, true), Verdict::Decline(UncacheableReason::SetCookie));
}
