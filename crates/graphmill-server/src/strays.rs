//! The folder of the socket that memory is shared over, and such folders of servers that were killed.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, getuid, test_kill_process};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long a socket may take to show whether anybody is there.
const ASKING: Duration = Duration::from_millis(100);

/// Where such folders are.
pub(crate) fn base() -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The socket of a server, in a folder of its own.
pub(crate) fn socket(base: &Path, process: u32, incarnation: u64) -> PathBuf {
    base.join(format!("graphmill-{process}-{incarnation:x}")).join("memory.sock")
}

/// Removes what servers of this user left behind. What cannot be removed stays.
pub(crate) async fn remove(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else { return };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let Some(socket) = left_by(&folder) else { continue };
        // A process of another container has no number here, but it answers.
        let asked = timeout(ASKING, UnixStream::connect(&socket)).await;
        if matches!(asked, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused) {
            let _ = std::fs::remove_file(&socket);
            let _ = std::fs::remove_dir(&folder);
        }
    }
}

/// The socket in a folder of this user's, made by a process that is gone.
fn left_by(folder: &Path) -> Option<PathBuf> {
    let (process, incarnation) = folder.file_name()?.to_str()?.strip_prefix("graphmill-")?.split_once('-')?;
    let (process, incarnation) = (process.parse::<i32>().ok()?, u64::from_str_radix(incarnation, 16).ok()?);
    let own = folder.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == getuid().as_raw());
    let gone = test_kill_process(Pid::from_raw(process)?) == Err(Errno::SRCH);
    if own && gone { Some(socket(folder.parent()?, process.cast_unsigned(), incarnation)) } else { None }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use graphmill_testing::tempdir;

    use super::*;

    fn listen(base: &Path, process: u32) -> (PathBuf, UnixListener) {
        let socket = socket(base, process, 0xab);
        std::fs::create_dir(socket.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        (socket, listener)
    }

    fn ended() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[tokio::test]
    async fn folders_of_servers_that_were_killed_are_removed_and_no_others() {
        let folder = tempdir();
        let (left, listener) = listen(folder.path(), ended());
        drop(listener);
        let (running, closed) = listen(folder.path(), std::process::id());
        drop(closed);
        let (answering, _listener) = listen(folder.path(), ended());
        let others = ["graphmill-0", "graphmill-1-x", "elsewhere"].map(|name| folder.path().join(name));
        for other in &others {
            std::fs::create_dir(other).unwrap();
        }

        remove(folder.path()).await;
        assert!(!left.parent().unwrap().exists());
        assert!(running.exists() && answering.exists() && others.iter().all(|other| other.exists()));
    }
}
