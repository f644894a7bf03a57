//! All rules together: which of them refine which, and the routes that they come to.

use std::collections::{HashMap, HashSet};

use facetheory::{Route, Routes};
use serde::{Serialize, Serializer};
use toml::de::DeTable;

use super::pattern::Pattern;
use super::rule::{Rule, Settings};
use super::rule_reader::rule;
use super::section::{Source, shortened};

/// The most rules of a file: each is compared with each.
const MAX_RULES: usize = 2_000;

/// The rules of `[routes]`, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rules {
    written: Vec<Written>,
    /// What each of them comes to.
    resolved: Vec<Resolved>,
    /// The rule of each route, by the route's pattern.
    by_route: HashMap<String, usize>,
}

/// A rule as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Its paths.
    pub(crate) pattern: Pattern,
    /// Where it stands.
    pub(crate) line: usize,
    /// What it says; none where it says `false`.
    pub(crate) settings: Option<Settings>,
}

impl PartialEq for Written {
    /// Where it stands is no part of what it says.
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.settings == other.settings
    }
}

/// What a rule comes to.
#[derive(Clone, Debug, PartialEq)]
struct Resolved {
    /// The rules that it is made of, from the least to the most specific; the last is itself.
    chain: Vec<usize>,
    /// None where its paths are passed by.
    rule: Option<Rule>,
}

/// The rule of a route, and how it comes about.
#[derive(Debug)]
pub(crate) struct Found<'r> {
    /// The rules that it is made of, from the least to the most specific.
    pub(crate) chain: Vec<&'r Written>,
    /// What it comes to; none where the path is passed by.
    pub(crate) rule: Option<&'r Rule>,
}

impl Rules {
    /// The rules of this table. What is wrong with them is noted.
    pub(crate) fn read<'a>(source: &'a Source, table: Option<&'a DeTable<'a>>) -> Rules {
        let mut lines: Vec<_> = table.into_iter().flat_map(DeTable::iter).collect();
        lines.sort_by_key(|(key, _)| key.span().start);
        if let Some((key, _)) = lines.get(MAX_RULES) {
            source.fault(
                key.span(),
                format!("there are {} rules; at most {MAX_RULES} are allowed", lines.len()),
            );
            return Rules::default();
        }
        let mut written = Vec::new();
        for (key, value) in lines {
            let text = key.get_ref().as_ref();
            let named = |fault: &str| format!("`{}`: {fault}", shortened(text));
            let settings =
                rule(source, value.get_ref()).map_err(|fault| source.fault(value.span(), named(&fault)));
            let pattern = Pattern::parse(text).map_err(|fault| source.fault(key.span(), named(&fault)));
            if let (Ok(settings), Ok(pattern)) = (settings, pattern) {
                written.push((Written { pattern, line: source.line(&key.span()), settings }, key.span()));
            }
        }
        let (written, places): (Vec<_>, Vec<_>) = written.into_iter().unzip();
        let mut rules = Rules { written, ..Rules::default() };
        for (index, place) in places.into_iter().enumerate() {
            match rules.resolve(index) {
                Ok(resolved) => rules.resolved.push(resolved),
                Err(faults) => {
                    let pattern = shortened(rules.written[index].pattern.as_str());
                    faults
                        .iter()
                        .for_each(|fault| source.fault(place.clone(), format!("`{pattern}`: {fault}")));
                    rules.resolved.push(Resolved { chain: vec![index], rule: None });
                }
            }
        }
        rules.by_route = rules.by_route();
        rules
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.written.len()
    }

    /// The routes that they come to.
    pub(crate) fn routes(&self) -> facetheory::Result<Routes> {
        let routes = self.by_route.iter().map(|(pattern, index)| self.route(*index, pattern));
        Routes::new(routes)?.tenant_headers(self.resolved().filter_map(Rule::tenant_header))
    }

    /// All that they come to.
    pub(crate) fn resolved(&self) -> impl Iterator<Item = &Rule> {
        self.resolved.iter().filter_map(|resolved| resolved.rule.as_ref())
    }

    /// The rule behind a route that [`Rules::routes`] has made, by the pattern of the route.
    pub(crate) fn of_route(&self, pattern: &str) -> Option<Found<'_>> {
        let Resolved { chain, rule } = &self.resolved[*self.by_route.get(pattern)?];
        Some(Found { chain: chain.iter().map(|at| &self.written[*at]).collect(), rule: rule.as_ref() })
    }

    /// All rules that have a path, whether they are followed or not.
    pub(crate) fn having(&self, path: &str) -> Vec<&Written> {
        self.written.iter().filter(|written| written.pattern.has(path)).collect()
    }

    fn route(&self, index: usize, pattern: &str) -> Route {
        match &self.resolved[index].rule {
            Some(rule) => rule.route(pattern.to_owned()),
            None => Route::bypass(pattern),
        }
    }

    /// The numbers of all rules, from the least to the most specific; the later ones after the earlier ones.
    fn by_specificity(&self, mut numbers: Vec<usize>) -> Vec<usize> {
        numbers.sort_by(|one, other| {
            self.written[*one].pattern.specificity(&self.written[*other].pattern).then(one.cmp(other))
        });
        numbers
    }

    fn resolve(&self, index: usize) -> Result<Resolved, Vec<String>> {
        let own = &self.written[index].pattern;
        let refines = |at: &usize| {
            let other = &self.written[*at].pattern;
            // Of rules with the same paths, the later refines the earlier.
            other.covers(own) && (*at <= index || !own.covers(other))
        };
        let chain = self.by_specificity((0..self.len()).filter(refines).collect());
        let settings = chain.iter().fold(None, |so_far: Option<Settings>, at| {
            let by = self.written[*at].settings.clone()?;
            Some(match so_far {
                Some(settings) => settings.refined(by),
                None => by,
            })
        });
        let rule = settings.map(|settings| {
            settings.resolved().ok_or_else(|| {
                vec!["it says nowhere how often its pages are renewed; write isr = \"60s\" or cache = \"origin\" in it, \
                      or in a rule that covers it"
                    .to_owned()]
            })
        });
        let resolved = Resolved { chain, rule: rule.transpose()? };
        let routes = own.routes().into_iter().map(|pattern| match &resolved.rule {
            Some(rule) => rule.route(pattern),
            None => Route::bypass(pattern),
        });
        Routes::new(routes).map_err(|error| faults_of(&error.to_string()))?;
        Ok(resolved)
    }

    /// Each route belongs to the most specific rule that has it; of those with the same paths, to the last.
    fn by_route(&self) -> HashMap<String, usize> {
        let mut shapes = HashSet::new();
        let mut by_route = HashMap::new();
        for index in self.by_specificity((0..self.len()).collect()).into_iter().rev() {
            for route in self.written[index].pattern.routes() {
                if shapes.insert(shape(&route)) {
                    by_route.insert(route, index);
                }
            }
        }
        by_route
    }
}

/// A route's pattern without its names, which is the same for patterns with the same paths.
fn shape(route: &str) -> String {
    let parts = route.split('/').map(|part| match part.strip_prefix('{') {
        Some(name) if name.starts_with('*') => "{*}",
        Some(_) => "{}",
        None => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// What an error of routes says, each once, without the pattern, since several routes may be one rule.
fn faults_of(error: &str) -> Vec<String> {
    let mut faults: Vec<String> = error
        .split("\n- ")
        .skip(1)
        .map(|fault| fault.split_once("`: ").map_or(fault, |(_, fault)| fault).to_owned())
        .collect();
    faults.sort();
    faults.dedup();
    if faults.is_empty() { vec![error.to_owned()] } else { faults }
}

impl Serialize for Rules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.written.iter().map(|rule| (rule.pattern.as_str(), rule.said())))
    }
}

impl Written {
    /// What it says, as it is written.
    pub(crate) fn said(&self) -> Said<'_> {
        match &self.settings {
            Some(settings) => Said::Table(settings),
            None => Said::Bypass(false),
        }
    }
}

/// What a rule says: a table, or `false`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Said<'r> {
    Table(&'r Settings),
    Bypass(bool),
}
