//! How a command that failed says so: one line on stderr and an exit code.

use std::process::ExitCode;

use crate::interrupt::Interrupt;
use crate::terminal::output;

/// Prints the error and chooses the exit code.
pub(crate) fn report(error: &anyhow::Error, interrupt: &Interrupt) -> ExitCode {
    use graphmill_ingest::Error::{DownloadInterrupted, Interrupted};
    if let Some(stopped @ (Interrupted | DownloadInterrupted)) = error.downcast_ref() {
        output::note(&stopped.to_string());
        return ExitCode::from(interrupt.exit_code());
    }
    output::error(message(error).trim_end());
    ExitCode::FAILURE
}

/// The error with its causes, and what to do about it on the command line.
fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Many errors of the libraries state their cause themselves.
        if message.contains(&cause) {
            continue;
        }
        if !message.is_empty() {
            message.push_str(": ");
        }
        message.push_str(&cause);
    }
    if error.chain().any(is_exists) {
        message.push_str(" with --force");
    }
    message
}

fn is_exists(error: &(dyn std::error::Error + 'static)) -> bool {
    let exists = |error: &graphmill_graph::Error| matches!(error, graphmill_graph::Error::Exists { .. });
    // A transparent error hides the one inside from the chain.
    let hidden = |error: &graphmill_ingest::Error| match error {
        graphmill_ingest::Error::Dataset(inner) => exists(inner),
        _ => false,
    };
    error.downcast_ref().is_some_and(exists) || error.downcast_ref().is_some_and(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_stated_once() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error =
            anyhow::Error::new(graphmill_graph::Error::io("open", "a.npy")(missing)).context("cannot partition");
        assert_eq!(message(&error), "cannot partition: cannot open a.npy: entity not found");
    }

    #[test]
    fn an_existing_target_leads_to_the_flag_that_replaces_it() {
        let exists = graphmill_graph::Error::Exists { path: "g".into() };
        let error = anyhow::Error::new(graphmill_ingest::Error::from(exists));
        assert!(message(&error).ends_with("ask to replace it with --force"), "{}", message(&error));
    }
}
