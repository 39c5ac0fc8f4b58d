//! Answers from the graph at hand: the one implementation of every question, for a machine beside the data and for a
//! peer's question alike.

mod draw;
mod floyd;
mod gather;
mod half;
mod lanes;
mod uniform;
mod weighted;
mod within;

use graphmill_graph::{Adjacency, Book, Dataset, Direction, IdSlice, Location, OpenBook, Tensor};

use crate::cache::prefetch;
use crate::exchange::{Answer, Ask, Id, Need};
use crate::room::grow;
use crate::{Error, Result};

pub use gather::{Gather, Source};

/// The opened partitions of a dataset, arranged for samplers.
#[derive(Debug)]
pub struct View {
    /// Per edge type, the lists `in` and `out`.
    lists: Vec<[Option<Lists>; 2]>,
    /// Per node type, its rows.
    nodes: Vec<Rows>,
    /// Per edge type with features, its rows.
    edges: Vec<Option<Rows>>,
}

/// The lists of one edge type in one direction.
#[derive(Debug)]
struct Lists {
    owners: Owners,
    parts: Vec<Option<Adjacency>>,
}

/// Rows of features, and labels of nodes.
#[derive(Debug)]
struct Rows {
    owners: Owners,
    /// Per partition, if opened: features in the type's order, and the label.
    parts: Vec<Option<(Vec<Tensor>, Option<Tensor>)>>,
}

/// Who owns which id, with words for messages.
#[derive(Debug, Clone)]
struct Owners {
    book: Book,
    kind: &'static str,
    name: String,
}

impl Owners {
    fn locate(&self, id: u64) -> Result<Location> {
        let found = self.book.locate(id)?;
        found.ok_or_else(|| {
            let (kind, name, count) = (self.kind, self.name.clone(), self.book.count());
            graphmill_graph::Error::OutOfRange { kind, name, id, count }.into()
        })
    }

    /// Whether one partition owns everything, so that a row is an id.
    fn whole(&self) -> bool {
        self.book.parts() == 1
    }
}

/// Reusable memory of whoever answers.
#[derive(Debug, Default)]
pub struct AnswerScratch {
    draw: draw::Scratch,
    members: within::Members,
}

impl AnswerScratch {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.draw.bytes() + self.members.bytes()
    }
}

impl View {
    /// A view of all opened partitions.
    pub fn new(dataset: &Dataset) -> Self {
        let node_owners = |place: usize| Owners {
            book: dataset.node_book(place).clone(),
            kind: "node",
            name: dataset.node_types()[place].name.clone(),
        };
        let opened = |partition: u32| dataset.partition(partition).ok();
        let parts = || (0..dataset.parts()).map(opened);

        let nodes = (0..dataset.node_types().len()).map(|place| {
            let features = 0..dataset.node_types()[place].features.len();
            let rows = parts().map(|part| {
                let store = part?.nodes(place);
                let tensors = features.clone().filter_map(|feature| store.feature(feature).cloned()).collect();
                Some((tensors, store.label().cloned()))
            });
            Rows { owners: node_owners(place), parts: rows.collect() }
        });
        let edges = dataset.edge_types().iter().enumerate().map(|(place, info)| {
            let owners = Owners { book: dataset.edge_book(place)?.clone(), kind: "edge", name: info.name.to_string() };
            let rows = parts().map(|part| {
                let store = part?.edges(place);
                let tensors = (0..info.features.len()).filter_map(|feature| store.feature(feature).cloned()).collect();
                Some((tensors, None))
            });
            Some(Rows { owners, parts: rows.collect() })
        });
        let lists = dataset.edge_types().iter().enumerate().map(|(place, info)| {
            [Direction::In, Direction::Out].map(|direction| {
                let owner = dataset.manifest().node_type(info.name.list_owner(direction)).ok()?;
                info.layouts.contains(&direction).then(|| Lists {
                    owners: node_owners(owner),
                    parts: parts().map(|part| part?.edges(place).lists(direction).cloned()).collect(),
                })
            })
        });
        Self { nodes: nodes.collect(), edges: edges.collect(), lists: lists.collect() }
    }

    /// Answers a question.
    ///
    /// # Errors
    /// When an id is out of range, its partition is not opened, or stored lists are damaged.
    pub fn answer(&self, need: &Need<'_>, answer: &mut Answer, scratch: &mut AnswerScratch) -> Result<()> {
        answer.clear();
        let lists = self.lists(need.edge_type, need.direction)?;
        match lists.width() {
            Some(IdSlice::U64(_)) => answer_in::<u64>(lists, need, answer, scratch),
            _ => answer_in::<u32>(lists, need, answer, scratch),
        }
    }

    fn lists(&self, edge_type: usize, direction: Direction) -> Result<&Lists> {
        let lists = self.lists.get(edge_type).and_then(|both| both[direction as usize].as_ref());
        lists.ok_or_else(|| Error::answer(format!("edge type {edge_type} has no `{direction}` lists")))
    }
}

fn answer_in<N: Stored>(
    lists: &Lists,
    need: &Need<'_>,
    answer: &mut Answer,
    scratch: &mut AnswerScratch,
) -> Result<()> {
    let open = OpenLists::<N>::new(lists);
    match need.ask {
        Ask::Neighbors { take, stream, edge_ids } => {
            draw::draw(&open, need, take, stream, edge_ids, answer, &mut scratch.draw)
        }
        Ask::Within { edge_ids } => within::within(&open, need, edge_ids, answer, &mut scratch.members),
        Ask::Contains => within::contains(&open, need, answer),
        Ask::Degrees => {
            grow(&mut answer.degrees, "nodes of a question", need.ids.len())?;
            for &id in need.ids {
                answer.degrees.push(open.list(open.locate(id)?)?.len() as u64);
            }
            Ok(())
        }
    }
}

impl Lists {
    /// Any stored neighbours, for their width.
    fn width(&self) -> Option<IdSlice<'_>> {
        self.parts.iter().flatten().next().map(|lists| lists.neighbors().as_slice())
    }
}

/// A width in which neighbours are stored.
trait Stored: Id {
    fn of(ids: IdSlice<'_>) -> &[Self];
}

impl Stored for u32 {
    fn of(ids: IdSlice<'_>) -> &[Self] {
        match ids {
            IdSlice::U32(ids) => ids,
            IdSlice::U64(_) => &[],
        }
    }
}

impl Stored for u64 {
    fn of(ids: IdSlice<'_>) -> &[Self] {
        match ids {
            IdSlice::U64(ids) => ids,
            IdSlice::U32(_) => &[],
        }
    }
}

/// The lists of an edge type as slices, for the time of one answer.
struct OpenLists<'a, N> {
    lists: &'a Lists,
    book: OpenBook<'a>,
    /// The only part, or none if there are several.
    whole: Option<OpenPart<'a, N>>,
    parts: Vec<Option<OpenPart<'a, N>>>,
}

/// One partition's lists as slices.
#[derive(Clone, Copy)]
struct OpenPart<'a, N> {
    adjacency: &'a Adjacency,
    indptr: IdSlice<'a>,
    neighbors: &'a [N],
    edge_ids: Option<IdSlice<'a>>,
    weights: &'a [f32],
    cumulative: &'a [u64],
    alias: &'a [u64],
}

/// A list: a stretch of the neighbours of a partition.
#[derive(Debug, Clone, Copy)]
struct List {
    partition: u32,
    start: usize,
    end: usize,
}

impl List {
    fn len(self) -> usize {
        self.end - self.start
    }
}

impl<'a, N: Stored> OpenLists<'a, N> {
    fn new(lists: &'a Lists) -> Self {
        let open = |adjacency: &'a Adjacency| OpenPart {
            adjacency,
            indptr: adjacency.indptr().as_slice(),
            neighbors: N::of(adjacency.neighbors().as_slice()),
            edge_ids: adjacency.edge_ids().map(graphmill_graph::IdArray::as_slice),
            weights: adjacency.weights().unwrap_or_default(),
            cumulative: adjacency.cumulative().unwrap_or_default(),
            alias: adjacency.alias().unwrap_or_default(),
        };
        let book = lists.owners.book.open();
        if lists.owners.whole() {
            let whole = lists.parts.first().and_then(Option::as_ref).map(open);
            return Self { lists, book, whole, parts: Vec::new() };
        }
        Self { lists, book, whole: None, parts: lists.parts.iter().map(|part| part.as_ref().map(open)).collect() }
    }

    /// Whether one partition has all lists.
    #[inline]
    fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// The part that has all lists which can be asked for here, if there is one.
    fn only(&self) -> Option<(u32, &OpenPart<'a, N>)> {
        let mut opened = (0..).zip(&self.parts).filter_map(|(partition, part)| Some((partition, part.as_ref()?)));
        match &self.whole {
            Some(part) => Some((0, part)),
            None => opened.next().filter(|_| opened.next().is_none()),
        }
    }

    /// Has the entries of nodes in the partition book loaded, which are looked up later.
    #[inline]
    fn prefetch_entries(&self, ids: &[u64]) {
        let Some((partitions, rows)) = self.book.listed().filter(|_| self.whole.is_none()) else { return };
        for &id in ids {
            prefetch(partitions, id as usize);
            prefetch(rows, id as usize);
        }
    }

    /// The rows of a block of nodes in the only part, whose offsets begin to load; says how many there are.
    #[inline]
    fn locate_block<P: Id>(&self, ids: &[u64], indptr: &[P], rows: &mut [usize]) -> Result<usize> {
        for (slot, &id) in rows.iter_mut().zip(ids) {
            let location = self.locate(id)?;
            if self.whole.is_none() {
                self.part(location.partition)?;
            }
            *slot = location.row;
            prefetch(indptr, location.row);
        }
        Ok(ids.len())
    }

    /// Where a node's list is; its existence in a whole graph is checked by [`Self::list`].
    #[inline]
    fn locate(&self, id: u64) -> Result<Location> {
        match &self.whole {
            Some(_) => Ok(Location { partition: 0, row: id as usize }),
            None => match self.book.locate(id) {
                Some(location) => Ok(location),
                None => self.lists.owners.locate(id),
            },
        }
    }

    #[inline]
    fn part(&self, partition: u32) -> Result<&OpenPart<'a, N>> {
        match &self.whole {
            Some(part) => Ok(part),
            None => self.parts.get(partition as usize).and_then(Option::as_ref).ok_or_else(|| self.absent(partition)),
        }
    }

    #[inline]
    fn prefetch_offsets(&self, location: Location) {
        let Ok(part) = self.part(location.partition) else { return };
        match part.indptr {
            IdSlice::U32(indptr) => prefetch(indptr, location.row),
            IdSlice::U64(indptr) => prefetch(indptr, location.row),
        }
    }

    #[inline]
    fn list(&self, location: Location) -> Result<List> {
        match self.find(location) {
            Some(list) => Ok(list),
            None => Err(self.damaged(location)),
        }
    }

    /// The list at a location, if it can be read.
    #[inline]
    fn find(&self, location: Location) -> Option<List> {
        let part = match &self.whole {
            Some(part) => part,
            None => self.parts.get(location.partition as usize)?.as_ref()?,
        };
        let (start, end) = match part.indptr {
            IdSlice::U32(indptr) => pair(indptr, location.row)?,
            IdSlice::U64(indptr) => pair(indptr, location.row)?,
        };
        let sound = start <= end && end <= part.neighbors.len() as u64;
        sound.then_some(List { partition: location.partition, start: start as usize, end: end as usize })
    }

    #[cold]
    fn damaged(&self, Location { partition, row }: Location) -> Error {
        let part = match self.part(partition) {
            Ok(part) => part,
            Err(error) => return error,
        };
        if self.whole.is_some()
            && let Err(error) = self.lists.owners.locate(row as u64)
        {
            return error;
        }
        match part.adjacency.list(row) {
            Err(error) => error.into(),
            Ok(_) => Error::answer(format!("the list of row {row} cannot be read")),
        }
    }

    #[cold]
    fn absent(&self, partition: u32) -> Error {
        Error::answer(format!("partition {partition} of `{}` is not opened here", self.lists.owners.name))
    }
}

#[inline]
fn pair<N: Id>(indptr: &[N], row: usize) -> Option<(u64, u64)> {
    let (start, end) = (indptr.get(row)?, indptr.get(row.checked_add(1)?)?);
    Some((start.widen(), end.widen()))
}
