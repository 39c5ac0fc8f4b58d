//! What can go wrong while a dataset is made.

use std::path::{Path, PathBuf};

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a dataset could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The dataset could not be read or written.
    #[error(transparent)]
    Dataset(#[from] graphmill_graph::Error),
    /// The operating system refused a file operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The description of the input is wrong.
    #[error("{}: {reason}", path.display())]
    Config {
        /// The `graph.toml`, or the folder it was derived from.
        path: PathBuf,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A row of the input cannot be used.
    #[error("{file}: row {row}: {reason}")]
    BadRow {
        /// The file as it was named in the configuration.
        file: String,
        /// The row, counted from 1 without a header.
        row: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A file of the input cannot be used at all.
    #[error("{file}: {reason}")]
    Input {
        /// The file as it was named in the configuration.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A URL could not be fetched.
    #[error("cannot fetch {url}: {reason}")]
    Fetch {
        /// The URL, without credentials.
        url: String,
        /// The store's reason.
        reason: String,
    },
    /// An option makes no sense.
    #[error("{0}")]
    Option(String),
    /// The job was cancelled.
    #[error("interrupted; nothing was written")]
    Interrupted,
    /// A download was cancelled.
    #[error("interrupted; what was fetched is kept, and the same command goes on from there")]
    DownloadInterrupted,
}

impl Error {
    /// Makes the error for a failed file operation; `action` is a verb, as in "cannot `open` FILE".
    pub fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.as_ref().to_owned(), source }
    }

    /// Makes the error for a file that cannot be used.
    pub fn input(file: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Input { file: file.into(), reason: reason.into() }
    }

    /// Makes the error for an option that makes no sense.
    pub fn option(reason: impl Into<String>) -> Self {
        Self::Option(reason.into())
    }
}
