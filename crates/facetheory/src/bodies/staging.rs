//! Files that an interrupted write has left: a large body is written under a temporary name, its own with `#` and a number,
//! until it is complete. A process that is killed before that leaves the file, and no listing shows it.

use std::fs::{DirEntry, read_dir, remove_dir, remove_file};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::SystemTime;

use super::s3_key::S3Key;

/// Deletes the incomplete files of bodies below a directory that were not written since `cutoff`, and returns how many. A dry run
/// only counts them.
///
/// A write takes no longer than the timeout of bodies, so a file that old has no writer any more.
pub(super) fn delete_staged(
    directory: &Path,
    prefix: &str,
    cutoff: SystemTime,
    dry_run: bool,
) -> io::Result<u64> {
    let mut deleted = 0;
    let Some(pages) = present(read_dir(directory.join(prefix)))? else { return Ok(0) };
    for page in pages {
        let page = page?.path();
        let mut has_deleted = false;
        for file in present(read_dir(&page))?.into_iter().flatten() {
            let file = file?;
            if is_staged(directory, prefix, &file) && is_older(&file, cutoff)? {
                deleted += 1;
                if !dry_run {
                    has_deleted = present(remove_file(file.path()))?.is_some();
                }
            }
        }
        // Fails unless it is empty. A writer that finds no directory creates it again.
        if has_deleted && remove_dir(&page).is_ok() {
            tracing::debug!(page = %page.display(), "the directory of a page without bodies was deleted");
        }
    }
    Ok(deleted)
}

/// The result, or `None` if the file or directory does not exist any more, or is of the other kind.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the name is that of a body, with `#` and a number.
fn is_staged(directory: &Path, prefix: &str, file: &DirEntry) -> bool {
    let path = file.path();
    let key = path.strip_prefix(directory).ok().and_then(Path::to_str);
    let parts = key.and_then(|key| key.rsplit_once('#'));
    parts.is_some_and(|(key, number)| {
        !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && S3Key::parse(prefix, key).is_some()
    })
}

fn is_older(file: &DirEntry, cutoff: SystemTime) -> io::Result<bool> {
    let modified = present(file.metadata().and_then(|file| file.modified()))?;
    Ok(modified.is_some_and(|modified| modified < cutoff))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, UNIX_EPOCH};

    use tabletheory::{Clock as _, SystemClock};

    use super::*;

    const PAGE: &str = "isr/8a5edab282632443219e051e";
    const BODY: &str = "1700000000123-01234567-89ab-4def-8123-456789abcdef.html";

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(SystemClock.now().millis().unsigned_abs())
    }

    #[test]
    fn incomplete_files_of_bodies_are_deleted_once_they_are_old() {
        let directory = tempfile::tempdir().expect("a directory");
        let page = directory.path().join(PAGE);
        fs::create_dir_all(&page).expect("a directory");
        let others = [BODY.to_owned(), format!("{BODY}#"), format!("{BODY}#x"), "notes.txt#1".to_owned()];
        let staged = [format!("{BODY}#1"), format!("{BODY}#12")];
        let write = |name: &String| fs::write(page.join(name), "half a bo").expect("a file");
        others.iter().chain(&staged).for_each(write);
        fs::write(directory.path().join("isr").join(&staged[0]), "not in a page").expect("a file");

        let now = now();
        let delete =
            |cutoff, dry_run| delete_staged(directory.path(), "isr/", cutoff, dry_run).expect("no error");
        assert_eq!(delete(now - Duration::from_secs(3600), false), 0, "their writers may be alive");
        let later = now + Duration::from_secs(3600);
        assert_eq!(delete(later, true), 2);
        assert_eq!(delete(later, false), 2, "a dry run has deleted none");
        assert_eq!(delete(later, false), 0);
        assert!(staged.iter().all(|name| !page.join(name).exists()));
        assert!(others.iter().all(|name| page.join(name).exists()));
    }

    #[test]
    fn the_directory_of_a_page_goes_with_its_last_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let page = directory.path().join(PAGE);
        let delete = || delete_staged(directory.path(), "isr/", now() + Duration::from_secs(60), false);
        assert_eq!(delete().expect("no error"), 0, "there is no directory yet");
        fs::create_dir_all(&page).expect("a directory");
        fs::write(page.join(format!("{BODY}#1")), "").expect("a file");
        assert_eq!(delete().expect("no error"), 1);
        assert!(!page.exists() && directory.path().join("isr").exists());
    }
}
