//! A training command of the user's against the demo's servers. It ends with the demo: a group of processes that is told to
//! end, and killed if it does not.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::context::Context;
use crate::terminal::output;

/// How long it may take to end when it is told to.
const ENDING: Duration = Duration::from_secs(10);

/// Runs a command with the servers' addresses, and waits for it.
pub(super) fn run(command: &[OsString], servers: &[String], context: &Context) -> anyhow::Result<()> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let servers = [OsString::from("--servers"), servers.join(",").into()];
    let shown: Vec<_> = command.iter().chain(&servers).map(|word| word.to_string_lossy()).collect();
    output::print(&format!("$ {}", shown.join(" ")))?;
    let child = Command::new(program).args(arguments).args(&servers).stdin(Stdio::null()).process_group(0).spawn();
    let mut training = Training(child.with_context(|| format!("cannot start {}", program.to_string_lossy()))?);
    loop {
        if let Some(status) = training.0.try_wait().context("cannot wait for the training command")? {
            anyhow::ensure!(status.success(), "the training command ended with {status}");
            return Ok(());
        }
        context.job().check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Training(Child);

impl Drop for Training {
    fn drop(&mut self) {
        let mut ended = matches!(self.0.try_wait(), Ok(Some(_)));
        let group = Pid::from_child(&self.0);
        for signal in [Signal::TERM, Signal::KILL] {
            if ended {
                return;
            }
            // It may end at this very moment.
            let _ = kill_process_group(group, signal);
            let deadline = Instant::now() + ENDING;
            while !ended && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
                ended = matches!(self.0.try_wait(), Ok(Some(_)));
            }
        }
    }
}
