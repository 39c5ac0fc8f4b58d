//! Logs: what a server tells whoever runs it, on stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

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

/// Begins to write logs; `GRAPHMILL_LOG` chooses which.
pub(crate) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_env("GRAPHMILL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // A line that cannot be written, because a disk is full, is lost. To complain about it on stderr, which is where it was to
    // go, would end the thread.
    let builder = builder.log_internal_errors(false);
    // How long a span took is known when it ends.
    let builder = builder.with_span_events(FmtSpan::CLOSE);
    // Only the first call counts, as in the demo, which runs several commands.
    let _ = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
