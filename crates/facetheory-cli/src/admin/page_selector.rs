//! Selects a page by its URL and the headers and cookies that are part of its cache key.

use std::collections::BTreeMap;

use facetheory::PageKey;
use http::header::{COOKIE, HOST, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Request, Uri};

use super::Admin;
use super::problem::Problem;

/// The parts of a client request that determine the page.
#[derive(Debug)]
pub(crate) struct PageSelector<'a> {
    pub(super) url: &'a str,
    pub(super) headers: Vec<(&'a str, &'a str)>,
    pub(super) cookies: Vec<(&'a str, &'a str)>,
}

impl<'a> PageSelector<'a> {
    pub(crate) fn new(
        url: &'a str,
        headers: &'a BTreeMap<String, String>,
        cookies: &'a BTreeMap<String, String>,
    ) -> Self {
        let pairs = |map: &'a BTreeMap<String, String>| {
            map.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
        };
        PageSelector { url, headers: pairs(headers), cookies: pairs(cookies) }
    }

    /// Parses headers like `name: value` and cookies like `name=value`.
    pub(super) fn from_query(
        url: &'a str,
        headers: &'a [String],
        cookies: &'a [String],
    ) -> Result<Self, Problem> {
        let split = |texts: &'a [String], sign: char, what: &str| -> Result<Vec<_>, Problem> {
            let pair = |text: &'a String| {
                let pair = text.split_once(sign).map(|(name, value)| (name.trim(), value.trim()));
                pair.ok_or_else(|| {
                    Problem::bad_request(format!("`{text}` is not a {what}; write it as name{sign}value"))
                })
            };
            texts.iter().map(pair).collect()
        };
        Ok(PageSelector {
            url,
            headers: split(headers, ':', "header")?,
            cookies: split(cookies, '=', "cookie")?,
        })
    }

    /// Returns the request of a client for the page.
    pub(crate) fn request(&self) -> Result<Request<()>, Problem> {
        let url = self.url;
        let invalid = || {
            Problem::bad_request(format!(
                "`{url}` is not the URL of a page; write the full URL that clients use: http://example.com/posts/a"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else { return Err(invalid()) };
        let is_web = *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS;
        if !is_web || authority.as_str().contains('@') {
            return Err(invalid());
        }
        let mut request = Request::new(());
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        *request.uri_mut() = target.parse().map_err(|_| invalid())?;
        let host = HeaderValue::from_str(host(scheme, authority)).map_err(|_| invalid())?;
        request.headers_mut().insert(HOST, host);
        for (name, value) in &self.headers {
            let invalid = || Problem::bad_request(format!("the header `{name}` is invalid"));
            let (name, value) = (name.parse::<HeaderName>(), HeaderValue::from_str(value));
            let (Ok(name), Ok(value)) = (name, value) else { return Err(invalid()) };
            if name == HOST || name == COOKIE {
                return Err(Problem::bad_request(
                    "`host` and `cookie` cannot be given as headers: the host is part of `url`, and cookies have their own parameter",
                ));
            }
            request.headers_mut().append(name, value);
        }
        if !self.cookies.is_empty() {
            let line: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let is_plain =
                self.cookies.iter().all(|(name, value)| !name.contains(['=', ';']) && !value.contains(';'));
            let line = HeaderValue::from_str(&line.join("; ")).ok().filter(|_| is_plain);
            let line = line.ok_or_else(|| Problem::bad_request("a cookie contains an invalid character"))?;
            request.headers_mut().insert(COOKIE, line);
        }
        if *scheme == Scheme::HTTPS {
            request.extensions_mut().insert(Scheme::HTTPS);
        }
        Ok(request)
    }

    /// Returns the cache key of the page.
    pub(super) fn resolve(&self, admin: &Admin) -> Result<PageKey, Problem> {
        let (parts, ()) = self.request()?.into_parts();
        let page = admin.gateway.service().page(&parts)?;
        page.ok_or_else(|| {
            let url = self.url;
            Problem::not_found(format!("{url} is not cached: no rule matches, or the rule passes it through"))
        })
    }
}

/// Returns the host as browsers send it: without the default port.
fn host<'a>(scheme: &Scheme, authority: &'a Authority) -> &'a str {
    let default_port = if *scheme == Scheme::HTTPS { ":443" } else { ":80" };
    authority.as_str().strip_suffix(default_port).unwrap_or(authority.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(url: &str) -> PageSelector<'_> {
        PageSelector { url, headers: Vec::new(), cookies: Vec::new() }
    }

    #[test]
    fn the_request_has_the_target_and_host_that_a_browser_sends() {
        for (url, target, host) in [
            ("http://example.com/a?b=c", "/a?b=c", "example.com"),
            ("https://example.com", "/", "example.com"),
            ("https://example.com:443/", "/", "example.com"),
            ("http://127.0.0.1:8080/a", "/a", "127.0.0.1:8080"),
        ] {
            let request = selector(url).request().expect("a request");
            assert_eq!(
                (request.uri().to_string().as_str(), &request.headers()[HOST]),
                (target, &host.parse().expect("a host"))
            );
            assert_eq!(request.extensions().get::<Scheme>().is_some(), url.starts_with("https"));
        }
    }

    #[test]
    fn invalid_urls_are_rejected() {
        for url in
            ["", "/a", "a", "ftp://example.com/", "http://me@example.com/", "http://a b/", "//example.com/a"]
        {
            selector(url).request().expect_err(url);
        }
    }

    #[test]
    fn headers_and_cookies_cannot_inject_others() {
        let with = |headers: Vec<(&'static str, &'static str)>, cookies| PageSelector {
            url: "http://a/",
            headers,
            cookies,
        };
        let request =
            with(vec![("accept-language", "de")], vec![("a", "1"), ("b", "2")]).request().expect("a request");
        assert_eq!(
            (&request.headers()["accept-language"], &request.headers()[COOKIE]),
            (&"de".parse().expect("a value"), &"a=1; b=2".parse().expect("a value"))
        );
        for (headers, cookies) in [
            (vec![("x", "a\r\nb: c")], vec![]),
            (vec![("host", "b")], vec![]),
            (vec![("cookie", "b=1")], vec![]),
            (vec![("a b", "c")], vec![]),
            (vec![], vec![("a", "1; b=2")]),
            (vec![], vec![("a", "\n")]),
        ] {
            with(headers, cookies).request().expect_err("an invalid request");
        }
    }
}
