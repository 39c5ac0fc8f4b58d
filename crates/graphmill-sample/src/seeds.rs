//! Seed lists: what an epoch goes over.

use graphmill_graph::{Dataset, Direction, EdgeTypeName, Split};
use xxhash_rust::xxh3::Xxh3;

use crate::machine::{Pairs, Seeds};
use crate::{Error, Result, make_room, room};

/// Nodes of one type, or pairs of one edge type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeedList {
    /// The nodes from 0 to a count.
    All(u64),
    /// Nodes.
    Nodes(Vec<u64>),
    /// Pairs, each with a class if there are classes.
    Pairs {
        /// Sources.
        src: Vec<u64>,
        /// Targets.
        dst: Vec<u64>,
        /// Classes.
        classes: Option<Vec<i64>>,
    },
}

impl SeedList {
    /// All nodes of a type; a homogeneous graph's needs no name.
    pub fn all(dataset: &Dataset, node_type: Option<&str>) -> Result<Self> {
        let place = place_of(dataset, node_type)?;
        Ok(Self::All(dataset.node_types()[place].count))
    }

    /// The nodes of a split, ascending.
    pub fn split(dataset: &Dataset, node_type: Option<&str>, split: Split) -> Result<Self> {
        Ok(Self::Nodes(dataset.split_ids(place_of(dataset, node_type)?, split)?))
    }

    /// Every edge of a type as a pair, in the order of the nodes that its lists belong to, then of the lists. Takes 16 bytes
    /// for each.
    pub fn edges(dataset: &Dataset, edge_type: Option<&EdgeTypeName>) -> Result<Self> {
        let place = match edge_type {
            Some(name) => dataset.manifest().edge_type(name)?,
            None => dataset.resolve_edge_type(None)?,
        };
        let info = &dataset.edge_types()[place];
        let direction = info.layouts.first().copied().unwrap_or(Direction::Out);
        let owner = dataset.manifest().node_type(info.name.list_owner(direction))?;
        let (mut owners, mut others) = (room("edges", info.count)?, room("edges", info.count)?);
        for id in 0..dataset.node_types()[owner].count {
            let location = dataset.locate_node(owner, id)?;
            let Some(lists) = dataset.partition(location.partition)?.edges(place).lists(direction) else { continue };
            let list = lists.list(location.row)?;
            owners.extend(std::iter::repeat_n(id, list.len()));
            others.extend(list.filter_map(|position| lists.neighbors().as_slice().get(position)));
        }
        let (src, dst) = match direction {
            Direction::In => (others, owners),
            Direction::Out => (owners, others),
        };
        Ok(Self::Pairs { src, dst, classes: None })
    }

    /// How many seeds.
    pub fn len(&self) -> usize {
        match self {
            Self::All(count) => *count as usize,
            Self::Nodes(ids) => ids.len(),
            Self::Pairs { src, .. } => src.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The node at a position, which must exist; of a pair, its source.
    pub(crate) fn id(&self, position: usize) -> u64 {
        match self {
            Self::All(_) => position as u64,
            Self::Nodes(ids) => ids[position],
            Self::Pairs { src, .. } => src[position],
        }
    }

    /// Pairs must have as many targets and classes as sources.
    ///
    /// # Errors
    /// When they have not.
    pub fn check(&self) -> Result<()> {
        let Self::Pairs { src, dst, classes } = self else { return Ok(()) };
        if src.len() != dst.len() || classes.as_ref().is_some_and(|classes| classes.len() != src.len()) {
            return Err(Error::config(format!(
                "there are {} sources, {} targets and {} classes; a pair has one of each",
                src.len(),
                dst.len(),
                classes.as_ref().map_or(src.len(), Vec::len),
            )));
        }
        Ok(())
    }

    /// A word that names the list: the same for the same seeds, however they are held.
    pub fn word(&self) -> u64 {
        let mut hash = Xxh3::new();
        hash.update(&(self.len() as u64).to_le_bytes());
        match self {
            Self::All(count) => {
                let mut block = Vec::with_capacity(1024);
                for start in (0..*count).step_by(1024) {
                    block.clear();
                    block.extend(start..(start + 1024).min(*count));
                    hash.update(bytemuck::cast_slice(&block));
                }
            }
            Self::Nodes(ids) => hash.update(bytemuck::cast_slice(ids)),
            Self::Pairs { src, dst, classes } => {
                hash.update(if classes.is_some() { b"classes" } else { b"pairs  " });
                hash.update(bytemuck::cast_slice(src));
                hash.update(bytemuck::cast_slice(dst));
                hash.update(bytemuck::cast_slice(classes.as_deref().unwrap_or_default()));
            }
        }
        hash.digest()
    }
}

fn place_of(dataset: &Dataset, node_type: Option<&str>) -> Result<usize> {
    Ok(match node_type {
        Some(name) => dataset.manifest().node_type(name)?,
        None => dataset.resolve_node_type(None)?,
    })
}

/// The seeds of one batch, in memory that is used again.
#[derive(Debug, Default)]
pub struct Cut {
    positions: Vec<u64>,
    ids: Vec<u64>,
    others: Vec<u64>,
    classes: Option<Vec<i64>>,
}

impl Cut {
    /// Takes the seeds at positions of a list.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn fill(&mut self, list: &SeedList, positions: impl Iterator<Item = u64>) -> Result<()> {
        let count = positions.size_hint().0 as u64;
        for kept in [&mut self.positions, &mut self.ids, &mut self.others] {
            kept.clear();
            make_room(kept, "seeds of a batch", count)?;
        }
        self.positions.extend(positions);
        self.classes = None;
        match list {
            SeedList::All(_) => self.ids.extend(&self.positions),
            SeedList::Nodes(ids) => self.ids.extend(self.positions.iter().map(|&place| ids[place as usize])),
            SeedList::Pairs { src, dst, classes } => {
                self.ids.extend(self.positions.iter().map(|&place| src[place as usize]));
                self.others.extend(self.positions.iter().map(|&place| dst[place as usize]));
                if let Some(classes) = classes {
                    let mut taken = room("seeds of a batch", count)?;
                    taken.extend(self.positions.iter().map(|&place| classes[place as usize]));
                    self.classes = Some(taken);
                }
            }
        }
        Ok(())
    }

    /// The seeds, as a machine takes them.
    pub fn seeds(&self, list: &SeedList) -> Seeds<'_> {
        match list {
            SeedList::All(_) | SeedList::Nodes(_) => Seeds::Nodes(&self.ids),
            SeedList::Pairs { .. } => Seeds::Pairs(Pairs {
                positions: &self.positions,
                src: &self.ids,
                dst: &self.others,
                classes: self.classes.as_deref(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_are_the_list_of_all_nodes() {
        for count in [0, 1, 1023, 1024, 1025, 5000] {
            let (all, listed) = (SeedList::All(count), SeedList::Nodes((0..count).collect()));
            assert_eq!((all.len(), all.word()), (listed.len(), listed.word()));
            let mut cuts = [Cut::default(), Cut::default()];
            cuts[0].fill(&all, (0..count).rev()).unwrap();
            cuts[1].fill(&listed, (0..count).rev()).unwrap();
            assert_eq!(cuts[0].ids, cuts[1].ids);
        }
    }
}
