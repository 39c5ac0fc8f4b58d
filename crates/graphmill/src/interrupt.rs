//! Signals: the first SIGINT or SIGTERM asks the running job to stop and clean up, the second ends the process at once. SIGHUP,
//! by which a terminal that closes is told of, perhaps more than once, asks to stop too.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whether, and by which signal, the user asked to stop.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Begins to listen; to be called once.
    pub(crate) fn watch(&self) -> anyhow::Result<()> {
        for signal in stopping() {
            if signal != SIGHUP {
                // The order matters: the flag that this handler looks at is raised by the one after it.
                flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&self.flag))
                    .with_context(|| format!("cannot listen to signal {signal}"))?;
            }
            flag::register_usize(signal, Arc::clone(&self.signal), signal as usize)
                .and_then(|_| flag::register(signal, Arc::clone(&self.flag)))
                .with_context(|| format!("cannot listen to signal {signal}"))?;
        }
        Ok(())
    }

    /// Becomes true on the first signal.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// The exit code of a process that a signal ended, by the custom of shells.
    pub(crate) fn exit_code(&self) -> u8 {
        let signal = match self.signal.load(Ordering::Relaxed) {
            0 => SIGINT as usize,
            signal => signal,
        };
        128 + signal as u8
    }
}

/// The signals that ask a server to stop.
#[derive(Debug)]
pub(crate) struct Stopping(Vec<Signal>);

impl Stopping {
    /// Begins to listen; inside a runtime.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen =
            |number| signal(SignalKind::from_raw(number)).with_context(|| format!("cannot listen to signal {number}"));
        Ok(Self(stopping().map(listen).collect::<anyhow::Result<_>>()?))
    }

    /// Ends when one comes.
    pub(crate) async fn asked(&mut self) {
        poll_fn(|context| {
            let came = self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if came { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The signals that ask to stop. That a terminal closed is none where whoever started this had it ignored, as `nohup` does:
/// a handler would undo that.
fn stopping() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP))
}

fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}
