//! `facetheory.toml`: the configuration of the gateway.

mod diagnostic;
mod gc;
mod lambda;
mod limits;
mod network;
mod origin;
mod pattern;
mod purge;
mod rule;
mod rules;
mod section;
mod store;
mod suggestion;
#[cfg(test)]
mod tests;
mod timeouts;
mod units;
mod value;

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use facetheory::protocol::LeaseTerms;
use facetheory::{GcOptions, Routes};
use http::uri::Scheme;
use serde::Serialize;
use toml::de::{DeTable, DeValue};

pub(crate) use diagnostic::{Diagnostic, InvalidFile};
pub(crate) use gc::Gc;
use gc::MinRetention;
pub(crate) use lambda::{InvokeMode, Lambda, QueueUrl};
pub(crate) use limits::Limits;
pub(crate) use network::Network;
pub(crate) use origin::Origin;
pub(crate) use purge::{Dialect, OnUnknown, Purge};
pub(crate) use rule::Rule;
pub(crate) use rules::{Rules, WrittenRule};
pub(crate) use store::{FeedChoice, KeyForm, Store};
pub(crate) use timeouts::Timeouts;

use diagnostic::Diagnostics;
use section::{Section, Source, TOP, table};
use value::{address, boolean, header_name, keyword, list_of, optional, path, share, string, strings};

/// The configuration of the gateway. A key is `None` if the file leaves it to the command line or the environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Config {
    /// The server behind the gateway.
    pub(crate) origin: Option<Origin>,
    /// The address for clients.
    pub(crate) listen: Option<SocketAddr>,
    /// The Unix socket over which a new process takes over the listening sockets.
    pub(crate) hand_over: Option<PathBuf>,
    /// The hosts that are served; an empty list serves all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<String>,
    /// The one site that is served under every host.
    pub(crate) site: Option<String>,
    /// Headers that name a tenant, besides the standard ones and those of rules.
    pub(crate) tenant_headers: Vec<String>,
    /// Proxies whose `X-Forwarded-*` headers, and headers about users and tenants, are trusted.
    pub(crate) trusted_proxies: Vec<Network>,
    /// Whose directives about caching count.
    pub(crate) client_cache_control: ClientCacheControl,
    /// Addresses of clients whose directives count, besides trusted proxies.
    pub(crate) cache_control_clients: Vec<Network>,
    #[serde(flatten)]
    pub(crate) log: Log,
    /// How paths without a rule are handled.
    pub(crate) default: DefaultAction,
    /// Whether tag headers of the origin are removed from responses to clients; by default if somebody may purge.
    pub(crate) strip_tags: Option<bool>,
    /// The headers of responses that name tags.
    pub(crate) tag_headers: Option<Vec<String>>,
    pub(crate) admin: Admin,
    pub(crate) store: Store,
    /// The certificate for HTTPS; `None` for plain HTTP.
    pub(crate) tls: Option<Tls>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) gc: Gc,
    pub(crate) lambda: Lambda,
    pub(crate) purge: Purge,
    /// How pages are cached.
    #[serde(rename = "routes")]
    pub(crate) rules: Rules,
    /// Whether a file was read that is not empty.
    #[serde(skip)]
    pub(crate) has_settings: bool,
    /// Settings that are valid, but most likely not intended. Rules have warnings of their own.
    #[serde(skip)]
    warnings: Vec<Diagnostic>,
}

/// How paths without a rule are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DefaultAction {
    /// They are cached as the headers of the origin say.
    #[default]
    Origin,
    /// They are passed through without caching.
    Pass,
}

/// Whose `Cache-Control` and `Pragma` in requests count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientCacheControl {
    /// Nobody's.
    Ignore,
    /// Those of `trusted_proxies` and `cache_control_clients`.
    #[default]
    Trusted,
    /// Everyone's.
    Obey,
}

/// The log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Log {
    /// The default depends on whether standard error is a terminal.
    #[serde(rename = "log")]
    pub(crate) format: Option<LogFormat>,
    #[serde(rename = "log_sample")]
    pub(crate) sample: LogSample,
}

/// The share of requests that are logged, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct LogSample(pub(crate) f64);

impl Default for LogSample {
    fn default() -> Self {
        LogSample(1.0)
    }
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// One line of text per event.
    Human,
    /// One JSON object per line.
    Json,
    /// No log.
    Off,
}

table! {
    /// `[admin]`: the listener for operators.
    Admin {
        /// The address for operators.
        listen: Option<SocketAddr> = None, optional(address);
        /// The file that contains the bearer token.
        token_file: Option<PathBuf> = None, optional(path);
    }
}

/// `[tls]`: the certificate for HTTPS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Tls {
    /// The certificate chain in PEM.
    pub(crate) certificate: PathBuf,
    /// The private key in PEM.
    pub(crate) key: PathBuf,
}

/// The largest configuration file.
const MAX_BYTES: u64 = 1 << 20;

impl Config {
    /// Reads a file. Relative paths in it are relative to the working directory, as on the command line.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Config> {
        let name = file.display();
        let opened = std::fs::File::open(file).with_context(|| format!("cannot open {name}"))?;
        let mut text = Vec::new();
        opened.take(MAX_BYTES + 1).read_to_end(&mut text).with_context(|| format!("cannot read {name}"))?;
        if text.len() as u64 > MAX_BYTES {
            bail!(
                "{name} is larger than {}, the maximum of a configuration file",
                units::format_size(MAX_BYTES)
            );
        }
        let text = String::from_utf8(text).with_context(|| format!("{name} is not UTF-8"))?;
        let parsed = Config::parse(&text);
        let mut config = parsed.map_err(|diagnostics| InvalidFile { file: file.to_owned(), diagnostics })?;
        config.has_settings = has_settings(&text);
        if !config.has_settings {
            let message = "the file is empty: no rule applies, and every setting has its default".to_owned();
            config.warnings.push(Diagnostic { line: 1, message });
        }
        Ok(config)
    }

    /// Parses a configuration, or returns all of its errors.
    pub(crate) fn parse(text: &str) -> Result<Config, Diagnostics> {
        let source = Source::new(text);
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            // The keys of a text that is not TOML cannot be checked.
            for error in errors {
                source.report(error.span().unwrap_or(0..0), error.message());
            }
            return source.finish(Config::default());
        }
        let config = Config::from_table(&source, table.get_ref());
        source.finish(config)
    }

    /// Returns the routes of all rules. Succeeds for every configuration that [`Config::parse`] has accepted.
    pub(crate) fn routes(&self) -> facetheory::Result<Routes> {
        let routes = self.rules.routes()?.tenant_headers(&self.tenant_headers)?;
        let routes = match self.default {
            DefaultAction::Origin => routes.otherwise_follow_origin(),
            DefaultAction::Pass => routes,
        };
        let routes = match &self.site {
            Some(site) => routes.of_one_site(site),
            None if self.hosts.is_empty() => Ok(routes),
            None => routes.of_sites(&self.hosts),
        }?;
        match self.store.key_form {
            KeyForm::Default => Ok(routes),
            KeyForm::FacetheoryTs => routes.facetheory_ts_keys(self.public_scheme()),
        }
    }

    /// Returns what is valid, but most likely not intended, by line.
    pub(crate) fn warnings(&self) -> Vec<Diagnostic> {
        let mut warnings = self.warnings.clone();
        warnings.extend(self.rules.warnings(!self.trusted_proxies.is_empty(), !self.purge.from.is_empty()));
        warnings.sort();
        warnings
    }

    /// Returns the scheme that clients use, as far as one is known for all of them: HTTPS, unless the gateway listens for plain
    /// HTTP and no proxy in front is trusted.
    fn public_scheme(&self) -> Scheme {
        if self.tls.is_some() || !self.trusted_proxies.is_empty() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// Returns the shortest safe retention of bodies: an unreferenced body may be in use for as long as a lease is held or
    /// metadata is cached, and until it has been read.
    fn min_retention(&self) -> MinRetention {
        let leases = self.rules.resolved().filter_map(|rule| rule.policy()?.lease);
        let longest = leases.fold(LeaseTerms::default().duration, Duration::max);
        let terms = LeaseTerms::lasting(longest);
        let max_age = self.store.metadata_max_age;
        let reader = [max_age, self.timeouts.table, self.timeouts.bodies];
        MinRetention {
            grace: GcOptions::shortest_grace(&terms).saturating_add(max_age),
            replaced: reader.into_iter().fold(terms.term(), Duration::saturating_add),
        }
    }

    /// Returns how long gc leaves an unreferenced body.
    pub(crate) fn gc_grace(&self, is_embedded: bool) -> Duration {
        self.gc.grace.resolve(is_embedded, self.min_retention().grace)
    }

    fn from_table<'a>(source: &'a Source, table: &'a DeTable<'a>) -> Config {
        let mut top = Section::new(source, TOP, Some(table));
        let mut config = Config {
            origin: top.read("origin", |value| string(value)?.parse()),
            listen: top.read("listen", address),
            hand_over: top.read("hand_over", path),
            hosts: top.read("hosts", hosts).unwrap_or_default(),
            site: top.read("site", |value| string(value).and_then(host)),
            tenant_headers: top.read("tenant_headers", tenant_headers).unwrap_or_default(),
            trusted_proxies: top.read("trusted_proxies", networks).unwrap_or_default(),
            client_cache_control: top.read("client_cache_control", keyword).unwrap_or_default(),
            cache_control_clients: top.read("cache_control_clients", networks).unwrap_or_default(),
            log: Log {
                format: top.read("log", keyword),
                sample: top.read("log_sample", |value| share(value).map(LogSample)).unwrap_or_default(),
            },
            default: top.read("default", keyword).unwrap_or_default(),
            strip_tags: top.read("strip_tags", boolean),
            tag_headers: top.read("tag_headers", list_of(header_name)),
            admin: Admin::read(top.section("admin", "[admin]")),
            store: Store::read(top.section("store", "[store]")),
            tls: tls(&mut top),
            timeouts: Timeouts::read(top.section("timeouts", "[timeouts]")),
            limits: Limits::read(top.section("limits", "[limits]")),
            gc: Gc::default(),
            lambda: Lambda::read(top.section("lambda", "[lambda]")),
            purge: Purge::read(top.section("purge", "[purge]")),
            rules: Rules::read(source, top.read("routes", routes)),
            has_settings: false,
            warnings: Vec::new(),
        };
        let line = source.line(&top.position_below("store", "feed"));
        config.warnings.extend(config.store.feed_warning().map(|message| Diagnostic { line, message }));
        config.gc = Gc::read(top.section("gc", "[gc]"), config.min_retention());
        config.check_consistency(&top);
        top.finish();
        config
    }

    /// Reports keys that are valid but contradict each other.
    fn check_consistency(&self, top: &Section<'_>) {
        let report = |key, message: &str| top.source.report(top.position(key), message);
        if let (Some(origin), Some(listen)) = (&self.origin, self.listen)
            && origin.is(listen)
        {
            report(
                "origin",
                "`origin` is the address of `listen`: the gateway would send requests to itself",
            );
        }
        let key = if self.site.is_some() { "site" } else { "routes" };
        if self.site.is_some() && !self.hosts.is_empty() {
            report(key, "`site` and `hosts` exclude each other: `site` serves one site under every host");
        } else if let Err(error) = self.routes() {
            let is_of_key_form = Config { store: Store::default(), ..self.clone() }.routes().is_ok();
            let prefix = if is_of_key_form { "key_form = \"facetheory-ts\": " } else { "" };
            report(key, &format!("{prefix}{error}"));
        }
    }
}

/// Whether a valid configuration has more than comments.
fn has_settings(text: &str) -> bool {
    let is_comment = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    !text.trim_start_matches('\u{feff}').lines().all(is_comment)
}

fn tls(top: &mut Section<'_>) -> Option<Tls> {
    let position = top.position("tls");
    let mut section = top.section("tls", "[tls]");
    let (certificate, key) = (section.read("certificate", path), section.read("key", path));
    if section.is_present() && !(section.has("certificate") && section.has("key")) {
        section.source.report(position, "[tls] needs both a `certificate` and a `key`");
    }
    section.finish();
    Some(Tls { certificate: certificate?, key: key? })
}

fn routes<'a>(value: &'a DeValue<'a>) -> Result<&'a DeTable<'a>, String> {
    let message = "this must be a table of rules, such as \"/blog/**\" = { isr = \"60s\" }";
    value.as_table().ok_or_else(|| message.to_owned())
}

fn networks(value: &DeValue<'_>) -> Result<Vec<Network>, String> {
    strings(value)?.iter().map(|network| network.parse()).collect()
}

fn hosts(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let hosts: Vec<String> = strings(value)?.iter().map(|name| host(name)).collect::<Result<_, _>>()?;
    if hosts.is_empty() {
        return Err(
            "an empty list would serve no host; list a host, or remove the key to serve all".to_owned()
        );
    }
    Ok(hosts)
}

fn host(name: &str) -> Result<String, String> {
    if facetheory::is_valid_host(name) {
        return Ok(name.to_ascii_lowercase());
    }
    let name = section::shortened(name);
    Err(format!("`{name}` is not a host; write a name and optionally a port, such as example.com:8080"))
}

fn tenant_headers(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let headers = strings(value)?;
    let checked = Routes::new([]).and_then(|routes| routes.tenant_headers(&headers));
    checked.map(|_| headers).map_err(|error| error.to_string())
}
