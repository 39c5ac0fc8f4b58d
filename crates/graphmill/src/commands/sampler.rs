//! The flags that describe a sampler, shared by the commands that sample.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use graphmill_graph::{DType, Dataset, Direction, EdgeTypeName, Manifest, OpenOptions, Storage};
use graphmill_sample::{Budget, Config, Expand, Fanouts, Hops, Negatives, Plan, Ppr, Supervision, Task, TypeFanouts};

/// Which dataset to sample from.
#[derive(Debug, clap::Args)]
pub(crate) struct Opened {
    /// The dataset
    #[arg(value_name = "DIR")]
    pub(crate) dataset: PathBuf,

    /// Map the files, or read them into memory with huge pages
    #[arg(long, value_enum, default_value_t = StorageArg::Mmap)]
    pub(crate) storage: StorageArg,
}

impl Opened {
    pub(crate) fn open(&self) -> anyhow::Result<Dataset> {
        let storage = match self.storage {
            StorageArg::Mmap => Storage::Mmap,
            StorageArg::Ram => Storage::Ram,
        };
        Ok(Dataset::open_with(&self.dataset, &OpenOptions { storage, partitions: None })?)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StorageArg {
    /// Opens at once and reads what is touched
    Mmap,
    /// Reads everything first
    Ram,
}

/// What to sample.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct SamplerArgs {
    /// How nodes and edges are found
    #[arg(long, value_enum, default_value_t = Method::Uniform)]
    sampler: Method,

    /// Neighbours per node in each hop, -1 for all; or for one edge type, as user:likes:item=15,10 (repeat it)
    #[arg(long, value_name = "F,...", allow_hyphen_values = true, value_parser = parse_fanouts)]
    fanouts: Vec<FanoutsArg>,

    /// Allow an edge to be drawn twice
    #[arg(long)]
    replace: bool,

    /// The direction to walk [default: the dataset's own]
    #[arg(long, value_enum)]
    direction: Option<DirectionArg>,

    /// Walk only these edge types
    #[arg(long, value_name = "TYPE,...", value_delimiter = ',')]
    walk: Vec<EdgeTypeName>,

    /// The node type of the seeds
    #[arg(long = "type", value_name = "NODE_TYPE", conflicts_with_all = ["links", "positive"])]
    node_type: Option<String>,

    /// Take pairs of this edge type as seeds (a homogeneous graph needs no type: write --links alone)
    #[arg(long, value_name = "TYPE", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "a flag with an optional value")]
    links: Option<Option<EdgeTypeName>>,

    /// Draw negatives for the pairs: so many per pair as binary:1.0, or targets as triplet:5
    #[arg(long, value_name = "KIND:N", requires = "links", value_parser = parse_negatives)]
    negatives: Option<(Kind, f64)>,

    /// Refuse negatives that are edges of the graph
    #[arg(long, requires = "negatives")]
    strict: bool,

    /// Draw negatives by node weight
    #[arg(long, requires = "negatives")]
    by_weight: bool,

    /// Take the labels of the seeds from these label edges (repeat it)
    #[arg(long, value_name = "TYPE", conflicts_with = "links")]
    positive: Vec<EdgeTypeName>,

    /// Negative label edges, one for each --positive
    #[arg(long, value_name = "TYPE", requires = "positive")]
    negative: Vec<EdgeTypeName>,

    /// The most labels of a seed and edge type
    #[arg(long, value_name = "N", requires = "positive")]
    max_labels: Option<u32>,

    /// ppr: the chance to go back to the seed
    #[arg(long, value_name = "A", default_value_t = 0.5)]
    alpha: f64,

    /// ppr: the error per degree
    #[arg(long, value_name = "E", default_value_t = 1e-4)]
    eps: f64,

    /// ppr: the most nodes kept per seed and node type
    #[arg(long, value_name = "N", default_value_t = 50)]
    max_nodes: u32,

    /// ppr: the most neighbours fetched of a node and edge type
    #[arg(long, value_name = "N", default_value_t = 1000)]
    neighbors_per_hop: u32,

    /// ppr: fill free places with the nodes of largest residual
    #[arg(long)]
    top_up: bool,

    /// Deliver features of f32 in this element type [default: as they are stored]
    #[arg(long, value_enum, value_name = "DTYPE")]
    feature_dtype: Option<FeatureDType>,

    /// The seed of everything random
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Method {
    /// Neighbours, each as likely as any other
    Uniform,
    /// Neighbours by edge weight
    Weighted,
    /// All edges among the seeds, or among what fanouts find
    Induced,
    /// The nodes of highest personalised `PageRank`
    Ppr,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FeatureDType {
    /// Half precision: half the bytes
    F16,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DirectionArg {
    /// From targets to sources
    In,
    /// From sources to targets
    Out,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Binary,
    Triplet,
}

#[derive(Debug, Clone)]
struct FanoutsArg {
    edge_type: Option<EdgeTypeName>,
    fanouts: Vec<i64>,
}

fn parse_fanouts(text: &str) -> Result<FanoutsArg, String> {
    let (edge_type, list) = match text.rsplit_once('=') {
        Some((name, list)) => (Some(name.parse().map_err(|error| format!("{error}"))?), list),
        None => (None, text),
    };
    let number = |word: &str| word.trim().parse().map_err(|_| format!("`{word}` is not a number of neighbours"));
    let fanouts = if list.is_empty() { Ok(Vec::new()) } else { list.split(',').map(number).collect() };
    Ok(FanoutsArg { edge_type, fanouts: fanouts? })
}

fn parse_negatives(text: &str) -> Result<(Kind, f64), String> {
    let (kind, amount) = text.split_once(':').unwrap_or((text, "1"));
    let kind = match kind {
        "binary" => Kind::Binary,
        "triplet" => Kind::Triplet,
        _ => return Err("write binary:1.0 or triplet:5".to_owned()),
    };
    match amount.parse::<f64>() {
        Ok(amount) if kind == Kind::Binary || (amount.fract() == 0.0 && amount >= 0.0) => Ok((kind, amount)),
        _ => Err(format!("`{amount}` is not a number of negatives")),
    }
}

impl SamplerArgs {
    /// The configuration that the flags describe, without features.
    pub(crate) fn config(&self, manifest: &Manifest) -> anyhow::Result<Config> {
        let config = Config {
            task: self.task()?,
            expand: self.expand()?,
            direction: self.direction.map(|direction| match direction {
                DirectionArg::In => Direction::In,
                DirectionArg::Out => Direction::Out,
            }),
            walk: (!self.walk.is_empty()).then(|| self.walk.clone()),
            feature_dtype: self.feature_dtype.map(|FeatureDType::F16| DType::F16),
            seed: self.seed,
            ..Config::default()
        };
        if self.sampler == Method::Weighted {
            let plan = Plan::remote(config.clone(), manifest)?;
            let has_weights =
                |name: &EdgeTypeName| manifest.edge_types.iter().any(|info| info.name == *name && info.weights);
            anyhow::ensure!(
                plan.walked().any(has_weights),
                "--sampler is weighted, but no edge type that is walked has weights; take --sampler uniform"
            );
        }
        Ok(config)
    }

    fn task(&self) -> anyhow::Result<Task> {
        let (strict, weighted) = (self.strict, self.by_weight);
        if let Some(edge_type) = &self.links {
            let negatives = self.negatives.map(|(kind, amount)| match kind {
                Kind::Binary => Negatives::Binary { amount, strict, weighted },
                Kind::Triplet => Negatives::Triplet { amount: amount as u32, strict, weighted },
            });
            return Ok(Task::Links { edge_type: edge_type.clone(), negatives });
        }
        if self.positive.is_empty() {
            return Ok(Task::Nodes { node_type: self.node_type.clone() });
        }
        anyhow::ensure!(
            self.negative.is_empty() || self.negative.len() == self.positive.len(),
            "there are {} --positive and {} --negative; give one --negative for each, or none",
            self.positive.len(),
            self.negative.len(),
        );
        let supervision = self.positive.iter().enumerate().map(|(place, positive)| Supervision {
            positive: positive.clone(),
            negative: self.negative.get(place).cloned(),
        });
        Ok(Task::Anchors { supervision: supervision.collect(), max_labels: self.max_labels })
    }

    fn expand(&self) -> anyhow::Result<Expand> {
        if self.sampler == Method::Ppr {
            anyhow::ensure!(self.fanouts.is_empty(), "PageRank takes no --fanouts");
            return Ok(Expand::Ppr(Ppr {
                alpha: self.alpha,
                eps: self.eps,
                max_nodes: Budget::Each(self.max_nodes),
                neighbors_per_hop: self.neighbors_per_hop,
                top_up: self.top_up,
            }));
        }
        let hops = Hops { fanouts: self.fanouts()?, replace: self.replace, weighted: self.sampler == Method::Weighted };
        Ok(if self.sampler == Method::Induced { Expand::Induced(hops) } else { Expand::Neighbors(hops) })
    }

    fn fanouts(&self) -> anyhow::Result<Fanouts> {
        if let [FanoutsArg { edge_type: None, fanouts }] = &self.fanouts[..] {
            return Ok(Fanouts::Same(fanouts.clone()));
        }
        if self.fanouts.is_empty() {
            return Ok(Fanouts::default());
        }
        let per_type = self.fanouts.iter().map(|one| {
            let edge_type = one.edge_type.clone().context("write --fanouts once, or each time with an edge type")?;
            Ok(TypeFanouts { edge_type, fanouts: one.fanouts.clone() })
        });
        Ok(Fanouts::PerType(per_type.collect::<anyhow::Result<_>>()?))
    }
}
