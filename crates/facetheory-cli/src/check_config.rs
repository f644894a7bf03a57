//! `facetheory check-config`: whether a configuration is right, and what it says of addresses.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use facetheory::Routes;
use http::Uri;
use serde::Serialize;

use crate::config::{Config, Otherwise, Said, Settings, Written, WrongFile};

/// Check a configuration, and show what its rules come to for an address.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory check-config                                    check facetheory.toml
  facetheory check-config --config other.toml                check another file
  facetheory check-config --url /blog/hello --url /cart      show the rules of two paths, and what they come to
  facetheory check-config --url https://example.com/ --json  the same, with all settings, for programs

It ends with 0 where the file is right, and with 1 where it is not; then all that is wrong is told, with its lines.")]
pub(crate) struct Arguments {
    /// The file.
    #[arg(long, value_name = "FILE", default_value = "facetheory.toml")]
    config: PathBuf,
    /// An address, or its path alone, whose rules are shown; may be said several times.
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// What is found, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report<'c> {
    file: String,
    right: bool,
    faults: &'c [crate::config::Fault],
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<&'c Config>,
    urls: Vec<Answer<'c>>,
}

/// What the rules say of one address.
#[derive(Debug, Serialize)]
struct Answer<'c> {
    url: String,
    /// Why visitors are refused before any rule is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// The pattern of its route, which is a part of the keys of its pages; none where no rule has it.
    route: Option<String>,
    /// The rules that it follows, from the least to the most specific.
    rules: Vec<Line<'c>>,
    /// Rules that have it, too, and are not followed.
    others: Vec<Line<'c>>,
    /// What the rules come to; none where it is passed on, or where no rule has it.
    resolved: Option<Settings>,
    /// What becomes of it where no rule has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Otherwise>,
}

/// A rule as it is written.
#[derive(Debug, Serialize)]
struct Line<'c> {
    line: usize,
    pattern: &'c str,
    rule: Said<'c>,
}

/// Checks the file, and shows what it says.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let config = match Config::read(&arguments.config) {
        Ok(config) => config,
        Err(error) => {
            if let (true, Some(wrong)) = (arguments.json, error.downcast_ref::<WrongFile>()) {
                let faults = wrong.faults.0.as_slice();
                let file = name(&arguments.config);
                let report =
                    Report { file, right: false, faults, rules: None, settings: None, urls: Vec::new() };
                print(&json(&report)?)?;
            }
            return Err(error);
        }
    };
    let routes = config.routes()?;
    let urls = arguments.url.iter().map(|url| answer(&config, &routes, url)).collect::<Result<_>>()?;
    let report = Report {
        file: name(&arguments.config),
        right: true,
        faults: &[],
        rules: Some(config.rules.len()),
        settings: Some(&config),
        urls,
    };
    print(&if arguments.json { json(&report)? } else { prose(&report)? })
}

fn answer<'c>(config: &'c Config, routes: &Routes, url: &str) -> Result<Answer<'c>> {
    let uri = url.parse::<Uri>().ok().filter(|uri| uri.path().starts_with('/') && url.contains('/'));
    let Some(uri) = uri else {
        bail!("`{url}` is no address; write one such as https://example.com/blog, or its path alone");
    };
    let is_served = |host: &str| config.hosts.iter().any(|served| served.eq_ignore_ascii_case(host));
    let refused =
        uri.authority().map(|host| host.as_str()).filter(|host| !config.hosts.is_empty() && !is_served(host));
    // The route of paths that no rule has is none of a rule.
    let found = routes
        .find(uri.path())
        .and_then(|(route, _)| Some((route.pattern().to_owned(), config.rules.of_route(route.pattern())?)));
    let (route, found) = found.unzip();
    let chain = found.as_ref().map(|found| found.chain.clone()).unwrap_or_default();
    let is_other = |rule: &&Written| !chain.iter().any(|known| std::ptr::eq(*known, *rule));
    let others = config.rules.having(uri.path()).into_iter().filter(is_other).map(line).collect();
    Ok(Answer {
        url: url.to_owned(),
        refused: refused.map(|host| format!("421: {host} is none of the hosts that are served")),
        default: route.is_none().then_some(config.default),
        route,
        rules: chain.iter().map(|rule| line(rule)).collect(),
        others,
        resolved: found.and_then(|found| found.rule).map(|rule| rule.settings()),
    })
}

fn line(rule: &Written) -> Line<'_> {
    Line { line: rule.line, pattern: rule.pattern.as_str(), rule: rule.said() }
}

fn json(report: &Report<'_>) -> Result<String> {
    Ok(serde_json::to_string_pretty(report).context("the report cannot be written as JSON")? + "\n")
}

fn prose(report: &Report<'_>) -> Result<String> {
    let rules = report.rules.unwrap_or_default();
    let plural = if rules == 1 { "" } else { "s" };
    let mut text = format!("{} is right: {rules} rule{plural}.\n", report.file);
    for answer in &report.urls {
        write!(text, "\n{}\n", answer.url)?;
        if let Some(why) = &answer.refused {
            writeln!(text, "  refused with {why}")?;
        }
        match (&answer.route, answer.default) {
            (Some(route), _) => writeln!(text, "  route: {route}")?,
            (None, Some(Otherwise::Origin)) => {
                writeln!(text, "  no rule has it: it is kept as the origin's own headers say")?;
            }
            (None, _) => writeln!(text, "  no rule has it: it is passed on")?,
        }
        if !answer.rules.is_empty() {
            writeln!(text, "  rules, each of which refines the one before:")?;
            lines(&mut text, &answer.rules)?;
        }
        match &answer.resolved {
            Some(settings) => {
                writeln!(text, "  which comes to:")?;
                for line in toml::to_string(settings)?.lines().filter(|line| !line.is_empty()) {
                    writeln!(text, "    {line}")?;
                }
            }
            None if answer.route.is_some() => {
                writeln!(text, "  which comes to: it is passed on, and nothing is kept")?;
            }
            None => {}
        }
        if !answer.others.is_empty() {
            writeln!(text, "  rules that have it, too, and are not followed, since the route is another's:")?;
            lines(&mut text, &answer.others)?;
        }
    }
    Ok(text)
}

fn lines(text: &mut String, rules: &[Line<'_>]) -> Result<()> {
    for Line { line, pattern, rule } in rules {
        let mut said = String::new();
        rule.serialize(toml::ser::ValueSerializer::new(&mut said))?;
        writeln!(text, "    line {line}: \"{pattern}\" = {said}")?;
    }
    Ok(())
}

fn name(file: &Path) -> String {
    file.display().to_string()
}

fn print(text: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).context("the output is closed")
}
