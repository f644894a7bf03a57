//! The engine in several processes, on DynamoDB and S3 and on one SQLite file: stampedes, frozen processes, outages,
//! and servers that are frozen or killed.
//!
//! `FACETHEORY_OUTAGE_SECONDS=60 cargo test -p facetheory --all-features --test serving` makes outages longer than the
//! default. The test program starts itself as its child processes; an environment variable gives them their role.

mod child_protocol;
mod freeze;
mod herd;
mod outage;
mod private_servers;
mod process;
mod proxy;
mod server_failure;
mod site;
mod stampede;
#[path = "../support/stores.rs"]
mod stores;
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use facetheory::protocol::LeaseTerms;
use libtest_mimic::{Arguments, Failed, Trial};
use outage::ProxyOutage;
use process::{SHORT_LEASE, SHORT_TIMEOUT};
use proxy::Failure;
use site::Timeouts;
use stores::{Stores, run_child};

/// How many tests run at once.
const AT_ONCE: usize = 4;

/// A test that runs on both backends.
type Test = fn(&Stores) -> Result<(), Failed>;

fn main() -> ExitCode {
    if let Some((role, stores)) = Stores::for_child() {
        return run_child(child(&role, &stores));
    }
    let tests: [(&str, Test); 6] = [
        ("a_missing_page_is_rendered_once_by_three_processes", stampede::of_a_missing_page),
        ("a_stale_page_is_rendered_once_and_no_client_waits_for_it", stampede::of_a_stale_page),
        ("after_the_holder_was_killed_a_herd_costs_one_render", herd::after_the_holder_was_killed),
        ("a_render_longer_than_its_lease_is_published", freeze::without_freeze),
        ("a_frozen_process_cannot_publish_after_its_lease", freeze::during_render),
        ("a_render_that_ends_after_a_freeze_is_not_published", freeze::until_render_ends),
    ];
    // The longest tests start first.
    let mut trials = vec![Trial::test("real_servers_are_frozen", server_failure::frozen)];
    for (what, servers) in server_failure::CASES.into_iter().rev() {
        let name = format!("{what}_killed");
        trials.push(Trial::test(name.clone(), move || server_failure::killed(&name, servers)));
    }
    trials.push(Trial::test("a_missing_page_is_rendered_once_by_one_process", || {
        stampede::in_one_process(&Stores::on_sqlite()?)
    }));
    for (name, test) in tests {
        trials.push(Trial::test(format!("{name}_on_sqlite"), move || on_sqlite(test)));
        trials.push(Trial::test(format!("{name}_on_servers"), move || on_servers(test)));
    }
    trials.push(Trial::test("while_puts_are_denied_a_herd_costs_one_render", herd::while_puts_are_denied));
    let outages = [
        ("the_table_is_stopped", ProxyOutage { table: Some(Failure::Stopped), bodies: None }),
        ("the_table_is_unresponsive", ProxyOutage { table: Some(Failure::Unresponsive), bodies: None }),
        ("the_bodies_are_stopped", ProxyOutage { table: None, bodies: Some(Failure::Stopped) }),
        ("the_bodies_are_unresponsive", ProxyOutage { table: None, bodies: Some(Failure::Unresponsive) }),
        ("both_are_stopped", ProxyOutage { table: Some(Failure::Stopped), bodies: Some(Failure::Stopped) }),
    ];
    for (name, outage) in outages {
        trials.push(Trial::test(name, move || outage::run_outage(name, Stores::on_servers()?, outage)));
    }
    let mut arguments = Arguments::from_args();
    // Tests mostly wait, so there may be more of them than cores.
    arguments.test_threads.get_or_insert(AT_ONCE);
    libtest_mimic::run(&arguments, trials).exit_code()
}

async fn child(role: &str, stores: &Stores) -> Result<(), Failed> {
    match role {
        "create-table" => stores.create_table().await,
        "serve" => site::serve(stores, LeaseTerms::default(), Timeouts::default()).await,
        "serve-on-one-thread" => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let serving = site::serve(stores, LeaseTerms::default(), Timeouts::default());
            tokio::task::block_in_place(move || runtime.block_on(serving))
        }
        "serve-with-short-leases" => {
            let terms = LeaseTerms::lasting(SHORT_LEASE);
            site::serve(stores, terms, Timeouts::default()).await
        }
        "serve-without-table" => {
            let timeouts = Timeouts { table: SHORT_TIMEOUT, ..Timeouts::default() };
            site::serve(stores, LeaseTerms::default(), timeouts).await
        }
        "serve-without-bodies" => {
            let timeouts = Timeouts { bodies: SHORT_TIMEOUT, ..Timeouts::default() };
            site::serve(stores, LeaseTerms::default(), timeouts).await
        }
        "serve-without-both" => {
            let timeouts = Timeouts { table: SHORT_TIMEOUT, bodies: SHORT_TIMEOUT };
            site::serve(stores, LeaseTerms::default(), timeouts).await
        }
        other => Err(format!("unknown role of a child: {other}").into()),
    }
}

fn on_sqlite(test: Test) -> Result<(), Failed> {
    test(&Stores::on_sqlite()?)
}

fn on_servers(test: Test) -> Result<(), Failed> {
    let stores = Stores::on_servers()?;
    stores.run("create-table")?;
    test(&stores)
}
