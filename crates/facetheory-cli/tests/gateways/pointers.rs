//! Gateways and services that write pointers in different forms share their pages.

use tabletheory::{Attr, Item, Txn, Update, Value, Write};

use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{get, with_long_timeouts};
use crate::support::store::Store;
use crate::support::wait_for;

const PAGES: usize = 10;
const ROUTES: &str = "site = \"www.example.com\"\n[routes]\n\"/**\" = { isr = \"1h\" }\n";

fn start(store: &Store, directory: &std::path::Path, origin: &Origin, pointers: &str) -> Gateway {
    let config = format!("{ROUTES}[store]\npointers = \"{pointers}\"\n");
    Gateway::start_on(store, directory, origin.address, &with_long_timeouts(&config))
}

#[test]
fn gateways_with_absolute_and_relative_pointers_render_each_page_once() {
    let (store, origin) = (Store::on_servers(), Origin::start());
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let absolute = start(&store, directories[0].path(), &origin, "absolute");
    let relative = start(&store, directories[1].path(), &origin, "relative");
    for page in 0..PAGES {
        let (path, body) = (format!("/{page}"), format!("<p>page {page}</p>"));
        origin.respond(&path, ScriptedResponse::page(&[], &body));
        let mut gateways = [&absolute, &relative];
        gateways.rotate_left(page % 2);
        for (gateway, state) in gateways.into_iter().zip(["miss", "hit"]) {
            let response = gateway.exchange(get(&path, ""));
            assert_eq!((response.status, response.text()), (200, body.clone()), "{path}");
            assert_eq!(response.header("x-facetheory-isr"), Some(state), "{path}");
        }
    }
    assert_eq!(origin.requests().len(), PAGES, "each page was rendered once");
    let rows = store.rows();
    let s3_key = |row: &Item| row.get("s3_key").and_then(Value::as_str).map(str::to_owned);
    let keys: Vec<String> = rows.iter().filter_map(s3_key).collect();
    assert_eq!(keys.len(), PAGES);
    let prefix = format!("{}/", store.bodies.rsplit('/').next().expect("a prefix"));
    assert_eq!(keys.iter().filter(|key| key.starts_with(&prefix)).count(), PAGES / 2, "{keys:?}");
}

#[test]
fn a_page_whose_pointer_another_service_moved_is_served_from_the_new_version() {
    let (store, origin) = (Store::on_servers(), Origin::start());
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = start(&store, directory.path(), &origin, "absolute");
    for path in ["/swapped", "/other"] {
        origin.respond(path, ScriptedResponse::page(&[], &format!("<p>{path}</p>")));
        assert_eq!(gateway.exchange(get(path, "")).text(), format!("<p>{path}</p>"));
    }
    let row = |path: &str| {
        let is_of_path = |row: &&Item| row.get("path").and_then(Value::as_str) == Some(path);
        store.rows().iter().find(is_of_path).expect("a row").clone()
    };
    let (swapped, other) = (row("/swapped"), row("/other"));
    // The body of another page stands for one that another service has rendered.
    let version = Item::from([
        ("s3_key", other.get("s3_key").expect("a body").clone()),
        ("generated_at", other.get("generated_at").expect("a time").clone()),
    ]);
    let meta = swapped.key().expect("a key");
    let pointer = Update::new([Attr::<String>::new("current_sk").set("VER#7")]);
    store.commit(&Txn::new([Write::put(meta.sibling("VER#7"), version), Write::update(meta, pointer)]));
    wait_for("the gateway serves the new version", || {
        (gateway.exchange(get("/swapped", "")).text() == "<p>/other</p>").then_some(())
    });
    assert_eq!(origin.requests().len(), 2, "nothing was rendered again");
}
