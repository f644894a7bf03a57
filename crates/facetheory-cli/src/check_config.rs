//! `facetheory check-config`: validates a configuration, and shows how it caches a URL.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use facetheory::Routes;
use http::Uri;
use serde::Serialize;

use crate::config::{Config, DefaultAction, Diagnostic, InvalidFile, Rule, WrittenRule};
use crate::print;
use crate::table::{self, StoreReport};

/// Validate a configuration file, and show how it caches a URL.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory check-config                                    validate facetheory.toml
  facetheory check-config --config other.toml                validate another file
  facetheory check-config --url /blog/hello --url /cart      show the rules and settings of two paths
  facetheory check-config --url https://example.com/ --json  print all settings as JSON
  facetheory check-config --stores                           verify the table, and that the bodies respond

The exit status is 0 if the file is valid, and 1 if it is not or if a store cannot be used. All errors and warnings are printed with their lines.")]
pub(crate) struct Arguments {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "facetheory.toml")]
    config: PathBuf,
    /// A URL, or only its path, whose rules are shown; can be repeated
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
    /// Verify the configured table as `serve` does when it starts, and that the bodies respond
    #[arg(long)]
    stores: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report<'c> {
    file: String,
    valid: bool,
    errors: &'c [Diagnostic],
    /// Settings that are valid, but most likely not intended.
    warnings: &'c [Diagnostic],
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<&'c Config>,
    urls: Vec<UrlReport<'c>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stores: Option<StoreReport>,
}

/// How one URL is cached.
#[derive(Debug, Serialize)]
struct UrlReport<'c> {
    url: String,
    /// Why requests are rejected before routing.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<String>,
    /// The pattern of its route, which is a part of the cache key; `None` if no rule matches.
    route: Option<String>,
    /// The rules that apply, from the least to the most specific.
    rules: Vec<&'c WrittenRule>,
    /// Rules that match, but do not apply.
    other_rules: Vec<&'c WrittenRule>,
    /// The effective settings; `None` if no rule matches or the URL is passed through.
    effective: Option<&'c Rule>,
    /// How the URL is handled if no rule matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<DefaultAction>,
}

/// Validates the file and prints a report.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let file = arguments.config.display().to_string();
    let config = match Config::read(&arguments.config) {
        Ok(config) => config,
        Err(error) => {
            if let (true, Some(invalid)) = (arguments.json, error.downcast_ref::<InvalidFile>()) {
                let errors = invalid.diagnostics.0.as_slice();
                let report = Report {
                    file,
                    valid: false,
                    errors,
                    warnings: &[],
                    rules: None,
                    settings: None,
                    urls: Vec::new(),
                    stores: None,
                };
                print(&json(&report)?)?;
            }
            return Err(error);
        }
    };
    let routes = config.routes()?;
    let urls = arguments.url.iter().map(|url| url_report(&config, &routes, url)).collect::<Result<_>>()?;
    let (rules, settings, warnings) = (Some(config.rules.len()), Some(&config), config.warnings());
    let stores = match arguments.stores {
        true => Some(table::of_stores(&config.store, &config.timeouts).await?),
        false => None,
    };
    let are_usable = stores.as_ref().is_none_or(StoreReport::passed);
    let report =
        Report { file, valid: true, errors: &[], warnings: &warnings, rules, settings, urls, stores };
    print(&if arguments.json { json(&report)? } else { text(&report)? })?;
    ensure!(are_usable, "the stores cannot be used; the lines above say what to do");
    Ok(())
}

fn url_report<'c>(config: &'c Config, routes: &Routes, url: &str) -> Result<UrlReport<'c>> {
    let uri = url.parse::<Uri>().ok().filter(|uri| uri.path().starts_with('/') && url.contains('/'));
    let Some(uri) = uri else {
        bail!("`{url}` is not a URL; write one such as https://example.com/blog, or only its path");
    };
    let is_served = |host: &str| config.hosts.iter().any(|served| served.eq_ignore_ascii_case(host));
    let host = uri.authority().map(|host| host.as_str());
    let unknown_host = host.filter(|host| !config.hosts.is_empty() && !is_served(host));
    // The route of paths without a rule belongs to no rule.
    let found = routes
        .find(uri.path())
        .and_then(|(route, _)| Some((route.pattern().to_owned(), config.rules.of_route(route.pattern())?)));
    let (route, found) = found.unzip();
    let (chain, effective) = found.map_or((Vec::new(), None), |found| (found.chain, found.rule));
    let mut other_rules = config.rules.matching(uri.path());
    other_rules.retain(|rule| !chain.iter().any(|applied| std::ptr::eq(*applied, *rule)));
    Ok(UrlReport {
        url: url.to_owned(),
        rejected: unknown_host.map(|host| format!("421: {host} is not one of `hosts`")),
        default: route.is_none().then_some(config.default),
        route,
        rules: chain,
        other_rules,
        effective,
    })
}

fn json(report: &Report<'_>) -> Result<String> {
    Ok(serde_json::to_string_pretty(report).context("cannot format the report as JSON")? + "\n")
}

fn text(report: &Report<'_>) -> Result<String> {
    let rules = report.rules.unwrap_or_default();
    let plural = if rules == 1 { "" } else { "s" };
    let mut text = format!("{} is valid: {rules} rule{plural}\n", report.file);
    for Diagnostic { line, message } in report.warnings {
        writeln!(text, "warning: line {line}: {message}")?;
    }
    for url in &report.urls {
        write!(text, "\n{}\n", url.url)?;
        if let Some(reason) = &url.rejected {
            writeln!(text, "  rejected with {reason}")?;
        }
        match (&url.route, url.default) {
            (Some(route), _) => writeln!(text, "  route: {route}")?,
            (None, Some(DefaultAction::Origin)) => {
                writeln!(
                    text,
                    "  no rule matches: cached as the origin's headers say (default = \"origin\")"
                )?;
            }
            (None, _) => {
                writeln!(text, "  no rule matches: passed through without caching (default = \"pass\")")?
            }
        }
        write_rules(&mut text, "rules, from the least to the most specific:", &url.rules)?;
        match url.effective {
            Some(rule) => {
                writeln!(text, "  effective settings:")?;
                for line in toml::to_string(rule)?.lines().filter(|line| !line.is_empty()) {
                    writeln!(text, "    {line}")?;
                }
            }
            None if url.route.is_some() => writeln!(text, "  result: passed through without caching")?,
            None => {}
        }
        write_rules(
            &mut text,
            "rules that match, but do not apply, because another one is more specific:",
            &url.other_rules,
        )?;
    }
    if let Some(stores) = &report.stores {
        write!(text, "\n{stores}")?;
    }
    Ok(text)
}

fn write_rules(text: &mut String, title: &str, rules: &[&WrittenRule]) -> Result<()> {
    if !rules.is_empty() {
        writeln!(text, "  {title}")?;
    }
    for WrittenRule { line, pattern, value } in rules {
        let mut written = String::new();
        value.serialize(toml::ser::ValueSerializer::new(&mut written))?;
        writeln!(text, "    line {line}: \"{}\" = {written}", pattern.as_str())?;
    }
    Ok(())
}
