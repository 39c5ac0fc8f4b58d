//! What a dataset is asked for.

use graphmill_graph::{DType, Direction, EdgeTypeName, Fingerprint, OriginalId};
use graphmill_sample::room;

use crate::{Error, Result};

/// What a dataset is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Number of partitions.
    pub parts: u32,
    /// Node types; none when homogeneous.
    pub node_types: Option<Vec<String>>,
    /// Edge types; none when homogeneous.
    pub edge_types: Option<Vec<EdgeTypeName>>,
    /// The direction samplers walk unless told otherwise.
    pub edge_dir: Direction,
    /// The logical content's name.
    pub fingerprint: Fingerprint,
}

/// Rows of a feature or of labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// Element type.
    pub dtype: DType,
    /// Rows, then the extents of each.
    pub shape: Vec<u64>,
    /// The rows, one after the other; little-endian.
    pub bytes: Vec<u8>,
}

/// A partition for each id, as runs of equal ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionBook {
    partitions: Vec<u32>,
    /// Where each run ends.
    ends: Vec<u64>,
}

impl PartitionBook {
    pub(super) fn push(&mut self, partition: u32, length: u64) -> Result<()> {
        let end = self.count().saturating_add(length);
        match (self.partitions.last(), self.ends.last_mut()) {
            (Some(&last), Some(last_end)) if last == partition => *last_end = end,
            _ => {
                let count = self.ends.len() as u64 + 1;
                let has_room = self.partitions.try_reserve(1).and_then(|()| self.ends.try_reserve(1)).is_ok();
                if !has_room {
                    return Err(graphmill_sample::Error::Memory { what: "runs of a partition book", count }.into());
                }
                self.partitions.push(partition);
                self.ends.push(end);
            }
        }
        Ok(())
    }

    /// How many ids there are.
    pub fn count(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The partition of an id; nothing if there is no such id.
    pub fn partition(&self, id: u64) -> Option<u32> {
        self.partitions.get(self.ends.partition_point(|&end| end <= id)).copied()
    }

    /// The runs: a partition, and how many ids in a row it has.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        self.partitions
            .iter()
            .zip(self.ends.iter().zip(starts))
            .map(|(&partition, (end, start))| (partition, end - start))
    }
}

/// How edges are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeLayout {
    /// Sources and targets.
    Coo,
    /// Lists of targets, by source.
    Csr,
    /// Lists of sources, by target.
    Csc,
}

impl EdgeLayout {
    const ALL: [Self; 3] = [Self::Coo, Self::Csr, Self::Csc];
}

impl std::fmt::Display for EdgeLayout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Coo => "coo",
            Self::Csr => "csr",
            Self::Csc => "csc",
        })
    }
}

impl std::str::FromStr for EdgeLayout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|layout| layout.to_string() == text);
        found.ok_or_else(|| Error::request(format!("there is no layout `{text}`; there are: coo, csr, csc")))
    }
}

/// All edges of a type. Neighbours of a list stand in the stored order where such lists are stored, else ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EdgeIndex {
    /// Sources and targets.
    Coo {
        /// The source of each edge.
        sources: Vec<u64>,
        /// The target of each edge.
        targets: Vec<u64>,
    },
    /// Lists of targets, by source.
    Csr {
        /// Where each list begins, and the end.
        offsets: Vec<u64>,
        /// The lists.
        targets: Vec<u64>,
    },
    /// Lists of sources, by target.
    Csc {
        /// Where each list begins, and the end.
        offsets: Vec<u64>,
        /// The lists.
        sources: Vec<u64>,
    },
}

/// Lists made from pairs: where each of `count` lists begins, and the values by key, in the order in which they were.
///
/// # Errors
/// When a key is no number of a list, or there is no memory for so many.
pub fn compress(keys: &[u64], values: &[u64], count: u64) -> Result<(Vec<u64>, Vec<u64>)> {
    let starts = count.saturating_add(1);
    let mut offsets = room("nodes", starts)?;
    offsets.resize(starts as usize, 0u64);
    for &key in keys {
        match offsets.get_mut(key as usize + 1) {
            Some(next) => *next += 1,
            None => return Err(Error::request(format!("an edge has node {key} of {count}; the answer is damaged"))),
        }
    }
    for place in 1..offsets.len() {
        offsets[place] += offsets[place - 1];
    }
    let mut next: Vec<u64> = room("nodes", starts)?;
    next.extend(&offsets);
    let mut lists = room("edges", values.len() as u64)?;
    lists.resize(values.len(), 0);
    for (&key, &value) in keys.iter().zip(values) {
        let place = &mut next[key as usize];
        lists[*place as usize] = value;
        *place += 1;
    }
    Ok((offsets, lists))
}

/// Anchors with what is linked to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnchorLabels {
    /// The anchors.
    pub anchors: Vec<u64>,
    /// A row of labels for each.
    pub positives: Padded,
    /// A row of negative labels for each, if an edge type of such was named.
    pub negatives: Option<Padded>,
}

/// Rows of ids of equal width, filled up with -1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Padded {
    /// How many rows.
    pub rows: usize,
    /// Ids of each.
    pub width: usize,
    /// The rows, one after the other.
    pub ids: Vec<i64>,
}

impl Padded {
    /// Rows of so many ids each, from ids one after the other.
    ///
    /// # Errors
    /// When there is no memory for rows that are all as wide as the widest.
    pub fn new(counts: &[u32], ids: &[u64]) -> Result<Self> {
        let (rows, width) = (counts.len(), counts.iter().max().map_or(0, |&most| most as usize));
        let mut padded = Vec::new();
        let fits = rows.checked_mul(width).is_some_and(|size| padded.try_reserve_exact(size).is_ok());
        if !fits {
            let reason = format!("{rows} rows of {width} labels do not fit into memory; set max_labels");
            return Err(Error::request(reason));
        }
        let mut next = 0;
        for &count in counts {
            let row = ids.get(next..next + count as usize).unwrap_or_default();
            next += count as usize;
            padded.extend(row.iter().map(|&id| id as i64));
            padded.extend(std::iter::repeat_n(-1, width - row.len()));
        }
        Ok(Self { rows, width, ids: padded })
    }
}

/// What a node was called in the input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Original {
    /// A number.
    Int(i64),
    /// A string.
    String(String),
}

impl Original {
    /// The same, borrowed.
    pub fn as_id(&self) -> OriginalId<'_> {
        match self {
            Self::Int(id) => OriginalId::Int(*id),
            Self::String(id) => OriginalId::String(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn compressed_pairs_are_the_same_pairs_sorted_by_key(
            pairs in proptest::collection::vec((0u64..9, any::<u64>()), 0..60),
        ) {
            let (keys, values): (Vec<u64>, Vec<u64>) = pairs.iter().copied().unzip();
            let (offsets, lists) = compress(&keys, &values, 9).unwrap();
            prop_assert_eq!((offsets[0], offsets.len(), offsets[9]), (0, 10, pairs.len() as u64));
            for key in 0..9 {
                let list = &lists[offsets[key] as usize..offsets[key + 1] as usize];
                let expected = pairs.iter().filter(|(found, _)| *found == key as u64).map(|(_, value)| value);
                prop_assert!(list.iter().eq(expected));
            }
        }

        #[test]
        fn padded_rows_keep_their_ids_in_front(lists in proptest::collection::vec(
            proptest::collection::vec(0u64..1000, 0..6), 0..20,
        )) {
            let counts: Vec<u32> = lists.iter().map(|list| list.len() as u32).collect();
            let padded = Padded::new(&counts, &lists.concat()).unwrap();
            prop_assert_eq!((padded.rows, padded.ids.len()), (lists.len(), padded.rows * padded.width));
            for (place, list) in lists.iter().enumerate() {
                let row = &padded.ids[place * padded.width..][..padded.width];
                prop_assert!(row.iter().filter(|&&id| id >= 0).map(|&id| id as u64).eq(list.iter().copied()));
                prop_assert!(row[list.len()..].iter().all(|&id| id == -1));
            }
        }

        #[test]
        fn a_book_finds_the_partition_of_every_id(owners in proptest::collection::vec(0u32..4, 0..50)) {
            let mut book = PartitionBook::default();
            for &owner in &owners {
                book.push(owner, 1).unwrap();
            }
            prop_assert_eq!(book.count(), owners.len() as u64);
            let found = (0..=owners.len() as u64).map(|id| book.partition(id));
            prop_assert!(found.eq(owners.iter().copied().map(Some).chain([None])));
            let runs = book.runs().flat_map(|(owner, length)| std::iter::repeat_n(owner, length as usize));
            prop_assert!(runs.eq(owners.iter().copied()));
        }
    }

    #[test]
    fn layouts_are_known_by_name() {
        for layout in EdgeLayout::ALL {
            assert_eq!(layout.to_string().parse::<EdgeLayout>().unwrap(), layout);
        }
        assert!("ell".parse::<EdgeLayout>().unwrap_err().to_string().contains("coo, csr, csc"));
    }

    #[test]
    fn what_cannot_be_held_is_refused() {
        assert!(compress(&[3], &[0], 3).unwrap_err().to_string().contains("node 3 of 3"));
        let counts = vec![u32::MAX; 1 << 20];
        assert!(Padded::new(&counts, &[]).unwrap_err().to_string().contains("max_labels"));
    }
}
