//! What the edges of a type say of nodes: how many there are, and which labels anchors have.

use graphmill_client::{AnchorLabels, Padded, Shard};
use graphmill_graph::{Dataset, Direction, EdgeTypeName, Split};
use graphmill_sample::room;

use crate::errors::{Error, Result};
use crate::store::{Ids, Store};
use crate::wait::Wanted;

/// Lists that are read before somebody looks whether they are still wanted.
const LISTS: usize = 1 << 16;

/// Whose labels, along which edge types: outward, from anchors to labels.
#[derive(Debug)]
pub(crate) struct Supervision {
    pub(crate) split: Option<Split>,
    pub(crate) positive: Option<EdgeTypeName>,
    pub(crate) negative: Option<EdgeTypeName>,
    pub(crate) max_labels: Option<u32>,
}

impl Store {
    /// How many edges of a type begin (`out`) or end (`in`) at nodes, or at all of them.
    pub(crate) fn degrees(
        &self,
        edge_type: Option<&EdgeTypeName>,
        direction: Direction,
        ids: Option<Vec<u64>>,
        wanted: &Wanted,
    ) -> Result<Vec<u64>> {
        let manifest = self.manifest();
        let place = manifest.resolve_edge_type(edge_type)?;
        let info = &manifest.edge_types[place];
        let owner = manifest.node_type(info.name.list_owner(direction))?;
        if let Some(ids) = &ids {
            self.check_ids(owner, ids)?;
        }
        let dataset = match self {
            Self::Remote { dataset, .. } => return Ok(dataset.degrees(edge_type, direction, ids.as_deref())?),
            Self::Embedded { dataset, .. } => dataset,
        };
        let ids = ids.map_or(Ids::All(manifest.node_types[owner].count), Ids::Listed);
        let mut degrees = room("degrees", ids.len() as u64)?;
        if info.layouts.contains(&direction) {
            let lists = Lists { dataset, edge_type: place, owner, direction };
            lists.each(&ids, wanted, |length, _| degrees.push(length as u64))?;
            return Ok(degrees);
        }
        let (starts, _) = self.adjacency(edge_type, direction == Direction::Out)?;
        let degree = |id: u64| starts[id as usize + 1] - starts[id as usize];
        match ids {
            Ids::All(count) => degrees.extend((0..count).map(degree)),
            Ids::Listed(ids) => degrees.extend(ids.into_iter().map(degree)),
        }
        Ok(degrees)
    }

    /// The anchors of a split, or all of their type, with their labels; of a rank, its share of them.
    pub(crate) fn anchor_labels(
        &self,
        supervision: &Supervision,
        rank: Option<u32>,
        world_size: Option<u32>,
        wanted: &Wanted,
    ) -> Result<AnchorLabels> {
        let Supervision { split, positive, negative, max_labels } = supervision;
        let (positive, negative) = (positive.as_ref(), negative.as_ref());
        let manifest = self.manifest();
        let name = &manifest.edge_types[manifest.resolve_edge_type(positive)?].name;
        let anchors = manifest.node_type(&name.src)?;
        if let Some(other) = negative {
            let other = &manifest.edge_types[manifest.resolve_edge_type(Some(other))?].name;
            if other.src != name.src {
                let text = format!("`{other}` does not begin at `{}`, as `{name}` does", name.src);
                return Err(Error::Argument(text));
            }
        }
        if let Some(split) = split {
            self.check_split(anchors, *split)?;
        }
        if let Self::Remote { dataset, .. } = self {
            let shard = Shard::of_rank(rank, world_size, dataset.servers())?;
            return Ok(dataset.anchor_labels(*split, positive, negative, *max_labels, shard)?);
        }
        let node_type = (!manifest.homogeneous).then_some(name.src.as_str());
        let anchors = self.node_ids(node_type, *split, rank, world_size)?;
        let positives = self.labels_of(&anchors, positive, *max_labels, wanted)?;
        let negatives = negative.map(|name| self.labels_of(&anchors, Some(name), *max_labels, wanted)).transpose()?;
        Ok(AnchorLabels { anchors, positives, negatives })
    }

    /// A row of labels for each anchor: the first of its list, or the lowest where only labels have lists.
    fn labels_of(
        &self,
        anchors: &[u64],
        edge_type: Option<&EdgeTypeName>,
        most: Option<u32>,
        wanted: &Wanted,
    ) -> Result<Padded> {
        let most = most.map_or(usize::MAX, |most| most as usize);
        let manifest = self.manifest();
        let place = manifest.resolve_edge_type(edge_type)?;
        let info = &manifest.edge_types[place];
        let owner = manifest.node_type(&info.name.src)?;
        // Anchors are distinct, so that there are no more labels than edges.
        let (mut counts, mut labels) = (room("anchors", anchors.len() as u64)?, room("labels", info.count)?);
        match self {
            Self::Embedded { dataset, .. } if info.layouts.contains(&Direction::Out) => {
                let lists = Lists { dataset, edge_type: place, owner, direction: Direction::Out };
                lists.each(&Ids::Listed(anchors.to_vec()), wanted, |length, list| {
                    counts.push(length.min(most) as u32);
                    labels.extend(list.take(most));
                })?;
            }
            _ => {
                let (starts, targets) = self.adjacency(edge_type, true)?;
                for &anchor in anchors {
                    let list = &targets[starts[anchor as usize] as usize..starts[anchor as usize + 1] as usize];
                    counts.push(list.len().min(most) as u32);
                    labels.extend(&list[..list.len().min(most)]);
                }
            }
        }
        Ok(Padded::new(&counts, &labels)?)
    }
}

/// The lists of an edge type in a direction that is stored.
struct Lists<'a> {
    dataset: &'a Dataset,
    edge_type: usize,
    /// The node type that they belong to.
    owner: usize,
    direction: Direction,
}

impl Lists<'_> {
    /// Tells the length and the neighbours of the list of each node.
    fn each(
        &self,
        ids: &Ids,
        wanted: &Wanted,
        mut tell: impl FnMut(usize, &mut dyn Iterator<Item = u64>),
    ) -> Result<()> {
        let mut some = Vec::with_capacity(LISTS.min(ids.len()));
        for start in (0..ids.len()).step_by(LISTS) {
            wanted.check()?;
            some.clear();
            ids.add_to(&mut some, start..(start + LISTS).min(ids.len()));
            for &id in &some {
                let location = self.dataset.locate_node(self.owner, id)?;
                let edges = self.dataset.partition(location.partition)?.edges(self.edge_type);
                let Some(lists) = edges.lists(self.direction) else {
                    tell(0, &mut std::iter::empty());
                    continue;
                };
                let list = lists.list(location.row)?;
                let neighbors = lists.neighbors().as_slice();
                tell(list.len(), &mut list.filter_map(|position| neighbors.get(position)));
            }
        }
        Ok(())
    }
}
