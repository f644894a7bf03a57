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
fn a_condition_has_placeholders_for_names_and_values() {
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
fn every_test_has_its_syntax() {
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
fn joined_conditions_have_one_pair_of_parentheses() {
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
fn an_update_shares_name_placeholders_with_the_condition() {
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
fn an_update_of_removals_has_no_values() {
    let expression = of_write(Some(&Update::new([TOKEN.remove()])), None);
    assert_eq!(expression.update.as_deref(), Some("REMOVE #n0"));
    assert_eq!(expression.values, None);
    assert_eq!(of_write(None, None), Expression::default());
}

#[test]
fn every_sort_key_condition_has_its_syntax() {
    let text = |sort: Sort| of_query("CACHE#1", &sort).condition.expect("there is one");
    let sk = || "VER#".to_string();
    assert_eq!(text(Sort::All), "#n0 = :v0");
    for (comparison, operator) in [
        (Comparison::Equal, "="),
        (Comparison::Less, "<"),
        (Comparison::LessOrEqual, "<="),
        (Comparison::Greater, ">"),
        (Comparison::GreaterOrEqual, ">="),
    ] {
        assert_eq!(text(Sort::Compare(comparison, sk())), format!("#n0 = :v0 AND #n1 {operator} :v1"));
    }
    assert_eq!(text(Sort::BeginsWith(sk())), "#n0 = :v0 AND begins_with(#n1, :v1)");
    assert_eq!(text(Sort::Between(sk(), sk())), "#n0 = :v0 AND #n1 BETWEEN :v1 AND :v2");
}

#[test]
fn the_longest_update_and_condition_fit_in_4_kb() {
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

/// Whether some pair of parentheses contains only another pair.
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
    let leaf = (0..200_usize, 0..9_usize).prop_map(|(name, test)| {
        let (number, text) =
            (Attr::<i64>::named(format!("a{name}")), Attr::<String>::named(format!("a{name}")));
        let tests: [&dyn Fn() -> Cond; 9] = [
            &|| number.absent(),
            &|| number.exists(),
            &|| number.is(1),
            &|| number.ge(1),
            &|| number.between(1, 2),
            &|| number.is_in(0..20),
            &|| text.begins_with("x"),
            &|| text.contains("x"),
            &|| text.size().ge(1),
        ];
        tests[test]()
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
    // A failure prints its case; no file of failed cases is written to the source tree.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_write_within_the_limits_fits_in_an_expression(update in any_update(), cond in any_cond()) {
        let write = Write::update(Key::new("a", "b"), update.clone()).when(cond.clone());
        prop_assume!(Txn::from(write).check().is_ok());
        let expression = of_write(Some(&update), Some(&cond));
        let again = of_write(Some(&update), Some(&cond));
        prop_assert_eq!(&expression, &again);
        let update = expression.update.expect("there is one");
        let condition = expression.condition.expect("there is one");
        prop_assert!(update.len() <= MOST && condition.len() <= MOST);
        prop_assert!(!has_redundant_parentheses(&condition), "{}", condition);
        // DynamoDB rejects a name or a value that no expression uses.
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
