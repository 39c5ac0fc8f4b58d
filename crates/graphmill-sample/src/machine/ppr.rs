//! Personalised `PageRank` by forward push, in synchronous rounds over all seeds of the batch (`docs/sampling.md`,
//! section 7).
//!
//! Every node met gets a number; degrees and fetched lists are kept by number, once per batch. What a seed has given a node
//! is a [`Mass`]. Everything lies in flat arrays that the next batch uses again.

use hashbrown::HashMap;

use super::hops::check_counts;
use super::{Machine, Stage};
use crate::config::{Expand, Ppr};
use crate::exchange::Ask;
use crate::law::{self, Purpose};
use crate::plan::Plan;
use crate::room::grow;
use crate::{Error, Result};

/// What there may be no memory for.
const NODES: &str = "nodes of a batch's PageRank";
const MASSES: &str = "scores of a batch's PageRank";

/// A node of any type, in the order of rounds.
type Node = (usize, u64);

/// The state of the push.
#[derive(Debug, Default)]
pub(crate) struct Push {
    numbers: HashMap<Node, u32>,
    nodes: Vec<Node>,
    /// By number.
    degrees: Vec<u64>,
    /// By number: where the fetched list begins and ends; nothing if it was not fetched.
    lists: Vec<Option<(usize, usize)>>,
    /// Numbers of neighbours, list after list.
    fetched: Vec<u32>,
    /// Where the mass of (seed, node), both by number, is.
    places: HashMap<(u32, u32), u32>,
    masses: Vec<Mass>,
    /// Places of masses that the next round pushes, in order of (seed, node).
    queue: Vec<u32>,
    /// Places of masses that got residual in the last round.
    touched: Vec<u32>,
    /// What the round takes from the queued masses.
    taken: Vec<(u32, f64, u32)>,
    rounds: usize,
    /// Nodes whose degree is known, those with smaller numbers.
    known_degrees: usize,
    /// Numbers of nodes whose lists are asked for.
    unlisted: Vec<u32>,
    /// Numbers of nodes that were asked about, per node type.
    asked: Vec<Vec<u32>>,
    /// Per walk, how much of its answer was taken.
    read: Vec<usize>,
    ranking: Ranking,
}

/// What a seed has given a node.
#[derive(Debug, Clone, Copy)]
struct Mass {
    seed: u32,
    node: u32,
    score: f64,
    residual: f64,
    hop: u32,
}

/// The kept nodes: for each type of seeds that there are, per node type.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    pub(crate) seed_types: Vec<(usize, Vec<Ranked>)>,
    /// Memory of earlier batches.
    spare: Vec<Vec<Ranked>>,
}

impl Ranking {
    /// Begins with the seeds of a type, unless that is under way.
    fn begin(&mut self, seed_type: usize, types: usize) {
        if self.seed_types.last().is_none_or(|(last, _)| *last != seed_type) {
            let mut ranked = self.spare.pop().unwrap_or_default();
            ranked.resize_with(types, Ranked::default);
            ranked.iter_mut().for_each(Ranked::clear);
            self.seed_types.push((seed_type, ranked));
        }
    }

    fn clear(&mut self) {
        self.spare.extend(self.seed_types.drain(..).map(|(_, ranked)| ranked));
    }

    fn bytes(&self) -> usize {
        let used = self.seed_types.iter().flat_map(|(_, ranked)| ranked);
        used.chain(self.spare.iter().flatten()).map(Ranked::bytes).sum()
    }

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

impl Ranked {
    fn clear(&mut self) {
        self.seeds.clear();
        self.nodes.clear();
        self.scores.clear();
        self.hops.clear();
    }

    fn bytes(&self) -> usize {
        4 * (self.seeds.capacity() + self.nodes.capacity()) + 8 * (self.scores.capacity() + self.hops.capacity())
    }
}

impl Push {
    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.nodes.clear();
        self.degrees.clear();
        self.lists.clear();
        self.fetched.clear();
        self.places.clear();
        self.masses.clear();
        self.queue.clear();
        self.touched.clear();
        self.rounds = 0;
        self.known_degrees = 0;
        self.ranking.clear();
    }

    pub(super) fn ranking(&self) -> &Ranking {
        &self.ranking
    }

    pub(super) fn bytes(&self) -> usize {
        let by_number = size_of::<Node>() + 8 + size_of::<Option<(usize, usize)>>();
        size_of::<(Node, u32)>() * self.numbers.capacity()
            + by_number * self.nodes.capacity()
            + 4 * (self.fetched.capacity() + self.queue.capacity() + self.touched.capacity() + self.unlisted.capacity())
            + size_of::<((u32, u32), u32)>() * self.places.capacity()
            + size_of::<Mass>() * self.masses.capacity()
            + size_of::<(u32, f64, u32)>() * self.taken.capacity()
            + self.asked.iter().map(|numbers| 4 * numbers.capacity()).sum::<usize>()
            + self.ranking.bytes()
    }

    /// Sees that there is memory for so many nodes that were not met before.
    fn room_for_nodes(&mut self, more: usize) -> Result<()> {
        let count = (self.nodes.len() + more) as u64;
        self.numbers.try_reserve(more).map_err(|_| Error::Memory { what: NODES, count })?;
        grow(&mut self.nodes, NODES, more)?;
        grow(&mut self.degrees, NODES, more)?;
        grow(&mut self.lists, NODES, more)
    }

    /// Sees that there is memory for so many masses that there were not before.
    fn room_for_masses(&mut self, more: usize) -> Result<()> {
        let count = (self.masses.len() + more) as u64;
        self.places.try_reserve(more).map_err(|_| Error::Memory { what: MASSES, count })?;
        grow(&mut self.masses, MASSES, more)
    }

    /// The number of a node, a new one if it was not met before; there is room for it.
    fn number(&mut self, node: Node) -> u32 {
        *self.numbers.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.degrees.push(0);
            self.lists.push(None);
            self.nodes.len() as u32 - 1
        })
    }

    /// The place of the mass that a seed has given a node; there is room for it.
    fn place(&mut self, seed: u32, node: u32) -> u32 {
        *self.places.entry((seed, node)).or_insert_with(|| {
            self.masses.push(Mass { seed, node, score: 0.0, residual: 0.0, hop: u32::MAX });
            self.masses.len() as u32 - 1
        })
    }

    /// Sorts places by (seed, node).
    fn sort(places: &mut [u32], masses: &[Mass], nodes: &[Node]) {
        places.sort_unstable_by_key(|&place| {
            let mass = &masses[place as usize];
            (mass.seed, nodes[mass.node as usize])
        });
    }

    /// Queues the touched masses whose residual is large for the degree of their node.
    fn enqueue(&mut self, ppr: &Ppr) -> Result<()> {
        grow(&mut self.queue, MASSES, self.touched.len())?;
        Self::sort(&mut self.touched, &self.masses, &self.nodes);
        self.touched.dedup();
        let threshold = ppr.alpha * ppr.eps;
        let (masses, degrees) = (&self.masses, &self.degrees);
        let large = |place: &u32| {
            let mass = &masses[*place as usize];
            mass.residual > 0.0 && mass.residual >= threshold * degrees[mass.node as usize] as f64
        };
        self.queue.clear();
        self.queue.extend(self.touched.drain(..).filter(large));
        Ok(())
    }

    /// Pushes what is queued; false if more than `limit` edges were followed at once or masses are kept.
    fn round(&mut self, alpha: f64, limit: u64) -> Result<bool> {
        self.rounds += 1;
        grow(&mut self.taken, MASSES, self.queue.len())?;
        let masses = &mut self.masses;
        self.taken.clear();
        self.taken.extend(self.queue.iter().map(|&place| {
            let mass = &mut masses[place as usize];
            let residual = std::mem::take(&mut mass.residual);
            mass.score += residual;
            (place, residual, mass.hop)
        }));
        self.touched.clear();
        for index in 0..self.taken.len() {
            let (place, residual, hop) = self.taken[index];
            let Mass { seed, node, .. } = self.masses[place as usize];
            let (degree, list) = (self.degrees[node as usize], self.lists[node as usize]);
            let (Some((start, end)), true) = (list, degree > 0) else { continue };
            self.room_for_masses(end - start)?;
            grow(&mut self.touched, MASSES, end - start)?;
            let share = ((1.0 - alpha) * residual) / degree as f64;
            for at in start..end {
                let place = self.place(seed, self.fetched[at]);
                let mass = &mut self.masses[place as usize];
                mass.residual += share;
                mass.hop = mass.hop.min(hop + 1);
                self.touched.push(place);
            }
            if self.touched.len().max(self.masses.len()) as u64 > limit {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notes numbers to ask about, per node type.
    fn ask_about(&mut self, numbers: impl Iterator<Item = u32>, types: usize) -> Result<()> {
        self.asked.resize(types, Vec::new());
        self.asked.iter_mut().for_each(Vec::clear);
        for number in numbers {
            let asked = &mut self.asked[self.nodes[number as usize].0];
            grow(asked, NODES, 1)?;
            asked.push(number);
        }
        Ok(())
    }
}

impl Machine {
    pub(super) fn begin_ppr(&mut self, plan: &Plan) -> Result<()> {
        let alpha = settings(plan)?.alpha;
        for (node_type, space) in self.nodes.iter().enumerate() {
            self.push.room_for_nodes(space.locals.len())?;
            self.push.room_for_masses(space.locals.len())?;
            grow(&mut self.push.queue, MASSES, space.locals.len())?;
            for &id in space.locals.nodes() {
                let seed = self.push.number((node_type, id));
                let place = self.push.place(seed, seed);
                let mass = &mut self.push.masses[place as usize];
                (mass.residual, mass.hop) = (alpha, 0);
                // In the first round the seeds themselves are queued, whatever their degree.
                self.push.queue.push(place);
            }
        }
        self.ask_degrees(plan)
    }

    /// Asks for the degrees of nodes that were met for the first time.
    fn ask_degrees(&mut self, plan: &Plan) -> Result<()> {
        self.stage = Stage::PprDegrees;
        let new = self.push.known_degrees as u32..self.push.nodes.len() as u32;
        self.push.known_degrees = self.push.nodes.len();
        self.push.ask_about(new, plan.nodes.len())?;
        for walk in &plan.walks {
            self.ask_numbers(walk.edge_type, walk.direction, Ask::Degrees, u64::MAX, walk.from)?;
        }
        Ok(())
    }

    /// Asks about the noted nodes of a type.
    fn ask_numbers(
        &mut self,
        edge_type: usize,
        direction: graphmill_graph::Direction,
        ask: Ask,
        limit: u64,
        node_type: usize,
    ) -> Result<()> {
        let place = self.asked;
        self.ask(edge_type, direction, ask, limit);
        let ids = self.push.asked[node_type].iter().map(|&number| self.push.nodes[number as usize].1);
        let question = &mut self.questions[place];
        grow(&mut question.ids, NODES, self.push.asked[node_type].len())?;
        question.ids.extend(ids);
        Ok(())
    }

    /// Knows who is queued, and asks for the lists of those who were not queued before.
    pub(super) fn take_degrees(&mut self, plan: &Plan) -> Result<()> {
        let asked = std::mem::take(&mut self.asked);
        let push = &mut self.push;
        for (walk, answer) in plan.walks.iter().zip(&self.answers[..asked]) {
            let numbers = &push.asked[walk.from];
            if numbers.len() != answer.degrees.len() {
                return Err(Error::answer("not every node has a degree"));
            }
            for (&number, &degree) in numbers.iter().zip(&answer.degrees) {
                push.degrees[number as usize] += degree;
            }
        }
        if push.rounds > 0 {
            push.enqueue(settings(plan)?)?;
        }
        if push.queue.is_empty() {
            return self.keep(plan);
        }
        self.stage = Stage::PprLists;
        let mut new = std::mem::take(&mut push.unlisted);
        new.clear();
        grow(&mut new, NODES, push.queue.len())?;
        new.extend(push.queue.iter().map(|&place| push.masses[place as usize].node));
        new.retain(|&number| push.lists[number as usize].is_none());
        new.sort_unstable_by_key(|&number| push.nodes[number as usize]);
        new.dedup();
        push.ask_about(new.iter().copied(), plan.nodes.len())?;
        push.unlisted = new;
        for walk in &plan.walks {
            let stream = law::stream(Purpose::Ppr, plan.config().seed, self.batch, 0, walk.word);
            let ask = Ask::Neighbors { take: walk.takes[0], stream, edge_ids: false };
            self.ask_numbers(walk.edge_type, walk.direction, ask, plan.config().max_edges, walk.from)?;
        }
        Ok(())
    }

    /// Takes in the fetched lists and pushes one round.
    pub(super) fn take_lists(&mut self, plan: &Plan) -> Result<()> {
        let asked = std::mem::take(&mut self.asked);
        let (push, answers) = (&mut self.push, &self.answers[..asked]);
        for (walk, answer) in plan.walks.iter().zip(answers) {
            check_counts(&answer.counts, push.asked[walk.from].len(), answer.neighbors.len())?;
            self.edge_count += answer.neighbors.len() as u64;
        }
        if self.edge_count > plan.config().max_edges {
            return Err(Error::too_many_edges(self.batch, plan.config().max_edges));
        }
        // A node's list is what all walks from its type fetched, in their order.
        let mut read = std::mem::take(&mut push.read);
        read.clear();
        read.resize(answers.len(), 0);
        for node_type in 0..plan.nodes.len() {
            for index in 0..push.asked[node_type].len() {
                let start = push.fetched.len();
                for (place, walk) in plan.walks.iter().enumerate().filter(|(_, walk)| walk.from == node_type) {
                    let count = answers[place].counts[index] as usize;
                    push.room_for_nodes(count)?;
                    grow(&mut push.fetched, NODES, count)?;
                    let end = read[place] + count;
                    for at in read[place]..end {
                        let Some(neighbor) = answers[place].neighbors.get(at) else { continue };
                        let number = push.number((walk.to, neighbor));
                        push.fetched.push(number);
                    }
                    read[place] = end;
                }
                let number = push.asked[node_type][index];
                push.lists[number as usize] = Some((start, push.fetched.len()));
            }
        }
        push.read = read;
        let limit = plan.config().max_edges;
        if !push.round(settings(plan)?.alpha, limit)? {
            return Err(Error::too_many_edges(self.batch, limit));
        }
        self.ask_degrees(plan)
    }

    /// Chooses the nodes of highest score.
    fn keep(&mut self, plan: &Plan) -> Result<()> {
        let top_up = settings(plan)?.top_up;
        let mut push = std::mem::take(&mut self.push);
        // Scored nodes first, then those with residual alone.
        let value = |mass: &Mass| if mass.score > 0.0 { mass.score } else { mass.residual };
        push.queue.clear();
        grow(&mut push.queue, MASSES, push.masses.len())?;
        push.queue.extend((0..).zip(&push.masses).filter_map(|(place, mass)| {
            let kept = mass.score > 0.0 || (top_up && mass.residual > 0.0);
            kept.then_some(place)
        }));
        let Push { masses, nodes, queue, ranking, .. } = &mut push;
        queue.sort_unstable_by(|&a, &b| {
            let (a, b) = (&masses[a as usize], &masses[b as usize]);
            let key = |mass: &Mass| (mass.seed, nodes[mass.node as usize].0, mass.score <= 0.0);
            let by_value = value(b).total_cmp(&value(a));
            key(a).cmp(&key(b)).then(by_value).then(nodes[a.node as usize].1.cmp(&nodes[b.node as usize].1))
        });
        let mut row = Vec::new();
        let mut seed = None;
        let mut room = vec![0; plan.nodes.len()];
        for &place in &*queue {
            let mass = &masses[place as usize];
            let ((seed_type, seed_id), (node_type, id)) = (nodes[mass.seed as usize], nodes[mass.node as usize]);
            if seed != Some(mass.seed) {
                seed = Some(mass.seed);
                row.clear();
                self.admit(plan, seed_type, &[seed_id], &mut row)?;
                room.iter_mut().zip(&plan.nodes).for_each(|(room, node)| *room = node.budget);
                ranking.begin(seed_type, plan.nodes.len());
            }
            if room[node_type] > 0
                && let Some((_, types)) = ranking.seed_types.last_mut()
            {
                room[node_type] -= 1;
                let ranked = &mut types[node_type];
                grow(&mut ranked.seeds, MASSES, 1)?;
                grow(&mut ranked.scores, MASSES, 1)?;
                grow(&mut ranked.hops, MASSES, 1)?;
                ranked.seeds.push(row[0]);
                self.admit(plan, node_type, &[id], &mut ranked.nodes)?;
                ranked.scores.push(value(mass));
                ranked.hops.push(mass.hop.into());
            }
        }
        self.push = push;
        self.close_hop();
        self.stage = Stage::Done;
        Ok(())
    }
}

fn settings(plan: &Plan) -> Result<&Ppr> {
    match &plan.config().expand {
        Expand::Ppr(ppr) => Ok(ppr),
        _ => Err(Error::config("the plan has no PageRank")),
    }
}
