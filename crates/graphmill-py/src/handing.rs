//! A batch as Python gets it: dicts of arrays in the batch's own memory.

use graphmill_graph::DType;
use graphmill_sample::{Batch, BatchId, Buffer, Config, Entry, Expand, Field, Plan, SeedCuts, Task};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::arrays::{Arrays, Memory};

/// How the batches of a loader are handed over: everything that is the same for all of them.
pub(crate) struct Handing {
    tensors: bool,
    positions: Option<Positions>,
    nodes: Vec<Names>,
    edges: Vec<Names>,
    /// Per tensor of label pairs: its place among the supervisions, and whether it is of negatives.
    labels: Vec<(usize, bool)>,
}

/// The names of a type and of its features.
struct Names {
    name: Py<PyAny>,
    features: Vec<Py<PyString>>,
}

/// What tells the places of a batch's seeds in their list.
pub(crate) struct Positions {
    pub(crate) cuts: SeedCuts,
    pub(crate) seed: u64,
}

impl Handing {
    pub(crate) fn new(py: Python<'_>, plan: &Plan, tensors: bool, positions: Option<Positions>) -> PyResult<Self> {
        let string = |name: &str| PyString::intern(py, name).unbind();
        let nodes = plan.node_types().enumerate().map(|(place, name)| Names {
            name: string(name).into_any(),
            features: plan.features(place).map(string).collect(),
        });
        let mut edges = Vec::new();
        for (place, name) in plan.walked().enumerate() {
            let triple = PyTuple::new(py, [&name.src, &name.relation, &name.dst])?.into_any().unbind();
            edges.push(Names { name: triple, features: plan.edge_features(place).map(string).collect() });
        }
        Ok(Self { tensors, positions, nodes: nodes.collect(), edges, labels: label_places(plan.config()) })
    }

    /// The places of a batch's seeds in their list.
    pub(crate) fn positions(&self, batch: BatchId) -> Option<Vec<i64>> {
        let Positions { cuts, seed } = self.positions.as_ref()?;
        Some(cuts.positions(*seed, batch).map(u64::cast_signed).collect())
    }

    /// A dict of what the batch has once, one per node type, and one per edge type, as `(once, {type: …}, {type: …})`.
    pub(crate) fn hand_over<'py>(
        &self,
        py: Python<'py>,
        round: u64,
        batch: Batch,
        positions: Option<Vec<i64>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let arrays = if self.tensors { Arrays::torch(py)? } else { Arrays::numpy(py)? };
        let mut parts = Parts::new(py, self, &batch)?;
        parts.once.set_item(intern!(py, "round"), round)?;
        if let Some(positions) = positions {
            let shape = [positions.len() as u64];
            let places = arrays.whole(py, Memory::of_words(positions), DType::I64, &shape)?;
            parts.once.set_item(intern!(py, "positions"), places)?;
        }
        // Numbers are read before the memory is Python's.
        for entry in batch.layout().entries() {
            parts.add_numbers(&batch, entry)?;
        }
        let (layout, buffer) = batch.into_parts();
        let memory = Bound::new(py, Memory::of(buffer, Buffer::bytes_mut))?;
        for entry in layout.entries() {
            parts.add_array(arrays, &memory, entry)?;
        }
        parts.finish()
    }
}

/// The dicts of a batch while they are filled.
struct Parts<'py, 'a> {
    py: Python<'py>,
    handing: &'a Handing,
    once: Bound<'py, PyDict>,
    nodes: Vec<Bound<'py, PyDict>>,
    edges: Vec<Bound<'py, PyDict>>,
    ranks: Bound<'py, PyDict>,
    /// Distinct seeds.
    size: u64,
    /// Where the last rows of neighbours begin.
    row: usize,
}

impl<'py, 'a> Parts<'py, 'a> {
    fn new(py: Python<'py>, handing: &'a Handing, batch: &Batch) -> PyResult<Self> {
        let once = PyDict::new(py);
        let id = batch.id();
        once.set_item(intern!(py, "epoch"), id.epoch)?;
        once.set_item(intern!(py, "g"), id.g)?;
        once.set_item(intern!(py, "repeated"), id.repeated)?;
        once.set_item(intern!(py, "batch_size"), batch.batch_size())?;
        let dicts = |count: usize| (0..count).map(|_| PyDict::new(py)).collect();
        let walked = if matches!(batch.plan().config().expand, Expand::Ppr(_)) { 0 } else { handing.edges.len() };
        let (nodes, edges) = (dicts(handing.nodes.len()), dicts(walked));
        Ok(Self { py, handing, once, nodes, edges, ranks: PyDict::new(py), size: batch.batch_size() as u64, row: 0 })
    }

    /// What is handed over as numbers.
    fn add_numbers(&self, batch: &Batch, entry: &Entry) -> PyResult<()> {
        let py = self.py;
        let list = |field| PyList::new(py, batch.ints(field));
        match entry.field {
            Field::NumSampledNodes(place) => {
                self.nodes[place].set_item(intern!(py, "num_sampled_nodes"), list(entry.field)?)
            }
            Field::NumSampledEdges(place) => {
                self.edges[place].set_item(intern!(py, "num_sampled_edges"), list(entry.field)?)
            }
            Field::NegativesMissing => match batch.ints(entry.field) {
                [] | [0] => Ok(()),
                missing => self.once.set_item(intern!(py, "negatives_missing"), missing[0]),
            },
            _ => Ok(()),
        }
    }

    /// What is handed over as an array.
    fn add_array(&mut self, arrays: &Arrays, memory: &Bound<'py, Memory>, entry: &Entry) -> PyResult<()> {
        let py = self.py;
        let array = || arrays.at(memory, entry.dtype, &entry.shape, entry.offset);
        match entry.field {
            Field::NumSampledNodes(_) | Field::NumSampledEdges(_) | Field::NegativesMissing => Ok(()),
            Field::Seed => self.once.set_item(intern!(py, "seed"), array()?),
            // Rows of seeds that are all different are the first ones.
            Field::SeedIndex if entry.shape.first() == Some(&self.size) => Ok(()),
            Field::SeedIndex => self.once.set_item(intern!(py, "seed_index"), array()?),
            Field::Node(place) => self.nodes[place].set_item(intern!(py, "n_id"), array()?),
            Field::Feature(place, feature) => {
                self.nodes[place].set_item(&self.handing.nodes[place].features[feature], array()?)
            }
            Field::Label(place) => self.nodes[place].set_item(intern!(py, "y"), array()?),
            Field::Row(_) => {
                self.row = entry.offset;
                Ok(())
            }
            Field::Col(place) => {
                let both = arrays.pair(memory, self.row, entry.offset, entry.shape.first().copied().unwrap_or(0))?;
                self.edges[place].set_item(intern!(py, "edge_index"), both)
            }
            Field::Edge(place) => self.edges[place].set_item(intern!(py, "e_id"), array()?),
            Field::EdgeFeature(place, feature) => {
                self.edges[place].set_item(&self.handing.edges[place].features[feature], array()?)
            }
            Field::EdgeLabelIndex => self.once.set_item(intern!(py, "edge_label_index"), array()?),
            Field::EdgeLabel => self.once.set_item(intern!(py, "edge_label"), array()?),
            Field::SrcIndex => self.once.set_item(intern!(py, "src_index"), array()?),
            Field::DstPosIndex => self.once.set_item(intern!(py, "dst_pos_index"), array()?),
            Field::DstNegIndex => self.once.set_item(intern!(py, "dst_neg_index"), array()?),
            Field::LabelPairs(place) => {
                let label = self.handing.labels.get(place).copied().unwrap_or((place, false));
                self.once.set_item(label, array()?)
            }
            Field::PprIndex(seeds, place) => self.rank(seeds, place, intern!(py, "ppr_index"), array()?),
            Field::PprScore(seeds, place) => self.rank(seeds, place, intern!(py, "ppr_score"), array()?),
            Field::PprHop(seeds, place) => self.rank(seeds, place, intern!(py, "ppr_hop"), array()?),
        }
    }

    /// Something of the ranking between two node types.
    fn rank(&self, seeds: usize, place: usize, name: &Bound<'py, PyString>, array: Bound<'py, PyAny>) -> PyResult<()> {
        let names = &self.handing.nodes;
        let key = PyTuple::new(
            self.py,
            [&names[seeds].name, intern!(self.py, "ppr").as_any().as_unbound(), &names[place].name],
        )?;
        if let Some(dict) = self.ranks.get_item(&key)? {
            return dict.cast::<PyDict>()?.set_item(name, array);
        }
        let dict = PyDict::new(self.py);
        dict.set_item(name, array)?;
        self.ranks.set_item(&key, dict)
    }

    fn finish(self) -> PyResult<Bound<'py, PyTuple>> {
        let named = |names: &[Names], dicts: Vec<Bound<'py, PyDict>>, into: Bound<'py, PyDict>| {
            for (name, dict) in names.iter().zip(dicts) {
                into.set_item(&name.name, dict)?;
            }
            Ok::<_, PyErr>(into)
        };
        let nodes = named(&self.handing.nodes, self.nodes, PyDict::new(self.py))?;
        let edges = named(&self.handing.edges, self.edges, self.ranks)?;
        PyTuple::new(self.py, [self.once, nodes, edges])
    }
}

/// Per tensor of label pairs: its place among the supervisions, and whether it is of negatives.
fn label_places(config: &Config) -> Vec<(usize, bool)> {
    let Task::Anchors { supervision, .. } = &config.task else { return Vec::new() };
    let places = supervision.iter().enumerate().map(|(place, one)| {
        let negative = one.negative.is_some().then_some((place, true));
        std::iter::once((place, false)).chain(negative)
    });
    places.flatten().collect()
}
