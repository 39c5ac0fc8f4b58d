//! A graph in a dataset, and batches of it.

use std::sync::Arc;

use graphmill_graph::{Dataset, Direction, OpenOptions, Storage};
use graphmill_sample::{Batch, BatchId, Config, Pairs, Plan, Pool, Result, Sampler, Seeds, View};
use graphmill_testing::{Assignment, ModelGraph, tempdir, write};

/// A dataset of a graph, with all layouts.
pub(crate) fn dataset(graph: &ModelGraph) -> Dataset {
    placed(graph, &[Direction::In, Direction::Out], &Assignment::whole(graph), Storage::Ram)
}

/// A dataset of a graph; its files are gone, what was opened stays.
pub(crate) fn placed(graph: &ModelGraph, layouts: &[Direction], assignment: &Assignment, storage: Storage) -> Dataset {
    let folder = tempdir();
    let path = folder.path().join("dataset");
    write(graph, &path, layouts, assignment).unwrap();
    Dataset::open_with(&path, &OpenOptions { storage, partitions: None }).unwrap()
}

pub(crate) const ID: BatchId = BatchId { epoch: 3, g: 5, repeated: false };

pub(crate) fn sampler(dataset: &Dataset, config: &Config) -> Result<Sampler> {
    let plan = Arc::new(Plan::new(config.clone(), dataset)?);
    Ok(Sampler::new(plan, Arc::new(View::new(dataset)), Pool::new(2)))
}

pub(crate) fn sample(dataset: &Dataset, config: &Config, seeds: &[u64]) -> Result<Batch> {
    sampler(dataset, config)?.sample(Seeds::Nodes(seeds), ID)
}

pub(crate) fn sample_pairs(dataset: &Dataset, config: &Config, pairs: &[(u64, u64)]) -> Result<Batch> {
    let positions: Vec<u64> = (0..pairs.len() as u64).collect();
    let (src, dst): (Vec<u64>, Vec<u64>) = pairs.iter().copied().unzip();
    let pairs = Pairs { positions: &positions, src: &src, dst: &dst, classes: None };
    sampler(dataset, config)?.sample(Seeds::Pairs(pairs), ID)
}
