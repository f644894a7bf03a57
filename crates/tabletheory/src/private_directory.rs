//! Directories that only their owner may read.

use std::io;
use std::path::Path;

/// Creates a directory, and those above it that are missing, for this user alone (mode 0700 on Unix). Stored pages may contain
/// data that other users of the machine must not read. A directory that exists is left as it is.
///
/// ```
/// let above = tempfile::tempdir()?;
/// tabletheory::create_private_directory(&above.path().join("data"))?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// If it cannot be created.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}
