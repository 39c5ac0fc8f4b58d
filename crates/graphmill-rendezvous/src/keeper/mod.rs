//! Where the records of a run are kept, under one contract: who writes must know the newest token.

mod etcd;
mod file;

use std::path::PathBuf;

pub use etcd::EtcdKeeper;
pub use file::{Damage, FileKeeper, Replayed, replay};

use crate::records::{Changes, Records};

/// What tells one state of the records from every other. It only means something to the keeper that gave it.
pub type Token = u64;

/// Why records cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The file system refuses.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file is damaged.
    #[error("{} is damaged at byte {at}: {reason}; move it away to begin anew", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Where.
        at: u64,
        /// How.
        reason: String,
    },
    /// Etcd does not do what it is asked.
    #[error("etcd: {0}")]
    Etcd(String),
    /// Members would be told an address of this coordinator that leads nowhere.
    #[error(
        "members would find this coordinator at {0}, which leads nowhere; say with --advertise where they reach it"
    )]
    Address(String),
    /// Somebody else writes.
    #[error("somebody else keeps this run now")]
    Stale,
}

/// What came of a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    /// It is kept; this is the new token.
    Set(Token),
    /// The token is not the newest, so nothing was changed; what is kept, with its token.
    Stale(Option<(Records, Token)>),
}

/// Keeps the records of one run.
#[derive(Debug)]
pub enum Keeper {
    /// As long as the process lives.
    Memory(MemoryKeeper),
    /// In a file.
    File(FileKeeper),
    /// In etcd.
    Etcd(EtcdKeeper),
}

impl Keeper {
    /// What is kept, if anything was, with its token.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(&self) -> Result<Option<(Records, Token)>, KeepError> {
        match self {
            Self::Memory(memory) => Ok(memory.read()),
            Self::File(file) => Ok(file.read()),
            Self::Etcd(etcd) => etcd.read().await,
        }
    }

    /// Changes records; without a token only if nothing is kept yet. When this returns, they are kept.
    ///
    /// # Errors
    /// When they cannot be written.
    pub async fn write(&mut self, changes: Changes, token: Option<Token>) -> Result<Written, KeepError> {
        match self {
            Self::Memory(memory) => Ok(memory.write(&changes, token)),
            Self::File(file) => file.write(changes, token).await,
            Self::Etcd(etcd) => etcd.write(changes, token).await,
        }
    }

    /// Keeps nothing any more, unless somebody else has written since the token.
    ///
    /// # Errors
    /// When what is kept cannot be removed.
    pub async fn forget(self, token: Option<Token>) -> Result<(), KeepError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(file) => file.forget().await,
            Self::Etcd(etcd) => etcd.forget(token).await,
        }
    }
}

/// Keeps records in memory.
#[derive(Debug, Default)]
pub struct MemoryKeeper {
    records: Records,
    /// Counts the writes.
    token: Token,
}

impl MemoryKeeper {
    fn read(&self) -> Option<(Records, Token)> {
        (self.token > 0).then(|| (self.records.clone(), self.token))
    }

    fn write(&mut self, changes: &Changes, token: Option<Token>) -> Written {
        if token.unwrap_or_default() != self.token {
            return Written::Stale(self.read());
        }
        apply(&mut self.records, changes);
        self.token += 1;
        Written::Set(self.token)
    }
}

fn apply(records: &mut Records, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(records.insert(key.clone(), value.clone())),
            None => drop(records.remove(key)),
        }
    }
}
