//! Child processes that do not depend on how the test process was started.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Resets SIGINT, SIGHUP and SIGQUIT to their default actions in the child.
///
/// A shell starts background jobs with SIGINT ignored, and `nohup` ignores SIGHUP. Children inherit both, and tests that
/// interrupt a child would wait in vain.
pub fn reset_signals(command: &mut Command) -> &mut Command {
    // SAFETY: the closure runs between fork and exec and calls only `signal`, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        })
    }
}
