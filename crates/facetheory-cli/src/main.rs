//! The `facetheory` command.

use std::process::ExitCode;

/// Returns the memory of large bodies to the system soon after they are freed. The allocator of glibc keeps it: see
/// docs/internals/benchmarks.md. `.cargo/config.toml` has its settings.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

// The compiler works on the library while it still generates code for the libraries below it. A binary would have to
// wait for them.
fn main() -> ExitCode {
    facetheory_cli::main()
}
