//! Numbers for whoever watches, in Prometheus' text format.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::registry::Channel;

/// The most channels with series of their own, those that were opened first: a page has an end, and whoever reads it has
/// little room for what is gone tomorrow.
const SHOWN: usize = 256;

/// The label of a limit's series.
type OfLimit = [(&'static str, &'static str); 1];
/// The label of a channel's series.
type OfChannel = [(&'static str, u64); 1];

/// A server's metrics.
pub(crate) struct Metrics {
    registry: Registry,
    batches: Counter,
    failed: Counter,
    edges: Counter,
    bytes: Counter,
    questions: Counter,
    refused: Family<OfLimit, Counter>,
    queued: Histogram,
    sampled: Histogram,
    gathered: Histogram,
    sent: Histogram,
    /// Set when the page is read.
    pub(crate) channels: Gauge,
    pub(crate) runnable: Gauge,
    pub(crate) parked: Gauge,
    pub(crate) backends: Gauge,
    pub(crate) clients: Gauge,
    pub(crate) running: Gauge,
    pub(crate) buffered_bytes: Gauge,
    pub(crate) scratch_bytes: Gauge,
    pub(crate) starved: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) memory_bytes: Gauge,
    pub(crate) memory_budget: Gauge,
    row_cache_found: Counter,
    row_cache_missed: Counter,
    pub(crate) row_cache_bytes: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.000_1, 2.0, 18));
        let mut metrics = Self {
            registry: Registry::with_prefix("graphmill"),
            batches: Counter::default(),
            failed: Counter::default(),
            edges: Counter::default(),
            bytes: Counter::default(),
            questions: Counter::default(),
            refused: Family::default(),
            queued: seconds(),
            sampled: seconds(),
            gathered: seconds(),
            sent: seconds(),
            channels: Gauge::default(),
            runnable: Gauge::default(),
            parked: Gauge::default(),
            backends: Gauge::default(),
            clients: Gauge::default(),
            running: Gauge::default(),
            buffered_bytes: Gauge::default(),
            scratch_bytes: Gauge::default(),
            starved: Gauge::default(),
            connections: Gauge::default(),
            memory_bytes: Gauge::default(),
            memory_budget: Gauge::default(),
            row_cache_found: Counter::default(),
            row_cache_missed: Counter::default(),
            row_cache_bytes: Gauge::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("batches", "Batches sampled", metrics.batches.clone());
        registry.register("failed_batches", "Batches that failed", metrics.failed.clone());
        registry.register("sampled_edges", "Edges sampled", metrics.edges.clone());
        registry.register("batch_bytes", "Bytes of sampled batches", metrics.bytes.clone());
        registry.register("peer_questions", "Questions of peers answered", metrics.questions.clone());
        registry.register("queued_seconds", "From a credit to the first step of its batch", metrics.queued.clone());
        registry.register("sampled_seconds", "From the first step to the last answer", metrics.sampled.clone());
        registry.register("gathered_seconds", "From the last answer to the last row", metrics.gathered.clone());
        registry.register("sent_seconds", "Writing a batch to its connection", metrics.sent.clone());
        registry.register("channels", "Open channels", metrics.channels.clone());
        registry.register("runnable_channels", "Channels that wait for a worker", metrics.runnable.clone());
        registry.register("parked_channels", "Channels that wait for their client", metrics.parked.clone());
        registry.register("backends", "Sampling backends", metrics.backends.clone());
        registry.register("clients", "Clients with a lease", metrics.clients.clone());
        registry.register("running_batches", "Batches under way", metrics.running.clone());
        registry.register(
            "buffered_bytes",
            "Bytes of batches that clients did not take yet",
            metrics.buffered_bytes.clone(),
        );
        registry.register("scratch_bytes", "Bytes kept by resting samplers", metrics.scratch_bytes.clone());
        registry.register("starved_channels", "Channels that wait for memory", metrics.starved.clone());
        registry.register("connections", "Connections on the main addresses", metrics.connections.clone());
        registry.register("memory_bytes", "Bytes of the memory budget that are taken", metrics.memory_bytes.clone());
        registry.register("memory_budget_bytes", "The memory budget", metrics.memory_budget.clone());
        registry.register("row_cache_found", "Rows of peers that were kept here", metrics.row_cache_found.clone());
        registry.register("row_cache_missed", "Rows of peers that were not", metrics.row_cache_missed.clone());
        registry.register("row_cache_bytes", "Memory of rows of peers that are kept", metrics.row_cache_bytes.clone());
        registry.register("refused", "What was refused because a limit was reached", metrics.refused.clone());
        for limit in ["connections", "channels", "memory"] {
            drop(metrics.refused.get_or_create(&[("limit", limit)]));
        }
        metrics
    }

    /// Something was refused because a limit was reached.
    pub(crate) fn refused(&self, limit: &'static str) {
        self.refused.get_or_create(&[("limit", limit)]).inc();
    }

    pub(crate) fn batch(&self, queued: Duration, sampled: Duration, gathered: Duration, edges: u64, bytes: u64) {
        self.batches.inc();
        self.edges.inc_by(edges);
        self.bytes.inc_by(bytes);
        self.queued.observe(queued.as_secs_f64());
        self.sampled.observe(sampled.as_secs_f64());
        self.gathered.observe(gathered.as_secs_f64());
    }

    pub(crate) fn failed(&self) {
        self.failed.inc();
    }

    pub(crate) fn question(&self) {
        self.questions.inc();
    }

    /// So many rows of peers were kept here, and so many had to be asked for.
    pub(crate) fn peer_rows(&self, found: usize, missed: usize) {
        self.row_cache_found.inc_by(found as u64);
        self.row_cache_missed.inc_by(missed as u64);
    }

    pub(crate) fn sent(&self, took: Duration) {
        self.sent.observe(took.as_secs_f64());
    }

    /// The page, with the channels that are open now.
    pub(crate) fn page(&self, channels: &[Arc<Channel>]) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &of_channels(channels))?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

/// What channels were served; made when it is asked for, so that the series of a channel end with it.
fn of_channels(channels: &[Arc<Channel>]) -> Registry {
    let (batches, slow) = (Family::<OfChannel, Counter>::default(), Family::<OfChannel, Counter>::default());
    let seconds = Family::<OfChannel, Counter<f64, AtomicU64>>::default();
    for channel in channels.iter().take(SHOWN) {
        let (of, fetches) = ([("channel", channel.id)], channel.fetches());
        batches.get_or_create(&of).inc_by(fetches.batches);
        slow.get_or_create(&of).inc_by(fetches.slow);
        seconds.get_or_create(&of).inc_by(fetches.took.as_secs_f64());
    }
    let mut registry = Registry::with_prefix("graphmill");
    registry.register("channel_batches", "Batches of a channel", batches);
    registry.register("channel_batch_seconds", "From asking for a channel's batches to having them", seconds);
    registry.register("channel_slow_batches", "Batches of a channel that waited or took very long", slow);
    registry
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
