//! A sampler as a machine without I/O: it is given seeds, says what it needs to know, is told, and ends with the nodes
//! and edges of a batch. Who answers, and when, is not its business; so the same machine runs beside the data, on a server
//! that asks its peers, and in a test.
//!
//! A machine keeps its memory from batch to batch.

mod hops;
mod induced;
mod locals;
mod ppr;
mod seeds;

use std::ops::Range;

use graphmill_graph::Direction;

use crate::config::Expand;
use crate::exchange::{Answer, Ask, Need};
use crate::law::BatchId;
use crate::plan::{Plan, TaskPlan};
use crate::room::grow;
use crate::{Error, Result};

use locals::{Locals, MAX_ROWS, Refusal};
use ppr::Push;
use seeds::Links;

pub(crate) use ppr::Ranking;
pub(crate) use seeds::MISSING;

/// What there may be no memory for.
const SEEDS: &str = "seeds of a batch";
const EDGES: &str = "edges of a batch";

/// The seeds of a batch.
#[derive(Debug, Clone, Copy)]
pub enum Seeds<'a> {
    /// Nodes of the plan's seed type.
    Nodes(&'a [u64]),
    /// Pairs of the plan's edge type.
    Pairs(Pairs<'a>),
}

/// Seed pairs.
#[derive(Debug, Clone, Copy)]
pub struct Pairs<'a> {
    /// Where each pair stands in the seed list.
    pub positions: &'a [u64],
    /// Sources.
    pub src: &'a [u64],
    /// Targets.
    pub dst: &'a [u64],
    /// Classes, if pairs have them.
    pub classes: Option<&'a [i64]>,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Answer [`Machine::needs`], then step again.
    Need,
    /// The batch's nodes and edges are known.
    Done,
}

/// A sampler at work on one batch at a time.
#[derive(Debug)]
pub struct Machine {
    pub(crate) batch: BatchId,
    stage: Stage,
    questions: Vec<Question>,
    asked: usize,
    answers: Vec<Answer>,
    pub(crate) nodes: Vec<NodeSpace>,
    pub(crate) edges: Vec<EdgeSpace>,
    edge_count: u64,
    /// What was asked for: node ids, or positions of pairs.
    pub(crate) seeds: Vec<u64>,
    /// The rows of the seeds that were asked for.
    pub(crate) seed_rows: Vec<u32>,
    pub(crate) links: Links,
    /// Per label edge type of the plan, pairs of rows.
    pub(crate) labels: Vec<LabelPairs>,
    push: Push,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Labels,
    Negatives { attempt: u64 },
    Hop { hop: usize },
    Induced,
    PprDegrees,
    PprLists,
    Done,
}

/// The nodes of one type.
#[derive(Debug)]
pub(crate) struct NodeSpace {
    pub(crate) locals: Locals,
    /// How many nodes there were after the seeds, and after each hop.
    pub(crate) bounds: Vec<usize>,
}

/// The edges of one walked type.
#[derive(Debug, Default)]
pub(crate) struct EdgeSpace {
    /// The rows of the neighbours.
    pub(crate) rows: Vec<u32>,
    /// How many edges each expanded node has.
    pub(crate) counts: Vec<u32>,
    /// The rows of the expanded nodes, a stretch per hop.
    pub(crate) expanded: Vec<Range<usize>>,
    pub(crate) edge_ids: Vec<u64>,
    /// How many edges there were after each hop.
    pub(crate) bounds: Vec<usize>,
}

/// Anchors and labels, pair by pair.
#[derive(Debug, Default)]
pub(crate) struct LabelPairs {
    pub(crate) anchors: Vec<u32>,
    pub(crate) labels: Vec<u32>,
}

/// A question with its nodes: rows of the batch, or listed.
#[derive(Debug)]
struct Question {
    edge_type: usize,
    direction: Direction,
    ask: Ask,
    limit: u64,
    rows: Option<(usize, Range<usize>)>,
    ids: Vec<u64>,
    others: Vec<u64>,
}

impl Machine {
    /// A machine for a plan; it must be used with no other.
    pub fn new(plan: &Plan) -> Self {
        let space = |count| NodeSpace { locals: Locals::new(count), bounds: Vec::new() };
        let labels = match &plan.task {
            TaskPlan::Anchors { labels, .. } => labels.len(),
            _ => 0,
        };
        Self {
            batch: BatchId::default(),
            stage: Stage::Done,
            questions: Vec::new(),
            asked: 0,
            answers: Vec::new(),
            nodes: plan.nodes.iter().map(|node| space(node.count)).collect(),
            edges: plan.walks.iter().map(|_| EdgeSpace::default()).collect(),
            edge_count: 0,
            seeds: Vec::new(),
            seed_rows: Vec::new(),
            links: Links::default(),
            labels: (0..labels).map(|_| LabelPairs::default()).collect(),
            push: Push::default(),
        }
    }

    /// Begins a batch; whatever was under way is forgotten.
    ///
    /// # Errors
    /// When the seeds are not of the kind that the plan's task takes, or there is no memory for them.
    pub fn begin(&mut self, plan: &Plan, seeds: Seeds<'_>, batch: BatchId) -> Result<()> {
        self.batch = batch;
        self.stage = Stage::Begin;
        self.asked = 0;
        self.edge_count = 0;
        self.seeds.clear();
        self.seed_rows.clear();
        self.links.clear();
        self.push.clear();
        for space in &mut self.nodes {
            space.locals.clear();
            space.bounds.clear();
        }
        for space in &mut self.edges {
            space.clear();
        }
        for pairs in &mut self.labels {
            pairs.anchors.clear();
            pairs.labels.clear();
        }
        match (seeds, &plan.task) {
            (Seeds::Nodes(ids), TaskPlan::Nodes { .. } | TaskPlan::Anchors { .. }) => {
                grow(&mut self.seeds, SEEDS, ids.len())?;
                self.seeds.extend(ids);
            }
            (Seeds::Pairs(pairs), TaskPlan::Links(_)) => {
                grow(&mut self.seeds, SEEDS, pairs.positions.len())?;
                self.seeds.extend(pairs.positions);
                self.links.take(&pairs)?;
            }
            _ => return Err(Error::config("the seeds are not of the kind that the task takes")),
        }
        Ok(())
    }

    /// Goes on with what was answered.
    ///
    /// # Errors
    /// When an id is out of range, an answer does not fit, or the batch is too large. Begin a new batch then.
    pub fn step(&mut self, plan: &Plan) -> Result<Step> {
        loop {
            match self.stage {
                Stage::Begin => self.begin_seeds(plan)?,
                Stage::Labels => self.take_labels(plan)?,
                Stage::Negatives { attempt } => self.take_checks(plan, attempt)?,
                Stage::Hop { hop } => self.take_hop(plan, hop)?,
                Stage::Induced => self.take_induced(plan)?,
                Stage::PprDegrees => self.take_degrees(plan)?,
                Stage::PprLists => self.take_lists(plan)?,
                Stage::Done => return Ok(Step::Done),
            }
            if self.asked > 0 {
                return Ok(Step::Need);
            }
        }
    }

    /// What must be answered before the next step, each with the place of its answer.
    pub fn needs(&mut self) -> impl Iterator<Item = (Need<'_>, &mut Answer)> {
        let (nodes, batch) = (&self.nodes, self.batch);
        self.questions[..self.asked].iter().zip(&mut self.answers).map(move |(question, answer)| {
            let ids = match &question.rows {
                Some((node_type, rows)) => &nodes[*node_type].locals.nodes()[rows.clone()],
                None => &question.ids,
            };
            let need = Need {
                batch,
                edge_type: question.edge_type,
                direction: question.direction,
                ask: question.ask,
                ids,
                others: &question.others,
                limit: question.limit,
            };
            (need, answer)
        })
    }

    /// The batch it is at work on.
    pub fn batch(&self) -> BatchId {
        self.batch
    }

    /// How many distinct seeds were asked for; pairs for links.
    pub fn batch_size(&self, plan: &Plan) -> usize {
        match &plan.task {
            TaskPlan::Links(_) => self.seeds.len(),
            // Seeds asked for come first, so the largest of their rows tells how many are distinct.
            _ => self.seed_rows.iter().max().map_or(0, |&row| row as usize + 1),
        }
    }

    /// How many edges were found.
    pub fn num_edges(&self) -> u64 {
        self.edge_count
    }

    /// Bytes of memory that the machine keeps.
    pub fn scratch_bytes(&self) -> usize {
        let nodes: usize = self.nodes.iter().map(|space| space.locals.bytes()).sum();
        let edges: usize = self.edges.iter().map(EdgeSpace::bytes).sum();
        let answers: usize = self.answers.iter().map(Answer::bytes).sum();
        let questions: usize = self.questions.iter().map(|one| 8 * (one.ids.capacity() + one.others.capacity())).sum();
        nodes + edges + answers + questions + self.push.bytes() + 8 * self.seeds.capacity()
    }

    /// The personalised `PageRank` of the batch.
    pub(crate) fn ranking(&self) -> &Ranking {
        self.push.ranking()
    }

    /// Asks about the lists of an edge type. The caller says which nodes.
    fn ask(&mut self, edge_type: usize, direction: Direction, ask: Ask, limit: u64) -> &mut Question {
        let place = self.asked;
        self.asked += 1;
        if place == self.questions.len() {
            let (ids, others) = (Vec::new(), Vec::new());
            self.questions.push(Question { edge_type, direction, ask, limit, rows: None, ids, others });
            self.answers.push(Answer::default());
        }
        let question = &mut self.questions[place];
        (question.edge_type, question.direction, question.ask, question.limit) = (edge_type, direction, ask, limit);
        question.rows = None;
        question.ids.clear();
        question.others.clear();
        question
    }

    /// The seeds are in: closes their count and begins to expand.
    fn expand(&mut self, plan: &Plan) -> Result<()> {
        self.close_hop();
        match &plan.config().expand {
            Expand::Ppr(_) => self.begin_ppr(plan),
            Expand::Neighbors(_) | Expand::Induced(_) => self.ask_hop(plan, 0),
        }
    }

    /// Notes how many nodes there are after the seeds or after a hop.
    fn close_hop(&mut self) {
        for space in &mut self.nodes {
            space.bounds.push(space.locals.len());
        }
    }

    /// Takes nodes in and hands their rows on.
    fn admit(&mut self, plan: &Plan, node_type: usize, ids: &[u64], rows: &mut Vec<u32>) -> Result<()> {
        let admitted = self.nodes[node_type].locals.admit_slice(ids, rows);
        admitted.map_err(|refusal| refused(plan, self.batch, node_type, &refusal))
    }
}

fn refused(plan: &Plan, batch: BatchId, node_type: usize, refusal: &Refusal) -> Error {
    match refusal {
        Refusal::OutOfRange(id) => match plan.check_ids(node_type, &[*id]) {
            Err(error) => error,
            Ok(()) => Error::answer(format!("node {id} was not found")),
        },
        Refusal::TooMany => {
            Error::TooLarge { epoch: batch.epoch, g: batch.g, what: "nodes", limit: MAX_ROWS, remedy: "" }
        }
        Refusal::NoMemory(count) => Error::Memory { what: "nodes of a batch", count: *count },
    }
}

impl EdgeSpace {
    fn clear(&mut self) {
        self.rows.clear();
        self.counts.clear();
        self.expanded.clear();
        self.edge_ids.clear();
        self.bounds.clear();
    }

    fn bytes(&self) -> usize {
        4 * (self.rows.capacity() + self.counts.capacity()) + 8 * self.edge_ids.capacity()
    }
}
