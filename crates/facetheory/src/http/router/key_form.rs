//! The form of cache keys, and what the origin may see of requests whose keys do not distinguish them.

use http::uri::Scheme;

use crate::error::{Error, Result};
use crate::http::router::host::ServedHosts;
use crate::http::router::route::Route;
use crate::http::router::routes::Routes;
use crate::protocol::javascript::locale_compare;

/// The form of the cache keys of pages whose policy a route sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// With scheme and host, byte for byte as the client wrote them.
    #[default]
    Default,
    /// As FaceTheory's TypeScript services build them by default: without scheme and host, the query decoded and encoded
    /// again, names sorted by `localeCompare`, parameters of the path encoded once more.
    ///
    /// Requests that differ only in what the key leaves out look the same to the origin.
    FacetheoryTs {
        /// The scheme that the origin sees.
        scheme: Scheme,
    },
}

/// The headers with credentials. TypeScript services include them in the key of a request.
const CREDENTIALS: [&str; 3] = ["authorization", "x-amz-security-token", "x-api-key"];

impl Routes {
    /// Builds the cache keys that FaceTheory's TypeScript services build by default, so that both share pages:
    /// `<tenant or "default">::<pattern>?<parameters and query>`.
    ///
    /// These keys have no host and no scheme. So the routes must serve one host, and the origin always sees the same scheme.
    /// It also gets the query as the key has it: decoded, encoded again, and sorted. Patterns must be those of the
    /// TypeScript service, with `{name+}` or `{name*}` for the rest of a path. Routes that follow their origin have the keys
    /// that they have otherwise.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, IsrLayer, Pages, PageStore, Policy, Route, Routes};
    /// # use http::{Request, uri::Scheme};
    /// # use std::{sync::Arc, time::Duration};
    /// # use tower::Layer;
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let routes = Routes::new([Route::new("/news/{slug}", Policy::every(Duration::from_secs(60)))])?
    ///     .of_one_site("www.example.com")?
    ///     .facetheory_ts_keys(Scheme::HTTPS)?;
    /// let service = IsrLayer::new(Isr::new(pages), routes).layer("any service");
    /// let (parts, ()) = Request::get("/news/hello%20w?B=1&a=x+y").body(()).unwrap().into_parts();
    /// let resolved = service.resolve(&parts);
    /// assert_eq!(resolved.page().unwrap().cache_key(), "default::/news/{slug}?slug=hello%2520w&a=x%20y&B=1");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn facetheory_ts_keys(mut self, scheme: Scheme) -> Result<Self> {
        let errors: Vec<String> =
            self.routes().filter(|route| route.has_policy()).flat_map(key_form_errors).collect();
        if !errors.is_empty() {
            return Err(Error::invalid(format!("invalid routes:{}", errors.concat())));
        }
        self.key_form = KeyForm::FacetheoryTs { scheme };
        self.routes_mut().filter(|route| route.has_policy()).for_each(|route| {
            let names = &route.params;
            route.by_name.sort_by(|one, other| locale_compare(&names[*one], &names[*other]));
        });
        self.check_key_form()?;
        Ok(self)
    }

    /// Returns an error if several hosts would share the keys of one.
    pub(super) fn check_key_form(&self) -> Result<()> {
        let is_one_host = match &self.hosts {
            ServedHosts::One(_) => true,
            ServedHosts::These(hosts) => hosts.len() == 1,
            ServedHosts::Any => false,
        };
        if self.key_form == KeyForm::Default || is_one_host {
            return Ok(());
        }
        Err(Error::invalid(
            "the keys of TypeScript services have no host, so pages of all hosts would be the same; serve one host: set `site`",
        ))
    }

    /// Returns the form of the keys of a route.
    pub(super) fn key_form_of(&self, route: &Route) -> &KeyForm {
        if route.has_policy() { &self.key_form } else { &KeyForm::Default }
    }

    /// Sets the scheme that the origin sees, if the key of the route has none.
    pub(crate) fn fix_scheme(&self, route: &Route, extensions: &mut http::Extensions) {
        if let KeyForm::FacetheoryTs { scheme } = self.key_form_of(route) {
            extensions.insert(scheme.clone());
        }
    }
}

/// Returns the parts of a route that keys of TypeScript services cannot express, as error messages.
fn key_form_errors(route: &Route) -> Vec<String> {
    let pattern = route.pattern();
    let error = |text: String| format!("\n- `{pattern}`: {text}");
    let headers = route.headers.iter().filter(|name| !CREDENTIALS.contains(&name.as_str())).map(|name| {
        error(format!(
            "the keys of TypeScript services cannot contain the header {name}; only {} can be listed",
            CREDENTIALS.join(", ")
        ))
    });
    let rest = pattern.contains("{*").then(|| {
        error(
            "the keys of TypeScript services contain the pattern; write the rest of the path as the service does, \
             `{name+}` or `{name*}`"
                .to_owned(),
        )
    });
    headers.chain(rest).collect()
}
