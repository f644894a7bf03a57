//! All rules of `[routes]`: which refine which, and the routes they become.

use std::collections::{HashMap, HashSet};

use facetheory::{Route, Routes, TenantFrom};
use serde::{Deserialize as _, Serialize, Serializer};
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::diagnostic::Diagnostic;
use super::pattern::Pattern;
use super::rule::{Rule, lease_warning};
use super::section::{Source, shortened};
use super::value::describe;

/// The most rules of a file. Every rule is compared with every other.
const MAX_RULES: usize = 2_000;

/// The rules of `[routes]`, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rules {
    written: Vec<WrittenRule>,
    /// The effective settings of each rule.
    resolved: Vec<Resolved>,
    /// The rule of each route, by the pattern of the route.
    by_route: HashMap<String, usize>,
}

/// A rule as it is written in the file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WrittenRule {
    pub(crate) line: usize,
    pub(crate) pattern: Pattern,
    /// The table of the rule, or `false`.
    #[serde(rename = "rule")]
    pub(crate) value: toml::Value,
}

/// The effective settings of a rule.
#[derive(Clone, Debug, PartialEq)]
struct Resolved {
    /// The rules it consists of, from the least to the most specific; the last one is the rule itself.
    chain: Vec<usize>,
    /// The settings; `None` if paths are passed through.
    rule: Option<Rule>,
}

/// The rule of a route.
#[derive(Debug)]
pub(crate) struct RouteRule<'r> {
    /// The rules it consists of, from the least to the most specific.
    pub(crate) chain: Vec<&'r WrittenRule>,
    /// The effective settings; `None` if paths are passed through.
    pub(crate) rule: Option<&'r Rule>,
}

impl Rules {
    /// Reads the rules of a table and reports their errors.
    pub(crate) fn read<'a>(source: &'a Source, table: Option<&'a DeTable<'a>>) -> Rules {
        let mut entries: Vec<_> = table.into_iter().flat_map(DeTable::iter).collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        if let Some((key, _)) = entries.get(MAX_RULES) {
            let count = entries.len();
            source.report(key.span(), format!("there are {count} rules; the maximum is {MAX_RULES}"));
            return Rules::default();
        }
        let (mut rules, mut tables) = (Rules::default(), Vec::new());
        for (key, value) in entries {
            let text = key.get_ref().as_ref();
            let named = |error: &str| format!("`{}`: {error}", shortened(text));
            let table =
                table_of(source, value.get_ref()).map_err(|error| source.report(value.span(), named(&error)));
            let pattern = Pattern::parse(text).map_err(|error| source.report(key.span(), named(&error)));
            let owned = toml::Value::deserialize(ValueDeserializer::from(value.clone()));
            if let (Ok(table), Ok(pattern), Ok(value)) = (table, pattern, owned) {
                rules.written.push(WrittenRule { pattern, line: source.line(&key.span()), value });
                tables.push((table, key.span()));
            }
        }
        for (index, (_, span)) in tables.iter().enumerate() {
            let resolved = rules.resolve(index, |index| tables[index].0).unwrap_or_else(|errors| {
                let pattern = shortened(rules.written[index].pattern.as_str());
                errors.iter().for_each(|error| source.report(span.clone(), format!("`{pattern}`: {error}")));
                Resolved { chain: vec![index], rule: None }
            });
            rules.resolved.push(resolved);
        }
        rules.by_route = rules.by_route();
        rules
    }

    pub(crate) fn len(&self) -> usize {
        self.written.len()
    }

    /// Returns the routes of all rules.
    pub(crate) fn routes(&self) -> facetheory::Result<Routes> {
        let route =
            |(pattern, index): (&String, &usize)| route(self.resolved[*index].rule.as_ref(), pattern.clone());
        Routes::new(self.by_route.iter().map(route))?
            .tenant_headers(self.resolved().filter_map(Rule::tenant_header))
    }

    /// Returns the effective settings of all rules that cache.
    pub(crate) fn resolved(&self) -> impl Iterator<Item = &Rule> {
        self.resolved.iter().filter_map(|resolved| resolved.rule.as_ref())
    }

    /// Returns the patterns of the routes whose pages belong to tenants, with the sources of the tenants.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = (&str, &TenantFrom)> {
        let rules = self.by_route.iter().map(|(pattern, index)| (pattern, &self.resolved[*index].rule));
        rules.filter_map(|(pattern, rule)| Some((pattern.as_str(), rule.as_ref()?.tenant()?)))
    }

    /// Returns what is valid, but most likely not intended.
    pub(crate) fn warnings(&self, has_trusted_proxies: bool, may_purge: bool) -> Vec<Diagnostic> {
        let warnings = |(resolved, written): (&Resolved, &WrittenRule)| {
            let rule = resolved.rule.as_ref();
            let of_tenant = rule.and_then(Rule::tenant_header).filter(|_| !has_trusted_proxies);
            let tenant = rule.and_then(Rule::tenant).filter(|_| may_purge);
            let of_no_host = tenant.filter(|tenant| !matches!(tenant, TenantFrom::Subdomain(_)));
            let messages = [
                of_no_host.map(|_| {
                    "purges by tags and of everything do not say whose pages they are about, so they are refused with 400, since its \
                     tenant is in the path or a header; use the admin API with `tenant`, or remove `from` in [purge]"
                        .to_owned()
                }),
                rule.and_then(|rule| lease_warning(rule.policy()?)),
                of_tenant.map(|header| {
                    format!(
                        "its tenant is in the header {header}, which only `trusted_proxies` may set, and none is listed: every \
                         request is rejected; list the addresses of the proxies in front of the gateway"
                    )
                }),
            ];
            let (line, pattern) = (written.line, shortened(written.pattern.as_str()).to_owned());
            let diagnostic = move |message| Diagnostic { line, message: format!("`{pattern}`: {message}") };
            messages.into_iter().flatten().map(diagnostic).collect::<Vec<_>>()
        };
        self.resolved.iter().zip(&self.written).flat_map(warnings).collect()
    }

    /// Returns the rule of a route of [`Rules::routes`] by the pattern of the route.
    pub(crate) fn of_route(&self, pattern: &str) -> Option<RouteRule<'_>> {
        let Resolved { chain, rule } = &self.resolved[*self.by_route.get(pattern)?];
        Some(RouteRule { chain: chain.iter().map(|at| &self.written[*at]).collect(), rule: rule.as_ref() })
    }

    /// Returns all rules whose pattern matches a path, whether they apply or not.
    pub(crate) fn matching(&self, path: &str) -> Vec<&WrittenRule> {
        self.written.iter().filter(|written| written.pattern.matches(path)).collect()
    }

    /// Sorts rules from the least to the most specific; equally specific ones stay in the order of the file.
    fn by_specificity(&self, mut indexes: Vec<usize>) -> Vec<usize> {
        indexes.sort_by(|one, other| {
            self.written[*one].pattern.specificity(&self.written[*other].pattern).then(one.cmp(other))
        });
        indexes
    }

    /// Combines a rule with all rules that cover it. `table` returns the table of a rule, or `None` for `false`.
    fn resolve<'a>(
        &self,
        index: usize,
        table: impl Fn(usize) -> Option<&'a DeTable<'a>>,
    ) -> Result<Resolved, Vec<String>> {
        let own = &self.written[index].pattern;
        let covers = |at: &usize| {
            let other = &self.written[*at].pattern;
            // Of two rules that match the same paths, the later refines the earlier.
            other.covers(own) && (*at <= index || !own.covers(other))
        };
        let chain = self.by_specificity((0..self.len()).filter(covers).collect());
        // `table_of` has reported the errors of each table.
        let unreported = Source::new("");
        let rule = chain.iter().fold(None, |broader: Option<Rule>, at| {
            let mut rule = broader.unwrap_or_default();
            rule.apply(&unreported, table(*at)?);
            Some(rule)
        });
        if rule.as_ref().is_some_and(|rule| rule.freshness.is_none()) {
            return Err(vec![
                "how long are its pages fresh? Write isr = \"60s\" or cache = \"origin\" in this rule or in one that covers it"
                    .to_owned(),
            ]);
        }
        let routes = own.routes().into_iter().map(|pattern| route(rule.as_ref(), pattern));
        Routes::new(routes).map_err(|error| messages(&error.to_string()))?;
        Ok(Resolved { chain, rule })
    }

    /// Assigns each route to the most specific rule that matches it; of equal ones, to the last.
    fn by_route(&self) -> HashMap<String, usize> {
        let mut shapes = HashSet::new();
        let mut by_route = HashMap::new();
        for index in self.by_specificity((0..self.len()).collect()).into_iter().rev() {
            for route in self.written[index].pattern.routes() {
                // An optional rest also matches the path above it, as far as no other route does.
                let above = route.ends_with("*}").then(|| above(&route));
                let is_new_above = above.as_ref().is_some_and(|above| shapes.insert(shape(above)));
                if shapes.insert(shape(&route)) {
                    by_route.insert(route, index);
                } else if let (Some(above), true) = (above, is_new_above) {
                    by_route.insert(above, index);
                }
            }
        }
        by_route
    }
}

/// Returns the table of a rule, whose errors are reported, or `None` for `false`.
fn table_of<'a>(source: &'a Source, value: &'a DeValue<'a>) -> Result<Option<&'a DeTable<'a>>, String> {
    match value {
        DeValue::Boolean(false) => Ok(None),
        DeValue::Table(table) => {
            Rule::default().apply(source, table);
            Ok(Some(table))
        }
        DeValue::String(interval) => {
            let interval = shortened(interval);
            Err(format!("a rule is a table or `false`; write {{ isr = \"{interval}\" }}"))
        }
        other => Err(format!(
            "{} is not a rule; write a table such as {{ isr = \"60s\" }}, or `false` to pass these paths through",
            describe(other)
        )),
    }
}

fn route(rule: Option<&Rule>, pattern: String) -> Route {
    match rule {
        Some(rule) => rule.route(pattern),
        None => Route::bypass(pattern),
    }
}

/// Removes the names from the pattern of a route. Patterns that match the same paths have the same shape.
fn shape(route: &str) -> String {
    let parts = route.split('/').map(|part| match part.strip_prefix('{') {
        Some(name) if name.starts_with('*') || name.ends_with("+}") || name.ends_with("*}") => "{*}",
        Some(_) => "{}",
        None => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Returns the path pattern above the last segment.
fn above(route: &str) -> String {
    match route.rsplit_once('/') {
        None | Some(("", _)) => "/".to_owned(),
        Some((above, _)) => above.to_owned(),
    }
}

/// Splits an error of [`Routes::new`] into its messages without their patterns, since one rule may have several routes.
fn messages(error: &str) -> Vec<String> {
    let messages = error.split("\n- ").skip(1);
    let without_pattern =
        |message: &str| message.split_once("`: ").map_or(message, |(_, rest)| rest).to_owned();
    let mut messages: Vec<String> = messages.map(without_pattern).collect();
    messages.sort();
    messages.dedup();
    if messages.is_empty() { vec![error.to_owned()] } else { messages }
}

impl Serialize for Rules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.written.iter().map(|rule| (&rule.pattern, &rule.value)))
    }
}
