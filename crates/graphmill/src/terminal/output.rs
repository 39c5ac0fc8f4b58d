//! The two streams. Results go to stdout; whoever reads them may close the pipe early (`| head -1`), which is no error.

use std::io::{IsTerminal, Write};

use anyhow::Context as _;
use clap::builder::styling::{AnsiColor, Style};

/// Prints a result, with a newline at its end.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to stdout"),
    }
}

/// Prints a result as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value).context("cannot write the result as JSON")?)
}

/// Prints a line that is no result. Nobody can be told when stderr is gone.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints an error.
pub(crate) fn error(text: &str) {
    let colored = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let style = if colored { AnsiColor::Red.on_default().bold() } else { Style::new() };
    note(&format!("{style}error:{style:#} {text}"));
}
