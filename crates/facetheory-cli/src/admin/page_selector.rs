//! Which page is meant: the address that a visitor has it under, and what else its route tells pages apart by.

use std::collections::BTreeMap;

use facetheory::PageKey;
use http::header::{COOKIE, HOST, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Request, Uri};

use super::Admin;
use super::problem::Problem;

/// A page as an operator names it.
#[derive(Debug)]
pub(super) struct Address<'a> {
    pub(super) url: &'a str,
    pub(super) headers: Vec<(&'a str, &'a str)>,
    pub(super) cookies: Vec<(&'a str, &'a str)>,
}

impl<'a> Address<'a> {
    /// As a body names it.
    pub(super) fn of(
        url: &'a str,
        headers: &'a BTreeMap<String, String>,
        cookies: &'a BTreeMap<String, String>,
    ) -> Self {
        let pairs = |map: &'a BTreeMap<String, String>| {
            map.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
        };
        Address { url, headers: pairs(headers), cookies: pairs(cookies) }
    }

    /// As a query names it: headers as in `name: value`, cookies as in `name=value`.
    pub(super) fn in_query(
        url: &'a str,
        headers: &'a [String],
        cookies: &'a [String],
    ) -> Result<Self, Problem> {
        let split = |texts: &'a [String], sign: char, what: &str| -> Result<Vec<_>, Problem> {
            let pair = |text: &'a String| {
                let wrong =
                    || Problem::bad(format!("`{text}` is no {what}; write one as in name{sign}value"));
                text.split_once(sign).map(|(name, value)| (name.trim(), value.trim())).ok_or_else(wrong)
            };
            texts.iter().map(pair).collect()
        };
        Ok(Address { url, headers: split(headers, ':', "header")?, cookies: split(cookies, '=', "cookie")? })
    }

    /// The request of a visitor who asks for it.
    pub(super) fn request(&self) -> Result<Request<()>, Problem> {
        let url = self.url;
        let wrong = || {
            Problem::bad(format!(
                "`{url}` is no address of a page; write all of it, as visitors have it: http://example.com/posts/a"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else { return Err(wrong()) };
        let is_web = *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS;
        if !is_web || authority.as_str().contains('@') {
            return Err(wrong());
        }
        let mut request = Request::new(());
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        *request.uri_mut() = target.parse().map_err(|_| wrong())?;
        let host = HeaderValue::from_str(host(scheme, authority)).map_err(|_| wrong())?;
        request.headers_mut().insert(HOST, host);
        for (name, value) in &self.headers {
            let wrong = || Problem::bad(format!("the header `{name}` cannot be sent"));
            let (name, value) = (name.parse::<HeaderName>(), HeaderValue::from_str(value));
            let (Ok(name), Ok(value)) = (name, value) else { return Err(wrong()) };
            if name == HOST || name == COOKIE {
                return Err(Problem::bad("the host is in the address, and cookies are named as such"));
            }
            request.headers_mut().append(name, value);
        }
        if !self.cookies.is_empty() {
            let line: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let is_plain =
                self.cookies.iter().all(|(name, value)| !name.contains(['=', ';']) && !value.contains(';'));
            let line = HeaderValue::from_str(&line.join("; ")).ok().filter(|_| is_plain);
            let line = line.ok_or_else(|| Problem::bad("a cookie has a character that none can have"))?;
            request.headers_mut().insert(COOKIE, line);
        }
        if *scheme == Scheme::HTTPS {
            request.extensions_mut().insert(Scheme::HTTPS);
        }
        Ok(request)
    }

    /// The page that is there.
    pub(super) fn page(&self, admin: &Admin) -> Result<PageKey, Problem> {
        let (parts, ()) = self.request()?.into_parts();
        let page = admin.gateway.service().page(&parts)?;
        page.ok_or_else(|| {
            let url = self.url;
            Problem::not_found(format!("no page is kept at {url}: no route has it, or its rule says so"))
        })
    }
}

/// The host as browsers send it: without a port that goes without saying.
fn host<'a>(scheme: &Scheme, authority: &'a Authority) -> &'a str {
    let usual = if *scheme == Scheme::HTTPS { ":443" } else { ":80" };
    authority.as_str().strip_suffix(usual).unwrap_or(authority.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Address<'_> {
        Address { url, headers: Vec::new(), cookies: Vec::new() }
    }

    #[test]
    fn an_address_is_asked_for_as_a_browser_would() {
        for (url, target, host) in [
            ("http://example.com/a?b=c", "/a?b=c", "example.com"),
            ("https://example.com", "/", "example.com"),
            ("https://example.com:443/", "/", "example.com"),
            ("http://127.0.0.1:8080/a", "/a", "127.0.0.1:8080"),
        ] {
            let request = address(url).request().expect("a request");
            assert_eq!(
                (request.uri().to_string().as_str(), &request.headers()[HOST]),
                (target, &host.parse().expect("a host"))
            );
            assert_eq!(request.extensions().get::<Scheme>().is_some(), url.starts_with("https"));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for url in
            ["", "/a", "a", "ftp://example.com/", "http://me@example.com/", "http://a b/", "//example.com/a"]
        {
            address(url).request().expect_err(url);
        }
    }

    #[test]
    fn headers_and_cookies_cannot_be_smuggled() {
        let with = |headers: Vec<(&'static str, &'static str)>, cookies| Address {
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
            with(headers, cookies).request().expect_err("it cannot be sent");
        }
    }
}
