//! A store that does not complete writes for a while, through the real binary.

#[path = "support/mod.rs"]
mod support;

use std::path::Path;

use rusqlite::Connection;
use support::gateway::{Gateway, data};
use support::origin::{Gate, Origin, ScriptedResponse};
use support::site::get;
use support::wait_for;

/// Metadata stays in use for long, so that a slow machine does not make a request read the table again.
const CONFIG: &str =
    "[routes]\n\"/**\" = { isr = \"1h\" }\n[store]\nmetadata_max_age = \"1h\"\n[timeouts]\ntable = \"20s\"\n";

/// A connection of another program to the table of a gateway.
fn table(directory: &Path) -> Connection {
    Connection::open(data(directory).join("table.db")).expect("the table")
}

fn published(table: &Connection) -> u32 {
    table.query_row("SELECT count(*) FROM item WHERE sk = 'META'", [], |row| row.get(0)).expect("a number")
}

#[test]
fn a_new_page_is_served_while_the_table_cannot_be_written_and_is_published_afterwards() {
    let (directory, origin, gate) =
        (tempfile::tempdir().expect("a directory"), Origin::start(), Gate::default());
    origin.respond("/new", ScriptedResponse::page(&[], "new").after(&gate));
    let gateway = Gateway::start(directory.path(), origin.address, CONFIG, &[]);
    let mut client = gateway.connect();
    client.send(get("/new", ""));
    // The gateway has acquired the lease by now.
    wait_for("the render", || (!origin.requests_for("/new").is_empty()).then_some(()));
    let table = table(directory.path());
    table.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    gate.open();
    let response = client.response();
    assert_eq!((response.state(), response.text().as_str()), ("miss", "new"));
    assert_eq!(gateway.exchange(get("/new", "")).state(), "hit");
    assert_eq!(published(&table), 0);
    table.execute_batch("ROLLBACK").expect("the lock is released");
    wait_for("the page is published", || (published(&table) == 1).then_some(()));
    assert_eq!(gateway.exchange(get("/new", "")).state(), "hit");
    assert_eq!(origin.requests_for("/new").len(), 1);
    assert_eq!(gateway.metric("facetheory_published_behind_total"), Some(1.0));
    gateway.shut_down();
    let gateway = Gateway::start(directory.path(), origin.address, CONFIG, &[]);
    assert_eq!(gateway.exchange(get("/new", "")).state(), "hit", "also after a restart");
}
