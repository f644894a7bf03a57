//! Kills writers at random moments: acknowledged transactions must be durable, and transactions must be atomic.
//!
//! `TABLETHEORY_KILLS=2000 cargo test -p tabletheory --test crash` kills more often than the default.

#[path = "../support/kill.rs"]
mod kill;
mod table;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use kill::Writer;

fn main() -> ExitCode {
    if let Some(writer) = Writer::of_this_process() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        match writer.subject.as_str() {
            "table" => runtime.block_on(table::write_forever(&writer)),
            other => panic!("unknown subject of a writer: {other}"),
        }
    }
    let trials = vec![
        Trial::test("a_killed_writer_loses_no_acknowledged_transaction", || table::kill_writers(1)),
        Trial::test("two_killed_writers_of_one_file_lose_no_acknowledged_transaction", || {
            table::kill_writers(2)
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
