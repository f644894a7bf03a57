//! The `facetheory` command.

use std::process::ExitCode;

// The compiler works on the library while it still generates code for the libraries below it. A binary would have to
// wait for them.
fn main() -> ExitCode {
    facetheory_cli::main()
}
