//! Personalised `PageRank` by forward push, in synchronous rounds over all seeds of the batch (`docs/sampling.md`,
//! section 7). A node's lists and degree are fetched once per batch.

use std::collections::{BTreeMap, HashMap};

use super::{Machine, Stage};
use crate::config::{Expand, Ppr};
use crate::exchange::Ask;
use crate::law::{self, Purpose};
use crate::plan::Plan;
use crate::{Error, Result};

/// A node of any type, in the order of rounds.
type Node = (usize, u64);

/// The state of the push.
#[derive(Debug, Default)]
pub(crate) struct Push {
    seeds: Vec<SeedPush>,
    degrees: HashMap<Node, u64>,
    lists: HashMap<Node, Vec<Node>>,
    /// Nodes whose degree was asked for, per node type.
    asked_degrees: Vec<Vec<u64>>,
    /// Nodes whose lists were asked for, per node type.
    asked_lists: Vec<Vec<u64>>,
    ranking: Ranking,
}

/// One seed's view of the graph.
#[derive(Debug)]
struct SeedPush {
    seed: Node,
    /// Ordered, so that nothing depends on a hash.
    mass: BTreeMap<Node, Mass>,
    queue: Vec<Node>,
    /// Nodes that got residual in the last round.
    touched: Vec<Node>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Mass {
    score: f64,
    residual: f64,
    hop: u32,
}

/// The kept nodes: for each type of seeds that there are, per node type.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    pub(crate) seed_types: Vec<(usize, Vec<Ranked>)>,
}

impl Ranking {
    /// The kept nodes of one type for the seeds of one type.
    pub(crate) fn of(&self, seed_type: usize, node_type: usize) -> Option<&Ranked> {
        let (_, types) = self.seed_types.iter().find(|(place, _)| *place == seed_type)?;
        types.get(node_type)
    }
}

/// Kept nodes of one type for the seeds of one type.
#[derive(Debug, Default)]
pub(crate) struct Ranked {
    pub(crate) seeds: Vec<u32>,
    pub(crate) nodes: Vec<u32>,
    pub(crate) scores: Vec<f64>,
    pub(crate) hops: Vec<i64>,
}

impl Push {
    pub(super) fn clear(&mut self) {
        self.seeds.clear();
        self.degrees.clear();
        self.lists.clear();
        self.ranking.seed_types.clear();
    }

    pub(super) fn ranking(&self) -> &Ranking {
        &self.ranking
    }

    pub(super) fn bytes(&self) -> usize {
        let lists: usize = self.lists.values().map(|list| size_of::<Node>() * list.capacity()).sum();
        let mass: usize = self.seeds.iter().map(|seed| seed.mass.len() * size_of::<(Node, Mass)>()).sum();
        lists + mass + size_of::<(Node, u64)>() * (self.degrees.capacity() + self.lists.capacity())
    }
}

impl Machine {
    pub(super) fn begin_ppr(&mut self, plan: &Plan) -> Result<()> {
        let alpha = settings(plan)?.alpha;
        for (node_type, space) in self.nodes.iter().enumerate() {
            self.push.seeds.extend(space.locals.nodes().iter().map(|&id| {
                let seed = (node_type, id);
                let mass = BTreeMap::from([(seed, Mass { residual: alpha, ..Mass::default() })]);
                SeedPush { seed, mass, queue: vec![seed], touched: vec![seed] }
            }));
        }
        self.ask_degrees(plan)
    }

    /// Asks for the degrees of nodes that were touched for the first time.
    fn ask_degrees(&mut self, plan: &Plan) -> Result<()> {
        self.stage = Stage::PprDegrees;
        let push = &mut self.push;
        let new = push.seeds.iter().flat_map(|seed| &seed.touched).filter(|node| !push.degrees.contains_key(node));
        push.asked_degrees = distinct(new, plan.nodes.len());
        for (node_type, ids) in push.asked_degrees.iter().enumerate() {
            push.degrees.extend(ids.iter().map(|&id| ((node_type, id), 0)));
        }
        for walk in &plan.walks {
            let place = self.asked;
            self.ask(walk.edge_type, walk.direction, Ask::Degrees, u64::MAX);
            self.questions[place].ids.extend_from_slice(&self.push.asked_degrees[walk.from]);
        }
        Ok(())
    }

    /// Knows who is queued, and asks for the lists of those who were not queued before.
    pub(super) fn take_degrees(&mut self, plan: &Plan) -> Result<()> {
        let asked = std::mem::take(&mut self.asked);
        for (walk, answer) in plan.walks.iter().zip(&self.answers[..asked]) {
            let ids = &self.push.asked_degrees[walk.from];
            if ids.len() != answer.degrees.len() {
                return Err(Error::answer("not every node has a degree"));
            }
            for (&id, &degree) in ids.iter().zip(&answer.degrees) {
                *self.push.degrees.entry((walk.from, id)).or_default() += degree;
            }
        }
        let ppr = settings(plan)?;
        let push = &mut self.push;
        // In the first round the seeds themselves are queued, whatever their degree.
        if !push.lists.is_empty() {
            for seed in &mut push.seeds {
                seed.enqueue(ppr, &push.degrees);
            }
        }
        if push.seeds.iter().all(|seed| seed.queue.is_empty()) {
            return self.keep(plan);
        }
        self.stage = Stage::PprLists;
        let new = push.seeds.iter().flat_map(|seed| &seed.queue).filter(|node| !push.lists.contains_key(node));
        push.asked_lists = distinct(new, plan.nodes.len());
        for (node_type, ids) in push.asked_lists.iter().enumerate() {
            push.lists.extend(ids.iter().map(|&id| ((node_type, id), Vec::new())));
        }
        for walk in &plan.walks {
            let place = self.asked;
            let stream = law::stream(Purpose::Ppr, plan.config().seed, self.batch, 0, walk.word);
            let ask = Ask::Neighbors { take: walk.takes[0], stream, edge_ids: false };
            self.ask(walk.edge_type, walk.direction, ask, plan.config().max_edges);
            self.questions[place].ids.extend_from_slice(&self.push.asked_lists[walk.from]);
        }
        Ok(())
    }

    /// Pushes one round.
    pub(super) fn take_lists(&mut self, plan: &Plan) -> Result<()> {
        let asked = std::mem::take(&mut self.asked);
        for (walk, answer) in plan.walks.iter().zip(&self.answers[..asked]) {
            let ids = &self.push.asked_lists[walk.from];
            super::hops::check_counts(&answer.counts, ids.len(), answer.neighbors.len())?;
            self.edge_count += answer.neighbors.len() as u64;
            let mut place = 0;
            for (&id, &count) in ids.iter().zip(&answer.counts) {
                let list = self.push.lists.entry((walk.from, id)).or_default();
                let neighbors = (place..place + count as usize).filter_map(|place| answer.neighbors.get(place));
                list.extend(neighbors.map(|neighbor| (walk.to, neighbor)));
                place += count as usize;
            }
        }
        if self.edge_count > plan.config().max_edges {
            return Err(Error::too_many_edges(self.batch, plan.config().max_edges));
        }
        let alpha = settings(plan)?.alpha;
        let push = &mut self.push;
        for seed in &mut push.seeds {
            seed.round(alpha, &push.degrees, &push.lists);
        }
        self.ask_degrees(plan)
    }

    /// Chooses the nodes of highest score.
    fn keep(&mut self, plan: &Plan) -> Result<()> {
        let top_up = settings(plan)?.top_up;
        let seeds = std::mem::take(&mut self.push.seeds);
        let mut ranking: Vec<(usize, Vec<Ranked>)> = Vec::new();
        let mut row = Vec::new();
        for seed in &seeds {
            if ranking.last().is_none_or(|(seed_type, _)| *seed_type != seed.seed.0) {
                ranking.push((seed.seed.0, plan.nodes.iter().map(|_| Ranked::default()).collect()));
            }
            let Some((_, types)) = ranking.last_mut() else { continue };
            row.clear();
            self.admit(plan, seed.seed.0, &[seed.seed.1], &mut row)?;
            let seed_row = row[0];
            for (node_type, ranked) in types.iter_mut().enumerate() {
                for (id, score, hop) in seed.kept(node_type, plan.nodes[node_type].budget, top_up) {
                    ranked.seeds.push(seed_row);
                    self.admit(plan, node_type, &[id], &mut ranked.nodes)?;
                    ranked.scores.push(score);
                    ranked.hops.push(hop.into());
                }
            }
        }
        self.push.seeds = seeds;
        self.push.ranking.seed_types = ranking;
        self.close_hop();
        self.stage = Stage::Done;
        Ok(())
    }
}

impl SeedPush {
    /// Queues the touched nodes whose residual is large for their degree, in order.
    fn enqueue(&mut self, ppr: &Ppr, degrees: &HashMap<Node, u64>) {
        self.touched.sort_unstable();
        self.touched.dedup();
        let threshold = ppr.alpha * ppr.eps;
        let large = |node: &Node| {
            let residual = self.mass.get(node).map_or(0.0, |mass| mass.residual);
            let degree = degrees.get(node).copied().unwrap_or(0);
            residual > 0.0 && residual >= threshold * degree as f64
        };
        self.queue.clear();
        self.queue.extend(self.touched.iter().copied().filter(large));
        self.touched.clear();
    }

    fn round(&mut self, alpha: f64, degrees: &HashMap<Node, u64>, lists: &HashMap<Node, Vec<Node>>) {
        let take = |node: &Node| {
            let mass = self.mass.entry(*node).or_default();
            let residual = std::mem::take(&mut mass.residual);
            mass.score += residual;
            (*node, residual, mass.hop)
        };
        let pushed: Vec<(Node, f64, u32)> = self.queue.iter().map(take).collect();
        self.touched.clear();
        for (node, residual, hop) in pushed {
            let degree = degrees.get(&node).copied().unwrap_or(0);
            if degree == 0 {
                continue;
            }
            let share = ((1.0 - alpha) * residual) / degree as f64;
            for neighbor in lists.get(&node).into_iter().flatten() {
                let new = Mass { hop: u32::MAX, ..Mass::default() };
                let mass = self.mass.entry(*neighbor).or_insert(new);
                mass.residual += share;
                mass.hop = mass.hop.min(hop + 1);
                self.touched.push(*neighbor);
            }
        }
    }

    /// The kept nodes of a type: id, score, hop.
    fn kept(&self, node_type: usize, budget: usize, top_up: bool) -> Vec<(u64, f64, u32)> {
        let of_type = self.mass.range((node_type, 0)..=(node_type, u64::MAX)).map(|(&(_, id), mass)| (id, mass));
        let (scored, rest): (Vec<_>, Vec<_>) = of_type.partition(|(_, mass)| mass.score > 0.0);
        let mut kept = best(scored.into_iter().map(|(id, mass)| (id, mass.score, mass.hop)), budget);
        if top_up {
            let rest = rest.into_iter().filter(|(_, mass)| mass.residual > 0.0);
            kept.extend(best(rest.map(|(id, mass)| (id, mass.residual, mass.hop)), budget - kept.len()));
        }
        kept
    }
}

/// The first by score descending, then id.
fn best(nodes: impl Iterator<Item = (u64, f64, u32)>, budget: usize) -> Vec<(u64, f64, u32)> {
    let mut nodes: Vec<_> = nodes.collect();
    nodes.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    nodes.truncate(budget);
    nodes
}

/// Ids per node type, ascending, each once.
fn distinct<'a>(nodes: impl Iterator<Item = &'a Node>, types: usize) -> Vec<Vec<u64>> {
    let mut ids = vec![Vec::new(); types];
    for &(node_type, id) in nodes {
        ids[node_type].push(id);
    }
    for ids in &mut ids {
        ids.sort_unstable();
        ids.dedup();
    }
    ids
}

fn settings(plan: &Plan) -> Result<&Ppr> {
    match &plan.config().expand {
        Expand::Ppr(ppr) => Ok(ppr),
        _ => Err(Error::config("the plan has no PageRank")),
    }
}
