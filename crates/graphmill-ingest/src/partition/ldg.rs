//! Linear deterministic greedy assignment, restreamed.
//!
//! Nodes are met in order of id; each goes to the partition that has most of its neighbours, discounted by how full that
//! partition is (Stanton and Kliot 2012). Later passes see where the previous one put the neighbours that were not met
//! yet (Nishimura and Ugander 2013), which is where most of the quality comes from.
//!
//! A node's weight is 1 plus its degree over the mean degree: half of a partition's size is nodes (features, memory), half
//! is edges (work), so that a partition of hubs does not get all the work.

use graphmill_graph::{BookBuilder, Dataset, Direction, EdgeRole};

use crate::{Job, Result, Unit};

const PASSES: usize = 6;
/// A partition may be this much heavier than the mean.
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
            let mean_degree = (edges as f64 / info.count as f64).max(f64::MIN_POSITIVE);
            let nodes_and_edges = if edges == 0 { 1.0 } else { 2.0 };
            let capacity = nodes_and_edges * info.count as f64 / f64::from(parts) * SLACK + 1.0;
            let mut sizes = vec![0.0; parts as usize];
            for node in 0..info.count {
                met.fill(0);
                let mut degree = 0;
                for walk in &walks[place] {
                    degree += walk.count_owners(source, node, &owners[walk.neighbor], &mut met)?;
                }
                let chosen = choose(&met, &sizes, capacity);
                sizes[chosen] += 1.0 + degree as f64 / mean_degree;
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

/// The partition with the best score; the emptiest, then the first, among equals.
fn choose(met: &[u32], sizes: &[f64], capacity: f64) -> usize {
    let score = |part: usize| f64::from(met[part]) * (1.0 - sizes[part] / capacity).max(0.0);
    let better =
        |&a: &usize, &b: &usize| score(a).total_cmp(&score(b)).then(sizes[b].total_cmp(&sizes[a])).then(b.cmp(&a));
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
