//! Files: their names, and corruption.

use std::path::{Path, PathBuf};

use crate::assertions::{PAGES, behind_proxy, cache_page};
use crate::support::gateway::{Gateway, StartError, data};
use crate::support::origin::ScriptedResponse;
use crate::support::site::{Site, with_long_timeouts};
use crate::support::table::{blobs, rows};
use crate::support::wait_for;

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Targets that would be dangerous as file names.
const TARGETS: [&str; 10] = [
    "/..%252f..%252fetc%252fpasswd",
    "/.../x",
    "/....//....//x",
    "/row-69?../../../evil",
    "/row-69/%252e%252e/evil",
    "/C:%5c%5cevil",
    "/row-69~",
    "/t/.../evil",
    "/t/..evil/evil",
    "/row-69.html",
];

#[test]
fn row_69_file_names_are_hashes_whatever_the_key() {
    let site = Site::start(&behind_proxy());
    for target in TARGETS {
        assert!([200, 400].contains(&site.get(target).status), "{target}");
    }
    for tenant in ["..", "../evil", "...", "evil/evil"] {
        let response = site.get_with("/org/row-69", &format!("X-Tenant-Id: {tenant}\r\n"));
        assert!([200, 400].contains(&response.status), "{tenant}");
    }
    let host = site.gateway.exchange("GET /row-69 HTTP/1.1\r\nHost: ..\r\n\r\n");
    assert!([200, 400].contains(&host.status), "{}", host.status);
    // A body that is too large for the SQLite file has a file of its own.
    site.origin.script("/row-69-large", |_| {
        ScriptedResponse::page(&["Content-Type: text/html"], &"x".repeat(300 * 1024))
    });
    assert_eq!(site.get("/row-69-large").status, 200);
    let bodies = data(site.directory.path()).join("bodies");
    let in_files = files(&bodies).into_iter().filter_map(|file| {
        let name = file.strip_prefix(&bodies).expect("below").display().to_string();
        (!name.starts_with("bodies.db")).then_some(name)
    });
    let in_files: Vec<String> = in_files.collect();
    assert_eq!(in_files.len(), 1, "{in_files:?}");
    let stored: Vec<String> = blobs(site.directory.path()).into_iter().chain(in_files).collect();
    assert!(stored.len() > 5, "bodies are stored: {stored:?}");
    for name in &stored {
        let is_plain =
            |byte: u8| byte.is_ascii_hexdigit() || b"/-.html".contains(&byte) || b"binisr".contains(&byte);
        assert!(name.bytes().all(is_plain) && !name.contains(".."), "{name}");
    }
    let outside = files(site.directory.path()).into_iter().filter(|file| !file.starts_with(&bodies));
    for file in outside {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(name.starts_with("table.db") || name == "facetheory.toml", "{name}");
    }
}

/// Kills the gateway of a site, damages its files, and starts it again.
fn damaged(site: Site, damage: impl FnOnce(&Path)) -> Result<Site, StartError> {
    let Site { gateway, origin, directory } = site;
    drop(gateway);
    damage(&data(directory.path()));
    let gateway = Gateway::try_start(directory.path(), origin.address, &with_long_timeouts(SHORT_WAIT), &[])?;
    Ok(Site { gateway, origin, directory })
}

/// Changes the bytes of a file.
fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).expect("a file");
    change(&mut bytes);
    std::fs::write(file, bytes).expect("a file");
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    while let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
}

#[test]
fn row_70_a_corrupt_body_is_a_miss() {
    let halve = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    let flip = |bytes: &mut Vec<u8>| bytes[3] ^= 1;
    let empty = |bytes: &mut Vec<u8>| bytes.clear();
    let misspell = |bytes: &mut Vec<u8>| replace(bytes, b"<p>/row-70", b"<p>/row-07");
    let damages: [fn(&mut Vec<u8>); 4] = [halve, flip, empty, misspell];
    for (index, damage) in damages.into_iter().enumerate() {
        let site = Site::start(PAGES);
        let page = cache_page(&site, "/row-70");
        let bad = |data: &Path| files(&data.join("bodies")).iter().for_each(|file| change(file, damage));
        let mut site = damaged(site, bad).expect("the gateway starts");
        let again = site.get("/row-70");
        eprintln!("{again:?} {}", site.gateway.log());
        assert_eq!((again.status, again.state()), (200, "miss"), "damage {index}");
        assert!(again.text().contains("<p>/row-70, render 2"), "{}", again.text());
        assert_ne!(again.body, page.body);
        assert_eq!(site.get("/row-70").state(), "hit", "the page was repaired");
        wait_for("the error is logged", || site.gateway.log().contains("body").then_some(()));
        assert!(site.gateway.is_alive() && !site.gateway.log().contains("panicked"));
    }
}

/// Ways to corrupt a file.
const CORRUPTIONS: [fn(&mut Vec<u8>); 4] = [
    |bytes| flip_bits(bytes),
    |bytes| behead(bytes),
    |bytes| misspell(bytes),
    |bytes| bytes.truncate(bytes.len() / 2),
];

fn flip_bits(bytes: &mut [u8]) {
    bytes.iter_mut().skip(150).step_by(97).for_each(|byte| *byte ^= 4);
}

fn behead(bytes: &mut [u8]) {
    bytes.iter_mut().take(100).for_each(|byte| *byte = 0);
}

/// Changes a letter in every row of a page.
fn misspell(bytes: &mut [u8]) {
    const LETTERS: &[u8] = b"s3_key";
    let ends = bytes.len().saturating_sub(LETTERS.len());
    let places: Vec<usize> = (0..ends).filter(|at| bytes[*at..].starts_with(LETTERS)).collect();
    places.into_iter().for_each(|at| bytes[at] ^= 1);
}

/// Fails if a gateway trusts a damaged table, or panics. It may refuse to start.
fn assert_not_trusted(settled: bool, damage: fn(&mut Vec<u8>)) {
    let site = Site::start(SHORT_WAIT);
    let page = cache_page(&site, "/row-70");
    let bad = |data: &Path| {
        if settled {
            // Opening and closing the table moves everything into one file.
            rows(data.parent().expect("a parent directory"));
        }
        let is_of_table = |file: &&PathBuf| {
            let name = file.file_name().expect("a name").to_string_lossy();
            name.starts_with("table.db") && !name.ends_with("-shm")
        };
        files(data).iter().filter(is_of_table).for_each(|file| change(file, damage));
    };
    match damaged(site, bad) {
        Ok(mut site) => {
            for _ in 0..2 {
                let again = site.get("/row-70");
                assert_eq!(again.status, 200, "{}", again.text());
                let rendered = again.text().contains("<p>/row-70, render ");
                assert!(rendered && again.body.len() == page.body.len(), "{}", again.text());
            }
            assert!(site.gateway.is_alive() && !site.gateway.log().contains("panicked"));
        }
        Err(refused) => {
            assert_eq!(refused.status.code(), Some(1), "{}", refused.errors);
            assert!(
                refused.errors.contains("damaged") && !refused.errors.contains("panicked"),
                "{}",
                refused.errors
            );
        }
    }
}

/// A short wait: a lease in a damaged table may never be released.
const SHORT_WAIT: &str = "[routes]\n\"/**\" = { isr = \"60s\", wait_timeout = \"200ms\" }\n";

#[test]
fn row_70_a_table_corrupted_by_a_crash_is_never_trusted() {
    CORRUPTIONS.into_iter().for_each(|corrupt| assert_not_trusted(false, corrupt));
}

#[test]
fn row_70_a_table_corrupted_at_rest_is_never_trusted() {
    CORRUPTIONS.into_iter().for_each(|corrupt| assert_not_trusted(true, corrupt));
}
