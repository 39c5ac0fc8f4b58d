//! What benchmarks with servers and ranks are told in common.

use std::path::PathBuf;

use graphmill_graph::{Dataset, Manifest};
use graphmill_sample::{Config, SeedOrder};

use crate::commands::rank::{Loading, Order, SeedsName, TransportName};
use crate::commands::sampler::SamplerArgs;
use crate::local::{ServerOptions, Servers};
use crate::terminal::numbers::parse_count;

/// Servers, and how ranks pull from them.
#[derive(Debug, clap::Args)]
pub(super) struct Serving {
    /// The dataset
    #[arg(value_name = "DIR")]
    dataset: PathBuf,

    #[command(flatten)]
    sampler: SamplerArgs,

    /// Servers; each has its share of the partitions
    #[arg(long, value_name = "S", default_value_t = 1)]
    servers: usize,

    /// Pull from servers that run already, and start none
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',', conflicts_with_all = ["servers", "threads", "mmap"])]
    at: Vec<String>,

    /// How batches come
    #[arg(long, value_enum, default_value_t = TransportName::Shm)]
    pub(super) transport: TransportName,

    /// Seeds per batch
    #[arg(long, value_name = "B", default_value = "1024", value_parser = parse_count)]
    pub(super) batch_size: u64,

    /// What batches are cut from: all seeds (global), or the seeds of each partition (partition)
    #[arg(long, value_name = "ORDER", default_value_t)]
    pub(super) seed_order: SeedOrder,

    /// Gather all features and labels of the nodes into the batches
    #[arg(long)]
    features: bool,

    /// Batches that each rank asks for ahead, per server
    #[arg(long, value_name = "N", default_value_t = 3)]
    prefetch: usize,

    /// Pull batches and do not read them; otherwise each rank reads every byte once
    #[arg(long)]
    unread: bool,

    /// Threads that sample, per server [default: as `graphmill serve` has it]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Map the dataset instead of reading it into memory
    #[arg(long)]
    mmap: bool,
}

impl Serving {
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        let dataset = Dataset::open(&self.dataset)?;
        let mut config = self.sampler.config(dataset.manifest())?;
        if self.features {
            super::sample::all_features(&mut config, &dataset)?;
        }
        Ok(config)
    }

    pub(super) fn manifest(&self) -> anyhow::Result<Manifest> {
        Ok(Manifest::read(&self.dataset)?)
    }

    /// How many servers ranks pull from.
    pub(super) fn count(&self) -> usize {
        if self.at.is_empty() { self.servers } else { self.at.len() }
    }

    pub(super) fn start(&self) -> anyhow::Result<Servers> {
        if !self.at.is_empty() {
            return Ok(Servers::at(&self.at));
        }
        let options = ServerOptions { servers: self.servers, mmap: self.mmap, threads: self.threads };
        Servers::start(&self.dataset, self.manifest()?.parts, options)
    }

    /// What a rank is told that is to pull for some seconds.
    pub(super) fn order(
        &self,
        servers: &Servers,
        config: &Config,
        seeds: SeedsName,
        (rank, world_size): (u32, u32),
        seconds: f64,
    ) -> Order {
        let loading = Loading {
            config: config.clone(),
            seeds,
            batch_size: self.batch_size as usize,
            prefetch: self.prefetch,
            shuffle: true,
            drop_last: false,
            seed_order: self.seed_order,
            most: None,
            state: None,
        };
        Order {
            servers: servers.addresses.clone(),
            transport: self.transport,
            rank,
            world_size,
            loaders: vec![loading],
            epochs: None,
            seconds: Some(seconds),
            each: false,
            unread: self.unread,
        }
    }
}
