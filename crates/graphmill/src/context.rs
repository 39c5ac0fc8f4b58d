//! What every command is given beside its arguments.

use graphmill_ingest::Job;

use crate::interrupt::Interrupt;
use crate::terminal::logs::Logs;
use crate::terminal::output;
use crate::terminal::progress::Progress;

/// How a command talks and when it stops.
pub(crate) struct Context {
    pub(crate) progress: Progress,
    pub(crate) interrupt: Interrupt,
    quiet: bool,
}

impl Context {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { progress: Progress::detect(quiet), interrupt: Interrupt::default(), quiet }
    }

    /// A piece of library work that shows its progress and stops on a signal.
    pub(crate) fn job(&self) -> Job<'_> {
        Job::new(&self.progress, self.interrupt.flag())
    }

    /// Tells the user something that is not a result.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            output::note(text);
        }
    }

    /// The same, among the lines of a log: where nobody reads it, nobody waits.
    pub(crate) fn note_in(&self, logs: &Logs, text: &str) {
        if !self.quiet && !logs.add(text) {
            output::note(text);
        }
    }
}
