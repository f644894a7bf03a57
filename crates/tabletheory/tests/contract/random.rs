//! Random transactions: every backend returns the same results and ends with the same rows.
//!
//! `TABLETHEORY_CASES=2000 TABLETHEORY_SEED=7 cargo test -p tabletheory --all-features --test contract random`
//! runs more cases than the default, from another seed.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use sha2::{Digest, Sha256};
use tabletheory::{Attr, Change, Commit, Cond, Item, Kind, Number, Result, Set, Txn, Update, Value, Write};

use crate::fixture::{self, Fixture};

/// More than 2,000 transactions in total.
const CASES: u64 = 170;
const TRANSACTIONS_PER_CASE: usize = 12;

const NAMES: [&str; 3] = ["a", "b", "c"];
const SKS: [&str; 4] = ["LOCK", "META", "VER#1", "VER#2"];

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "a", "ab", "é", "\u{FFFF}", "😀"]).prop_map(str::to_owned)
}

fn number() -> impl Strategy<Value = Number> {
    let small = prop::sample::select(vec!["0", "1", "-1", "1.5", "2"]);
    let extreme =
        prop::sample::select(vec!["1E20", "1E100", "1E-130", "99999999999999999999999999999999999999"]);
    prop_oneof![9 => small, 1 => extreme].prop_map(|text| text.parse().expect("a number"))
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![vec![], vec![0_u8], vec![255], vec![0, 255]])
}

fn set() -> impl Strategy<Value = Value> {
    prop_oneof![
        prop::collection::btree_set(text(), 1..4).prop_map(|set| Value::Ss(Set::new(set).expect("a set"))),
        prop::collection::btree_set(number(), 1..4).prop_map(|set| Value::Ns(Set::new(set).expect("a set"))),
        prop::collection::btree_set(bytes(), 1..4).prop_map(|set| Value::Bs(Set::new(set).expect("a set"))),
    ]
}

/// A value of an ordered type.
fn ordered() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => number().prop_map(Value::N),
        2 => text().prop_map(Value::S),
        1 => bytes().prop_map(Value::B),
    ]
}

/// Values of every type, few enough that equal ones and sums are frequent.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        8 => ordered(),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => Just(Value::Null),
        2 => set(),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::L),
            prop::collection::btree_map(name().prop_map(str::to_owned), inner, 0..3)
                .prop_map(|map: BTreeMap<String, Value>| Value::M(map)),
        ]
    })
}

/// Mostly valid values, and sometimes one of any type.
fn mostly(valid: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    prop_oneof![30 => valid, 1 => value()]
}

fn cond() -> impl Strategy<Value = Cond> {
    let attr = || name().prop_map(Attr::<Value>::new);
    let text_or_bytes = prop_oneof![text().prop_map(Value::S), bytes().prop_map(Value::B)];
    let test = prop_oneof![
        attr().prop_map(|a| a.absent()),
        attr().prop_map(|a| a.exists()),
        (attr(), value(), any::<bool>()).prop_map(|(a, v, equal)| if equal { a.is(v) } else { a.is_not(v) }),
        (attr(), mostly(ordered()), 0..4).prop_map(|(a, v, which)| match which {
            0 => a.lt(v),
            1 => a.le(v),
            2 => a.gt(v),
            _ => a.ge(v),
        }),
        (attr(), number(), number()).prop_map(|(a, x, y)| a.between(x.min(y), x.max(y))),
        (attr(), text(), text()).prop_map(|(a, x, y)| a.between(x.clone().min(y.clone()), x.max(y))),
        (attr(), prop::collection::vec(value(), 1..4)).prop_map(|(a, values)| a.is_in(values)),
        (attr(), mostly(text_or_bytes)).prop_map(|(a, v)| a.begins_with(v)),
        (attr(), value()).prop_map(|(a, v)| a.contains(v)),
        (attr(), 0..3_u32, any::<bool>()).prop_map(|(a, n, less)| if less {
            a.size().le(n)
        } else {
            a.size().gt(n)
        }),
        Just(Attr::<String>::new("pk").absent()),
    ];
    test.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Cond::all),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Cond::any),
            inner.prop_map(|cond| !cond),
        ]
    })
}

fn change() -> impl Strategy<Value = Change> {
    let attr = || name().prop_map(Attr::<Value>::new);
    let sum = prop_oneof![4 => number().prop_map(Value::N), 1 => set()];
    prop_oneof![
        2 => (attr(), value()).prop_map(|(a, v)| a.set(v)),
        1 => (attr(), value()).prop_map(|(a, v)| a.set_if_absent(v)),
        1 => attr().prop_map(|a| a.remove()),
        1 => (attr(), value()).prop_map(|(a, v)| a.append([v])),
        3 => (attr(), mostly(sum)).prop_map(|(a, v)| a.add(v)),
    ]
}

/// Mostly of distinct attributes; sometimes one attribute twice, which is invalid.
fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(change(), 1..4).prop_perturb(|mut changes, mut random| {
        if !random.random_ratio(1, 20) {
            changes.sort_by(|one, other| one.name().cmp(other.name()));
            changes.dedup_by(|one, other| one.name() == other.name());
        }
        changes
    })
}

/// A write without its row, so that a transaction may name one row twice.
#[derive(Clone, Debug)]
enum Step {
    Put(Vec<(&'static str, Value)>),
    Update(Vec<Change>),
    Delete,
    Check,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::collection::vec((name(), value()), 0..3).prop_map(Step::Put),
        4 => changes().prop_map(Step::Update),
        1 => Just(Step::Delete),
        1 => Just(Step::Check),
    ]
}

type Steps = Vec<(usize, Step, Option<Cond>)>;

/// Mostly distinct rows; sometimes one row twice, and sometimes a used client token.
fn transaction() -> impl Strategy<Value = (Steps, Option<u8>)> {
    let steps = prop::collection::vec((0..SKS.len(), step(), prop::option::weighted(0.4, cond())), 1..4);
    let distinct = steps.prop_perturb(|mut steps, mut random| {
        if !random.random_ratio(1, 20) {
            steps.sort_by_key(|(row, ..)| *row);
            steps.dedup_by_key(|(row, ..)| *row);
        }
        steps
    });
    (distinct, prop::option::weighted(0.3, 0..3_u8))
}

fn build(t: &Fixture, steps: &Steps, token: Option<u8>) -> Txn {
    let writes = steps.iter().map(|(row, step, cond)| {
        let key = t.key(SKS[*row]);
        let write = match step {
            Step::Put(attributes) => Write::put(
                key,
                attributes.iter().map(|(name, value)| (*name, value.clone())).collect::<Item>(),
            ),
            Step::Update(changes) => Write::update(key, Update::new(changes.clone())),
            Step::Delete => Write::delete(key),
            Step::Check => {
                return Write::check(key, cond.clone().unwrap_or(Attr::<String>::new("pk").exists()));
            }
        };
        match cond {
            Some(cond) => write.when(cond.clone()),
            None => write,
        }
    });
    let txn = Txn::new(writes.collect::<Vec<_>>());
    match token {
        Some(token) => txn.with_token(t.token(&token.to_string())),
        None => txn,
    }
}

/// A result without the details that differ between backends: partition keys and error messages.
#[derive(Debug, PartialEq)]
enum Outcome {
    Done,
    Refused(usize, Option<Item>),
    Failed(Kind),
}

fn outcome(result: Result<Commit>) -> Outcome {
    match result {
        Ok(Commit::Done) => Outcome::Done,
        Ok(Commit::Refused { index, seen }) => Outcome::Refused(index, seen.map(without_partition)),
        Err(error) => Outcome::Failed(error.kind()),
    }
}

fn without_partition(mut row: Item) -> Item {
    row.remove("pk");
    row
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

#[test]
fn random_transactions_have_the_same_result_on_every_backend() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let case = prop::collection::vec(transaction(), TRANSACTIONS_PER_CASE..=TRANSACTIONS_PER_CASE);
    let mut counts = BTreeMap::new();
    let cases = setting("TABLETHEORY_CASES", CASES);
    let seed = setting("TABLETHEORY_SEED", 1);
    let config = Config {
        cases: u32::try_from(cases).expect("a number of cases"),
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &Sha256::digest(seed.to_le_bytes()));
    let mut runner = TestRunner::new_with_rng(config, random);
    let counts = std::cell::RefCell::new(&mut counts);
    runner
        .run(&case, |transactions| {
            runtime.block_on(async {
                let backends = [
                    ("memory", fixture::memory().await),
                    ("sqlite", fixture::sqlite().await),
                    ("dynamodb", fixture::dynamodb().await),
                ];
                for (steps, token) in &transactions {
                    let mut outcomes = Vec::new();
                    for (name, t) in &backends {
                        let outcome = outcome(t.table.commit(&build(t, steps, *token)).await);
                        let rows: Vec<Item> = t.rows().await.into_iter().map(without_partition).collect();
                        outcomes.push((name, outcome, rows));
                    }
                    let (_, first_outcome, first_rows) = &outcomes[0];
                    for (name, outcome, rows) in &outcomes[1..] {
                        prop_assert_eq!(outcome, first_outcome, "outcome of {}", name);
                        prop_assert_eq!(rows, first_rows, "rows of {}", name);
                    }
                    let kind = match first_outcome {
                        Outcome::Done => "done",
                        Outcome::Refused(..) => "refused",
                        Outcome::Failed(_) => "failed",
                    };
                    *counts.borrow_mut().entry(kind).or_insert(0_usize) += 1;
                }
                Ok::<(), TestCaseError>(())
            })
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    let counts = counts.into_inner();
    println!("seed {seed}: {counts:?}");
    if cases >= CASES {
        assert!(counts.values().sum::<usize>() >= 2000);
        assert!(counts["done"] > 800 && counts["refused"] > 400 && counts["failed"] > 200, "{counts:?}");
    }
}
