//! Linear deterministic greedy assignment, restreamed.
//!
//! Nodes are met in order of id; each goes to the partition that has most of its neighbours, discounted by how full that
//! partition is (Stanton and Kliot 2012). Later passes see where the previous one put the neighbours that were not met
//! yet (Nishimura and Ugander 2013), which is where most of the quality comes from.
//!
//! How full a partition is counts twice, in nodes (features, memory) and in edges (work), and the fuller of the two
//! decides: with nodes alone, the partition of the hubs would get nearly all the work of a power-law graph.

use graphmill_graph::{BookBuilder, Dataset, Direction, EdgeRole};

use crate::{Job, Result, Unit};

const PASSES: usize = 6;
/// A partition may hold this much more than the mean.
const SLACK: f64 = 1.05;
const UNASSIGNED: u16 = u16::MAX;

pub(super) fn assign(source: &Dataset, parts: u32, job: &Job<'_>) -> Result<Vec<BookBuilder>> {
    let types = source.node_types();
    let mut owners: Vec<Vec<u16>> = types.iter().map(|info| vec![UNASSIGNED; info.count as usize]).collect();
    let walks = walks(source)?;
    let nodes: u64 = types.iter().map(|info| info.count).sum();
    let stage = job.stage("placing nodes", Unit::Nodes, Some(nodes * PASSES as u64));
    let mut met = vec![0u32; parts as usize];
    for _ in 0..PASSES {
        for (place, info) in types.iter().enumerate() {
            let edges: u64 = walks[place].iter().map(|walk| source.edge_types()[walk.edge_type].count).sum();
            let mut sizes = vec![Size::default(); parts as usize];
            let capacity = Size { nodes: info.count, edges }.share(parts);
            for node in 0..info.count {
                met.fill(0);
                let mut degree = 0;
                for walk in &walks[place] {
                    degree += walk.count_owners(source, node, &owners[walk.neighbor], &mut met)?;
                }
                let chosen = choose(&met, &sizes, capacity);
                sizes[chosen].nodes += 1;
                sizes[chosen].edges += degree as u64;
                owners[place][node as usize] = chosen as u16;
                if node % 4096 == 4095 {
                    stage.advance(4096)?;
                }
            }
            stage.advance(info.count % 4096)?;
        }
    }
    Ok(owners.into_iter().map(|owner| BookBuilder::Assigned { owner, parts }).collect())
}

/// How much a partition holds of a node type.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    nodes: u64,
    edges: u64,
}

impl Size {
    /// What one of `parts` may hold.
    fn share(self, parts: u32) -> Self {
        let share = |count: u64| (count as f64 / f64::from(parts) * SLACK).ceil() as u64;
        Self { nodes: share(self.nodes).max(1), edges: share(self.edges).max(1) }
    }

    /// The larger of nodes and edges over what may be held: 1 is full.
    fn fullness(self, capacity: Self) -> f64 {
        let share = |count: u64, capacity: u64| count as f64 / capacity as f64;
        share(self.nodes, capacity.nodes).max(share(self.edges, capacity.edges))
    }
}

/// The partition with the best score; the emptiest, then the first, among equals.
fn choose(met: &[u32], sizes: &[Size], capacity: Size) -> usize {
    let fullness = |part: usize| sizes[part].fullness(capacity);
    let score = |part: usize| f64::from(met[part]) * (1.0 - fullness(part)).max(0.0);
    let better = |&a: &usize, &b: &usize| {
        score(a).total_cmp(&score(b)).then(fullness(b).total_cmp(&fullness(a))).then(b.cmp(&a))
    };
    (0..sizes.len()).max_by(better).unwrap_or(0)
}

/// A way from a node type along stored lists.
struct Walk {
    edge_type: usize,
    direction: Direction,
    owner: usize,
    neighbor: usize,
}

/// The ways from each node type. Label edges say nothing of where samplers go.
fn walks(source: &Dataset) -> Result<Vec<Vec<Walk>>> {
    let mut walks: Vec<Vec<Walk>> = source.node_types().iter().map(|_| Vec::new()).collect();
    for (edge_type, info) in source.edge_types().iter().enumerate() {
        if info.role == EdgeRole::Label {
            continue;
        }
        for &direction in &info.layouts {
            let owner = source.manifest().node_type(info.name.list_owner(direction))?;
            let neighbor = source.manifest().node_type(info.name.neighbor(direction))?;
            walks[owner].push(Walk { edge_type, direction, owner, neighbor });
        }
    }
    Ok(walks)
}

impl Walk {
    /// Counts the partitions of a node's neighbours; returns how many neighbours there are.
    fn count_owners(&self, source: &Dataset, node: u64, owners: &[u16], met: &mut [u32]) -> Result<usize> {
        let location = source.locate_node(self.owner, node)?;
        let Some(lists) = source.partition(location.partition)?.edges(self.edge_type).lists(self.direction) else {
            return Ok(0);
        };
        let Some(neighbors) = lists.neighbors().as_slice().slice(lists.list(location.row)?) else { return Ok(0) };
        for neighbor in neighbors.iter() {
            let owner = owners.get(neighbor as usize).copied().unwrap_or(UNASSIGNED);
            if let Some(count) = met.get_mut(owner as usize) {
                *count += 1;
            }
        }
        Ok(neighbors.len())
    }
}
