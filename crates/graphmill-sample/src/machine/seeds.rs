//! Where seeds come from: the nodes that were asked for, pairs with their negatives, or anchors with their labels
//! (`docs/sampling.md`, section 6).

use graphmill_graph::Direction;
use graphmill_graph::random::Stream;

use super::hops::check_counts;
use super::{EDGES, Machine, Pairs, SEEDS, Stage};
use crate::config::Negatives;
use crate::exchange::{Ask, Take};
use crate::law::{self, BatchId, Draws, Purpose};
use crate::plan::{LinkPlan, Plan, TaskPlan};
use crate::room::{grow, room};
use crate::{Error, Result};

/// Attempts at a strict negative before it is given up.
const ATTEMPTS: u64 = 32;

/// What there may be no memory for.
const NEGATIVES: &str = "negatives of a batch";

/// The row of a negative that was not found.
pub(crate) const MISSING: u32 = u32::MAX;

/// Seed pairs and their negatives: ids first, rows once they are seeds.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub(crate) classes: Option<Vec<i64>>,
    src: Vec<u64>,
    dst: Vec<u64>,
    /// Sources and targets of negatives; nothing where none was found.
    negatives: Vec<Option<(u64, u64)>>,
    /// Negatives that are still to be checked.
    open: Vec<usize>,
    pub(crate) src_rows: Vec<u32>,
    pub(crate) dst_rows: Vec<u32>,
    /// The rows of negatives' sources (binary only) and targets.
    pub(crate) negative_src_rows: Vec<u32>,
    pub(crate) negative_dst_rows: Vec<u32>,
    pub(crate) missing: u64,
}

impl Links {
    pub(super) fn clear(&mut self) {
        self.src.clear();
        self.dst.clear();
        self.negatives.clear();
        self.open.clear();
        self.src_rows.clear();
        self.dst_rows.clear();
        self.negative_src_rows.clear();
        self.negative_dst_rows.clear();
        self.missing = 0;
    }

    pub(super) fn take(&mut self, pairs: &Pairs<'_>) -> Result<()> {
        let count = pairs.positions.len();
        let classes = pairs.classes.map_or(count, <[i64]>::len);
        if [pairs.src.len(), pairs.dst.len(), classes] != [count; 3] {
            return Err(Error::config("pairs have as many sources, targets and classes as positions"));
        }
        if let Some(class) = pairs.classes.into_iter().flatten().find(|&&class| !(0..i64::MAX).contains(&class)) {
            return Err(Error::config(format!("a pair has class {class}, expected 0 to 2^63 - 2")));
        }
        grow(&mut self.src, SEEDS, count)?;
        grow(&mut self.dst, SEEDS, count)?;
        self.src.extend(pairs.src);
        self.dst.extend(pairs.dst);
        self.classes = None;
        if let Some(classes) = pairs.classes {
            let mut taken = room(SEEDS, count as u64)?;
            taken.extend_from_slice(classes);
            self.classes = Some(taken);
        }
        Ok(())
    }

    /// Negative `index` in an attempt.
    fn draw(&self, plan: &Plan, links: &LinkPlan, stream: Stream, index: usize, attempt: u64) -> Option<(u64, u64)> {
        let draws = Draws::new(stream, index as u64);
        let dst = draw_node(plan, links, 1, links.dst, draws, 2 * attempt + 1)?;
        match links.negatives.as_ref()? {
            Negatives::Binary { .. } => Some((draw_node(plan, links, 0, links.src, draws, 2 * attempt)?, dst)),
            Negatives::Triplet { amount, .. } => Some((self.src[index / *amount as usize], dst)),
        }
    }
}

/// A node of a type, uniformly or by weight; nothing if there is none to draw.
fn draw_node(plan: &Plan, links: &LinkPlan, end: usize, node_type: usize, draws: Draws, word: u64) -> Option<u64> {
    let Some(sums) = &links.sums else {
        let count = plan.nodes[node_type].count;
        return (count > 0).then(|| draws.below(word, count));
    };
    let sums = &sums[end];
    let total = sums.last().copied().filter(|&total| total > 0)?;
    let wanted = draws.below(word, total);
    let found = sums.partition_point(|&sum| sum <= wanted);
    Some(found.min(sums.len() - 1) as u64)
}

impl Machine {
    pub(super) fn begin_seeds(&mut self, plan: &Plan) -> Result<()> {
        match &plan.task {
            TaskPlan::Nodes { node_type } => {
                self.admit_asked(plan, *node_type)?;
                self.expand(plan)
            }
            TaskPlan::Anchors { node_type, labels, take } => {
                plan.check_ids(*node_type, &self.seeds)?;
                self.stage = Stage::Labels;
                let stream = Stream::new(0, &[]);
                for label in labels {
                    let ask = Ask::Neighbors { take: some(*take), stream, edge_ids: false };
                    self.ask(label.edge_type, Direction::Out, ask, plan.config().max_edges);
                }
                for question in &mut self.questions[..self.asked] {
                    grow(&mut question.ids, SEEDS, self.seeds.len())?;
                    question.ids.extend_from_slice(&self.seeds);
                }
                Ok(())
            }
            TaskPlan::Links(links) => self.begin_links(plan, links),
        }
    }

    fn admit_asked(&mut self, plan: &Plan, node_type: usize) -> Result<()> {
        let (seeds, mut rows) = (std::mem::take(&mut self.seeds), std::mem::take(&mut self.seed_rows));
        let admitted = self.admit(plan, node_type, &seeds, &mut rows);
        (self.seeds, self.seed_rows) = (seeds, rows);
        admitted
    }

    /// Anchors are seeds, then the labels of each supervision.
    pub(super) fn take_labels(&mut self, plan: &Plan) -> Result<()> {
        let TaskPlan::Anchors { node_type, labels, .. } = &plan.task else { return Ok(()) };
        self.asked = 0;
        self.admit_asked(plan, *node_type)?;
        for (place, label) in labels.iter().enumerate() {
            let (answer, pairs) = (&self.answers[place], &mut self.labels[place]);
            check_counts(&answer.counts, self.seeds.len(), answer.neighbors.len())?;
            grow(&mut pairs.anchors, EDGES, answer.neighbors.len())?;
            let repeated = |(&row, &count): (&u32, &u32)| std::iter::repeat_n(row, count as usize);
            pairs.anchors.extend(self.seed_rows.iter().zip(&answer.counts).flat_map(repeated));
            let admitted = self.nodes[label.to].locals.admit_all(&answer.neighbors, &mut pairs.labels);
            admitted.map_err(|refusal| super::refused(plan, self.batch, label.to, &refusal))?;
        }
        self.expand(plan)
    }

    fn begin_links(&mut self, plan: &Plan, links: &LinkPlan) -> Result<()> {
        plan.check_ids(links.src, &self.links.src)?;
        plan.check_ids(links.dst, &self.links.dst)?;
        let pairs = self.links.src.len();
        let count = match &links.negatives {
            None => 0,
            Some(Negatives::Binary { amount, .. }) => (pairs as f64 * amount).ceil() as u64,
            Some(Negatives::Triplet { amount, .. }) => pairs as u64 * u64::from(*amount),
        };
        if count > plan.config().max_edges {
            return Err(Error::too_many_edges(self.batch, plan.config().max_edges));
        }
        self.draw_negatives(plan, links, count as usize)
    }

    fn draw_negatives(&mut self, plan: &Plan, links: &LinkPlan, count: usize) -> Result<()> {
        let stream = negatives_stream(plan, self.batch, links);
        let mut negatives = std::mem::take(&mut self.links.negatives);
        grow(&mut negatives, NEGATIVES, count)?;
        negatives.extend((0..count).map(|index| self.links.draw(plan, links, stream, index, 0)));
        self.links.negatives = negatives;
        if links.refuse.is_empty() {
            return self.admit_links(plan, links);
        }
        grow(&mut self.links.open, NEGATIVES, count)?;
        let open = self.links.negatives.iter().enumerate().filter(|(_, pair)| pair.is_some()).map(|(index, _)| index);
        self.links.open.extend(open);
        self.ask_checks(plan, links, 0)
    }

    /// Asks whether open negatives are edges of the graph, or ends when none is open.
    fn ask_checks(&mut self, plan: &Plan, links: &LinkPlan, attempt: u64) -> Result<()> {
        if self.links.open.is_empty() {
            return self.admit_links(plan, links);
        }
        self.stage = Stage::Negatives { attempt };
        for &(edge_type, direction) in &links.refuse {
            let place = self.asked;
            self.ask(edge_type, direction, Ask::Contains, plan.config().max_edges);
            let question = &mut self.questions[place];
            grow(&mut question.ids, NEGATIVES, self.links.open.len())?;
            grow(&mut question.others, NEGATIVES, self.links.open.len())?;
            for &index in &self.links.open {
                let Some((src, dst)) = self.links.negatives[index] else { continue };
                let (owner, other) = match direction {
                    Direction::In => (dst, src),
                    Direction::Out => (src, dst),
                };
                question.ids.push(owner);
                question.others.push(other);
            }
        }
        Ok(())
    }

    /// Keeps negatives that are no edges and draws the others again.
    pub(super) fn take_checks(&mut self, plan: &Plan, attempt: u64) -> Result<()> {
        let TaskPlan::Links(links) = &plan.task else { return Ok(()) };
        self.asked = 0;
        let answers = &self.answers[..links.refuse.len()];
        if answers.iter().any(|answer| answer.counts.len() != self.links.open.len()) {
            return Err(Error::answer("not every negative was checked"));
        }
        let is_edge = |place: usize| answers.iter().any(|answer| answer.counts[place] > 0);
        let mut again = std::mem::take(&mut self.links.open);
        let mut place = 0;
        again.retain(|_| {
            place += 1;
            is_edge(place - 1)
        });
        let stream = negatives_stream(plan, self.batch, links);
        for &index in &again {
            let next = attempt + 1;
            let drawn = if next < ATTEMPTS { self.links.draw(plan, links, stream, index, next) } else { None };
            self.links.negatives[index] = drawn;
        }
        self.links.open = again;
        if attempt + 1 == ATTEMPTS {
            self.links.open.clear();
        }
        self.ask_checks(plan, links, attempt + 1)
    }

    /// All ends are seeds: sources, targets, then those of negatives.
    fn admit_links(&mut self, plan: &Plan, links: &LinkPlan) -> Result<()> {
        let mut pairs = std::mem::take(&mut self.links);
        grow(&mut pairs.negative_src_rows, NEGATIVES, pairs.negatives.len())?;
        grow(&mut pairs.negative_dst_rows, NEGATIVES, pairs.negatives.len())?;
        self.admit(plan, links.src, &pairs.src, &mut pairs.src_rows)?;
        self.admit(plan, links.dst, &pairs.dst, &mut pairs.dst_rows)?;
        if let Some(Negatives::Binary { .. }) = links.negatives {
            for pair in &pairs.negatives {
                match pair {
                    Some((src, _)) => self.admit(plan, links.src, &[*src], &mut pairs.negative_src_rows)?,
                    None => pairs.negative_src_rows.push(MISSING),
                }
            }
        }
        for pair in &pairs.negatives {
            match pair {
                Some((_, dst)) => self.admit(plan, links.dst, &[*dst], &mut pairs.negative_dst_rows)?,
                None => pairs.negative_dst_rows.push(MISSING),
            }
        }
        pairs.missing = pairs.negatives.iter().filter(|pair| pair.is_none()).count() as u64;
        self.links = pairs;
        self.expand(plan)
    }
}

/// Labels capped at zero are none at all.
fn some(take: Take) -> Take {
    if take == Take::First(0) { Take::Nothing } else { take }
}

fn negatives_stream(plan: &Plan, batch: BatchId, links: &LinkPlan) -> Stream {
    law::stream(Purpose::Negatives, plan.config().seed, batch, 0, links.word)
}
