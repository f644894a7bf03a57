//! Conditions and transactions under contention.

use std::sync::Arc;

use tabletheory::{Attr, Commit, Item, Table, Txn, Update, Value, Write};

use crate::fixture::{Fixture, item};

const PK: Attr<String> = Attr::new("pk");
const EXPIRES: Attr<i64> = Attr::new("lease_expires_at");
const TOKEN: Attr<String> = Attr::new("lease_token");
const VERSION: Attr<i64> = Attr::new("version");

const CONTENDERS: i64 = 20;
const LEASE_ROUNDS: i64 = 50;
const PUBLISHERS: usize = 8;
const PUBLISH_ROUNDS: usize = 40;

pub(crate) async fn one_of_twenty_concurrent_lease_attempts_succeeds(t: &Fixture) {
    for round in 0..LEASE_ROUNDS {
        let mut contenders = tokio::task::JoinSet::new();
        for contender in 0..CONTENDERS {
            // The lease of the previous round has just expired.
            let lease = item([
                ("lease_token", format!("{round}-{contender}").into()),
                ("lease_expires_at", (round + 1).into()),
            ]);
            let put = Write::put(t.key("LOCK"), lease).when(PK.absent().or(EXPIRES.le(round)));
            let table = Arc::clone(&t.table);
            contenders.spawn(async move { (contender, table.commit(&Txn::from(put)).await) });
        }
        let mut winners = Vec::new();
        let mut seen_by_losers = Vec::new();
        for (contender, commit) in contenders.join_all().await {
            match commit.expect("contention is not an error") {
                Commit::Done => winners.push(contender),
                Commit::Refused { seen, .. } => seen_by_losers.push(seen.expect("the winner's row")),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let row = t.get("LOCK").await.expect("the lease");
        assert_eq!(row.get("lease_token"), Some(&format!("{round}-{}", winners[0]).into()));
        assert!(seen_by_losers.iter().all(|seen| *seen == row), "every refusal returns the lease");
    }
}

/// Each publisher acquires the lease, then writes three rows that must always belong to one version.
pub(crate) async fn concurrent_publishers_write_complete_versions(t: &Fixture) {
    t.put("META", item([("version", 0.into())])).await;
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let (table, key) = (Arc::clone(&t.table), t.key("META"));
        publishers.spawn(async move {
            let mut published = 0;
            for round in 0..PUBLISH_ROUNDS {
                let mark = format!("{publisher}-{round}");
                let seen =
                    table.get(&key, tabletheory::Consistency::Strong).await.expect("a get").expect("META");
                let version = seen.get("version").and_then(Value::as_i64).expect("a version");
                let lock = Write::put(key.sibling("LOCK"), item([("lease_token", mark.as_str().into())]))
                    .when(PK.absent());
                if table.commit(&Txn::from(lock)).await.expect("a lease").is_refused() {
                    continue;
                }
                let publish = Txn::new([
                    Write::put(
                        key.sibling(format!("VER#{:05}", version + 1)),
                        item([("mark", mark.as_str().into())]),
                    )
                    .when(PK.absent()),
                    Write::update(
                        key.clone(),
                        Update::new([VERSION.add(1), Attr::<String>::new("mark").set(mark.as_str())]),
                    )
                    .when(VERSION.is(version)),
                    Write::delete(key.sibling("LOCK")).when(TOKEN.is(mark.as_str())),
                ]);
                match table.commit(&publish).await.expect("contention is not an error") {
                    Commit::Done => published += 1,
                    // Another publisher was faster between the read and the lease: release the lease.
                    Commit::Refused { .. } => {
                        let release = Write::delete(key.sibling("LOCK")).when(TOKEN.is(mark.as_str()));
                        assert!(table.commit(&Txn::from(release)).await.expect("a release").is_done());
                    }
                }
            }
            published
        });
    }
    let published: usize = publishers.join_all().await.into_iter().sum();
    let rows = t.rows().await;
    let meta = rows.iter().find(|row| row.key().expect("a key").sk == "META").expect("META");
    let versions: Vec<&Item> =
        rows.iter().filter(|row| row.key().expect("a key").sk.starts_with("VER#")).collect();
    assert!(published > 0, "at least one publication");
    assert_eq!(meta.get("version").and_then(Value::as_i64), i64::try_from(published).ok());
    assert_eq!(versions.len(), published, "one row per version");
    assert_eq!(
        meta.get("mark"),
        versions.last().and_then(|row| row.get("mark")),
        "META belongs to the last version"
    );
    assert_eq!(rows.len(), published + 1, "all leases were released");
}
