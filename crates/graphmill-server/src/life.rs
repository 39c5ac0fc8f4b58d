//! The life of a batch as spans: `batch`, and inside it `queued`, `sampled`, `gathered` and `sent`; its client adds
//! `received`. Nothing is kept unless somebody listens.

use std::collections::HashMap;

use tracing::{Level, Span, field, span_enabled, trace_span};

use crate::sync::{Mutex, lock};

/// What spans of batches go by; the client's have the same.
const TARGET: &str = "graphmill::batch";

/// A batch's span, and that of what happens to it now. Both end with this.
#[derive(Debug)]
pub(crate) struct Life {
    /// First, so that it ends first.
    stage: Span,
    batch: Span,
}

impl Life {
    /// A life that nobody listens to.
    pub(crate) fn unheard() -> Self {
        Self { stage: Span::none(), batch: Span::none() }
    }

    fn asked(channel: u64, epoch: u64, g: u64) -> Self {
        let batch = trace_span!(target: TARGET, parent: None, "batch", channel, epoch, g, bytes = field::Empty);
        Self { stage: trace_span!(target: TARGET, parent: &batch, "queued"), batch }
    }

    /// What happens now, to do it inside.
    pub(crate) fn stage(&self) -> Span {
        self.stage.clone()
    }

    /// Its nodes and edges are known.
    pub(crate) fn sampled(&mut self) {
        self.stage = trace_span!(target: TARGET, parent: &self.batch, "gathered");
    }

    /// It is complete, and on its way.
    pub(crate) fn gathered(mut self, bytes: u64) -> Self {
        self.batch.record("bytes", bytes);
        self.stage = trace_span!(target: TARGET, parent: &self.batch, "sent");
        self
    }
}

/// The batches of a channel that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Queued(Mutex<HashMap<(u64, u64), Life>>);

impl Queued {
    /// Batches were asked for; what was asked for in earlier epochs is not waited for any more.
    pub(crate) fn asked(&self, channel: u64, epoch: u64, batches: &[u64]) {
        if !span_enabled!(target: TARGET, Level::TRACE) {
            return;
        }
        let mut queued = lock(&self.0);
        queued.retain(|(asked, _), _| *asked >= epoch);
        for &g in batches {
            queued.entry((epoch, g)).or_insert_with(|| Life::asked(channel, epoch, g));
        }
    }

    /// A batch is being sampled from here on.
    pub(crate) fn begun(&self, epoch: u64, g: u64) -> Life {
        if !span_enabled!(target: TARGET, Level::TRACE) {
            return Life::unheard();
        }
        let mut life = lock(&self.0).remove(&(epoch, g)).unwrap_or_else(Life::unheard);
        life.stage = trace_span!(target: TARGET, parent: &life.batch, "sampled");
        life
    }
}
