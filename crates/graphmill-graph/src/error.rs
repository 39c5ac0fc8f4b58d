//! What can go wrong with a dataset, each with the file it concerns.

use std::path::{Path, PathBuf};

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a dataset could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    /// The directory has no manifest: not a dataset, or one still being written.
    #[error("{} is not a dataset: it has no manifest.json", path.display())]
    NotADataset {
        /// The directory that was opened.
        path: PathBuf,
    },
    /// The dataset was written by a newer graphmill.
    #[error(
        "{} has format version {found}, expected at most {supported}; open it with a newer graphmill",
        path.display()
    )]
    NewerVersion {
        /// The manifest.
        path: PathBuf,
        /// The version it states.
        found: u64,
        /// The newest version this build reads.
        supported: u64,
    },
    /// The manifest is damaged or contradicts itself.
    #[error("{} is not a valid manifest: {reason}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file is shorter or longer than the manifest says, usually a broken copy.
    #[error("{} is truncated or overlong: expected {expected} bytes, found {found}", path.display())]
    Length {
        /// The array's file.
        path: PathBuf,
        /// The size the manifest states.
        expected: u64,
        /// The size on disk.
        found: u64,
    },
    /// A file's content is not what was written: bit rot or a broken copy.
    #[error("{} is corrupted: expected checksum {expected:016x}, found {found:016x}", path.display())]
    Checksum {
        /// The array's file.
        path: PathBuf,
        /// The checksum the manifest states.
        expected: u64,
        /// The checksum of the bytes on disk.
        found: u64,
    },
    /// An array's content breaks a rule of the format, so its bytes were not written by a sound writer.
    #[error("{} is corrupted: {reason}", path.display())]
    Corrupt {
        /// The array's file, or the dataset where several arrays disagree.
        path: PathBuf,
        /// Which rule, with what was expected and found.
        reason: String,
    },
    /// The content does not hash to the fingerprint the manifest states.
    #[error("{} is corrupted: expected fingerprint {expected}, found {found}", path.display())]
    Fingerprint {
        /// The dataset.
        path: PathBuf,
        /// The fingerprint the manifest states.
        expected: crate::Fingerprint,
        /// The fingerprint of the content.
        found: crate::Fingerprint,
    },
    /// The target of a write exists already.
    #[error("{} exists already; choose another place or ask to replace it", path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// A name was asked for that the dataset does not have.
    #[error("there is no {kind} `{name}`; there are: {available}")]
    Unknown {
        /// What kind of thing: node type, edge type, feature, split.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The names there are.
        available: String,
    },
    /// An id outside the id space of its type.
    #[error("{kind} id {id} is out of range: there are {count} of type `{name}`")]
    OutOfRange {
        /// `node` or `edge`.
        kind: &'static str,
        /// The type's name.
        name: String,
        /// The id asked for.
        id: u64,
        /// The size of the id space.
        count: u64,
    },
    /// The partition that owns what was asked for is not opened here.
    #[error("partition {partition} of {} is not opened here", path.display())]
    PartitionAbsent {
        /// The dataset.
        path: PathBuf,
        /// The partition.
        partition: u32,
    },
    /// A caller of the writer broke a rule of the format.
    #[error("cannot write the dataset: {reason}")]
    Invalid {
        /// Which rule.
        reason: String,
    },
}

impl Error {
    /// Makes the error for a failed file operation; `action` is a verb, as in "cannot `open` FILE".
    pub fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.as_ref().to_owned(), source }
    }

    /// Makes the error for content that breaks a rule of the format.
    pub(crate) fn corrupt(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.as_ref().to_owned(), reason: reason.into() }
    }

    /// Makes the error for a broken promise of whoever writes a dataset.
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into() }
    }
}
