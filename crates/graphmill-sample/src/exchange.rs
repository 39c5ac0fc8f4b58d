//! What a machine asks and what it is answered. A driver answers from the graph at hand, or sends the question to the
//! owner of the nodes; the machine does not see the difference.

use graphmill_graph::Direction;
use graphmill_graph::random::Stream;

use crate::law::BatchId;

/// Which edges of a node's list to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// None.
    Nothing,
    /// All, in list order.
    All,
    /// All of positive weight, in list order.
    Positive,
    /// The first so many, in list order.
    First(u32),
    /// So many distinct ones; all, in list order, of a list that is not longer.
    Uniform(u32),
    /// So many, each drawn from the whole list.
    UniformReplace(u32),
    /// So many distinct ones by weight; all of positive weight of a list that is not longer.
    Weighted(u32),
    /// So many, each drawn from the whole list by weight.
    WeightedReplace(u32),
}

/// A question about the lists of nodes.
#[derive(Debug, Clone, Copy)]
pub enum Ask {
    /// Some edges of each list: `counts`, `neighbors` and, if wanted, `edge_ids`.
    Neighbors {
        /// Which.
        take: Take,
        /// The stream that draws are made from.
        stream: Stream,
        /// Whether edge ids are wanted.
        edge_ids: bool,
    },
    /// The edges of each list whose other end is one of `others`, which ascend: as for neighbours.
    Within {
        /// Whether edge ids are wanted.
        edge_ids: bool,
    },
    /// Whether the list of each node holds the node of `others` at the same place: `counts`, 1 or 0.
    Contains,
    /// How long each list is: `degrees`.
    Degrees,
}

/// One question of a machine.
#[derive(Debug, Clone, Copy)]
pub struct Need<'a> {
    /// The batch it is for.
    pub batch: BatchId,
    /// The edge type, by its place in the dataset.
    pub edge_type: usize,
    /// Which of its lists.
    pub direction: Direction,
    /// What about them.
    pub ask: Ask,
    /// The nodes whose lists are meant.
    pub ids: &'a [u64],
    /// Further nodes, where the question names some.
    pub others: &'a [u64],
    /// The most edges that the answer may hold.
    pub limit: u64,
}

/// The answer to a question, in the order of its nodes. Reused from batch to batch.
#[derive(Debug, Default)]
pub struct Answer {
    /// Edges taken, or found, per node.
    pub counts: Vec<u32>,
    /// The other ends of the edges.
    pub neighbors: IdVec,
    /// Their ids, if wanted.
    pub edge_ids: Vec<u64>,
    /// Lengths of lists.
    pub degrees: Vec<u64>,
}

impl Answer {
    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.counts.clear();
        self.neighbors.clear();
        self.edge_ids.clear();
        self.degrees.clear();
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.counts.capacity() + self.neighbors.bytes() + 8 * (self.edge_ids.capacity() + self.degrees.capacity())
    }
}

/// Ids in the width that the dataset stores them in.
#[derive(Debug)]
pub enum IdVec {
    /// All below 2^32.
    U32(Vec<u32>),
    /// Any.
    U64(Vec<u64>),
}

impl Default for IdVec {
    fn default() -> Self {
        Self::U32(Vec::new())
    }
}

impl IdVec {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::U32(ids) => ids.len(),
            Self::U64(ids) => ids.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id at a place.
    pub fn get(&self, place: usize) -> Option<u64> {
        match self {
            Self::U32(ids) => ids.get(place).map(|&id| id.into()),
            Self::U64(ids) => ids.get(place).copied(),
        }
    }

    /// Itself if it is narrow already, so that its memory is used again; else empty and narrow.
    pub(crate) fn narrow(self) -> Self {
        match self {
            Self::U32(_) => self,
            Self::U64(_) => Self::default(),
        }
    }

    fn clear(&mut self) {
        match self {
            Self::U32(ids) => ids.clear(),
            Self::U64(ids) => ids.clear(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::U32(ids) => 4 * ids.capacity(),
            Self::U64(ids) => 8 * ids.capacity(),
        }
    }
}

/// A stored width of ids, so that kernels are compiled for each.
pub(crate) trait Id: bytemuck::Pod + Ord {
    fn widen(self) -> u64;

    /// An empty vector of this width inside an [`IdVec`].
    fn vector(ids: &mut IdVec) -> &mut Vec<Self>;
}

impl Id for u32 {
    #[inline]
    fn widen(self) -> u64 {
        self.into()
    }

    fn vector(ids: &mut IdVec) -> &mut Vec<Self> {
        if let IdVec::U64(_) = ids {
            *ids = IdVec::U32(Vec::new());
        }
        match ids {
            IdVec::U32(ids) => ids,
            IdVec::U64(_) => unreachable!("it was just made narrow"),
        }
    }
}

impl Id for u64 {
    #[inline]
    fn widen(self) -> u64 {
        self
    }

    fn vector(ids: &mut IdVec) -> &mut Vec<Self> {
        if let IdVec::U32(_) = ids {
            *ids = IdVec::U64(Vec::new());
        }
        match ids {
            IdVec::U64(ids) => ids,
            IdVec::U32(_) => unreachable!("it was just made wide"),
        }
    }
}
