//! What a process holds, as the system sees it.

use std::fs;

/// What a process holds at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Bytes of memory that are resident.
    pub(crate) resident: u64,
    pub(crate) threads: u64,
    /// Open descriptors, and how many of them are memory that can be shared.
    pub(crate) descriptors: usize,
    pub(crate) shared: usize,
}

impl Footprint {
    pub(crate) fn of(process: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process is there");
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        let open: Vec<_> = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten().collect();
        let is_shared = |entry: &&fs::DirEntry| {
            fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().contains("memfd:"))
        };
        Self {
            resident: number("VmRSS:") << 10,
            threads: number("Threads:"),
            descriptors: open.len(),
            shared: open.iter().filter(is_shared).count(),
        }
    }
}
