//! Opening an address for listening.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket, UnixStream, lookup_host};

/// Connections that wait in the system for being taken.
const BACKLOG: u32 = 1024;
/// How long others may take to open their sockets in the same directory.
const LOCKED: Duration = Duration::from_secs(5);

/// Listens on the first address of a host that can be listened on. IPv4 comes first, as people expect of `localhost`.
pub(super) async fn bind_tcp(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match bind_one(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Listens on a path that nobody listens on, for this user alone.
pub(super) async fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // Of two that find a socket left behind, the second would remove what the first has just made.
    let _alone = lock(directory).await?;
    remove_stale(path).await?;
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(&path.symlink_metadata()?) };
    // Nobody can connect before it listens, so nobody can before this.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok((socket.listen(BACKLOG)?, file))
}

/// Waits until nobody else opens sockets in a directory. The lock ends with what is returned.
async fn lock(directory: &Path) -> io::Result<File> {
    let held = File::open(directory)?;
    let deadline = Instant::now() + LOCKED;
    while let Err(error) = flock(&held, FlockOperation::NonBlockingLockExclusive) {
        if error != Errno::WOULDBLOCK || Instant::now() > deadline {
            return Err(error.into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(held)
}

/// Removes a socket that a process left behind.
async fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "there is a file that is not a socket; choose another path",
        ));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        // A full queue, say, is a sign of life.
        _ => Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there; stop it or choose another path")),
    }
}

/// The file of a Unix socket, removed with its listener unless another took its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.path.symlink_metadata().is_ok_and(|found| identity(&found) == self.identity) {
            // A socket that stays is stale, and whoever listens next replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
