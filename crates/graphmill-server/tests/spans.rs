//! The life of batches, as whoever listens hears it. A process of its own, for a listener hears everything in it.

#[allow(dead_code, reason = "the other tests need the rest")]
#[path = "cluster/support.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use graphmill_client::{Loader, SeedList, Transport};
use support::{Cluster, NODES, Store, config, eventually, loading};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// The names of spans that ended, by the batch they were about: its epoch and number.
type Heard = Arc<Mutex<BTreeMap<(u64, u64), Vec<&'static str>>>>;

struct Listener(Heard);

/// The numbers of a span.
#[derive(Default)]
struct Numbers(BTreeMap<&'static str, u64>);

impl Visit for Numbers {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), value);
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Listener {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut numbers = Numbers::default();
        attributes.record(&mut numbers);
        if let (Some(span), Some(&epoch), Some(&g)) = (context.span(id), numbers.0.get("epoch"), numbers.0.get("g")) {
            span.extensions_mut().insert((epoch, g));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        if span.metadata().target() != "graphmill::batch" {
            return;
        }
        let batch = span.scope().find_map(|span| span.extensions().get::<(u64, u64)>().copied());
        self.0.lock().unwrap().entry(batch.expect("every span is about a batch")).or_default().push(span.name());
    }
}

#[test]
fn every_batch_is_queued_sampled_gathered_sent_and_received() {
    let heard = Heard::default();
    tracing::subscriber::set_global_default(Registry::default().with(Listener(Arc::clone(&heard)))).unwrap();
    let store = Store::homogeneous(2);
    for (round, transport) in [Transport::Socket, Transport::SharedMemory].into_iter().enumerate() {
        let cluster = Cluster::start(&store.path, 2);
        let remote = cluster.connect(transport);
        let seeds = SeedList::Nodes((0..NODES).collect());
        let loader = Loader::remote(&remote, config(), seeds, loading(16)).unwrap();
        let epoch = round as u64;
        assert_eq!(loader.epoch(epoch).map(Result::unwrap).count(), loader.len());
        for g in 0..loader.len() as u64 {
            let lived = || heard.lock().unwrap().get(&(epoch, g)).cloned().unwrap_or_default();
            // The server may learn later than the client that a batch is written.
            eventually("its life is over", || lived().len() == 6);
            let stages: Vec<&str> = lived().into_iter().filter(|name| *name != "received").collect();
            assert_eq!(stages, ["queued", "sampled", "gathered", "sent", "batch"], "batch {g}");
        }
    }
}
