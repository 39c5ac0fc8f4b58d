//! Finding a server, or starting one.
//!
//! Whoever starts one holds a lock that belongs to the address, so that of many that begin together one does. The lock is the
//! system's: it ends with the process that holds it, however that ends.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::config::seconds;
use crate::wire::Servers;
use crate::{Config, Error, Result, Spawn};

/// The line by which a started server says that it listens.
pub(crate) const READY: &str = "ready";
/// The seconds for which a started server that was told nothing else stays without a connection.
const LINGER: f64 = 10.0;
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_millis(2);
/// The most that is kept of what a server says when it fails to start.
const LAST_WORDS: usize = 4096;
/// How long a server that failed to start is listened to.
const LISTENING: Duration = Duration::from_secs(1);

/// A server that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// Where it is.
    pub address: String,
    /// Its generation.
    pub generation: u64,
    /// The most bytes of an object.
    pub object_limit: u64,
    /// The bytes that all objects may take.
    pub budget: u64,
    /// Whether a connector started it.
    pub spawned: bool,
    /// Whether it shares memory with this process.
    pub shared_memory: bool,
}

/// The address of the user's own server: a socket that only the user can reach.
pub fn default_address() -> String {
    format!("unix:{}", runtime_folder().join("objects.sock").display())
}

/// Fails if a configuration leads to the user's own server, and somebody else may be sitting there.
fn check_own(config: &Config) -> Result<()> {
    if config.address != default_address() || !runtime_folder().exists() {
        return Ok(());
    }
    safe_folder().map(drop).map_err(Error::Config)
}

/// Waits up to a time until the server of a configuration answers.
///
/// # Errors
/// When it does not, or refuses.
pub fn wait_server(config: &Config, within: Duration) -> Result<ServerInfo> {
    check_own(config)?;
    let servers = Servers::new(config, config.location()?)?;
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match servers.find(left.max(PAUSE), left.max(PAUSE)) {
            Err(Error::Unreachable { .. }) if left > PAUSE => std::thread::sleep(PAUSE),
            found => return found,
        }
    }
}

/// Starts the server of a configuration unless one answers. Returns when it answers.
///
/// # Errors
/// When it cannot be started, or a server is there that refuses.
pub fn spawn_server(config: &Config) -> Result<ServerInfo> {
    let config = Config { spawn: Some(config.spawn.clone().unwrap_or_default()), ..config.clone() };
    find_or_spawn(&config, &Servers::new(&config, config.location()?)?)
}

/// Finds a connector's server, or starts it if the configuration says how.
pub(crate) fn find_or_spawn(config: &Config, servers: &Servers) -> Result<ServerInfo> {
    check_own(config)?;
    let (wait, answered) = (seconds("wait", config.wait)?, config.deadline()?);
    let Some(spawn) = &config.spawn else { return servers.find(answered, answered) };
    // One that takes connections is there, however long it takes to answer.
    match servers.find(wait.min(answered), answered) {
        Err(Error::Unreachable { .. }) => {}
        found => return found,
    }
    let deadline = Instant::now() + seconds("spawn.deadline", spawn.deadline)?;
    let left = || deadline.saturating_duration_since(Instant::now());
    let _alone = lock(&config.address, deadline)?;
    // Whoever held the lock before may have started it.
    match servers.find(wait.min(left()), left()) {
        Err(Error::Unreachable { .. }) => {}
        found => return found,
    }
    match start(config, spawn, deadline) {
        Ok(()) => servers.find(left(), left()),
        // Somebody who did not hold the lock may have: a person, say.
        Err(failed) => servers.find(wait.min(left()), left()).map_err(|_| failed),
    }
}

/// Starts a server, and returns when it says that it listens.
fn start(config: &Config, spawn: &Spawn, deadline: Instant) -> Result<()> {
    let failed = |reason: String| Error::Start { at: config.address.clone(), reason };
    let mut server = spawn.server.clone();
    if server.listen.is_empty() {
        server.listen.push(config.address.clone());
    }
    // Without one it would run for ever, as one that was started by hand.
    server.linger = server.linger.or(Some(LINGER));
    let command = command(spawn).map_err(failed)?;
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // What interrupts its starter does not concern it.
        .process_group(0)
        .spawn()
        .map_err(|error| failed(format!("cannot run {}: {error}", command[0])))?;
    // It ends before it has read everything only if it fails, and then says why.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(server.to_json().as_bytes()));
    let ready = wait_ready(&mut child, deadline);
    if ready.is_err() {
        // With all that it started itself. It may have ended at this very moment.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.kill();
    }
    let stderr = child.stderr.take();
    if let Err(reason) = ready {
        let _ = child.wait();
        let words = stderr.map(last_words).unwrap_or_default();
        let words = words.trim();
        return Err(failed(if words.is_empty() { reason } else { format!("{reason}: {words}") }));
    }
    // So that it does not stay in the system's table after its end.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Reads what a server prints, up to the line that says that it listens.
fn wait_ready(child: &mut Child, deadline: Instant) -> std::result::Result<(), String> {
    let Some(mut stdout) = child.stdout.take() else { return Err("it has no output".to_owned()) };
    let mut printed = Vec::new();
    let mut buffer = [0; 256];
    while printed.len() < LAST_WORDS {
        if printed.split(|byte| *byte == b'\n').any(|line| line == READY.as_bytes()) {
            return Ok(());
        }
        if !is_readable(&stdout, deadline).map_err(|error| format!("cannot wait for it: {error}"))? {
            return Err("it did not listen in time".to_owned());
        }
        match stdout.read(&mut buffer) {
            Ok(0) => return Err("it ended before it listened".to_owned()),
            Ok(bytes) => printed.extend_from_slice(&buffer[..bytes]),
            Err(error) => return Err(format!("cannot read what it prints: {error}")),
        }
    }
    Err("it printed other things than that it is ready".to_owned())
}

/// What a server said before its end, as far as it can be read: somebody else may have its output, and never close it.
fn last_words(mut stderr: ChildStderr) -> String {
    let deadline = Instant::now() + LISTENING;
    let mut words = Vec::new();
    let mut buffer = [0; 256];
    while words.len() < LAST_WORDS && is_readable(&stderr, deadline).unwrap_or(false) {
        match stderr.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(bytes) => words.extend_from_slice(&buffer[..bytes]),
        }
    }
    String::from_utf8_lossy(&words).into_owned()
}

/// Waits until there is something to read; says no if there is nothing in time.
fn is_readable(pipe: &impl AsFd, deadline: Instant) -> rustix::io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => {}
            ready => return ready.map(|ready| ready > 0),
        }
    }
}

/// The program that serves, and its arguments.
fn command(spawn: &Spawn) -> std::result::Result<Vec<String>, String> {
    const PROGRAM: &str = "graphmill";
    if !spawn.command.is_empty() {
        return Ok(spawn.command.clone());
    }
    let here = std::env::current_exe().ok().filter(|path| path.file_name().is_some_and(|name| name == PROGRAM));
    let on_path = || {
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders).map(|folder| folder.join(PROGRAM)).find(|path| path.is_file())
    };
    let program = here.or_else(on_path).and_then(|path| path.to_str().map(str::to_owned));
    let program = program.ok_or("there is no `graphmill` on the path; say with spawn.command what to run")?;
    Ok([&program, "objects", "serve", "--spawned"].map(str::to_owned).to_vec())
}

/// Waits until nobody else starts a server at an address. The lock ends with what is returned.
fn lock(address: &str, deadline: Instant) -> Result<File> {
    let failed = |reason: String| Error::Start { at: address.to_owned(), reason };
    // Two addresses that come out the same merely wait for each other.
    let name: String = address.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(200).collect();
    let folder = safe_folder().map_err(failed)?;
    let path = folder.join(format!("starting-{name}.lock"));
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|error| failed(format!("cannot open {}: {error}", path.display())))?;
    while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != Errno::WOULDBLOCK {
            return Err(failed(format!("cannot lock {}: {error}", path.display())));
        }
        if Instant::now() > deadline {
            return Err(failed("somebody else has been starting it for too long".to_owned()));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(file)
}

/// Where a user's sockets and locks are.
fn runtime_folder() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let user = rustix::process::geteuid().as_raw();
    own.map_or_else(|| std::env::temp_dir().join(format!("graphmill-{user}")), |folder| folder.join("graphmill"))
}

/// The same, made if it is not there, and refused if others could have put something in it.
fn safe_folder() -> std::result::Result<PathBuf, String> {
    let folder = runtime_folder();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    let found = made.and_then(|()| folder.symlink_metadata());
    let found = found.map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
    if own { Ok(folder) } else { Err(format!("{} is not this user's own; remove it", folder.display())) }
}
