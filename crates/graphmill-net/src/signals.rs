//! The signals that ask a process to stop.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use libc::{SIGHUP, SIGINT, SIGTERM};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a server to stop, listened to.
#[derive(Debug)]
pub struct Stopping(Vec<Signal>);

impl Stopping {
    /// Begins to listen; inside a runtime.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn listen() -> io::Result<Self> {
        let listen = |number: i32| {
            signal(SignalKind::from_raw(number))
                .map_err(|error| io::Error::new(error.kind(), format!("cannot listen to signal {number}: {error}")))
        };
        stopping_signals().map(listen).collect::<io::Result<Vec<Signal>>>().map(Self)
    }

    /// Ends when one comes.
    pub async fn asked(&mut self) {
        poll_fn(|context| {
            let came = self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if came { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The signals that ask to stop, by their numbers. That a terminal closed (SIGHUP) is none where whoever started this had it
/// ignored, as `nohup` does: a handler would undo that.
pub fn stopping_signals() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP))
}

fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}
