//! Seeds of the fuzzer: known attacks, most of them rows of `docs/internals/attacks.md`.

/// Each contains `{id}` for its id.
const SEEDS: [&str; 34] = [
    "GET /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 5, 5\r\n\r\nhello",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "POST /pass/{id} HTTP/1.0\r\nHost: www.example.com\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nX-A: b\r\n\tContent-Length: 5\r\n\r\n",
    "GET /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding\t: chunked\r\n\r\n",
    "GET /pass/{id} HTTP/1.1\nHost: www.example.com\n\n",
    "GET /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nX-A: b\rX-B: c\r\n\r\n",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\nx\r\n0\r\n\r\n",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy0\r\n\r\n",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000001\r\nx\r\n0\r\n\r\n",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: b\r\n\r\nGET /pass/{id}/2 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "GET /page/1 HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 48\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "GET /page/1 HTTP/1.1\r\nHost: www.example.com\r\n\r\nGET /page/2 HTTP/1.1\r\nHost: www.example.com\r\n\r\nHEAD /page/3 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "POST /page/4 HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 5\r\n\r\nhelloGET /page/4 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "GET /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET /pass/{id}/2 HTTP/1.1\r\nHost: www.example.com\r\nX-Original-URL: /admin\r\n\r\n",
    "GET /pass/{id}?say=switch HTTP/1.1\r\nHost: www.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nthrough the tunnel",
    "GET /pass/{id}?say=switch HTTP/1.1\r\nHost: www.example.com\r\n\r\nGET /pass/{id}/2 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "POST /pass/{id}?say=early HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 20\r\n\r\n01234567890123456789GET /pass/{id}/2 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "POST /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    "GET http://www.example.com/pass/{id} HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "GET http://evil.example/pass/{id} HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "GET /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nHost: evil.example\r\n\r\n",
    "GET /pass/{id} HTTP/1.1\r\nHost: www.example.com@evil\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "WIRE-REFUSED / HTTP/1.1\r\nhost: refused.invalid\r\nconnection: close\r\n\r\n",
    "GET /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\nConnection: close, Host, X-Forwarded-For, X-Own-Hop\r\nX-Own-Hop: 1\r\nCookie: a=b\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "\r\nGET /pass/{id} HTTP/1.1\r\nHost: www.example.com\r\n\r\n\r\nGET /pass/{id}/2 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
];

/// A random seed.
pub(crate) fn seed(random: &mut crate::random::Random, case: u64) -> Vec<u8> {
    random.one(&SEEDS).replace("{id}", &case.to_string()).into_bytes()
}
