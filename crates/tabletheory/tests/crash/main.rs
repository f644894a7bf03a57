//! Kills writers at random moments: what was acknowledged must be durable, and transactions and blobs must be whole.
//!
//! `TABLETHEORY_KILLS=2000 cargo test -p tabletheory --test crash` kills more often than the default.

mod blobs;
#[path = "../support/kill.rs"]
mod kill;
#[path = "../support/killed_blobs.rs"]
mod killed_blobs;
mod table;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use tabletheory::SqliteBlobs;

use kill::Writer;

fn main() -> ExitCode {
    if let Some(writer) = Writer::of_this_process() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        match writer.subject.as_str() {
            "table" => runtime.block_on(table::write_forever(&writer)),
            "blobs" => runtime.block_on(killed_blobs::write_forever::<SqliteBlobs>(&writer)),
            other => panic!("unknown subject of a writer: {other}"),
        }
    }
    let trials = vec![
        Trial::test("a_killed_writer_loses_no_acknowledged_transaction", || table::kill_writers(1)),
        Trial::test("two_killed_writers_of_one_file_lose_no_acknowledged_transaction", || {
            table::kill_writers(2)
        }),
        Trial::test("a_killed_writer_loses_and_tears_no_acknowledged_blob", || blobs::kill_writers(1)),
        Trial::test("two_killed_writers_of_one_file_lose_and_tear_no_acknowledged_blob", || {
            blobs::kill_writers(2)
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
