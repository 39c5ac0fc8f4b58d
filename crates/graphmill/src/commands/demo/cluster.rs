//! Two servers with two partitions each, and two ranks that pull two epochs: processes that are gone at the end. A training
//! command may follow.

use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use graphmill_graph::Manifest;
use graphmill_ingest::{Observer as _, Unit};
use graphmill_sample::{Config, SeedOrder};

use crate::commands::bench::jain;
use crate::commands::rank::{Loading, Order, Pulled, SeedsName, TransportName};
use crate::context::Context;
use crate::local::{Ranks, ServerOptions, Servers};
use crate::terminal::table::{Column, Sheet};
use crate::terminal::{numbers, output};

const SERVERS: usize = 2;
const RANKS: u32 = 2;
const EPOCHS: u64 = 2;

/// Runs the cluster, and a training command while it is there.
pub(super) fn run(dataset: &Path, train: &[OsString], context: &Context) -> anyhow::Result<()> {
    output::print(&format!(
        "{SERVERS} servers (graphmill serve {} --partition ...) and {RANKS} ranks, {EPOCHS} epochs of the train split each",
        dataset.display()
    ))?;
    let parts = Manifest::read(dataset)?.parts;
    let began = Instant::now();
    let servers = Servers::start(dataset, parts, ServerOptions { servers: SERVERS, mmap: false, threads: Some(1) })?;
    context.job().check()?;
    let mut config = Config::neighbors(&[15, 10]);
    (config.features, config.labels) = (vec!["x".to_owned()], true);
    let loading = Loading {
        config,
        seeds: SeedsName::Split("train".to_owned()),
        batch_size: 128,
        prefetch: 3,
        shuffle: true,
        drop_last: false,
        seed_order: SeedOrder::default(),
        most: None,
        state: None,
    };
    let order = |rank| Order {
        servers: servers.addresses.clone(),
        // The first rank as a process on another host would, the second as a neighbour.
        transport: if rank == 0 { TransportName::Tcp } else { TransportName::Shm },
        rank,
        world_size: RANKS,
        loaders: vec![loading.clone()],
        epochs: Some(EPOCHS),
        seconds: None,
        each: false,
        unread: false,
    };
    let ranks = Ranks::start(&(0..RANKS).map(order).collect::<Vec<_>>())?;
    let mut bars: Vec<Option<Box<dyn graphmill_ingest::StageObserver>>> = (0..RANKS).map(|_| None).collect();
    let mut pulled = vec![Pulled::default(); RANKS as usize];
    let mut first = None;
    ranks.listen(|told| {
        if let Some((rank, told)) = told {
            first.get_or_insert_with(|| began.elapsed());
            let total = Some(told.total_batches);
            let bar =
                bars[rank].get_or_insert_with(|| context.progress.begin(&format!("rank {rank}"), Unit::Batches, total));
            bar.advance(told.batches - pulled[rank].batches);
            pulled[rank] = told;
        }
        Ok(context.job().check()?)
    })?;
    drop(bars);
    let first = numbers::duration(first.unwrap_or_default());
    output::print(&format!("{}\n\nFirst batch {first} after the servers were started.\n", table(&pulled)))?;
    if !train.is_empty() {
        super::training::run(train, &servers.addresses, context)?;
        output::print("")?;
    }
    servers.end()
}

fn table(pulled: &[Pulled]) -> String {
    let mut sheet = Sheet::new([
        Column::Text("rank"),
        Column::Number("batches"),
        Column::Number("seeds/s"),
        Column::Number("edges/s"),
        Column::Number("bytes/s"),
        Column::Number("over TCP"),
        Column::Number("in shared memory"),
    ]);
    let size = |bytes: u64| if bytes == 0 { String::new() } else { numbers::bytes(bytes) };
    for (rank, told) in pulled.iter().enumerate() {
        let rate = |number: u64| number as f64 / told.seconds.max(1e-9);
        sheet.add([
            rank.to_string(),
            numbers::count(told.batches),
            numbers::approximate(rate(told.seeds)),
            numbers::approximate(rate(told.edges)),
            numbers::bytes(rate(told.bytes) as u64),
            size(told.socket_bytes),
            size(told.shared_bytes),
        ]);
    }
    let work: Vec<f64> = pulled.iter().map(|told| told.work() as f64).collect();
    format!("{}\n\nFairness of the work served: {:.3} (Jain's index, 1 is equal).", sheet.render(), jain(&work))
}
