//! Routes: which pages there are, how each is renewed, and what tells it apart.

use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderName};

use crate::http::headers::is_hop_by_hop;
use crate::http::router::pattern::Pattern;
use crate::http::router::tenant::TenantFrom;
use crate::http::semantics::cache_control::Audience;
use crate::pages::policy::Policy;
use crate::protocol::epoch::Tag;

/// Pages under one pattern of paths: how they are renewed, and what of a request tells them apart.
///
/// What tells pages apart is a part of their key and reaches the renderer. Everything else is stripped, so that it
/// cannot end up in a page that others see. By default that is the host, the path and the query.
///
/// In a pattern, `{name}` is one segment and `{*name}` is everything that is left, neither of them empty. Paths are
/// compared byte for byte, without decoding: `/news`, `/news/`, `/News` and `/%6Eews` are four paths.
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
#[derive(Clone, Debug)]
pub struct Route {
    pub(crate) name: Arc<str>,
    pub(crate) policy: Policy,
    pub(crate) query: Query,
    /// Sorted, each once.
    pub(crate) headers: Vec<HeaderName>,
    pub(crate) cookies: Vec<String>,
    pub(crate) tenant: Option<TenantFrom>,
    /// The header that names the tenant, where one does.
    pub(crate) tenant_header: Option<HeaderName>,
    pub(crate) tags: Vec<Tag>,
    /// Its paths are passed on, and nothing is kept of the answers.
    pub(crate) bypass: bool,
    /// Whether the origin says by its own headers how these pages are kept.
    pub(crate) follow_origin: bool,
    /// Whether its rule outweighs an answer that says that it is not to be kept.
    pub(crate) overrides: bool,
    /// Whether its interval holds although an answer tells another.
    pub(crate) fixed_interval: bool,
    /// The names of the pattern's parameters, in the order of the path.
    pub(crate) params: Vec<String>,
    /// Their places, sorted by name.
    pub(crate) by_name: Vec<usize>,
    /// What is wrong with what was said so far.
    faults: Vec<String>,
}

/// Which parameters of a query tell pages apart and reach the renderer.
///
/// ```
/// use facetheory::Query;
///
/// assert_eq!(Query::only(["page"]), Query::Only(vec!["page".to_owned()]));
/// assert_eq!(Query::default(), Query::All);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Query {
    /// The whole query, byte for byte, in its order.
    #[default]
    All,
    /// None.
    None,
    /// Those with these names, sorted by name; names and values are compared byte for byte, without decoding.
    Only(Vec<String>),
}

impl Query {
    /// Those with these names.
    ///
    /// ```
    /// assert_eq!(facetheory::Query::only(["a"]), facetheory::Query::Only(vec!["a".to_owned()]));
    /// ```
    pub fn only<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Query::Only(names.into_iter().map(Into::into).collect())
    }
}

/// The most headers, cookies, parameters of a query, or tags of a route: what is looked at for every request.
const MAX_LISTED: usize = 32;

impl Route {
    /// Pages under this pattern, renewed by this policy. Mistakes are told by [`Routes::new`](crate::Routes::new).
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
            tenant: None,
            tenant_header: None,
            tags: Vec::new(),
            bypass: false,
            follow_origin: false,
            overrides: false,
            fixed_interval: false,
            params: Vec::new(),
            by_name: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Paths under this pattern that are passed on as they are, although a less specific route would keep their pages.
    ///
    /// It is found like any route. Its policy is never followed.
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

    /// Pages with this pattern of paths are kept as their origin says by its own headers, as a shared HTTP cache does
    /// (RFC 9111). Unlike other routes, the origin sees all of the visitor's request.
    ///
    /// What it makes of a header is for everyone who gets the stored answer, unless it names that header in `Vary`. So a service
    /// that believes `Forwarded` or `X-Forwarded-Proto` needs a proxy in front that writes them anew, as `facetheory serve` does;
    /// otherwise any visitor can choose the host or the scheme in the links of others. Of `X-Forwarded-Host` alone every value has
    /// pages of its own.
    ///
    /// ```
    /// use facetheory::{Route, Routes};
    ///
    /// let routes = Routes::new([Route::follow_origin("/assets/{*file}")])?;
    /// assert!(routes.find("/assets/site.css").unwrap().0.is_by_origin());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn follow_origin(pattern: impl Into<String>) -> Self {
        /// Longer than others: what is fetched may be large, and nobody waits for it in vain.
        const FETCH_DEADLINE: Duration = Duration::from_secs(120);
        let mut policy = Policy::every(Duration::ZERO);
        policy.render_timeout = FETCH_DEADLINE;
        Route { follow_origin: true, ..Route::new(pattern, policy) }
    }

    /// The same, where the rule outweighs answers that say `no-store`, `private`, `no-cache` or `s-maxage=0`: they are kept
    /// all the same. Answers that set a cookie, or that vary with anything, are still nobody else's.
    ///
    /// ```
    /// use facetheory::{Policy, Route};
    /// use std::time::Duration;
    ///
    /// let route = Route::new("/feed", Policy::every(Duration::from_secs(60))).overriding();
    /// ```
    #[must_use]
    pub fn overriding(mut self) -> Self {
        self.overrides = true;
        self
    }

    /// The same, where the interval of the policy holds even if an answer tells another one by `s-maxage`. What a renderer in
    /// the same process says by its [`CacheHint`](crate::CacheHint) holds all the same.
    ///
    /// ```
    /// use facetheory::{Policy, Route};
    /// use std::time::Duration;
    ///
    /// let route = Route::new("/feed", Policy::every(Duration::from_secs(60))).fixed_interval();
    /// ```
    #[must_use]
    pub fn fixed_interval(mut self) -> Self {
        self.fixed_interval = true;
        self
    }

    /// Whether its pages are kept as their origin says.
    ///
    /// ```
    /// assert!(facetheory::Route::follow_origin("/a").is_by_origin());
    /// assert!(!facetheory::Route::bypass("/a").is_by_origin());
    /// ```
    #[must_use]
    pub fn is_by_origin(&self) -> bool {
        self.follow_origin
    }

    /// Whether its paths are passed on, and nothing is kept of the answers.
    ///
    /// ```
    /// assert!(facetheory::Route::bypass("/account").is_bypass());
    /// ```
    #[must_use]
    pub fn is_bypass(&self) -> bool {
        self.bypass
    }

    /// Its pattern.
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

    /// Its policy.
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

    /// Which parameters of the query tell its pages apart.
    ///
    /// ```
    /// # use facetheory::{Policy, Query, Route};
    /// Route::new("/a", Policy::every(std::time::Duration::ZERO)).query(Query::None);
    /// ```
    #[must_use]
    pub fn query(mut self, query: Query) -> Self {
        if let Query::Only(names) = &query {
            let wrong = |name: &&String| {
                name.is_empty() || name.bytes().any(|byte| !byte.is_ascii_graphic() || b"&=#".contains(&byte))
            };
            let faults = names.iter().filter(wrong).map(|name| {
                format!(
                    "`{name}` is no name of a query's parameter; write it as addresses have it, without `=`"
                )
            });
            self.faults.extend(faults);
            self.check_number(names.len(), "parameters of the query");
        }
        self.query = query;
        self
    }

    /// Which headers tell its pages apart. A route that lists `authorization` has pages of its own for each value;
    /// any other keeps nothing for visitors who send it.
    ///
    /// ```
    /// # use facetheory::{Policy, Route};
    /// Route::new("/a", Policy::every(std::time::Duration::ZERO)).headers(["accept-language", "authorization"]);
    /// ```
    #[must_use]
    pub fn headers<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        for name in names {
            match listed_header(name.as_ref()) {
                Ok(name) => self.headers.push(name),
                Err(fault) => self.faults.push(fault),
            }
        }
        self.headers.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        self.headers.dedup();
        self.check_number(self.headers.len(), "headers");
        self
    }

    /// Which cookies tell its pages apart.
    ///
    /// ```
    /// # use facetheory::{Policy, Route};
    /// Route::new("/a", Policy::every(std::time::Duration::ZERO)).cookies(["theme"]);
    /// ```
    #[must_use]
    pub fn cookies<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        for name in names.into_iter().map(Into::into) {
            // The names of cookies have the letters of the names of headers.
            if HeaderName::from_bytes(name.as_bytes()).is_ok() {
                self.cookies.push(name);
            } else {
                self.faults.push(format!("`{name}` is no name of a cookie"));
            }
        }
        self.check_number(self.cookies.len(), "cookies");
        self
    }

    /// How its tenants are told apart. Without it, a request that names a tenant is refused.
    ///
    /// ```
    /// # use facetheory::{Policy, Route, TenantFrom};
    /// Route::new("/t/{tenant}", Policy::every(std::time::Duration::ZERO)).tenant(TenantFrom::Param("tenant".into()));
    /// ```
    #[must_use]
    pub fn tenant(mut self, from: TenantFrom) -> Self {
        match &from {
            TenantFrom::TrustedHeader(name) => match listed_header(name) {
                Ok(name) => self.tenant_header = Some(name),
                Err(fault) => self.faults.push(fault),
            },
            TenantFrom::Subdomain(domain) => {
                if !super::host::is_valid_host(domain) || domain.contains(':') {
                    self.faults
                        .push(format!("`{domain}` is no domain; write it without a port, as in example.com"));
                }
            }
            TenantFrom::Param(_) => {}
        }
        self.tenant = Some(from);
        self
    }

    /// Tags that all its pages have.
    ///
    /// ```
    /// # use facetheory::{Policy, Route};
    /// Route::new("/news", Policy::every(std::time::Duration::ZERO)).tags(["news", "front"]);
    /// ```
    #[must_use]
    pub fn tags<S: Into<String>>(mut self, tags: impl IntoIterator<Item = S>) -> Self {
        for tag in tags {
            match Tag::new(tag) {
                Ok(tag) => self.tags.push(tag),
                Err(error) => self.faults.push(error.to_string()),
            }
        }
        self.check_number(self.tags.len(), "tags");
        self
    }

    /// Who may have its pages.
    /// The route of all paths that have no other: no pattern has its name.
    pub(crate) fn otherwise() -> Self {
        let mut route = Route::follow_origin("*");
        route.params = vec!["path".to_owned()];
        route.by_name = vec![0];
        route
    }

    pub(crate) fn audience(&self) -> Audience {
        if self.headers.contains(&header::AUTHORIZATION) { Audience::OneClient } else { Audience::Everyone }
    }

    /// Its pattern, once all that can be wrong with the route alone is known; all of that otherwise.
    pub(crate) fn check(&mut self) -> Result<Pattern, Vec<String>> {
        if let Err(error) = Tag::route(&self.name) {
            self.faults.push(error.to_string());
        }
        let pattern = Pattern::parse(&self.name).map_err(|fault| self.faults.push(fault)).ok();
        if let Some(pattern) = &pattern {
            self.params.clone_from(&pattern.names);
            self.by_name = (0..self.params.len()).collect();
            self.by_name.sort_by_key(|place| &self.params[*place]);
            if let Some(TenantFrom::Param(name)) = &self.tenant
                && !self.params.contains(name)
            {
                self.faults.push(format!(
                    "its tenant is in the parameter `{name}`, which the pattern does not have"
                ));
            }
        }
        match pattern {
            Some(pattern) if self.faults.is_empty() => Ok(pattern),
            _ => Err(std::mem::take(&mut self.faults)),
        }
    }

    fn check_number(&mut self, number: usize, of: &str) {
        if number > MAX_LISTED {
            self.faults.push(format!("it lists {number} {of}; at most {MAX_LISTED} are allowed"));
        }
    }
}

/// The name of a header that may tell pages apart.
fn listed_header(text: &str) -> Result<HeaderName, String> {
    let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
        return Err(format!("`{text}` is no name of a header"));
    };
    let refuse = |why: &str| Err(format!("the header {name} cannot tell pages apart: {why}"));
    match name.as_str() {
        "host" => refuse("every key has the host already"),
        "cookie" => refuse("list the cookies that matter"),
        "accept-encoding" => refuse("pages are compressed after they are rendered"),
        "range" | "if-range" | "if-match" | "if-none-match" | "if-modified-since" | "if-unmodified-since" => {
            refuse("the renderer is asked for whole pages, without conditions")
        }
        "content-length" | "content-type" | "expect" => refuse("a request for a page has no body"),
        // Some servers take `_` for `-`, so that one header could pass for another.
        text if text.contains('_') => refuse("its name has an underscore"),
        _ if is_hop_by_hop(&name) || name == header::FORWARDED => refuse("it is about one connection"),
        _ => Ok(name),
    }
}
