//! Where tests write.

use tempfile::TempDir;

/// A temporary directory in memory where the system has such a place: a dataset's writer syncs every file, and tests
/// write thousands of them.
pub fn tempdir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
