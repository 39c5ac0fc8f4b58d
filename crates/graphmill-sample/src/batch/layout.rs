//! Which tensors a batch has, and where each lies in its buffer.

use graphmill_graph::DType;

use crate::config::{Expand, Negatives};
use crate::machine::Machine;
use crate::plan::{Plan, TaskPlan, TensorPlan};
use crate::{Error, Result};

/// Tensors begin at multiples of this.
pub(crate) const ALIGN: usize = 64;

/// A tensor of a batch. Types are places: of the dataset for node types, of the plan's walked types for edges, of the
/// plan's lists for features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// The seeds asked for.
    Seed,
    /// Their rows.
    SeedIndex,
    /// The ids of a node type's nodes.
    Node(usize),
    /// How many of them are seeds, and were new in each hop.
    NumSampledNodes(usize),
    /// The neighbours' rows of a walked type's edges.
    Row(usize),
    /// The expanded nodes' rows.
    Col(usize),
    /// Their edge ids.
    Edge(usize),
    /// How many edges each hop has.
    NumSampledEdges(usize),
    /// A node type's feature.
    Feature(usize, usize),
    /// A node type's labels.
    Label(usize),
    /// A walked type's feature.
    EdgeFeature(usize, usize),
    /// Sources and targets of pairs, positive ones first.
    EdgeLabelIndex,
    /// Their classes.
    EdgeLabel,
    /// The sources of triplets.
    SrcIndex,
    /// Their positive targets.
    DstPosIndex,
    /// Their negative targets.
    DstNegIndex,
    /// How many negatives were not found.
    NegativesMissing,
    /// Anchors and labels of a label edge type, by its place among those of the task.
    LabelPairs(usize),
    /// Seeds of a node type and nodes of another by personalised `PageRank`.
    PprIndex(usize, usize),
    /// Their scores.
    PprScore(usize, usize),
    /// Their distances.
    PprHop(usize, usize),
}

/// A tensor's place in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which tensor.
    pub field: Field,
    /// Its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Where it begins.
    pub offset: usize,
    /// How long it is.
    pub bytes: usize,
}

/// The tensors of a batch in order.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    entries: Vec<Entry>,
    bytes: usize,
}

impl Layout {
    /// The layout of the batch that a machine has found.
    pub fn of(plan: &Plan, machine: &Machine) -> Self {
        let mut layout = Self::default();
        layout.ints(Field::Seed, &[machine.seeds.len()]);
        layout.ints(Field::SeedIndex, &[machine.seed_rows.len()]);
        layout.task(plan, machine);
        for (place, (node, space)) in plan.nodes.iter().zip(&machine.nodes).enumerate() {
            let count = space.locals.len();
            layout.ints(Field::Node(place), &[count]);
            layout.ints(Field::NumSampledNodes(place), &[space.bounds.len()]);
            for (feature, tensor) in node.features.iter().enumerate() {
                layout.rows(Field::Feature(place, feature), tensor, count);
            }
            if let Some(label) = &node.label {
                layout.rows(Field::Label(place), label, count);
            }
        }
        if let Expand::Ppr(_) = plan.config().expand {
            for (seeds, types) in &machine.ranking().seed_types {
                for (place, ranked) in types.iter().enumerate() {
                    let count = ranked.nodes.len();
                    layout.ints(Field::PprIndex(*seeds, place), &[2, count]);
                    layout.add(Field::PprScore(*seeds, place), DType::F64, vec![count as u64]);
                    layout.ints(Field::PprHop(*seeds, place), &[count]);
                }
            }
            return layout;
        }
        for (place, (walk, space)) in plan.walks.iter().zip(&machine.edges).enumerate() {
            let count = space.rows.len();
            layout.ints(Field::Row(place), &[count]);
            layout.ints(Field::Col(place), &[count]);
            if plan.config().edge_ids {
                layout.ints(Field::Edge(place), &[count]);
            }
            layout.ints(Field::NumSampledEdges(place), &[space.bounds.len()]);
            for (feature, tensor) in walk.features.iter().enumerate() {
                layout.rows(Field::EdgeFeature(place, feature), tensor, count);
            }
        }
        layout
    }

    /// The layout that a sender describes.
    ///
    /// # Errors
    /// When a tensor is not as long as its shape says, does not follow the one before at the next multiple of 64, or the
    /// buffer has another size.
    pub fn from_entries(entries: Vec<Entry>, bytes: usize) -> Result<Self> {
        let mut end = 0;
        for entry in &entries {
            let size = entry.shape.iter().try_fold(entry.dtype.size() as u64, |size, &extent| size.checked_mul(extent));
            if size != Some(entry.bytes as u64) {
                return Err(Error::answer(format!(
                    "{:?} has {} bytes, not as its shape says",
                    entry.field, entry.bytes
                )));
            }
            if entry.offset != end {
                return Err(Error::answer(format!("{:?} begins at {}, expected {end}", entry.field, entry.offset)));
            }
            let next = end.checked_add(entry.bytes).and_then(|end| end.checked_next_multiple_of(ALIGN));
            end = next.filter(|&end| end <= bytes).ok_or_else(|| {
                Error::answer(format!("{:?} ends past the buffer, which has {bytes} bytes", entry.field))
            })?;
        }
        if end != bytes {
            return Err(Error::answer(format!("a buffer has {bytes} bytes, its tensors take {end}")));
        }
        Ok(Self { entries, bytes })
    }

    fn task(&mut self, plan: &Plan, machine: &Machine) {
        match &plan.task {
            TaskPlan::Nodes { .. } => {}
            TaskPlan::Anchors { .. } => {
                for (place, pairs) in machine.labels.iter().enumerate() {
                    self.ints(Field::LabelPairs(place), &[2, pairs.labels.len()]);
                }
            }
            TaskPlan::Links(links) => {
                let (pairs, negatives) = (machine.links.src_rows.len(), machine.links.negative_dst_rows.len());
                if let Some(Negatives::Triplet { amount, .. }) = links.negatives {
                    self.ints(Field::SrcIndex, &[pairs]);
                    self.ints(Field::DstPosIndex, &[pairs]);
                    self.ints(Field::DstNegIndex, &[pairs, amount as usize]);
                } else {
                    self.ints(Field::EdgeLabelIndex, &[2, pairs + negatives]);
                    self.ints(Field::EdgeLabel, &[pairs + negatives]);
                }
                if links.negatives.is_some() {
                    self.ints(Field::NegativesMissing, &[1]);
                }
            }
        }
    }

    fn ints(&mut self, field: Field, shape: &[usize]) {
        self.add(field, DType::I64, shape.iter().map(|&extent| extent as u64).collect());
    }

    fn rows(&mut self, field: Field, tensor: &TensorPlan, count: usize) {
        let shape = std::iter::once(count as u64).chain(tensor.shape.iter().copied()).collect();
        self.add(field, tensor.dtype, shape);
    }

    fn add(&mut self, field: Field, dtype: DType, shape: Vec<u64>) {
        let bytes = dtype.size() * shape.iter().product::<u64>() as usize;
        let offset = self.bytes;
        self.bytes = (offset + bytes).next_multiple_of(ALIGN);
        self.entries.push(Entry { field, dtype, shape, offset, bytes });
    }

    /// The tensors.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The bytes of all of them, padding included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
