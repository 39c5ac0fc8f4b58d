//! How long work tells of itself and is told to stop. The command line draws bars; this crate only counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graphmill_graph::{DatasetWriter, Manifest};

use crate::{Error, Result};

/// What a stage counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Edges.
    Edges,
    /// Nodes.
    Nodes,
    /// Rows of an input file.
    Rows,
    /// Bytes.
    Bytes,
    /// Batches.
    Batches,
}

/// Someone who watches a job.
pub trait Observer: Sync {
    /// A stage begins; `total` is how far it goes, if known.
    fn begin(&self, name: &str, unit: Unit, total: Option<u64>) -> Box<dyn StageObserver>;
}

/// Someone who watches one stage; dropped when the stage ends.
pub trait StageObserver: Send + Sync {
    /// The stage has done `by` more.
    fn advance(&self, by: u64);
}

/// A watcher who does not look.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Observer for Silent {
    fn begin(&self, _: &str, _: Unit, _: Option<u64>) -> Box<dyn StageObserver> {
        Box::new(Self)
    }
}

impl StageObserver for Silent {
    fn advance(&self, _: u64) {}
}

/// A piece of work that can be watched and cancelled.
pub struct Job<'a> {
    observer: &'a dyn Observer,
    cancel: Arc<AtomicBool>,
}

impl<'a> Job<'a> {
    /// A job that `observer` watches and that stops soon after `cancel` becomes true.
    pub fn new(observer: &'a dyn Observer, cancel: Arc<AtomicBool>) -> Self {
        Self { observer, cancel }
    }

    /// A job that nobody watches or cancels.
    pub fn silent() -> Job<'static> {
        Job { observer: &Silent, cancel: Arc::default() }
    }

    /// Begins a stage.
    pub fn stage(&self, name: &str, unit: Unit, total: Option<u64>) -> Stage {
        Stage { observer: self.observer.begin(name, unit, total), cancel: Arc::clone(&self.cancel) }
    }

    /// Checks and publishes what was written, unless the job was cancelled by then.
    pub(crate) fn publish(&self, writer: DatasetWriter, manifest: Manifest) -> Result<Manifest> {
        let _stage = self.stage("checking what was written", Unit::Bytes, None);
        writer.finish_if(manifest, |_| self.check())
    }

    /// Fails when the job was cancelled.
    pub fn check(&self) -> Result<()> {
        check(&self.cancel)
    }
}

/// A stage of a job; it ends when dropped.
pub struct Stage {
    observer: Box<dyn StageObserver>,
    cancel: Arc<AtomicBool>,
}

impl Stage {
    /// Says that `by` more is done; fails when the job was cancelled.
    pub fn advance(&self, by: u64) -> Result<()> {
        self.observer.advance(by);
        check(&self.cancel)
    }
}

fn check(cancel: &AtomicBool) -> Result<()> {
    if cancel.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}
