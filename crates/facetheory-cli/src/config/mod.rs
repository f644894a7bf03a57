//! `facetheory.toml`: the configuration of the gateway.

mod diagnostic;
mod duration;
mod gc;
mod limits;
mod network;
mod origin;
mod pattern;
mod rule;
mod rule_reader;
mod rules;
mod section;
mod size;
mod store;
mod suggestion;
#[cfg(test)]
mod tests;
mod timeouts;
mod value;

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use facetheory::Routes;
use facetheory::protocol::LeaseTerms;
use serde::{Serialize, Serializer};
use toml::de::{DeTable, DeValue};

pub(crate) use diagnostic::{Fault, Faults, WrongFile};
pub(crate) use gc::Gc;
pub(crate) use limits::Limits;
pub(crate) use network::Network;
pub(crate) use origin::Origin;
pub(crate) use rule::Settings;
pub(crate) use rules::{Rules, Said, Written};
pub(crate) use store::Store;
pub(crate) use timeouts::Timeouts;

use section::{Section, Source, TOP};
use value::{address, names, path, text, told, yes_or_no};

/// The configuration of the gateway. What the command line or the environment may say as well is open where the file
/// does not say it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Config {
    /// Where pages come from.
    pub(crate) origin: Option<Origin>,
    /// The address that visitors are served on.
    pub(crate) listen: Option<SocketAddr>,
    /// The hosts that are served; none listed serves all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<String>,
    /// The one site that is served under whatever host.
    pub(crate) site: Option<String>,
    /// Headers that name a tenant, besides those that are always known and those that rules trust.
    pub(crate) tenant_headers: Vec<String>,
    /// Who may say for whom a request is made.
    pub(crate) trusted_proxies: Vec<Network>,
    /// How requests are logged; open where a terminal decides it.
    pub(crate) log: Option<Log>,
    /// What becomes of paths that no rule has.
    pub(crate) default: Otherwise,
    /// Whether visitors are not shown the tags of pages.
    pub(crate) strip_tags: bool,
    /// The admin listener.
    pub(crate) admin: Admin,
    /// Where pages are kept.
    pub(crate) store: Store,
    /// The certificate that visitors are shown; none for plain HTTP.
    pub(crate) tls: Option<Tls>,
    /// How long anybody may take.
    pub(crate) timeouts: Timeouts,
    /// How much anybody may send, keep or open.
    pub(crate) limits: Limits,
    /// When expired rows and unreferenced bodies are deleted.
    pub(crate) gc: Gc,
    /// How pages are renewed.
    #[serde(rename = "routes")]
    pub(crate) rules: Rules,
}

/// What becomes of paths that no rule has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Otherwise {
    /// They are kept as the origin's own headers say.
    #[default]
    Origin,
    /// They are passed on.
    Pass,
}

/// How requests are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Log {
    /// For people.
    Human,
    /// One object a line.
    Json,
    /// Not at all.
    Off,
}

/// `[admin]`: the listener for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Admin {
    /// Its address.
    pub(crate) listen: Option<SocketAddr>,
    /// The file that holds the token.
    pub(crate) token_file: Option<PathBuf>,
}

/// `[tls]`: what visitors are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Tls {
    /// The file of the certificate and those that vouch for it, in PEM.
    pub(crate) certificate: PathBuf,
    /// The file of its key, in PEM.
    pub(crate) key: PathBuf,
}

/// The longest file: a longer one is not a configuration.
const MAX_BYTES: u64 = 1 << 20;

impl Config {
    /// The configuration in a file. Paths in it are relative to the working directory, as on the command line.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Config> {
        let name = file.display();
        let opened = std::fs::File::open(file).with_context(|| format!("{name} cannot be opened"))?;
        let mut text = Vec::new();
        opened
            .take(MAX_BYTES + 1)
            .read_to_end(&mut text)
            .with_context(|| format!("{name} cannot be read"))?;
        if text.len() as u64 > MAX_BYTES {
            bail!("{name} is longer than {}; it cannot be a configuration", size::print(MAX_BYTES));
        }
        let text = String::from_utf8(text).with_context(|| format!("{name} is not UTF-8"))?;
        Config::parse(&text).map_err(|faults| WrongFile { file: file.to_owned(), faults }.into())
    }

    /// The configuration of a text, or all that is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Config, Faults> {
        let source = Source::new(text);
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            // What else is wrong cannot be told from a text that is half understood.
            for error in errors {
                source.fault(error.span().unwrap_or(0..0), error.message());
            }
            return source.finish(Config::default());
        }
        let config = Config::of(&source, table.get_ref());
        source.finish(config)
    }

    /// The routes of the rules, for the hosts that are served. A configuration that was parsed has them.
    pub(crate) fn routes(&self) -> facetheory::Result<Routes> {
        let routes = self.rules.routes()?.tenant_headers(&self.tenant_headers)?;
        let routes = match self.default {
            Otherwise::Origin => routes.otherwise_follow_origin(),
            Otherwise::Pass => routes,
        };
        match &self.site {
            Some(site) => routes.of_one_site(site),
            None if self.hosts.is_empty() => Ok(routes),
            None => routes.of_sites(&self.hosts),
        }
    }

    /// Bodies that nothing names must stay for longer than anybody holds a lease or goes by what was read before.
    fn shortest_grace(&self) -> Duration {
        let usual = LeaseTerms::default();
        let leases = self.rules.resolved().filter_map(|rule| rule.settings().lease);
        let duration = leases.fold(usual.duration, Duration::max);
        let terms = LeaseTerms::lasting(duration);
        facetheory::GcOptions::shortest_grace(&terms).saturating_add(self.store.metadata_max_age)
    }

    fn of<'a>(source: &'a Source, table: &'a DeTable<'a>) -> Config {
        let mut top = Section::new(source, TOP, Some(table));
        let mut config = Config {
            origin: top.read("origin", |value| text(value)?.parse()),
            listen: top.read("listen", address),
            hosts: top.read("hosts", hosts).unwrap_or_default(),
            site: top.read("site", |value| text(value).and_then(host)),
            tenant_headers: top.read("tenant_headers", tenant_headers).unwrap_or_default(),
            trusted_proxies: top.read("trusted_proxies", networks).unwrap_or_default(),
            log: top.read("log", log),
            default: top.read("default", otherwise).unwrap_or_default(),
            strip_tags: top.read("strip_tags", yes_or_no).unwrap_or_default(),
            admin: admin(top.section("admin", "[admin]")),
            store: Store::read(top.section("store", "[store]")),
            tls: tls(&mut top),
            timeouts: Timeouts::read(top.section("timeouts", "[timeouts]")),
            limits: Limits::read(top.section("limits", "[limits]")),
            gc: Gc::default(),
            rules: Rules::read(source, top.read("routes", routes)),
        };
        config.gc = Gc::read(top.section("gc", "[gc]"), config.shortest_grace());
        if let (Some(origin), Some(listen)) = (&config.origin, config.listen)
            && origin.is(listen)
        {
            source.fault(
                top.place("origin"),
                "it is the address that `listen` says: the gateway would ask itself",
            );
        }
        if config.site.is_some() && !config.hosts.is_empty() {
            let fault =
                "`site` is one site whatever the host, so `hosts` cannot be served apart; write one of them";
            source.fault(top.place("site"), fault);
        } else if let Err(error) = config.routes() {
            source.fault(top.place(if config.site.is_some() { "site" } else { "routes" }), error.to_string());
        }
        top.finish();
        config
    }
}

fn admin(mut section: Section<'_>) -> Admin {
    let admin =
        Admin { listen: section.read("listen", address), token_file: section.read("token_file", path) };
    if let Some(span) = section.misplaced("token") {
        let fault = "a token does not belong in this file, which is copied and shown to people; write it into a file \
                     of its own and name that by `token_file`, or set FACETHEORY_ADMIN_TOKEN";
        section.source.fault(span, fault);
    }
    section.finish();
    admin
}

fn tls(top: &mut Section<'_>) -> Option<Tls> {
    let place = top.place("tls");
    let mut section = top.section("tls", "[tls]");
    let (certificate, key) = (section.read("certificate", path), section.read("key", path));
    if section.lacks(&["certificate", "key"]) {
        section.source.fault(place, "[tls] needs both a `certificate` and a `key`");
    }
    section.finish();
    Some(Tls { certificate: certificate?, key: key? })
}

fn routes<'a>(value: &'a DeValue<'a>) -> Result<&'a DeTable<'a>, String> {
    match value {
        DeValue::Table(table) => Ok(table),
        _ => Err("it must be a table of rules, such as \"/blog/**\" = { isr = \"60s\" }".to_owned()),
    }
}

fn log(value: &DeValue<'_>) -> Result<Log, String> {
    match text(value)? {
        "human" => Ok(Log::Human),
        "json" => Ok(Log::Json),
        "off" => Ok(Log::Off),
        _ => Err("write \"human\", \"json\" or \"off\"".to_owned()),
    }
}

fn otherwise(value: &DeValue<'_>) -> Result<Otherwise, String> {
    match value {
        DeValue::String(text) if text == "origin" => Ok(Otherwise::Origin),
        DeValue::String(text) if text == "pass" => Ok(Otherwise::Pass),
        other => Err(format!(
            "{} is not understood; write \"origin\" to follow the origin's own headers, or \"pass\" to keep nothing",
            told(other)
        )),
    }
}

fn networks(value: &DeValue<'_>) -> Result<Vec<Network>, String> {
    names(value)?.iter().map(|network| network.parse()).collect()
}

fn hosts(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let hosts: Vec<String> = names(value)?.iter().map(|name| host(name)).collect::<Result<_, _>>()?;
    if hosts.is_empty() {
        return Err("an empty list would serve nobody; list a host, or leave it out to serve all".to_owned());
    }
    Ok(hosts)
}

fn host(name: &str) -> Result<String, String> {
    let checked = Routes::new([]).and_then(|routes| routes.of_sites([name]));
    checked.map(|_| name.to_ascii_lowercase()).map_err(|error| error.to_string())
}

fn tenant_headers(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let headers = names(value)?;
    let checked = Routes::new([]).and_then(|routes| routes.tenant_headers(&headers));
    checked.map(|_| headers).map_err(|error| error.to_string())
}

fn print_duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&duration::print(*duration))
}

fn print_size<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&size::print(*bytes))
}
