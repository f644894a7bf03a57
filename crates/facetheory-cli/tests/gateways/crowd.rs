//! Many clients of one page that is not stored, while the stores cannot help: what the origin gets.

use facetheory::PageKey;
use facetheory::protocol::Lock;
use tabletheory::{Clock as _, SystemClock, Txn, Write};

use crate::burst::Burst;
use crate::meter::{Meter, dynamodb_error};
use crate::support::gateway::Gateway;
use crate::support::origin::{Gate, Origin, ScriptedResponse};
use crate::support::site::get;
use crate::support::store::{Store, s3_endpoint, server_variable};
use crate::support::{print, wait_for};

/// The number of clients of one page.
const CLIENTS: usize = 300;
/// The values of `Accept-Encoding`, each sent by a third of the clients.
const CODINGS: [&str; 3] = ["gzip", "br", "identity"];
/// The requests that the origin may get for them. A page is shared for a second, and a busy machine may need some seconds for
/// all clients.
const FEW: usize = CLIENTS / 10;
/// The default timeout of the table makes a request wait for two seconds; the clients wait for as long as it takes.
const RULE: &str = "[routes]\n\"/**\" = { isr = \"1h\", wait_timeout = \"2s\", render_timeout = \"5m\" }\n";
const TIMEOUTS: &str = "[timeouts]\nheaders = \"5m\"\norigin_queue = \"5m\"\n";

#[derive(Clone, Copy, Debug)]
enum Trouble {
    TableRefuses,
    TableHangs,
    /// Another process holds the lease, and does not publish.
    LeaseIsHeld,
    TableDeniesWrites,
    BodiesHang,
}

const TROUBLES: [Trouble; 5] = [
    Trouble::TableRefuses,
    Trouble::TableHangs,
    Trouble::LeaseIsHeld,
    Trouble::TableDeniesWrites,
    Trouble::BodiesHang,
];

/// How many requests of [`CLIENTS`] reach the origin. All of them get the page.
fn requests_at_the_origin(trouble: Trouble, config: &str, headers: &[&str]) -> usize {
    let (store, origin, gate) = (Store::on_servers(), Origin::start(), Gate::default());
    let table = Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    let bodies = Meter::start(&s3_endpoint());
    let directory = tempfile::tempdir().expect("a directory");
    let proxied = store.through(&table.endpoint(), &bodies.endpoint());
    let gateway =
        Gateway::start_on(&proxied, directory.path(), origin.address, &format!("{config}{TIMEOUTS}"));
    origin.respond("/other", ScriptedResponse::page(headers, "<p>other</p>"));
    origin.respond("/page", ScriptedResponse::page(headers, "<p>page</p>").after(&gate));
    match trouble {
        Trouble::TableRefuses => {
            table.replace(|_, _| Some((400, dynamodb_error("AccessDeniedException"))));
        }
        Trouble::TableHangs => table.hold(|_, _| true),
        Trouble::LeaseIsHeld => {
            let page = PageKey::new(cache_key(&gateway, &store)).expect("a page");
            let in_an_hour = SystemClock.now().seconds() + 3600;
            let lock = Lock::new("of another process", in_an_hour);
            store.commit(&Txn::new([Write::put(page.lock(), lock.to_item())]));
        }
        Trouble::TableDeniesWrites => table.deny(&["PutItem", "UpdateItem", "TransactWriteItems"]),
        Trouble::BodiesHang => bodies.hold(|_, _| true),
    }
    for other in 0..3 {
        let response = gateway.exchange(get(&format!("/other/{other}"), ""));
        assert_eq!(response.status, 200, "{}", response.text());
    }
    let mut burst = Burst::new();
    for coding in CODINGS {
        let lines = format!("Accept-Encoding: {coding}\r\n");
        burst.add_clients_with(&gateway, "/page", CLIENTS / CODINGS.len(), &lines);
    }
    wait_for("the origin is requested", || (!origin.requests_for("/page").is_empty()).then_some(()));
    gate.open();
    let counts = burst.responses();
    let served = counts.iter().filter(|(seen, _)| seen.status == 200 && seen.body == "<p>page</p>");
    assert_eq!(served.map(|(_, count)| count).sum::<usize>(), CLIENTS, "{trouble:?}: {counts:?}");
    let states: Vec<String> = counts.iter().map(|(seen, count)| format!("{count} {}", seen.state)).collect();
    let requests = origin.requests_for("/page").len();
    print(&format!(
        "{trouble:?} {headers:?}: {CLIENTS} clients, {requests} requests at the origin ({})",
        states.join(", ")
    ));
    requests
}

/// The cache key of the page, from that of another page.
fn cache_key(gateway: &Gateway, store: &Store) -> String {
    assert_eq!(gateway.exchange(get("/other", "")).status, 200);
    let key = wait_for("another page is stored", || {
        store.rows().iter().find_map(|row| Some(row.get("cache_key")?.as_str()?.to_owned()))
    });
    assert!(key.contains("other"), "{key}");
    key.replace("other", "page")
}

#[test]
fn while_a_store_cannot_help_a_crowd_at_a_page_of_a_rule_costs_few_requests_at_the_origin() {
    let requests = TROUBLES.map(|trouble| requests_at_the_origin(trouble, RULE, &[]));
    assert!(requests.iter().all(|requests| *requests <= FEW), "{requests:?}");
}

#[test]
fn while_a_store_cannot_help_a_crowd_at_a_page_that_follows_the_origin_costs_few_requests_at_the_origin() {
    let requests =
        TROUBLES.map(|trouble| requests_at_the_origin(trouble, "", &["Cache-Control: max-age=60"]));
    assert!(requests.iter().all(|requests| *requests <= FEW), "{requests:?}");
}

/// The clients select three variants of the page.
#[test]
fn while_a_store_cannot_help_a_crowd_at_a_page_with_variants_costs_few_requests_for_each_at_the_origin() {
    let headers = ["Cache-Control: max-age=60", "Vary: Accept-Encoding"];
    let requests = TROUBLES.map(|trouble| requests_at_the_origin(trouble, "", &headers));
    assert!(requests.iter().all(|requests| *requests <= FEW), "{requests:?}");
}

/// Without stores, every page looks like a new one, and the first ones use the limit up.
#[test]
fn the_limit_on_new_pages_sends_no_crowd_to_the_origin_while_the_table_refuses() {
    const LIMIT: &str = "[limits]\nnew_pages_per_second = 1\n";
    let requests = requests_at_the_origin(Trouble::TableRefuses, &format!("{RULE}{LIMIT}"), &[]);
    assert!(requests <= FEW, "{requests}");
}
