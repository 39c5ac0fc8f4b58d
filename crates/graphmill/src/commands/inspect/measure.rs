//! What only the arrays can tell: degrees, isolated nodes, the size of each partition.

use graphmill_graph::{Adjacency, Dataset, Direction, EdgeRole, NodeStore};

use super::degrees::Histogram;
use super::report::Report;

/// Reads all offsets, and neighbours where nothing else tells which nodes have edges.
pub(super) fn measure(dataset: &Dataset, report: &mut Report) -> anyhow::Result<()> {
    let mut connected: Vec<NodeSet> = dataset.node_types().iter().map(|info| NodeSet::new(info.count)).collect();
    for edge_type in 0..dataset.edge_types().len() {
        measure_edges(dataset, edge_type, report, &mut connected)?;
    }
    for (node_type, connected) in report.node_types.iter_mut().zip(&connected) {
        node_type.isolated = Some(node_type.count - connected.len());
    }
    report.isolated_nodes = report.node_types.iter().map(|node_type| node_type.isolated).sum();
    for partition in &mut report.partitions {
        let edges = dataset.partition(partition.partition)?;
        let primary = |(place, info): (usize, &graphmill_graph::EdgeTypeInfo)| {
            edges.edges(place).lists(info.primary()).map_or(0, |lists| lists.edges() as u64)
        };
        partition.num_edges = Some(dataset.edge_types().iter().enumerate().map(primary).sum());
        partition.bytes = Some(dataset.manifest().partition_bytes(partition.partition));
    }
    Ok(())
}

fn measure_edges(
    dataset: &Dataset,
    edge_type: usize,
    report: &mut Report,
    connected: &mut [NodeSet],
) -> anyhow::Result<()> {
    let info = &dataset.edge_types()[edge_type];
    for &direction in &info.layouts {
        let owner = dataset.manifest().node_type(info.name.list_owner(direction))?;
        let neighbor = dataset.manifest().node_type(info.name.neighbor(direction))?;
        let mut histogram = Histogram::new();
        for (_, partition) in dataset.partitions() {
            let Some(lists) = partition.edges(edge_type).lists(direction) else { continue };
            let nodes = partition.nodes(owner);
            // Samplers never walk label edges: they connect nothing.
            let owners = (info.role == EdgeRole::Message).then_some(&mut connected[owner]);
            count_degrees(lists, nodes, &mut histogram, owners)?;
            if info.role == EdgeRole::Message && !info.layouts.contains(&opposite(direction)) {
                lists.neighbors().as_slice().iter().try_for_each(|id| connected[neighbor].insert(id))?;
            }
        }
        report.edge_types[edge_type].degrees.insert(direction, histogram.degrees());
    }
    Ok(())
}

fn count_degrees(
    lists: &Adjacency,
    nodes: &NodeStore,
    histogram: &mut Histogram,
    mut owners: Option<&mut NodeSet>,
) -> anyhow::Result<()> {
    for row in 0..lists.rows() {
        let degree = lists.list(row)?.len() as u64;
        histogram.add(degree);
        if let (Some(owners), true) = (&mut owners, degree > 0) {
            owners.insert(nodes.id(row).unwrap_or(u64::MAX))?;
        }
    }
    Ok(())
}

fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::In => Direction::Out,
        Direction::Out => Direction::In,
    }
}

/// A set of the nodes of one type, a bit each.
struct NodeSet {
    words: Vec<u64>,
    count: u64,
}

impl NodeSet {
    fn new(count: u64) -> Self {
        Self { words: vec![0; count.div_ceil(64) as usize], count }
    }

    fn insert(&mut self, id: u64) -> anyhow::Result<()> {
        anyhow::ensure!(
            id < self.count,
            "the neighbour lists name node {id} of {}; see all damage with `graphmill inspect --verify`",
            self.count
        );
        self.words[(id / 64) as usize] |= 1 << (id % 64);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}
