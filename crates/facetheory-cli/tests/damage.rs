//! Damage of the embedded store, through the real binary.

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::gateway::{Gateway, data};
use support::site::{Site, with_long_timeouts};
use support::wait_for;

const PAGES: &str = "[routes]\n\"/**\" = { isr = \"1h\" }\n";
const REFUSE: &str = "[store]\non_corruption = \"refuse\"\n";
const EVERYTHING: &str = r#"{"everything": true}"#;
const NUMBER: usize = 40;

fn path(number: usize) -> String {
    format!("/page/{number}")
}

/// A gateway with pages in its store.
fn with_pages(config: &str) -> Site {
    let site = Site::start(config);
    for number in 0..NUMBER {
        assert_eq!(site.get(&path(number)).state(), "miss");
    }
    site
}

/// Stops the gateway, changes its data, and starts it again.
fn restarted(site: Site, config: &str, change: impl FnOnce(&Path)) -> Site {
    let Site { gateway, origin, directory } = site;
    gateway.shut_down();
    change(&data(directory.path()));
    let gateway = Gateway::start(directory.path(), origin.address, &with_long_timeouts(config), &[]);
    Site { gateway, origin, directory }
}

fn execute(data: &Path, sql: &str) -> usize {
    let table = rusqlite::Connection::open(data.join("table.db")).expect("the table");
    table.execute(sql, []).expect("a statement")
}

fn table(site: &Site) -> PathBuf {
    data(site.directory.path()).join("table.db")
}

/// Overwrites everything in a file after its first pages, which have the schema.
fn destroy(file: &Path) {
    let mut bytes = fs::read(file).expect("a file");
    bytes.iter_mut().skip(8192).for_each(|byte| *byte = 7);
    fs::write(file, bytes).expect("a file");
}

fn metric(site: &Site, name: &str) -> f64 {
    site.gateway.metric(name).unwrap_or_default()
}

#[test]
fn a_damaged_page_is_rendered_again_and_no_other_page_is_affected() {
    const DAMAGE: &str = "UPDATE item SET crc = crc + 1 WHERE rowid =
        (SELECT rowid FROM item WHERE sk = 'META' AND json_extract(item, '$.path.S') = '/page/7')";
    let site = restarted(with_pages(PAGES), PAGES, |data| assert_eq!(execute(data, DAMAGE), 1));
    for number in 0..NUMBER {
        let expected = if number == 7 { "miss" } else { "hit" };
        assert_eq!(site.get(&path(number)).state(), expected, "{number}");
    }
    for number in 0..NUMBER {
        assert_eq!(site.get(&path(number)).state(), "hit", "{number}");
    }
    assert_eq!(metric(&site, "facetheory_damaged_rows_total{row=\"META\"}"), 1.0);
    let damaged = || site.gateway.log().matches("a row of the table is damaged").count();
    wait_for("the damaged row is logged", || (damaged() > 0).then_some(()));
    assert_eq!(damaged(), 1);
    let purged = site.gateway.admin_post("/api/v1/invalidate", &format!(r#"{{"path": "{}"}}"#, path(7)));
    assert_eq!(purged.status, 200, "{}", purged.text());
}

#[test]
fn a_damaged_row_of_everything_makes_pages_stale_once() {
    let site = with_pages(PAGES);
    assert_eq!(site.gateway.admin_post("/api/v1/invalidate", EVERYTHING).status, 200);
    let damage = "UPDATE item SET item = replace(item, '1', '2') WHERE sk = 'TAG'";
    let site = restarted(site, PAGES, |data| assert!(execute(data, damage) >= 1));
    for number in 0..NUMBER {
        assert!(["stale", "miss"].contains(&site.get(&path(number)).state()), "{number}");
    }
    wait_for("pages that are rendered afterwards are fresh", || {
        let states: Vec<String> =
            (0..NUMBER).map(|number| site.get(&path(number)).state().to_owned()).collect();
        assert!(states.iter().all(|state| state != "bypass"), "{states:?}");
        states.iter().all(|state| state == "hit").then_some(())
    });
    let purged = site.gateway.admin_post("/api/v1/invalidate", EVERYTHING);
    assert_eq!(purged.status, 200, "{}", purged.text());
}

#[test]
fn a_table_that_cannot_be_opened_is_set_aside_unless_the_configuration_refuses() {
    let config = format!("{REFUSE}{PAGES}");
    let Site { gateway, origin, directory } = with_pages(PAGES);
    gateway.shut_down();
    let table = data(directory.path()).join("table.db");
    fs::write(&table, "this is not a database".repeat(1000)).expect("a file");
    let refused = Gateway::try_start(directory.path(), origin.address, &config, &[]).map(drop);
    let errors = refused.expect_err("it does not start").errors;
    assert!(errors.contains("is damaged"), "{errors}");
    let aside = table.with_extension("db.damaged");
    assert!(!aside.exists());

    let gateway = Gateway::start(directory.path(), origin.address, &with_long_timeouts(PAGES), &[]);
    assert!(aside.exists());
    wait_for("the message names the file", || gateway.log().contains("table.db.damaged").then_some(()));
    let site = Site { gateway, origin, directory };
    assert_eq!(metric(&site, "facetheory_table_replacements_total"), 1.0);
    for state in ["miss", "hit"] {
        assert_eq!(site.get("/page/1").state(), state);
    }
}

#[test]
fn a_table_that_is_damaged_while_it_is_in_use_is_replaced_without_a_restart() {
    let site = restarted(with_pages(PAGES), PAGES, |data| destroy(&data.join("table.db")));
    for number in 0..NUMBER {
        let response = site.get(&path(number));
        assert_eq!((response.status, response.state()), (200, "miss"), "{number}");
    }
    for number in 0..NUMBER {
        assert_eq!(site.get(&path(number)).state(), "hit");
    }
    assert!(table(&site).with_extension("db.damaged").exists());
    assert_eq!(metric(&site, "facetheory_table_replacements_total"), 1.0);
    assert_eq!(site.gateway.admin_get("/readyz").status, 200);
}

#[test]
fn an_invalidation_after_the_table_was_removed_is_in_the_table_that_is_begun() {
    let site = with_pages(PAGES);
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{suffix}", table(&site).display())).expect("a file");
    }
    assert_eq!(site.gateway.admin_post("/api/v1/invalidate", EVERYTHING).status, 200);
    assert_eq!(metric(&site, "facetheory_table_in_place"), 1.0);
    assert!(metric(&site, "facetheory_table_replacements_total") >= 1.0);
    let rows = support::table::rows(site.directory.path());
    assert!(rows.iter().any(|(_, sk)| sk == "TAG"), "{rows:?}");
    assert_eq!(site.get(&path(0)).status, 200);
}

#[test]
fn operations_fail_after_the_directory_of_the_table_was_replaced() {
    let site = with_pages(PAGES);
    let data = data(site.directory.path());
    fs::rename(&data, site.directory.path().join("moved")).expect("renamed");
    for exists in [false, true] {
        let refused = site.gateway.admin_post("/api/v1/invalidate", EVERYTHING);
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert!(refused.text().contains("restart this process"), "{}", refused.text());
        wait_for("not ready", || (site.gateway.admin_get("/readyz").status == 503).then_some(()));
        assert!(site.gateway.admin_get("/readyz").text().contains("table-replaced"));
        assert_eq!(metric(&site, "facetheory_table_in_place"), 0.0);
        if !exists {
            fs::create_dir(&data).expect("a directory");
        }
    }
    assert!(!data.join("table.db").exists(), "nothing is written where another file system may be mounted");
    assert_eq!(site.get(&path(0)).status, 200, "pages in memory are served");
}
