//! A route: a path pattern, the policy of its pages, and the request input that distinguishes them.

use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderName};

use crate::http::headers::{CONDITIONS, FORWARDED_HOST, is_hop_by_hop};
use crate::http::router::pattern::Pattern;
use crate::http::router::query::Query;
use crate::http::router::tenant::TenantFrom;
use crate::pages::policy::Policy;
use crate::protocol::tag::Tag;

/// Pages under one path pattern: their policy, and the request input that distinguishes them.
///
/// This input is part of the cache key and reaches the origin: by default the host, the path and the query. Everything else is
/// removed from the request, so that it cannot influence a page that others get.
///
/// In a pattern, `{name}` is one segment, and `{*name}` or `{name+}` is the rest of the path; neither is empty. `{name*}` is the
/// rest of the path or nothing: `/docs/{page*}` also matches `/docs`. Paths are compared byte for byte, without decoding:
/// `/news`, `/news/`, `/News` and `/%6Eews` are four paths.
///
/// ```
/// use facetheory::{Policy, Query, Route};
/// use std::time::Duration;
///
/// let news = Route::new("/news/{slug}", Policy::every(Duration::from_secs(60)))
///     .query(Query::only(["page"]))
///     .headers(["accept-language"])
///     .cookies(["theme"])
///     .tags(["news"]);
/// assert_eq!(news.pattern(), "/news/{slug}");
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct Route {
    pub(crate) name: Arc<str>,
    pub(crate) policy: Policy,
    pub(crate) query: Query,
    /// Sorted, each once.
    pub(crate) headers: Vec<HeaderName>,
    pub(crate) cookies: Vec<String>,
    /// The headers that reach an origin that decides itself about caching; `None` for all.
    pub(crate) forwarded: Option<Vec<HeaderName>>,
    pub(crate) tenant: Option<TenantFrom>,
    /// The header that names the tenant, where one does.
    pub(crate) tenant_header: Option<HeaderName>,
    pub(crate) tags: Arc<Vec<Tag>>,
    /// Whether its paths are passed through.
    pub(crate) bypass: bool,
    /// Whether the origin's headers say how its pages are cached.
    pub(crate) follow_origin: bool,
    /// Whether `Cache-Control` of the response is ignored.
    pub(crate) overrides: bool,
    /// Whether `s-maxage` of the response is ignored.
    pub(crate) fixed_interval: bool,
    /// The names of the pattern's parameters, in the order of the path.
    pub(crate) params: Vec<String>,
    /// Their indexes, sorted by name.
    pub(crate) by_name: Vec<usize>,
    /// Mistakes so far, reported by [`Routes::new`](crate::Routes::new).
    errors: Vec<String>,
}

/// Headers that select or limit the response whatever a route forwards, and `Via`, by which loops are detected. The gateway
/// writes those of proxies itself.
const ALWAYS_FORWARDED: [HeaderName; 6] = [
    header::HOST,
    header::RANGE,
    header::IF_RANGE,
    header::VIA,
    FORWARDED_HOST,
    HeaderName::from_static("x-forwarded-for"),
];

/// The most headers, cookies, query parameters or tags of a route: they are checked for every request.
const MAX_LISTED: usize = 32;

impl Route {
    /// Creates a route for pages under this pattern. Mistakes are reported by [`Routes::new`](crate::Routes::new).
    ///
    /// ```
    /// use facetheory::{Policy, Route};
    /// use std::time::Duration;
    ///
    /// let docs = Route::new("/docs/{*rest}", Policy::every(Duration::from_secs(60)));
    /// assert_eq!(docs.policy().revalidate.as_secs(), 60);
    /// ```
    pub fn new(pattern: impl Into<String>, policy: Policy) -> Self {
        Route {
            name: pattern.into().into(),
            policy,
            query: Query::All,
            headers: Vec::new(),
            cookies: Vec::new(),
            forwarded: None,
            tenant: None,
            tenant_header: None,
            tags: Arc::default(),
            bypass: false,
            follow_origin: false,
            overrides: false,
            fixed_interval: false,
            params: Vec::new(),
            by_name: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Creates a route whose requests are passed through, although a less specific route would cache the responses.
    ///
    /// It is found like any route. Its policy is never used.
    ///
    /// ```
    /// use facetheory::{Policy, Route, Routes};
    /// use std::time::Duration;
    ///
    /// let policy = Policy::every(Duration::from_secs(60));
    /// let routes = Routes::new([Route::new("/{*all}", policy), Route::bypass("/account/{*rest}")])?;
    /// assert!(routes.find("/account/orders").unwrap().0.is_bypass());
    /// assert!(!routes.find("/account").unwrap().0.is_bypass());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn bypass(pattern: impl Into<String>) -> Self {
        Route { bypass: true, ..Route::new(pattern, Policy::every(Duration::ZERO)) }
    }

    /// Creates a route whose pages are cached as the origin's headers say, as in a shared HTTP cache (RFC 9111). Unlike on other
    /// routes, the origin sees the client's whole request.
    ///
    /// A response that depends on a header is sent to everyone, unless it names that header in `Vary`. So a service that trusts
    /// `Forwarded` or `X-Forwarded-Proto` needs a proxy in front that sets them, as `facetheory serve` does; otherwise any client
    /// can choose the host or the scheme in the links that others get. Only each value of `X-Forwarded-Host` has its own pages.
    ///
    /// ```
    /// use facetheory::{Route, Routes};
    ///
    /// let routes = Routes::new([Route::follow_origin("/assets/{*file}")])?;
    /// assert!(routes.find("/assets/site.css").unwrap().0.follows_origin());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn follow_origin(pattern: impl Into<String>) -> Self {
        /// Longer than that of other routes: files may be large.
        const FETCH_TIMEOUT: Duration = Duration::from_secs(120);
        let mut policy = Policy::every(Duration::ZERO);
        policy.render_timeout = FETCH_TIMEOUT;
        Route { follow_origin: true, ..Route::new(pattern, policy) }
    }

    /// Caches responses even if they say `no-store`, `private`, `no-cache` or `s-maxage=0`. Responses that set a cookie, or with
    /// `Vary: *`, are still not cached.
    ///
    /// ```
    /// use facetheory::{Policy, Route};
    /// use std::time::Duration;
    ///
    /// let route = Route::new("/feed", Policy::every(Duration::from_secs(60))).overriding();
    /// ```
    pub fn overriding(mut self) -> Self {
        self.overrides = true;
        self
    }

    /// Uses the interval of the policy even if a response sets another one by `s-maxage`. A [`CacheHint`](crate::CacheHint)
    /// still overrides it.
    ///
    /// ```
    /// use facetheory::{Policy, Route};
    /// use std::time::Duration;
    ///
    /// let route = Route::new("/feed", Policy::every(Duration::from_secs(60))).fixed_interval();
    /// ```
    pub fn fixed_interval(mut self) -> Self {
        self.fixed_interval = true;
        self
    }

    /// Whether the origin's headers say how its pages are cached.
    ///
    /// ```
    /// assert!(facetheory::Route::follow_origin("/a").follows_origin());
    /// assert!(!facetheory::Route::bypass("/a").follows_origin());
    /// ```
    #[must_use]
    pub fn follows_origin(&self) -> bool {
        self.follow_origin
    }

    /// Sets how long its pages are stored after their last use.
    ///
    /// ```
    /// use facetheory::Route;
    /// use std::time::Duration;
    ///
    /// let day = Duration::from_secs(86_400);
    /// assert_eq!(Route::follow_origin("/news").retention(day).policy().retention, Some(day));
    /// ```
    pub fn retention(mut self, retention: Duration) -> Self {
        self.policy.retention = Some(retention);
        self
    }

    /// Whether its policy says how pages are cached: they are neither passed through nor cached as the origin says.
    pub(crate) fn has_policy(&self) -> bool {
        !self.bypass && !self.follow_origin
    }

    /// Whether its requests are passed through.
    ///
    /// ```
    /// assert!(facetheory::Route::bypass("/account").is_bypass());
    /// ```
    #[must_use]
    pub fn is_bypass(&self) -> bool {
        self.bypass
    }

    /// The pattern.
    ///
    /// ```
    /// # use facetheory::{Policy, Route};
    /// let route = Route::new("/a", Policy::every(std::time::Duration::ZERO));
    /// assert_eq!(route.pattern(), "/a");
    /// ```
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.name
    }

    /// The policy.
    ///
    /// ```
    /// # use facetheory::{Policy, Route};
    /// let policy = Policy::every(std::time::Duration::ZERO);
    /// assert_eq!(Route::new("/a", policy).policy(), &policy);
    /// ```
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Sets the query parameters that distinguish its pages.
    ///
    /// ```
    /// # use facetheory::{Policy, Query, Route};
    /// Route::new("/a", Policy::every(std::time::Duration::ZERO)).query(Query::None);
    /// ```
    pub fn query(mut self, query: Query) -> Self {
        if let Query::Only(names) = &query {
            let wrong = |name: &&String| {
                name.is_empty() || name.bytes().any(|byte| !byte.is_ascii_graphic() || b"&=#".contains(&byte))
            };
            let errors = names.iter().filter(wrong).map(|name| {
                format!(
                    "`{name}` is not a valid query parameter; write its name as URLs have it, without `=`"
                )
            });
            self.errors.extend(errors);
            self.check_number(names.len(), "query parameters");
        }
        self.query = query;
        self
    }

    /// Sets the headers that distinguish its pages. A route that lists `authorization` has its own pages for each value; on other
    /// routes, requests with that header are passed through.
    ///
    /// ```
    /// # use facetheory::{Policy, Route};
    /// Route::new("/a", Policy::every(std::time::Duration::ZERO)).headers(["accept-language", "authorization"]);
    /// ```
    pub fn headers<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        for name in names {
            match listed_header(name.as_ref()) {
                Ok(name) => self.headers.push(name),
                Err(error) => self.errors.push(error),
            }
        }
        self.headers.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        self.headers.dedup();
        self.check_number(self.headers.len(), "headers");
        self
    }

    /// Sets the cookies that distinguish its pages.
    ///
    /// ```
    /// # use facetheory::{Policy, Route};
    /// Route::new("/a", Policy::every(std::time::Duration::ZERO)).cookies(["theme"]);
    /// ```
    pub fn cookies<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        for name in names.into_iter().map(Into::into) {
            // Cookie names have the same syntax as header names.
            if HeaderName::from_bytes(name.as_bytes()).is_ok() {
                self.cookies.push(name);
            } else {
                self.errors.push(format!("`{name}` is not a valid cookie name"));
            }
        }
        self.check_number(self.cookies.len(), "cookies");
        self
    }

    /// Sets which headers of clients reach the origin of a route that [follows it](Route::follow_origin); without it, all do.
    /// `Host`, `Range` and conditions always do. On other routes only headers that distinguish pages reach the origin.
    ///
    /// ```
    /// use facetheory::Route;
    ///
    /// let assets = Route::follow_origin("/assets/{*file}").forward_headers(["accept", "accept-encoding"]);
    /// ```
    pub fn forward_headers<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        let mut forwarded = Vec::new();
        for name in names {
            let text = name.as_ref();
            match HeaderName::from_bytes(text.as_bytes()) {
                Ok(name) if !text.contains('_') && !is_hop_by_hop(&name) => forwarded.push(name),
                _ => self.errors.push(format!("the header `{text}` cannot be forwarded")),
            }
        }
        self.check_number(forwarded.len(), "headers to forward");
        self.forwarded = Some(forwarded);
        self
    }

    /// Whether a header of a client reaches an origin that decides itself about caching.
    pub(crate) fn forwards(&self, name: &HeaderName) -> bool {
        let Some(forwarded) = &self.forwarded else { return true };
        forwarded.contains(name)
            || ALWAYS_FORWARDED.contains(name)
            || CONDITIONS.contains(name)
            || self.tenant_header.as_ref() == Some(name)
    }

    /// Sets how the tenant is identified. Without it, requests that name a tenant are rejected.
    ///
    /// ```
    /// # use facetheory::{Policy, Route, TenantFrom};
    /// Route::new("/t/{tenant}", Policy::every(std::time::Duration::ZERO)).tenant(TenantFrom::Param("tenant".into()));
    /// ```
    pub fn tenant(mut self, from: TenantFrom) -> Self {
        match &from {
            TenantFrom::TrustedHeader(name) => match listed_header(name) {
                Ok(name) => self.tenant_header = Some(name),
                Err(error) => self.errors.push(error),
            },
            TenantFrom::Subdomain(domain) => {
                if !super::host::is_valid_host(domain) || domain.contains(':') {
                    self.errors.push(format!(
                        "`{domain}` is not a valid domain; write it without a port, as in example.com"
                    ));
                }
            }
            TenantFrom::Param(_) => {}
        }
        self.tenant = Some(from);
        self
    }

    /// Adds tags to all its pages.
    ///
    /// ```
    /// # use facetheory::{Policy, Route};
    /// Route::new("/news", Policy::every(std::time::Duration::ZERO)).tags(["news", "front"]);
    /// ```
    pub fn tags<S: Into<String>>(mut self, tags: impl IntoIterator<Item = S>) -> Self {
        for tag in tags {
            match Tag::new(tag) {
                Ok(tag) => Arc::make_mut(&mut self.tags).push(tag),
                Err(error) => self.errors.push(error.to_string()),
            }
        }
        self.check_number(self.tags.len(), "tags");
        self
    }

    /// The route of paths without another route. Its name is not a valid pattern.
    pub(crate) fn otherwise() -> Self {
        let mut route = Route::follow_origin("*");
        route.params = vec!["path".to_owned()];
        route.by_name = vec![0];
        route
    }

    /// Returns the parsed pattern, or all mistakes of the route.
    pub(crate) fn check(&mut self) -> Result<Pattern, Vec<String>> {
        if let Err(error) = Tag::route(&self.name) {
            self.errors.push(error.to_string());
        }
        let pattern = Pattern::parse(&self.name).map_err(|error| self.errors.push(error)).ok();
        if let Some(pattern) = &pattern {
            self.params.clone_from(&pattern.names);
            self.by_name = (0..self.params.len()).collect();
            self.by_name.sort_by_key(|place| &self.params[*place]);
            if let Some(TenantFrom::Param(name)) = &self.tenant
                && !self.params.contains(name)
            {
                self.errors.push(format!("its tenant parameter `{name}` is not in the pattern"));
            }
        }
        match pattern {
            Some(pattern) if self.errors.is_empty() => Ok(pattern),
            _ => Err(std::mem::take(&mut self.errors)),
        }
    }

    fn check_number(&mut self, number: usize, of: &str) {
        if number > MAX_LISTED {
            self.errors.push(format!("it lists {number} {of}; at most {MAX_LISTED} are allowed"));
        }
    }
}

/// Parses the name of a header that may distinguish pages.
fn listed_header(text: &str) -> Result<HeaderName, String> {
    let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
        return Err(format!("`{text}` is not a valid header name"));
    };
    let reject = |why: &str| Err(format!("the header {name} cannot be listed: {why}"));
    match name.as_str() {
        "host" => reject("every cache key has the host"),
        "cookie" => reject("list the cookies that distinguish pages"),
        "accept-encoding" => reject("the cache compresses pages itself"),
        "range" | "if-range" | "if-match" | "if-none-match" | "if-modified-since" | "if-unmodified-since" => {
            reject("pages are fetched as a whole and without conditions")
        }
        "content-length" | "content-type" | "expect" => reject("a request for a page has no body"),
        // Some servers treat `_` as `-`, so that one header could be mistaken for another.
        text if text.contains('_') => reject("its name has an underscore"),
        _ if is_hop_by_hop(&name) || name == header::FORWARDED => reject("it is hop-by-hop"),
        _ => Ok(name),
    }
}
