//! How much a server takes on at once.

use std::time::Duration;

/// For how long batches wait for memory before their client is told to ask again.
pub(crate) const STARVED: Duration = Duration::from_secs(1);

/// The most batches that a channel may have asked for.
pub(crate) const MOST_CREDITS: u64 = 1024;

/// The least memory that makes sense: some batches, and some huge pages.
const LEAST: u64 = 16 << 20;

/// The most of everything that others can make a server hold. Whoever comes when a limit is reached is refused in words, and
/// may try again.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections on the addresses for all planes.
    pub connections: usize,
    /// Open channels.
    pub channels: usize,
    /// Bytes for batches that are made or wait, for answers to peers, and for lists of seeds that clients sent.
    pub memory: u64,
    /// Bytes for rows of peers that are needed often, beside the memory above.
    pub row_cache: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 16_384, channels: 65_536, memory: (available() / 4).max(256 << 20), row_cache: 64 << 20 }
    }
}

impl Limits {
    /// What is wrong with them, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.connections == 0 || self.channels == 0 {
            return Err("a server needs at least one connection and one channel".to_owned());
        }
        if self.memory < LEAST {
            return Err(format!("a memory budget of {} bytes is too small, expected at least {LEAST}", self.memory));
        }
        Ok(())
    }
}

/// The memory of this machine, or of the container that this process runs in.
fn available() -> u64 {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let machine = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes << 10);
    // A container without a limit says `max`.
    read("/sys/fs/cgroup/memory.max").trim().parse().map_or(machine, |most: u64| most.min(machine))
}
