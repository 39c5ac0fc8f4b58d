//! Signals: the first SIGINT or SIGTERM asks the running job to stop and clean up, the second ends the process at once. SIGHUP,
//! by which a terminal that closes is told of, perhaps more than once, asks to stop too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Context as _;
use graphmill_net::stopping_signals;
use signal_hook::consts::{SIGHUP, SIGINT};
use signal_hook::flag;

/// Whether, and by which signal, the user asked to stop.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Begins to listen; to be called once.
    pub(crate) fn watch(&self) -> anyhow::Result<()> {
        for signal in stopping_signals() {
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
