//! Conditions, updates and sort conditions as DynamoDB's expressions.
//!
//! Every name and every value stands behind a placeholder, so that none is ever read as syntax or as a
//! reserved word. The same input always gives the same placeholders, because a transaction that is sent
//! again under its client token must be the same to the letter.

use std::collections::HashMap;
use std::fmt::Write as _;

use aws_sdk_dynamodb::types::AttributeValue;

use super::convert::from_value;
use crate::cond::{Cond, Node, Test};
use crate::item::{PK, SK};
use crate::query::Sort;
use crate::update::{Action, Change, Update};
use crate::value::Value;

/// The texts of one write's expressions, and what their placeholders stand for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Expression {
    pub(super) update: Option<String>,
    /// The condition, or a query's key condition.
    pub(super) condition: Option<String>,
    /// None when there are no names: DynamoDB refuses an empty map.
    pub(super) names: Option<HashMap<String, String>>,
    /// None when there are no values: DynamoDB refuses an empty map.
    pub(super) values: Option<HashMap<String, AttributeValue>>,
}

/// Compiles what a write does and when; both are checked against the limits before.
pub(super) fn of_write(update: Option<&Update>, cond: Option<&Cond>) -> Expression {
    let mut placeholders = Placeholders::default();
    // The update comes first: it is the longer text, so it gets the shorter placeholders.
    let update = update.map(|update| placeholders.update(update));
    let condition = cond.map(|cond| {
        let mut text = String::new();
        placeholders.cond(&mut text, cond);
        text
    });
    placeholders.finish(update, condition)
}

/// Compiles which rows of a partition a query reads.
pub(super) fn of_query(pk: &str, sort: &Sort) -> Expression {
    let mut placeholders = Placeholders::default();
    let mut text = format!("{} = {}", placeholders.name(PK), placeholders.text(pk));
    if *sort != Sort::All {
        let name = placeholders.name(SK);
        let sort = match sort {
            Sort::All => String::new(),
            Sort::Is(sk) => format!("{name} = {}", placeholders.text(sk)),
            Sort::Lt(sk) => format!("{name} < {}", placeholders.text(sk)),
            Sort::Le(sk) => format!("{name} <= {}", placeholders.text(sk)),
            Sort::Gt(sk) => format!("{name} > {}", placeholders.text(sk)),
            Sort::Ge(sk) => format!("{name} >= {}", placeholders.text(sk)),
            Sort::Between(low, high) => {
                format!("{name} BETWEEN {} AND {}", placeholders.text(low), placeholders.text(high))
            }
            Sort::BeginsWith(prefix) => format!("begins_with({name}, {})", placeholders.text(prefix)),
        };
        text = format!("{text} AND {sort}");
    }
    placeholders.finish(None, Some(text))
}

/// Stands for the empty list to which the first append appends; short, since it may stand there eighty times.
const EMPTY_LIST: &str = ":e";

/// Gives out placeholders: a name always the same one, a value always a new one.
#[derive(Default)]
struct Placeholders {
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
    value_count: usize,
}

impl Placeholders {
    fn name(&mut self, name: &str) -> String {
        if let Some(placeholder) = self.names.get(name) {
            return placeholder.clone();
        }
        let placeholder = format!("#n{}", self.names.len());
        self.names.insert(name.to_owned(), placeholder.clone());
        placeholder
    }

    fn value(&mut self, value: &Value) -> String {
        let placeholder = format!(":v{}", self.value_count);
        self.value_count += 1;
        self.values.insert(placeholder.clone(), from_value(value));
        placeholder
    }

    fn text(&mut self, text: &str) -> String {
        self.value(&Value::S(text.to_owned()))
    }

    fn finish(self, update: Option<String>, condition: Option<String>) -> Expression {
        let names: HashMap<String, String> =
            self.names.into_iter().map(|(name, placeholder)| (placeholder, name)).collect();
        Expression {
            update,
            condition,
            names: (!names.is_empty()).then_some(names),
            values: (!self.values.is_empty()).then_some(self.values),
        }
    }

    fn update(&mut self, update: &Update) -> String {
        let (mut set, mut remove, mut add) = (Vec::new(), Vec::new(), Vec::new());
        for Change { name, action } in &update.changes {
            let name = self.name(name);
            match action {
                Action::Set(value) => set.push(format!("{name} = {}", self.value(value))),
                Action::SetIfAbsent(value) => {
                    set.push(format!("{name} = if_not_exists({name},{})", self.value(value)));
                }
                Action::Append(values) => {
                    self.values.insert(EMPTY_LIST.to_owned(), AttributeValue::L(Vec::new()));
                    let values = self.value(&Value::L(values.clone()));
                    set.push(format!("{name} = list_append(if_not_exists({name},{EMPTY_LIST}),{values})"));
                }
                Action::Remove => remove.push(name),
                Action::Add(value) => add.push(format!("{name} {}", self.value(value))),
            }
        }
        let clauses = [("SET", set), ("REMOVE", remove), ("ADD", add)];
        let clauses = clauses.iter().filter(|(_, parts)| !parts.is_empty());
        let clauses: Vec<String> =
            clauses.map(|(word, parts)| format!("{word} {}", parts.join(", "))).collect();
        clauses.join(" ")
    }

    fn cond(&mut self, text: &mut String, cond: &Cond) {
        match &collapsed(cond).0 {
            Node::Test { name, test } => {
                let name = self.name(name);
                self.test(text, &name, test);
            }
            Node::All(conds) => self.join(text, conds, " AND "),
            Node::Any(conds) => self.join(text, conds, " OR "),
            Node::Not(cond) => {
                text.push_str("NOT (");
                self.cond(text, cond);
                text.push(')');
            }
        }
    }

    fn join(&mut self, text: &mut String, conds: &[Cond], word: &str) {
        for (index, cond) in conds.iter().enumerate() {
            if index > 0 {
                text.push_str(word);
            }
            let joined = matches!(collapsed(cond).0, Node::All(_) | Node::Any(_));
            if joined {
                text.push('(');
            }
            self.cond(text, cond);
            if joined {
                text.push(')');
            }
        }
    }

    fn test(&mut self, text: &mut String, name: &str, test: &Test) {
        let written = match test {
            Test::Absent => write!(text, "attribute_not_exists({name})"),
            Test::Exists => write!(text, "attribute_exists({name})"),
            Test::Compare(comparison, value) => {
                write!(text, "{name} {} {}", comparison.symbol(), self.value(value))
            }
            Test::Between(low, high) => {
                let (low, high) = (self.value(low), self.value(high));
                write!(text, "{name} BETWEEN {low} AND {high}")
            }
            Test::In(values) => {
                let values: Vec<String> = values.iter().map(|value| self.value(value)).collect();
                write!(text, "{name} IN ({})", values.join(", "))
            }
            Test::BeginsWith(prefix) => write!(text, "begins_with({name}, {})", self.value(prefix)),
            Test::Contains(part) => write!(text, "contains({name}, {})", self.value(part)),
            Test::Size(comparison, size) => {
                let size = self.value(&Value::from(*size));
                write!(text, "size({name}) {} {size}", comparison.symbol())
            }
        };
        debug_assert!(written.is_ok(), "writing to a string does not fail");
    }
}

/// A condition that joins only one is that one: DynamoDB refuses the doubled parentheses that it would need.
fn collapsed(mut cond: &Cond) -> &Cond {
    while let Node::All(conds) | Node::Any(conds) = &cond.0
        && let [only] = conds.as_slice()
    {
        cond = only;
    }
    cond
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Attr;
    use crate::item::Key;
    use crate::limit::{MAX_CHANGES, MAX_TERMS};
    use crate::txn::{Txn, Write};
    use proptest::prelude::*;

    const PK_ATTR: Attr<String> = Attr::new("pk");
    const TOKEN: Attr<String> = Attr::new("lease_token");
    const EXPIRES: Attr<i64> = Attr::new("lease_expires_at");

    /// DynamoDB's limit for one expression.
    const MOST: usize = 4096;

    fn condition(cond: &Cond) -> String {
        of_write(None, Some(cond)).condition.expect("there is one")
    }

    #[test]
    fn a_lease_is_acquired_by_this_text() {
        let free = PK_ATTR.absent().or(EXPIRES.le(1_700_000_000));
        let expression = of_write(None, Some(&free));
        assert_eq!(expression.condition.as_deref(), Some("attribute_not_exists(#n0) OR #n1 <= :v0"));
        assert_eq!(
            expression.names,
            Some(HashMap::from([("#n0".into(), "pk".into()), ("#n1".into(), "lease_expires_at".into()),]))
        );
        assert_eq!(
            expression.values,
            Some(HashMap::from([(":v0".into(), AttributeValue::N("1700000000".into()))]))
        );
        assert_eq!(expression.update, None);
    }

    #[test]
    fn every_test_has_its_text() {
        let cond = Cond::all([
            TOKEN.is("a"),
            TOKEN.is_not("b"),
            EXPIRES.between(1, 2),
            EXPIRES.is_in([1, 2, 3]),
            TOKEN.begins_with("x"),
            TOKEN.contains("y"),
            TOKEN.size().gt(3),
            EXPIRES.exists(),
        ]);
        assert_eq!(
            condition(&cond),
            "#n0 = :v0 AND #n0 <> :v1 AND #n1 BETWEEN :v2 AND :v3 AND #n1 IN (:v4, :v5, :v6) AND \
             begins_with(#n0, :v7) AND contains(#n0, :v8) AND size(#n0) > :v9 AND attribute_exists(#n1)"
        );
    }

    #[test]
    fn joined_conditions_have_parentheses_and_never_two_pairs() {
        let a = || TOKEN.is("a");
        let b = || EXPIRES.is(1);
        assert_eq!(condition(&Cond::any([a().and(b()), b()])), "(#n0 = :v0 AND #n1 = :v1) OR #n1 = :v2");
        assert_eq!(condition(&!(a().or(b()))), "NOT (#n0 = :v0 OR #n1 = :v1)");
        assert_eq!(condition(&!!a()), "NOT (NOT (#n0 = :v0))");
        let wrapped = Cond::all([Cond::any([Cond::all([a()])])]);
        assert_eq!(condition(&wrapped), "#n0 = :v0");
        assert_eq!(condition(&!Cond::all([Cond::any([a(), b()])])), "NOT (#n0 = :v0 OR #n1 = :v1)");
        assert_eq!(
            condition(&Cond::all([b(), Cond::any([a().and(b())])])),
            "#n0 = :v0 AND (#n1 = :v1 AND #n0 = :v2)"
        );
    }

    #[test]
    fn an_update_shares_its_names_with_the_condition() {
        let update = Update::new([
            EXPIRES.add(30),
            TOKEN.set("t"),
            Attr::<i64>::new("ttl").remove(),
            Attr::<String>::new("owner").set_if_absent("me"),
            Attr::<Vec<String>>::new("log").append(["one".to_string()]),
        ]);
        let expression = of_write(Some(&update), Some(&TOKEN.is("s")));
        assert_eq!(
            expression.update.as_deref(),
            Some(
                "SET #n1 = :v1, #n3 = if_not_exists(#n3,:v2), \
                 #n4 = list_append(if_not_exists(#n4,:e),:v3) REMOVE #n2 ADD #n0 :v0"
            )
        );
        assert_eq!(expression.condition.as_deref(), Some("#n1 = :v4"));
        let values = expression.values.expect("there are some");
        assert_eq!(values.len(), 6);
        assert_eq!(values[":e"], AttributeValue::L(vec![]));
        assert_eq!(values[":v3"], AttributeValue::L(vec![AttributeValue::S("one".into())]));
    }

    #[test]
    fn a_removal_alone_has_no_values() {
        let expression = of_write(Some(&Update::new([TOKEN.remove()])), None);
        assert_eq!(expression.update.as_deref(), Some("REMOVE #n0"));
        assert_eq!(expression.values, None);
        assert_eq!(of_write(None, None), Expression::default());
    }

    #[test]
    fn a_query_has_its_key_condition() {
        let text = |sort: Sort| of_query("CACHE#1", &sort).condition.expect("there is one");
        let sk = || "VER#".to_string();
        assert_eq!(text(Sort::All), "#n0 = :v0");
        assert_eq!(text(Sort::Is(sk())), "#n0 = :v0 AND #n1 = :v1");
        assert_eq!(text(Sort::Lt(sk())), "#n0 = :v0 AND #n1 < :v1");
        assert_eq!(text(Sort::Le(sk())), "#n0 = :v0 AND #n1 <= :v1");
        assert_eq!(text(Sort::Gt(sk())), "#n0 = :v0 AND #n1 > :v1");
        assert_eq!(text(Sort::Ge(sk())), "#n0 = :v0 AND #n1 >= :v1");
        assert_eq!(text(Sort::BeginsWith(sk())), "#n0 = :v0 AND begins_with(#n1, :v1)");
        assert_eq!(text(Sort::Between(sk(), sk())), "#n0 = :v0 AND #n1 BETWEEN :v1 AND :v2");
    }

    #[test]
    fn the_longest_update_and_condition_fit() {
        let attr = |kind: &str, index: usize| Attr::<i64>::named(format!("{kind}{index}"));
        let update = Update::new(
            (0..MAX_CHANGES)
                .map(|index| Attr::<Vec<String>>::named(format!("a{index}")).append(["x".to_string()])),
        );
        let shapes: [fn(Attr<i64>) -> Cond; 3] =
            [|attr| attr.between(1, 2), |attr| attr.absent(), |attr| !attr.absent()];
        for (shape, each) in shapes.iter().zip([1, 1, 2]) {
            // One term is the connective.
            let tests = (0..(MAX_TERMS - 1) / each).map(|index| shape(attr("c", index)));
            let write = Write::update(Key::new("a", "b"), update.clone()).when(Cond::any(tests));
            Txn::from(write.clone()).check().expect("it is within the limits");
            let expression = of_write(Some(&update), write.condition());
            assert!(expression.update.expect("there is one").len() <= MOST);
            assert!(expression.condition.expect("there is one").len() <= MOST);
        }
    }

    /// Whether some pair of parentheses holds nothing but another pair.
    fn has_redundant_parentheses(text: &str) -> bool {
        let mut open = Vec::new();
        let mut last_pair = None;
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                b'(' => open.push(at),
                b')' => {
                    let start = open.pop().expect("parentheses match");
                    if last_pair == Some((start + 1, at - 1)) {
                        return true;
                    }
                    last_pair = Some((start, at));
                }
                _ => {}
            }
        }
        false
    }

    fn any_cond() -> impl Strategy<Value = Cond> {
        let leaf = (0..200_usize, 0..9_u8).prop_map(|(name, test)| {
            let attr = Attr::<i64>::named(format!("a{name}"));
            match test {
                0 => attr.absent(),
                1 => attr.exists(),
                2 => attr.is(1),
                3 => attr.ge(1),
                4 => attr.between(1, 2),
                5 => attr.is_in(0..20),
                6 => Attr::<String>::named(format!("a{name}")).begins_with("x"),
                7 => Attr::<String>::named(format!("a{name}")).contains("x"),
                _ => Attr::<String>::named(format!("a{name}")).size().ge(1),
            }
        });
        leaf.prop_recursive(12, 120, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..30).prop_map(Cond::all),
                prop::collection::vec(inner.clone(), 1..30).prop_map(Cond::any),
                inner.prop_map(|cond| !cond),
            ]
        })
    }

    fn any_update() -> impl Strategy<Value = Update> {
        prop::collection::vec(0..5_u8, 1..=MAX_CHANGES).prop_map(|actions| {
            Update::new(actions.into_iter().enumerate().map(|(index, action)| {
                let attr = Attr::<i64>::named(format!("u{index}"));
                match action {
                    0 => attr.set(1),
                    1 => attr.set_if_absent(1),
                    2 => attr.remove(),
                    3 => attr.add(1),
                    _ => Attr::<Vec<String>>::named(format!("u{index}")).append(["x".to_string()]),
                }
            }))
        })
    }

    proptest! {
        // Cases that failed are named in the failure; no file of them is left in the sources.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_the_limits_allow_fits_in_an_expression(update in any_update(), cond in any_cond()) {
            let write = Write::update(Key::new("a", "b"), update.clone()).when(cond.clone());
            prop_assume!(Txn::from(write).check().is_ok());
            let expression = of_write(Some(&update), Some(&cond));
            let again = of_write(Some(&update), Some(&cond));
            prop_assert_eq!(&expression, &again);
            let update = expression.update.expect("there is one");
            let condition = expression.condition.expect("there is one");
            prop_assert!(update.len() <= MOST && condition.len() <= MOST);
            prop_assert!(!has_redundant_parentheses(&condition), "{}", condition);
            // DynamoDB refuses a name or a value that no text uses.
            let words: std::collections::HashSet<&str> = [update.as_str(), condition.as_str()]
                .into_iter()
                .flat_map(|text| text.split([' ', ',', '(', ')']))
                .collect();
            for placeholder in expression.names.iter().flat_map(HashMap::keys) {
                prop_assert!(words.contains(placeholder.as_str()), "{}", placeholder);
            }
            for placeholder in expression.values.iter().flat_map(HashMap::keys) {
                prop_assert!(words.contains(placeholder.as_str()), "{}", placeholder);
            }
        }
    }
}
