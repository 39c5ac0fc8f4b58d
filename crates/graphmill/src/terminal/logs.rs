//! Logs: what a server tells whoever runs it, on stderr.
//!
//! Lines are written by a thread of their own. Whoever logs hands over its line and goes on: a terminal that is stopped, or
//! a pipe that nobody reads, costs lines of the log and never a batch.

use std::io::{IsTerminal as _, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// How many bytes wait to be written, at most; lines beyond are lost, and counted.
const WAITING: usize = 1 << 20;
/// How long the end of a command waits for lines that are still to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How a line of the log is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For machines, an object a line
    Json,
}

/// Logs are written while this lives; its end waits for the last lines.
#[must_use]
pub(crate) struct Logs {
    lines: Arc<Lines>,
    /// Whether there is a thread that writes them.
    are_written: bool,
}

/// Begins to write logs; `GRAPHMILL_LOG` chooses which.
pub(crate) fn start(format: LogFormat) -> Logs {
    let filter = EnvFilter::try_from_env("GRAPHMILL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    let lines = Arc::new(Lines { format, ..Lines::default() });
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines.clone()).with_ansi(colours);
    // How long a span took is known when it ends.
    let builder = builder.with_span_events(FmtSpan::CLOSE);
    // Only the first call counts, as in the demo, which runs several commands.
    let first = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    let writer = lines.clone();
    let write = move || writer.write_to(std::io::stderr());
    // Without a thread there is no log, and the server serves.
    let are_written = first.is_ok() && std::thread::Builder::new().name("log".into()).spawn(write).is_ok();
    Logs { lines, are_written }
}

impl Logs {
    /// Adds a line as it is, if there is a log.
    pub(crate) fn add(&self, line: &str) -> bool {
        if self.are_written {
            self.lines.hand_over(format!("{line}\n").as_bytes());
        }
        self.are_written
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let state = self.lines.lock();
        let is_behind = |state: &mut State| self.are_written && state.is_behind();
        let _ = self.lines.written.wait_timeout_while(state, LAST_LINES, is_behind);
    }
}

/// Lines on their way to stderr.
#[derive(Default)]
struct Lines {
    format: LogFormat,
    state: Mutex<State>,
    handed_over: Condvar,
    written: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    lost: u64,
    writing: bool,
}

impl State {
    fn is_behind(&self) -> bool {
        self.writing || !self.waiting.is_empty()
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_over(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.waiting.len() + line.len() > WAITING {
            state.lost += 1;
            return;
        }
        state.waiting.extend_from_slice(line);
        self.handed_over.notify_one();
    }

    /// Writes what is handed over, for ever.
    fn write_to(&self, mut out: impl Write) {
        let mut bytes = Vec::new();
        let mut state = self.lock();
        loop {
            state = self
                .handed_over
                .wait_while(state, |state| state.waiting.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut bytes, &mut state.waiting);
            let lost = std::mem::take(&mut state.lost);
            state.writing = true;
            drop(state);
            if lost > 0 {
                bytes.extend_from_slice(self.loss(lost).as_bytes());
            }
            // What cannot be written, because a disk is full, is lost: where to say so is where it cannot be written.
            let _ = out.write_all(&bytes);
            bytes.clear();
            state = self.lock();
            state.writing = false;
            self.written.notify_all();
        }
    }

    fn loss(&self, lines: u64) -> String {
        let message = format!("{lines} lines of the log are missing here: they came faster than they were read");
        match self.format {
            LogFormat::Text => format!("{message}\n"),
            LogFormat::Json => {
                format!("{}\n", serde_json::json!({ "level": "WARN", "fields": { "message": message } }))
            }
        }
    }
}

/// The formatter writes each line at once.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.hand_over(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
