//! Random transactions: every backend gives the same answers and ends with the same rows.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tabletheory::{Attr, Change, Commit, Cond, Item, Kind, Result, Set, Txn, Update, Value, Write};

use crate::fixture::{self, Fixture};

/// With the transactions of a case, at least 2,000 in all.
const CASES: u32 = 170;
const TRANSACTIONS_A_CASE: usize = 12;

const NAMES: [&str; 3] = ["a", "b", "c"];
const SKS: [&str; 4] = ["LOCK", "META", "VER#1", "VER#2"];

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

/// Few values, so that comparisons and sums meet, of every type.
fn value() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["", "a", "ab", "é", "\u{FFFF}", "😀"]).prop_map(str::to_owned);
    let number = || {
        prop::sample::select(vec![
            "0",
            "1",
            "-1",
            "1.5",
            "2",
            "1E20",
            "1E100",
            "1E-130",
            "99999999999999999999999999999999999999",
        ])
        .prop_map(|text| text.parse::<tabletheory::Number>().expect("a number"))
    };
    let bytes = || prop::sample::select(vec![vec![], vec![0_u8], vec![255], vec![0, 255]]);
    let leaf = prop_oneof![
        3 => text().prop_map(Value::S),
        4 => number().prop_map(Value::N),
        1 => bytes().prop_map(Value::B),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => Just(Value::Null),
        1 => prop::collection::btree_set(text(), 1..4).prop_map(|set| Value::Ss(Set::new(set).expect("a set"))),
        1 => prop::collection::btree_set(number(), 1..4).prop_map(|set| Value::Ns(Set::new(set).expect("a set"))),
        1 => prop::collection::btree_set(bytes(), 1..4).prop_map(|set| Value::Bs(Set::new(set).expect("a set"))),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::L),
            prop::collection::btree_map(name().prop_map(str::to_owned), inner, 0..3)
                .prop_map(|map: BTreeMap<String, Value>| Value::M(map)),
        ]
    })
}

fn cond() -> impl Strategy<Value = Cond> {
    let attr = || name().prop_map(Attr::<Value>::new);
    let test = prop_oneof![
        attr().prop_map(|a| a.absent()),
        attr().prop_map(|a| a.exists()),
        (attr(), value(), 0..6).prop_map(|(a, v, which)| match which {
            0 => a.is(v),
            1 => a.is_not(v),
            2 => a.lt(v),
            3 => a.le(v),
            4 => a.gt(v),
            _ => a.ge(v),
        }),
        (attr(), value(), value()).prop_map(|(a, low, high)| a.between(low, high)),
        (attr(), prop::collection::vec(value(), 1..4)).prop_map(|(a, values)| a.is_in(values)),
        (attr(), value()).prop_map(|(a, v)| a.begins_with(v)),
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
    (name().prop_map(Attr::<Value>::new), value(), 0..7).prop_map(|(a, v, which)| match which {
        0 => a.set(v),
        1 => a.set_if_absent(v),
        2 => a.remove(),
        3 => a.append([v]),
        _ => a.add(v),
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
        4 => prop::collection::vec(change(), 1..4).prop_map(Step::Update),
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

#[test]
fn random_transactions_have_one_outcome() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let case = prop::collection::vec(transaction(), TRANSACTIONS_A_CASE..=TRANSACTIONS_A_CASE);
    let mut tally = BTreeMap::new();
    let mut runner = TestRunner::new(Config { cases: CASES, ..Config::default() });
    let tally = std::sync::Mutex::new(&mut tally);
    runner
        .run(&case, |transactions| {
            runtime.block_on(async {
                let backends = [("memory", fixture::memory().await), ("sqlite", fixture::sqlite().await)];
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
    println!("{tally:?}");
    assert!(tally.values().sum::<usize>() >= 2000);
    assert!(tally.len() == 3 && tally.values().all(|count| *count > 100), "every outcome was met: {tally:?}");
}
