//! A configuration that was checked against a dataset: names became places, fanouts became rules. A machine follows a
//! plan and asks no further.

use graphmill_graph::{
    Array, DType, Dataset, Direction, EdgeRole, EdgeTypeInfo, EdgeTypeName, FeatureInfo, Fingerprint, LabelKind,
    Manifest, NodeTypeInfo,
};

use crate::config::{Budget, Config, Expand, Fanouts, Hops, Negatives, Supervision, Task};
use crate::exchange::Take;
use crate::law;
use crate::{Error, Result};

/// What a sampler does with a dataset.
#[derive(Debug, Clone)]
pub struct Plan {
    config: Config,
    fingerprint: Fingerprint,
    homogeneous: bool,
    pub(crate) nodes: Vec<NodePlan>,
    pub(crate) walks: Vec<Walk>,
    pub(crate) hops: usize,
    pub(crate) task: TaskPlan,
}

/// A node type: what a batch says of its nodes.
#[derive(Debug, Clone)]
pub(crate) struct NodePlan {
    pub(crate) name: String,
    pub(crate) count: u64,
    pub(crate) features: Vec<TensorPlan>,
    pub(crate) label: Option<TensorPlan>,
    /// The most nodes kept per seed by `PageRank`.
    pub(crate) budget: usize,
}

/// Rows to be gathered: a feature by its place in its type, or a label.
#[derive(Debug, Clone)]
pub(crate) struct TensorPlan {
    pub(crate) name: String,
    pub(crate) place: usize,
    /// Its elements in a batch.
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
    /// Whether they are stored as `f32` and become `f16`.
    pub(crate) half: bool,
}

/// An edge type that is walked.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    pub(crate) name: EdgeTypeName,
    /// Its place in the dataset.
    pub(crate) edge_type: usize,
    pub(crate) direction: Direction,
    /// The node type whose lists are read.
    pub(crate) from: usize,
    /// The node type of the neighbours.
    pub(crate) to: usize,
    pub(crate) word: u64,
    /// What to take in each hop.
    pub(crate) takes: Vec<Take>,
    /// Whether edge ids are asked for, to be shown or to find features by.
    pub(crate) edge_ids: bool,
    pub(crate) features: Vec<TensorPlan>,
}

/// Where seeds come from.
#[derive(Debug, Clone)]
pub(crate) enum TaskPlan {
    Nodes { node_type: usize },
    Links(LinkPlan),
    Anchors { node_type: usize, labels: Vec<LabelPlan>, take: Take },
}

/// Seed pairs and their negatives.
#[derive(Debug, Clone)]
pub(crate) struct LinkPlan {
    pub(crate) edge_type: usize,
    pub(crate) src: usize,
    pub(crate) dst: usize,
    pub(crate) word: u64,
    pub(crate) negatives: Option<Negatives>,
    /// The running sums of the weights to draw sources and targets by; none for uniform draws.
    pub(crate) sums: Option<[Array<u64>; 2]>,
    /// The edge types that strict negatives are checked against, each with a stored direction.
    pub(crate) refuse: Vec<(usize, Direction)>,
}

/// A label edge type that anchors are looked up in.
#[derive(Debug, Clone)]
pub(crate) struct LabelPlan {
    pub(crate) edge_type: usize,
    pub(crate) to: usize,
}

impl Plan {
    /// Checks a configuration against a dataset.
    pub fn new(config: Config, dataset: &Dataset) -> Result<Self> {
        Self::planned(config, dataset.manifest(), Some(dataset))
    }

    /// Checks a configuration against the description of a dataset that is elsewhere. Such a plan explains batches; to
    /// sample, a machine needs one that was made beside the dataset.
    pub fn remote(config: Config, manifest: &Manifest) -> Result<Self> {
        Self::planned(config, manifest, None)
    }

    fn planned(config: Config, manifest: &Manifest, dataset: Option<&Dataset>) -> Result<Self> {
        Planner { dataset, manifest, config: &config }.plan().map(|(nodes, walks, hops, task)| Self {
            fingerprint: manifest.fingerprint,
            homogeneous: manifest.homogeneous,
            nodes,
            walks,
            hops,
            task,
            config,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The graph that it was made for.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Whether the graph's types go without names.
    pub fn homogeneous(&self) -> bool {
        self.homogeneous
    }

    /// A word that names everything a batch depends on beside seeds and numbers: law version and configuration.
    pub fn config_word(&self) -> u64 {
        let text = serde_json::to_string(&self.config).expect("a configuration is plain data");
        xxhash_rust::xxh3::xxh3_64_with_seed(text.as_bytes(), law::VERSION)
    }

    /// The node type of the seeds, or the types of both ends of seed pairs, by their places.
    pub fn seed_types(&self) -> (usize, Option<usize>) {
        match &self.task {
            TaskPlan::Nodes { node_type } | TaskPlan::Anchors { node_type, .. } => (*node_type, None),
            TaskPlan::Links(links) => (links.src, Some(links.dst)),
        }
    }

    /// The edge type of seed pairs, by its place; nothing if seeds are nodes.
    pub fn link_type(&self) -> Option<usize> {
        match &self.task {
            TaskPlan::Links(links) => Some(links.edge_type),
            TaskPlan::Nodes { .. } | TaskPlan::Anchors { .. } => None,
        }
    }

    /// The names of the node types.
    pub fn node_types(&self) -> impl ExactSizeIterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// The names of the edge types that are walked.
    pub fn walked(&self) -> impl ExactSizeIterator<Item = &EdgeTypeName> {
        self.walks.iter().map(|walk| &walk.name)
    }

    /// The names of a node type's features in a batch, in the order of their places.
    pub fn features(&self, node_type: usize) -> impl ExactSizeIterator<Item = &str> {
        self.nodes[node_type].features.iter().map(|feature| feature.name.as_str())
    }

    /// The names of a walked type's features in a batch, in the order of their places.
    pub fn edge_features(&self, walk: usize) -> impl ExactSizeIterator<Item = &str> {
        self.walks[walk].features.iter().map(|feature| feature.name.as_str())
    }

    /// Fails with the first id that is not of its type.
    pub(crate) fn check_ids(&self, node_type: usize, ids: &[u64]) -> Result<()> {
        let node = &self.nodes[node_type];
        match ids.iter().find(|&&id| id >= node.count) {
            Some(&id) => {
                Err(graphmill_graph::Error::OutOfRange { kind: "node", name: node.name.clone(), id, count: node.count }
                    .into())
            }
            None => Ok(()),
        }
    }
}

struct Planner<'a> {
    /// None if it is elsewhere.
    dataset: Option<&'a Dataset>,
    manifest: &'a Manifest,
    config: &'a Config,
}

type Planned = (Vec<NodePlan>, Vec<Walk>, usize, TaskPlan);

impl Planner<'_> {
    fn plan(&self) -> Result<Planned> {
        if !(1..=u64::from(u32::MAX) - 1).contains(&self.config.max_edges) {
            return Err(Error::config(format!("max_edges is {}, expected 1 to 2^32 - 2", self.config.max_edges)));
        }
        if let Some(dtype) = self.config.feature_dtype.filter(|dtype| *dtype != DType::F16) {
            return Err(Error::config(format!("feature_dtype is {dtype}, expected f16, or none for what is stored")));
        }
        self.check_names()?;
        let hops = self.hops()?;
        let nodes = self.manifest.node_types.iter().map(|info| self.node(info)).collect::<Result<_>>()?;
        Ok((nodes, self.walks(hops)?, hops, self.task()?))
    }

    /// Each feature asked for must be somewhere.
    fn check_names(&self) -> Result<()> {
        let known = |features: &[FeatureInfo], name: &String| features.iter().any(|feature| feature.name == *name);
        for (place, name) in self.config.features.iter().enumerate() {
            if !self.manifest.node_types.iter().any(|info| known(&info.features, name)) {
                return Err(Error::config(format!("no node type has a feature `{name}`")));
            }
            if self.config.features[..place].contains(name) {
                return Err(Error::config(format!("feature `{name}` is asked for twice")));
            }
        }
        for (place, name) in self.config.edge_features.iter().enumerate() {
            if !self.manifest.edge_types.iter().any(|info| known(&info.features, name)) {
                return Err(Error::config(format!("no edge type has a feature `{name}`")));
            }
            if self.config.edge_features[..place].contains(name) {
                return Err(Error::config(format!("edge feature `{name}` is asked for twice")));
            }
        }
        if self.config.labels && self.manifest.node_types.iter().all(|info| info.label.is_none()) {
            return Err(Error::config("no node type has labels"));
        }
        Ok(())
    }

    fn node(&self, info: &NodeTypeInfo) -> Result<NodePlan> {
        let label = info.label.as_ref().filter(|_| self.config.labels).map(|label| TensorPlan {
            name: "label".to_owned(),
            place: 0,
            dtype: label.dtype,
            shape: match label.kind {
                LabelKind::Single => Vec::new(),
                LabelKind::Multi => vec![label.width],
            },
            half: false,
        });
        let features = self.tensors(&info.features, &self.config.features);
        Ok(NodePlan { name: info.name.clone(), count: info.count, features, label, budget: self.budget(info)? })
    }

    fn budget(&self, info: &NodeTypeInfo) -> Result<usize> {
        let Expand::Ppr(ppr) = &self.config.expand else { return Ok(0) };
        match &ppr.max_nodes {
            Budget::Each(most) => Ok(*most as usize),
            Budget::PerType(budgets) => {
                for name in budgets.keys() {
                    self.manifest.node_type(name)?;
                }
                Ok(budgets.get(&info.name).copied().unwrap_or(0) as usize)
            }
        }
    }

    /// The number of hops, the same for all edge types.
    fn hops(&self) -> Result<usize> {
        match &self.config.expand {
            Expand::Ppr(ppr) => {
                // Smaller numbers would push almost for ever.
                if !(ppr.alpha >= 1e-3 && ppr.alpha < 1.0) {
                    return Err(Error::config(format!("alpha is {}, expected 0.001 or more and below 1", ppr.alpha)));
                }
                if !(ppr.eps >= 1e-12 && ppr.eps.is_finite()) {
                    return Err(Error::config(format!("eps is {}, expected 1e-12 or more", ppr.eps)));
                }
                if ppr.neighbors_per_hop == 0 {
                    return Err(Error::config("neighbors_per_hop is 0, expected at least 1"));
                }
                Ok(1)
            }
            Expand::Neighbors(hops) | Expand::Induced(hops) => match &hops.fanouts {
                Fanouts::Same(fanouts) => Ok(fanouts.len()),
                Fanouts::PerType(types) => {
                    let length = types.first().map_or(0, |one| one.fanouts.len());
                    for (place, one) in types.iter().enumerate() {
                        self.walkable(&one.edge_type)?;
                        if one.fanouts.len() != length {
                            return Err(Error::config(format!(
                                "fanouts have {length} hops for {} and {} for {}; give all edge types the same number",
                                types[0].edge_type,
                                one.fanouts.len(),
                                one.edge_type,
                            )));
                        }
                        if types[..place].iter().any(|other| other.edge_type == one.edge_type) {
                            return Err(Error::config(format!("fanouts for {} are given twice", one.edge_type)));
                        }
                    }
                    Ok(length)
                }
            },
        }
    }

    fn walks(&self, hops: usize) -> Result<Vec<Walk>> {
        for name in self.config.walk.iter().flatten() {
            self.walkable(name)?;
        }
        let mut walks = Vec::new();
        for (edge_type, info) in self.manifest.edge_types.iter().enumerate() {
            let listed = self.config.walk.as_ref().is_none_or(|walk| walk.contains(&info.name));
            if info.role == EdgeRole::Message && listed {
                walks.extend(self.walk(edge_type, info, hops)?);
            }
        }
        Ok(walks)
    }

    fn walk(&self, edge_type: usize, info: &EdgeTypeInfo, hops: usize) -> Result<Option<Walk>> {
        let Some(takes) = self.takes(info)? else { return Ok(None) };
        let direction = self.config.direction.unwrap_or(self.manifest.edge_dir);
        // Without hops no list is read, so none is missed.
        let reads = hops > 0 || !matches!(self.config.expand, Expand::Neighbors(_));
        if reads && !info.layouts.contains(&direction) {
            return Err(Error::config(format!(
                "{} has no `{direction}` lists; walk the other direction, or ingest it with layout \"both\"",
                info.name
            )));
        }
        let edge_ids = self.config.edge_ids;
        if edge_ids && !info.edge_ids {
            return Err(Error::config(format!(
                "{} has no edge ids; ingest it with edge_ids = true, or leave edge ids out",
                info.name
            )));
        }
        let features = self.tensors(&info.features, &self.config.edge_features);
        Ok(Some(Walk {
            name: info.name.clone(),
            edge_type,
            direction,
            from: self.manifest.node_type(info.name.list_owner(direction))?,
            to: self.manifest.node_type(info.name.neighbor(direction))?,
            word: law::name_word(&info.name),
            takes,
            edge_ids: edge_ids || !features.is_empty(),
            features,
        }))
    }

    /// The features that have a name of the list, in the list's order.
    fn tensors(&self, features: &[FeatureInfo], names: &[String]) -> Vec<TensorPlan> {
        let find = |name: &String| features.iter().position(|feature| feature.name == *name);
        let plan = |place: usize| {
            let FeatureInfo { name, dtype, shape } = &features[place];
            let half = *dtype == DType::F32 && self.config.feature_dtype == Some(DType::F16);
            let dtype = if half { DType::F16 } else { *dtype };
            TensorPlan { name: name.clone(), place, dtype, shape: shape.clone(), half }
        };
        names.iter().filter_map(find).map(plan).collect()
    }

    /// What to take of an edge type's lists in each hop; nothing if it is not walked.
    fn takes(&self, info: &EdgeTypeInfo) -> Result<Option<Vec<Take>>> {
        let (Expand::Neighbors(hops) | Expand::Induced(hops)) = &self.config.expand else {
            let Expand::Ppr(ppr) = &self.config.expand else { unreachable!("there are three ways to expand") };
            return Ok(Some(vec![Take::Uniform(ppr.neighbors_per_hop)]));
        };
        let fanouts = match &hops.fanouts {
            Fanouts::Same(fanouts) => fanouts,
            Fanouts::PerType(types) => match types.iter().find(|one| one.edge_type == info.name) {
                Some(one) => &one.fanouts,
                None => return Ok(None),
            },
        };
        fanouts.iter().map(|&fanout| take(fanout, hops, info)).collect::<Result<_>>().map(Some)
    }

    fn task(&self) -> Result<TaskPlan> {
        match &self.config.task {
            Task::Nodes { node_type } => Ok(TaskPlan::Nodes { node_type: self.node_type(node_type.as_deref())? }),
            Task::Links { edge_type, negatives } => self.links(edge_type.as_ref(), negatives.as_ref()),
            Task::Anchors { supervision, max_labels } => self.anchors(supervision, *max_labels),
        }
    }

    fn links(&self, edge_type: Option<&EdgeTypeName>, negatives: Option<&Negatives>) -> Result<TaskPlan> {
        let place = match (edge_type, self.manifest.homogeneous) {
            (Some(name), _) => self.edge_type(name)?,
            (None, true) if !self.manifest.edge_types.is_empty() => 0,
            (None, _) => return Err(Error::config("links need the edge type of their pairs")),
        };
        let info = &self.manifest.edge_types[place];
        let (src, dst) = (self.manifest.node_type(&info.name.src)?, self.manifest.node_type(&info.name.dst)?);
        let (mut strict, mut weighted, mut sources) = (false, false, false);
        match negatives {
            Some(Negatives::Binary { amount, strict: check, weighted: by_weight }) => {
                if !(*amount >= 0.0 && *amount <= 1e6) {
                    return Err(Error::config(format!("{amount} negatives per pair, expected 0 to 1,000,000")));
                }
                (strict, weighted, sources) = (*check, *by_weight, true);
            }
            Some(Negatives::Triplet { amount, strict: check, weighted: by_weight }) => {
                if !(1..=1_000_000).contains(amount) {
                    return Err(Error::config(format!("{amount} negatives per pair, expected 1 to 1,000,000")));
                }
                (strict, weighted) = (*check, *by_weight);
            }
            None => {}
        }
        let sums = if weighted {
            let both = (self.sums(if sources { src } else { dst })?, self.sums(dst)?);
            both.0.zip(both.1).map(|(src, dst)| [src, dst])
        } else {
            None
        };
        let between = |other: &EdgeTypeInfo| {
            other.name == info.name
                || (other.role == EdgeRole::Label && other.name.src == info.name.src && other.name.dst == info.name.dst)
        };
        let refuse = self.manifest.edge_types.iter().enumerate().filter(|(_, other)| strict && between(other));
        let refuse = refuse.filter_map(|(place, other)| other.layouts.first().map(|&layout| (place, layout)));
        Ok(TaskPlan::Links(LinkPlan {
            edge_type: place,
            src,
            dst,
            word: law::name_word(&info.name),
            negatives: negatives.cloned(),
            sums,
            refuse: refuse.collect(),
        }))
    }

    /// The running sums of a node type's weights; nothing for a dataset that is elsewhere.
    fn sums(&self, node_type: usize) -> Result<Option<Array<u64>>> {
        let info = &self.manifest.node_types[node_type];
        if !info.weights {
            let name = &info.name;
            return Err(Error::config(format!(
                "node type `{name}` has no weights to draw negatives by; ingest it with weights"
            )));
        }
        Ok(self.dataset.and_then(|dataset| dataset.node_cumulative(node_type)).cloned())
    }

    fn anchors(&self, supervision: &[Supervision], max_labels: Option<u32>) -> Result<TaskPlan> {
        let Some(first) = supervision.first() else {
            return Err(Error::config("anchors need at least one supervision edge type"));
        };
        let mut labels = Vec::new();
        for one in supervision {
            for name in std::iter::once(&one.positive).chain(&one.negative) {
                let edge_type = self.edge_type(name)?;
                if self.manifest.edge_types[edge_type].role != EdgeRole::Label {
                    return Err(Error::config(format!(
                        "{name} has message edges; supervision comes from edge types of role \"label\""
                    )));
                }
                if name.src != first.positive.src {
                    return Err(Error::config(format!(
                        "supervision edge types begin at `{}` and at `{}`; anchors have one type",
                        first.positive.src, name.src
                    )));
                }
                let to = self.manifest.node_type(&name.dst)?;
                labels.push(LabelPlan { edge_type, to });
            }
        }
        let node_type = self.manifest.node_type(&first.positive.src)?;
        Ok(TaskPlan::Anchors { node_type, labels, take: max_labels.map_or(Take::All, Take::First) })
    }

    /// Fails unless an edge type may be walked.
    fn walkable(&self, name: &EdgeTypeName) -> Result<()> {
        match self.manifest.edge_types[self.edge_type(name)?].role {
            EdgeRole::Message => Ok(()),
            EdgeRole::Label => Err(Error::config(format!("{name} has label edges, which are never walked"))),
        }
    }

    fn edge_type(&self, name: &EdgeTypeName) -> Result<usize> {
        Ok(self.manifest.edge_type(name)?)
    }

    fn node_type(&self, name: Option<&str>) -> Result<usize> {
        match name {
            Some(name) => Ok(self.manifest.node_type(name)?),
            None if self.manifest.homogeneous => Ok(0),
            None => {
                let names: Vec<_> = self.manifest.node_types.iter().map(|info| info.name.as_str()).collect();
                Err(Error::config(format!("seeds need a node type; there are: {}", names.join(", "))))
            }
        }
    }
}

fn take(fanout: i64, hops: &Hops, info: &EdgeTypeInfo) -> Result<Take> {
    let weighted = hops.weighted && info.weights;
    Ok(match (fanout, u32::try_from(fanout)) {
        (0, _) => Take::Nothing,
        (-1, _) if weighted => Take::Positive,
        (-1, _) => Take::All,
        (_, Ok(fanout)) => match (weighted, hops.replace) {
            (false, false) => Take::Uniform(fanout),
            (false, true) => Take::UniformReplace(fanout),
            (true, false) => Take::Weighted(fanout),
            (true, true) => Take::WeightedReplace(fanout),
        },
        _ => return Err(Error::config(format!("a fanout is {fanout}, expected -1 for all, 0 or more"))),
    })
}
