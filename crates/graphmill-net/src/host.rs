//! What tells one host from another.

/// The boot id: equal for two processes exactly when they run under one kernel, in whatever container. Empty when it cannot
/// be read; two empty ones say nothing.
pub fn host_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim_end().to_owned()
}
