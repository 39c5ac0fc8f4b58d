//! A description turned into named types: what the rest of the ingest works from.

use std::path::Path;

use graphmill_graph::{EdgeRole, EdgeTypeName, check_name};

use super::config::{EdgeConfig, GraphConfig, IdType, NodeConfig, SplitConfig};
use super::{HOMOGENEOUS_NODE, homogeneous_edge};
use crate::{Error, Layout, Result};

/// What to make.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) layout: Layout,
    pub(super) homogeneous: bool,
    pub(super) nodes: Vec<NodePlan>,
    pub(super) edges: Vec<EdgePlan>,
}

/// A node type to make.
#[derive(Debug)]
pub(super) struct NodePlan {
    pub(super) name: String,
    pub(super) config: NodeConfig,
}

/// An edge type to make.
#[derive(Debug)]
pub(super) struct EdgePlan {
    pub(super) name: EdgeTypeName,
    /// Places of its ends in the plan's node types.
    pub(super) src: usize,
    pub(super) dst: usize,
    pub(super) config: EdgeConfig,
}

impl Plan {
    /// Names every type and checks that the description makes sense.
    pub(super) fn new(path: &Path, config: GraphConfig) -> Result<Self> {
        let GraphConfig { layout, nodes, edges, .. } = config;
        let fail = |reason: String| Error::Config { path: path.to_owned(), reason };
        let named = nodes.iter().any(|node| node.name.is_some()) || edges.iter().any(|edge| edge.name.is_some());
        if nodes.is_empty() && edges.is_empty() {
            return Err(fail("it describes no graph: add [[nodes]] and [[edges]], or [ogb]".to_owned()));
        }
        if !named && (nodes.len() > 1 || edges.len() > 1) {
            return Err(fail("several node or edge types need names: give each its `type`".to_owned()));
        }
        let mut plan = Self { layout, homogeneous: !named, nodes: Vec::new(), edges: Vec::new() };
        for config in nodes {
            let name = match (&config.name, named) {
                (Some(name), _) => name.clone(),
                (None, false) => HOMOGENEOUS_NODE.to_owned(),
                (None, true) => return Err(fail("a node type has no `type` while others have one".to_owned())),
            };
            check_node(&name, &config).map_err(|reason| fail(format!("node type `{name}`: {reason}")))?;
            if plan.nodes.iter().any(|node| node.name == name) {
                return Err(fail(format!("node type `{name}` stands twice; list all its files in one table")));
            }
            plan.nodes.push(NodePlan { name, config });
        }
        if !named && plan.nodes.is_empty() {
            plan.node_type(HOMOGENEOUS_NODE);
        }
        for config in edges {
            let name = match (&config.name, named) {
                (Some(name), _) => name.resolve()?,
                (None, false) => homogeneous_edge(),
                (None, true) => return Err(fail("an edge type has no `type` while others have one".to_owned())),
            };
            check_edge(&name, &config).map_err(|reason| fail(format!("edge type `{name}`: {reason}")))?;
            if plan.edges.iter().any(|edge| edge.name == name) {
                return Err(fail(format!("edge type `{name}` stands twice; list all its files in one table")));
            }
            let (src, dst) = (plan.node_type(&name.src), plan.node_type(&name.dst));
            plan.edges.push(EdgePlan { name, src, dst, config });
        }
        plan.mark_label_edges().map_err(fail)?;
        Ok(plan)
    }

    /// The place of a node type; one that only edges name has dense ids and nothing else.
    fn node_type(&mut self, name: &str) -> usize {
        self.nodes.iter().position(|node| node.name == name).unwrap_or_else(|| {
            self.nodes.push(NodePlan { name: name.to_owned(), config: NodeConfig::default() });
            self.nodes.len() - 1
        })
    }

    /// Edge types that anchors are split by are supervision: samplers must not walk them.
    fn mark_label_edges(&mut self) -> std::result::Result<(), String> {
        for node in &self.nodes {
            let Some(SplitConfig::Anchor { edges, .. }) = &node.config.splits else { continue };
            let name = edges.resolve().map_err(|error| error.to_string())?;
            let Some(edge) = self.edges.iter_mut().find(|edge| edge.name == name) else {
                return Err(format!("node type `{}`: its anchors come from `{name}`, which is not there", node.name));
            };
            if name.src != node.name {
                return Err(format!(
                    "node type `{}`: anchors are sources, but those of `{name}` are `{}`",
                    node.name, name.src
                ));
            }
            edge.config.role = EdgeRole::Label;
        }
        Ok(())
    }
}

fn check_node(name: &str, config: &NodeConfig) -> std::result::Result<(), String> {
    check_name(name).map_err(|error| error.to_string())?;
    config.features.keys().try_for_each(|name| check_name(name)).map_err(|error| error.to_string())?;
    if config.id_type == IdType::Dense && config.ids.is_some() {
        return Err("dense ids need no `ids`; say id_type = \"int\" or \"string\"".to_owned());
    }
    if config.count.is_some_and(|count| count > 1 << 40) {
        return Err("`count` is at most 2^40".to_owned());
    }
    if config.id_type != IdType::Dense && config.count.is_some() {
        return Err("`count` goes with dense ids; other ids are counted".to_owned());
    }
    let tensors = config.features.values().chain(config.labels.as_ref().map(|label| &label.tensor));
    for tensor in tensors.chain(&config.weights).chain(&config.timestamps) {
        if tensor.files.is_none() {
            return Err("a feature, label, weight or timestamp needs `files`".to_owned());
        }
        if config.id_type != IdType::Dense && config.ids.is_none() && tensor.key.is_none() {
            return Err("without `ids`, a feature, label, weight or timestamp needs a `key` column".to_owned());
        }
    }
    Ok(())
}

fn check_edge(name: &EdgeTypeName, config: &EdgeConfig) -> std::result::Result<(), String> {
    for part in [&name.src, &name.relation, &name.dst] {
        check_name(part).map_err(|error| error.to_string())?;
    }
    config.features.keys().try_for_each(|name| check_name(name)).map_err(|error| error.to_string())?;
    if config.files.list().is_empty() {
        return Err("it has no files".to_owned());
    }
    if config.undirected && name.src != name.dst {
        return Err(
            "undirected needs the same type at both ends; list the files again under a reversed type".to_owned()
        );
    }
    if config.edge_ids == Some(false) && (config.weight.is_some() || !config.features.is_empty()) {
        return Err("weights and features need edge ids; leave `edge_ids` out".to_owned());
    }
    for (feature, tensor) in &config.features {
        if tensor.key.is_some() {
            return Err(format!("feature `{feature}`: rows of edge features are in the order of edges, without `key`"));
        }
        if tensor.files.is_none() && tensor.columns.is_empty() {
            return Err(format!("feature `{feature}`: name its `columns` or its `files`"));
        }
    }
    Ok(())
}
