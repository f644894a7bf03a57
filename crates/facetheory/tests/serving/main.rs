//! The engine in real processes, on real servers and on one SQLite file: stampedes, processes that are frozen, outages,
//! and servers that are frozen or killed.
//!
//! `FACETHEORY_OUTAGE_SECONDS=60 cargo test -p facetheory --all-features --test serving` has longer outages than by
//! default. The program is its own child: it serves a site when it is told where.

mod failure;
mod freeze;
mod installation;
mod order;
mod outage;
#[path = "../support/place.rs"]
mod place;
mod process;
mod proxy;
mod site;
mod stampede;
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use facetheory::protocol::LeaseTerms;
use libtest_mimic::{Arguments, Failed, Trial};
use outage::Outage;
use place::{Place, be_a_child};
use process::{SHORT_LEASE, SHORT_LIMIT};
use proxy::Cut;
use site::Limits;

/// So many stories are told at once.
const AT_ONCE: usize = 4;

/// One story, on each of two backends.
type Story = fn(&Place) -> Result<(), Failed>;

fn main() -> ExitCode {
    if let Some((role, place)) = Place::of_child() {
        return be_a_child(be(&role, &place));
    }
    let stories: [(&str, Story); 5] = [
        ("a_missing_page_is_rendered_once_by_three_processes", stampede::of_a_missing_page),
        ("a_stale_page_is_rendered_once_and_nobody_waits_for_it", stampede::of_a_stale_page),
        ("a_render_longer_than_its_lease_is_published", freeze::not_at_all),
        ("a_process_that_was_frozen_cannot_publish", freeze::past_the_lease),
        ("a_render_that_ends_after_a_freeze_is_not_published", freeze::at_the_end),
    ];
    // What takes the longest begins first.
    let mut trials = vec![Trial::test("real_servers_are_frozen", failure::by_being_frozen)];
    for (what, servers) in failure::CASES.into_iter().rev() {
        let name = format!("{what}_killed");
        trials.push(Trial::test(name.clone(), move || failure::by_being_killed(&name, servers)));
    }
    trials.push(Trial::test("a_missing_page_is_rendered_once_by_one_process", || {
        stampede::in_one_process(&Place::on_sqlite()?)
    }));
    for (name, story) in stories {
        trials.push(Trial::test(format!("{name}_on_sqlite"), move || on_sqlite(story)));
        trials.push(Trial::test(format!("{name}_on_servers"), move || on_servers(story)));
    }
    let outages = [
        ("the_table_is_stopped", Outage { table: Some(Cut::Stopped), bodies: None }),
        ("the_table_is_silent", Outage { table: Some(Cut::Silent), bodies: None }),
        ("the_bodies_are_stopped", Outage { table: None, bodies: Some(Cut::Stopped) }),
        ("the_bodies_are_silent", Outage { table: None, bodies: Some(Cut::Silent) }),
        ("both_are_stopped", Outage { table: Some(Cut::Stopped), bodies: Some(Cut::Stopped) }),
    ];
    for (name, outage) in outages {
        trials.push(Trial::test(name, move || outage::happens(name, Place::on_servers()?, outage)));
    }
    let mut arguments = Arguments::from_args();
    // They wait for most of their time.
    arguments.test_threads.get_or_insert(AT_ONCE);
    libtest_mimic::run(&arguments, trials).exit_code()
}

async fn be(role: &str, place: &Place) -> Result<(), Failed> {
    match role {
        "make" => place.make_table().await,
        "serve" => site::serve(place, LeaseTerms::default(), Limits::default()).await,
        "serve-with-short-leases" => {
            let terms = LeaseTerms::lasting(SHORT_LEASE);
            site::serve(place, terms, Limits::default()).await
        }
        "serve-without-table" => {
            let limits = Limits { table: SHORT_LIMIT, ..Limits::default() };
            site::serve(place, LeaseTerms::default(), limits).await
        }
        "serve-without-bodies" => {
            let limits = Limits { bodies: SHORT_LIMIT, ..Limits::default() };
            site::serve(place, LeaseTerms::default(), limits).await
        }
        "serve-without-both" => {
            let limits = Limits { table: SHORT_LIMIT, bodies: SHORT_LIMIT };
            site::serve(place, LeaseTerms::default(), limits).await
        }
        other => Err(format!("no child is to {other}").into()),
    }
}

fn on_sqlite(story: Story) -> Result<(), Failed> {
    story(&Place::on_sqlite()?)
}

fn on_servers(story: Story) -> Result<(), Failed> {
    let place = Place::on_servers()?;
    place.run("make")?;
    story(&place)
}
