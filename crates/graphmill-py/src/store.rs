//! A dataset of this process or of storage servers, read by the same calls.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use graphmill_client::{
    ConnectOptions, EdgeIndex, EdgeLayout, Loader, Options, Original, Remote, RemoteDataset, Rows, SeedList, Seeding,
    Servers, Shard, compress, rank_slices,
};
use graphmill_graph::{
    Dataset, EdgeRole, EdgeTypeName, Error as GraphError, FeatureInfo, Manifest, OpenOptions, OriginalId, OriginalKind,
    Split, Storage,
};
use graphmill_sample::{Config, Cutting, Gather, PartitionLists, Plan, SeedCuts, SeedOrder, Source, View, room};
use serde_json::{Value, json};

use crate::errors::{Error, Result};
use crate::wait::Wanted;

/// Rows that are gathered before somebody looks whether they are still wanted.
const ROWS: usize = 1 << 14;

/// Where a dataset is.
#[derive(Debug)]
pub(crate) enum Store {
    /// In this process.
    Embedded { dataset: Box<Dataset>, view: View },
    /// On storage servers.
    Remote { dataset: RemoteDataset, remote: Arc<Remote> },
}

/// Whose rows: of nodes, or of edges.
#[derive(Debug, Clone)]
pub(crate) enum Owner {
    Node(Option<String>),
    Edge(Option<EdgeTypeName>),
}

/// What a loader goes over.
#[derive(Debug)]
pub(crate) enum Seeds {
    All,
    Split(Split),
    Edges,
    Listed(SeedList),
}

impl Store {
    pub(crate) fn open(path: &Path, storage: Storage) -> Result<Self> {
        let dataset = Box::new(Dataset::open_with(path, &OpenOptions { storage, partitions: None })?);
        let view = View::new(&dataset);
        Ok(Self::Embedded { dataset, view })
    }

    pub(crate) fn connect(servers: &Servers, options: ConnectOptions) -> Result<Self> {
        let remote = Remote::connect_to(servers, options)?;
        Ok(Self::Remote { dataset: RemoteDataset::new(Arc::clone(&remote)), remote })
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        match self {
            Self::Embedded { dataset, .. } => dataset.manifest(),
            Self::Remote { dataset, .. } => dataset.manifest(),
        }
    }

    /// Whether a call may have to wait for others.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Self::Remote { .. })
    }

    /// What the dataset is.
    pub(crate) fn describe(&self) -> Value {
        let manifest = self.manifest();
        let features = |features: &[FeatureInfo]| -> Vec<Value> {
            features.iter().map(|info| json!([info.name, info.dtype.name(), info.shape])).collect()
        };
        let nodes = manifest.node_types.iter().map(|info| {
            let splits: serde_json::Map<String, Value> =
                info.splits.iter().map(|(split, size)| (split.to_string(), json!(size))).collect();
            json!({
                "name": info.name, "count": info.count, "features": features(&info.features), "splits": splits,
                "label": info.label.map(|label| json!([label.dtype.name(), label.as_feature().shape])),
                "weights": info.weights, "original_ids": info.original_ids.map(OriginalKind::name),
            })
        });
        let edges = manifest.edge_types.iter().map(|info| {
            json!({
                "name": info.name, "count": info.count, "features": features(&info.features),
                "label": info.role == EdgeRole::Label, "edge_ids": info.edge_ids, "id_count": info.id_count,
                "weights": info.weights, "layouts": info.layouts,
            })
        });
        json!({
            "homogeneous": manifest.homogeneous, "edge_dir": manifest.edge_dir, "parts": manifest.parts,
            "fingerprint": manifest.fingerprint.to_string(),
            "nodes": nodes.collect::<Vec<_>>(), "edges": edges.collect::<Vec<_>>(),
        })
    }

    /// The ids of a split or of all nodes; of a rank, its share.
    pub(crate) fn node_ids(
        &self,
        node_type: Option<&str>,
        split: Option<Split>,
        rank: Option<u32>,
        world_size: Option<u32>,
    ) -> Result<Vec<u64>> {
        let place = self.manifest().resolve_node_type(node_type)?;
        match self {
            Self::Remote { dataset, .. } => {
                if let Some(split) = split {
                    self.check_split(place, split)?;
                }
                let shard = Shard::of_rank(rank, world_size, dataset.servers())?;
                Ok(dataset.node_ids(node_type, split, shard)?)
            }
            Self::Embedded { dataset, .. } => {
                let ids = match split {
                    Some(split) => Ids::Listed(dataset.split_ids(place, split)?),
                    None => Ids::All(dataset.node_types()[place].count),
                };
                match Shard::of_rank(rank, world_size, 1)? {
                    Shard::Rank { rank, world_size, servers } => {
                        let cut = |part: u64, of: u64| (ids.len() as u128 * u128::from(part) / u128::from(of)) as usize;
                        let slices = rank_slices(rank, world_size, servers)?;
                        let places = slices
                            .iter()
                            .map(|(_, slice)| cut(slice.start, slice.denominator)..cut(slice.end, slice.denominator));
                        let mut share = room("ids", places.clone().map(|places| places.len() as u64).sum())?;
                        places.for_each(|places| ids.add_to(&mut share, places));
                        Ok(share)
                    }
                    Shard::Whole | Shard::Slice(_) => ids.list(),
                }
            }
        }
    }

    /// Rows of a feature.
    pub(crate) fn features(&self, owner: &Owner, name: &str, ids: Option<Vec<u64>>, wanted: &Wanted) -> Result<Rows> {
        let manifest = self.manifest();
        let (features, count, place) = match owner {
            Owner::Node(node_type) => {
                let place = manifest.resolve_node_type(node_type.as_deref())?;
                let info = &manifest.node_types[place];
                (&info.features, info.count, place)
            }
            Owner::Edge(edge_type) => {
                let place = manifest.resolve_edge_type(edge_type.as_ref())?;
                let info = &manifest.edge_types[place];
                (&info.features, info.id_count, place)
            }
        };
        let feature = features.iter().position(|info| info.name == name).ok_or_else(|| GraphError::Unknown {
            kind: "feature",
            name: name.to_owned(),
            available: listed(features.iter().map(|info| &info.name)),
        })?;
        let ids = ids.map_or(Ids::All(count), Ids::Listed);
        match (self, owner) {
            (Self::Remote { dataset, .. }, Owner::Node(node_type)) => {
                Ok(dataset.node_feature(node_type.as_deref(), name, &ids.list()?)?)
            }
            (Self::Remote { dataset, .. }, Owner::Edge(edge_type)) => {
                Ok(dataset.edge_feature(edge_type.as_ref(), name, &ids.list()?)?)
            }
            (Self::Embedded { view, .. }, Owner::Node(_)) => {
                gather(view, Source::Node { node_type: place, feature }, &features[feature], &ids, wanted)
            }
            (Self::Embedded { view, .. }, Owner::Edge(_)) => {
                gather(view, Source::Edge { edge_type: place, feature }, &features[feature], &ids, wanted)
            }
        }
    }

    /// Rows of labels.
    pub(crate) fn labels(&self, node_type: Option<&str>, ids: Option<Vec<u64>>, wanted: &Wanted) -> Result<Rows> {
        let place = self.manifest().resolve_node_type(node_type)?;
        let info = &self.manifest().node_types[place];
        let Some(label) = &info.label else {
            return Err(Error::Argument(format!("nodes of `{}` have no labels", info.name)));
        };
        let ids = ids.map_or(Ids::All(info.count), Ids::Listed);
        match self {
            Self::Remote { dataset, .. } => Ok(dataset.node_label(node_type, &ids.list()?)?),
            Self::Embedded { view, .. } => {
                gather(view, Source::Label { node_type: place }, &label.as_feature(), &ids, wanted)
            }
        }
    }

    /// Sources and targets of all edges of a type, in stored order.
    pub(crate) fn edges(&self, edge_type: Option<&EdgeTypeName>) -> Result<(Vec<u64>, Vec<u64>)> {
        self.manifest().resolve_edge_type(edge_type)?;
        match self {
            Self::Remote { dataset, .. } => match dataset.edge_index(edge_type, EdgeLayout::Coo)? {
                EdgeIndex::Coo { sources, targets } => Ok((sources, targets)),
                _ => Err(Error::Argument("edges came in another layout than was asked for".to_owned())),
            },
            Self::Embedded { dataset, .. } => match SeedList::edges(dataset, edge_type)? {
                SeedList::Pairs { src, dst, .. } => Ok((src, dst)),
                SeedList::All(_) | SeedList::Nodes(_) => Ok((Vec::new(), Vec::new())),
            },
        }
    }

    /// Where the neighbours of each node of a type's edges begin, and the neighbours, in stored order.
    pub(crate) fn adjacency(&self, edge_type: Option<&EdgeTypeName>, by_source: bool) -> Result<(Vec<u64>, Vec<u64>)> {
        let manifest = self.manifest();
        let name = &manifest.edge_types[manifest.resolve_edge_type(edge_type)?].name;
        let owner = manifest.node_type(if by_source { &name.src } else { &name.dst })?;
        let (sources, targets) = self.edges(edge_type)?;
        let (owners, neighbors) = if by_source { (sources, targets) } else { (targets, sources) };
        Ok(compress(&owners, &neighbors, manifest.node_types[owner].count)?)
    }

    /// What nodes were called in the input.
    pub(crate) fn original_ids(&self, node_type: Option<&str>, ids: &[u64]) -> Result<Vec<Original>> {
        let place = self.manifest().resolve_node_type(node_type)?;
        match self {
            Self::Remote { dataset, .. } => Ok(dataset.original_ids(node_type, ids)?),
            Self::Embedded { dataset, .. } => {
                let owned = |id: &OriginalId<'_>| match id {
                    OriginalId::Int(id) => Original::Int(*id),
                    OriginalId::String(id) => Original::String((*id).to_owned()),
                };
                Ok(dataset.original_ids(place, ids)?.iter().map(owned).collect())
            }
        }
    }

    /// Nodes by what they were called in the input.
    pub(crate) fn lookup(&self, node_type: Option<&str>, keys: &[Original]) -> Result<Vec<Option<u64>>> {
        let place = self.manifest().resolve_node_type(node_type)?;
        let keys: Vec<OriginalId<'_>> = keys.iter().map(Original::as_id).collect();
        match self {
            Self::Remote { dataset, .. } => Ok(dataset.lookup(node_type, &keys)?),
            Self::Embedded { dataset, .. } => Ok(dataset.lookup(place, &keys)?),
        }
    }

    /// The partitions that own nodes.
    pub(crate) fn partition_ids(&self, node_type: Option<&str>, ids: &[u64]) -> Result<Vec<i64>> {
        let place = self.manifest().resolve_node_type(node_type)?;
        self.check_ids(place, ids)?;
        match self {
            Self::Remote { dataset, .. } => {
                Ok(dataset.node_partition_id(node_type, ids)?.into_iter().map(i64::from).collect())
            }
            Self::Embedded { dataset, .. } => {
                let book = dataset.node_book(place);
                Ok(ids.iter().map(|&id| book.owner(id).map_or(-1, i64::from)).collect())
            }
        }
    }

    /// The partitions that have the features of edges.
    pub(crate) fn edge_partition_ids(&self, edge_type: Option<&EdgeTypeName>, ids: &[u64]) -> Result<Vec<i64>> {
        let place = self.manifest().resolve_edge_type(edge_type)?;
        let info = &self.manifest().edge_types[place];
        if info.book.is_none() {
            let text = format!("edges of `{}` have no features, and so no partition of their own", info.name);
            return Err(Error::Argument(text));
        }
        let owner: Box<dyn Fn(u64) -> Option<u32>> = match self {
            Self::Remote { dataset, .. } => {
                let book = dataset.edge_partition_book(edge_type)?;
                Box::new(move |id| book.partition(id))
            }
            Self::Embedded { dataset, .. } => {
                let book = dataset.edge_book(place);
                Box::new(move |id| book.and_then(|book| book.owner(id)))
            }
        };
        Ok(ids.iter().map(|&id| owner(id).map_or(-1, i64::from)).collect())
    }

    /// A loader, and how many seeds it was given, where they were listed.
    pub(crate) fn loader(&self, config: Config, seeds: Seeds, options: Options) -> Result<Loader> {
        let plan = Plan::remote(config.clone(), self.manifest())?;
        let (first, second) = plan.seed_types();
        match &seeds {
            Seeds::Split(split) => self.check_split(first, *split)?,
            Seeds::Listed(SeedList::Nodes(ids)) => self.check_ids(first, ids)?,
            Seeds::Listed(SeedList::Pairs { src, dst, .. }) => {
                self.check_ids(first, src)?;
                self.check_ids(second.unwrap_or(first), dst)?;
            }
            Seeds::All | Seeds::Edges | Seeds::Listed(SeedList::All(_)) => {}
        }
        match self {
            Self::Remote { remote, .. } => {
                let seeding = match seeds {
                    Seeds::All => Seeding::All,
                    Seeds::Split(split) => Seeding::Split(split),
                    Seeds::Edges => Seeding::Edges,
                    Seeds::Listed(list) => Seeding::Listed(list),
                };
                Ok(Loader::remote(remote, config, seeding, options)?)
            }
            Self::Embedded { dataset, .. } => {
                let list = match seeds {
                    Seeds::All => SeedList::All(dataset.node_types()[first].count),
                    Seeds::Split(split) => SeedList::Nodes(dataset.split_ids(first, split)?),
                    Seeds::Edges => {
                        let name = plan.link_type().map(|place| &dataset.edge_types()[place].name);
                        SeedList::edges(dataset, name)?
                    }
                    Seeds::Listed(list) => list,
                };
                Ok(Loader::new(dataset, config, list, options)?)
            }
        }
    }

    /// Which of some listed seeds make which batch of a loader.
    pub(crate) fn cuts(&self, config: &Config, list: &SeedList, options: &Options) -> Result<SeedCuts> {
        let Options { batch_size, shuffle, drop_last, .. } = *options;
        let cutting = Cutting { batch_size: batch_size as u64, shuffle, drop_last };
        match (options.seed_order, list) {
            (SeedOrder::Partition, SeedList::Nodes(ids) | SeedList::Pairs { src: ids, .. }) => {
                let manifest = self.manifest();
                let place = Plan::remote(config.clone(), manifest)?.seed_types().0;
                let name = (!manifest.homogeneous).then(|| manifest.node_types[place].name.as_str());
                let owners: Vec<u32> = self.partition_ids(name, ids)?.into_iter().map(|owner| owner as u32).collect();
                let lists = PartitionLists::of_owners(&owners, manifest.parts)?;
                Ok(SeedCuts::by_partition(cutting, Arc::new(lists))?)
            }
            _ => Ok(SeedCuts::global(cutting, list.len() as u64)),
        }
    }

    pub(crate) fn check_split(&self, place: usize, split: Split) -> Result<()> {
        let info = &self.manifest().node_types[place];
        if info.splits.get(split).is_some() {
            return Ok(());
        }
        let available = listed(info.splits.iter().map(|(split, _)| split));
        Err(GraphError::Unknown { kind: "split", name: split.to_string(), available }.into())
    }

    pub(crate) fn check_ids(&self, place: usize, ids: &[u64]) -> Result<()> {
        let info = &self.manifest().node_types[place];
        match ids.iter().find(|&&id| id >= info.count) {
            None => Ok(()),
            Some(&id) => {
                let (name, count) = (info.name.clone(), info.count);
                Err(GraphError::OutOfRange { kind: "node", name, id, count }.into())
            }
        }
    }
}

fn gather(view: &View, source: Source, info: &FeatureInfo, ids: &Ids, wanted: &Wanted) -> Result<Rows> {
    let row_bytes = info.row_bytes().unwrap_or(0) as usize;
    // Tried first: a vector of zeros, which the system has ready, ends the process where there is no memory.
    let len = row_bytes.checked_mul(ids.len()).filter(|&len| Vec::<u8>::new().try_reserve_exact(len).is_ok());
    let mut bytes = vec![0; len.ok_or(Error::Memory { rows: ids.len(), row_bytes })?];
    let mut some = Vec::with_capacity(ROWS.min(ids.len()));
    for (start, rows) in (0..ids.len()).step_by(ROWS).zip(bytes.chunks_mut((row_bytes * ROWS).max(1))) {
        wanted.check()?;
        some.clear();
        ids.add_to(&mut some, start..(start + ROWS).min(ids.len()));
        view.gather(Gather { source, half: false, ids: &some }, rows)?;
    }
    let shape = std::iter::once(ids.len() as u64).chain(info.shape.iter().copied()).collect();
    Ok(Rows { dtype: info.dtype, shape, bytes })
}

/// Ids that were named, or all up to a count: nobody lists those who need not.
#[derive(Debug)]
pub(crate) enum Ids {
    Listed(Vec<u64>),
    All(u64),
}

impl Ids {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Listed(ids) => ids.len(),
            Self::All(count) => *count as usize,
        }
    }

    /// Adds those at some places to a list.
    pub(crate) fn add_to(&self, list: &mut Vec<u64>, places: Range<usize>) {
        match self {
            Self::Listed(ids) => list.extend(&ids[places]),
            Self::All(_) => list.extend(places.start as u64..places.end as u64),
        }
    }

    fn list(self) -> Result<Vec<u64>> {
        match self {
            Self::Listed(ids) => Ok(ids),
            Self::All(count) => {
                let mut ids = room("ids", count)?;
                ids.extend(0..count);
                Ok(ids)
            }
        }
    }
}

fn listed(names: impl Iterator<Item = impl ToString>) -> String {
    let names: Vec<String> = names.map(|name| name.to_string()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
