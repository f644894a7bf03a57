//! Random transactions: every backend gives the same answers and ends with the same rows.
//!
//! `TABLETHEORY_CASES=2000 TABLETHEORY_SEED=7 cargo test -p tabletheory --all-features --test contract random`
//! tries more cases than the default, from another seed.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use sha2::{Digest, Sha256};
use tabletheory::{Attr, Change, Commit, Cond, Item, Kind, Number, Result, Set, Txn, Update, Value, Write};

use crate::fixture::{self, Fixture};

/// With the transactions of a case, more than 2,000 in all.
const CASES: u64 = 170;
const TRANSACTIONS_A_CASE: usize = 12;

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

/// A value of a type that has an order.
fn ordered() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => number().prop_map(Value::N),
        2 => text().prop_map(Value::S),
        1 => bytes().prop_map(Value::B),
    ]
}

/// Few values, so that comparisons and sums meet, of every type.
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

/// Mostly what fits, and now and then something that no backend takes.
fn mostly(fits: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    prop_oneof![30 => fits, 1 => value()]
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

/// Mostly of different attributes; now and then the same one twice, which is refused.
fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(change(), 1..4).prop_perturb(|mut changes, mut random| {
        if !random.random_ratio(1, 20) {
            changes.sort_by(|one, other| one.name().cmp(other.name()));
            changes.dedup_by(|one, other| one.name() == other.name());
        }
        changes
    })
}

/// A write to one of the rows, by its number, so that a transaction may name one twice.
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

/// Mostly different rows; now and then the same row twice, and now and then a client token that was used before.
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

/// An answer without what differs by backend: the partition's name, and the words of an error.
#[derive(Debug, PartialEq)]
enum Answer {
    Done,
    Refused(usize, Option<Item>),
    Failed(Kind),
}

fn answer(result: Result<Commit>) -> Answer {
    match result {
        Ok(Commit::Done) => Answer::Done,
        Ok(Commit::Refused { index, seen }) => Answer::Refused(index, seen.map(without_partition)),
        Err(error) => Answer::Failed(error.kind()),
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
fn random_transactions_have_one_outcome() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let case = prop::collection::vec(transaction(), TRANSACTIONS_A_CASE..=TRANSACTIONS_A_CASE);
    let mut tally = BTreeMap::new();
    let cases = setting("TABLETHEORY_CASES", CASES);
    let seed = setting("TABLETHEORY_SEED", 1);
    let config = Config {
        cases: u32::try_from(cases).expect("a number of cases"),
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &Sha256::digest(seed.to_le_bytes()));
    let mut runner = TestRunner::new_with_rng(config, random);
    let tally = std::sync::Mutex::new(&mut tally);
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
                        let answer = answer(t.table.commit(&build(t, steps, *token)).await);
                        let rows: Vec<Item> = t.rows().await.into_iter().map(without_partition).collect();
                        outcomes.push((name, answer, rows));
                    }
                    let (_, first_answer, first_rows) = &outcomes[0];
                    for (name, answer, rows) in &outcomes[1..] {
                        prop_assert_eq!(answer, first_answer, "answer of {}", name);
                        prop_assert_eq!(rows, first_rows, "rows of {}", name);
                    }
                    let kind = match first_answer {
                        Answer::Done => "done",
                        Answer::Refused(..) => "refused",
                        Answer::Failed(_) => "failed",
                    };
                    *tally.lock().expect("one thread").entry(kind).or_insert(0_usize) += 1;
                }
                Ok::<(), TestCaseError>(())
            })
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    let tally = tally.into_inner().expect("one thread");
    println!("seed {seed}: {tally:?}");
    if cases >= CASES {
        assert!(tally.values().sum::<usize>() >= 2000);
        assert!(tally["done"] > 800 && tally["refused"] > 400 && tally["failed"] > 200, "{tally:?}");
    }
}
