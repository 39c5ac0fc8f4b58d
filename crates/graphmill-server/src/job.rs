//! A batch at work on this server: a sampler's machine whose questions go to whoever owns the nodes.
//!
//! The questions to peers are sent first; while they travel, the share of this server is answered. A batch that waits for
//! answers is put aside and holds no thread; the last answer to arrive brings it back to the workers.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use graphmill_sample::{
    Ask, BatchId, Gather, KeptRows, Layout, Machine, Need, RowCache, RowSplit, Source, Split, Step,
};
use graphmill_wire::{Header, Kind, Limits, Message, exchange, proto};

use crate::Refusal;
use crate::cluster::{Answered, Cluster, Lineup, Question};
use crate::core::Core;
use crate::life::Life;
use crate::outlet::BatchMemory;
use crate::registry::Channel;
use crate::scheduler::Turn;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::work::Memory;

/// What an edge costs, in bytes of features: reading and renumbering it takes about as long as copying so many.
const EDGE_WORK: u64 = 64;

/// What a nanosecond is worth, in the same bytes, when a batch fails.
const WORK_PER_NS: u64 = 4;
/// The most bytes of rows to ask for at once.
const ROWS_ASKED: usize = 64 << 20;

/// What peers said, by the numbers of their questions.
type Replies = Vec<(usize, Result<Answered, Refusal>)>;
/// A batch, and what it waited for.
type Answers = (Box<Job>, Replies);

/// A batch at work.
pub(crate) struct Job {
    turn: Turn,
    channel: Arc<Channel>,
    /// None only while its memory is being given back.
    machine: Option<Machine>,
    stage: Stage,
    /// Per question under way, its shares.
    splits: Vec<Split>,
    /// Which share each piece of a question belongs to that a peer was asked: its question and its owner.
    asked: Vec<(usize, usize)>,
    /// Who was asked last, and how often that was in vain.
    lineup: Arc<Lineup>,
    attempts: u32,
    began: Instant,
    sampled: Duration,
    life: Life,
}

enum Stage {
    Begin,
    /// The answers to all questions of the machine are in the splits.
    Asked,
    /// Nodes and edges are known; rows of features and labels are on their way into memory.
    Rows(Rows),
}

/// How far a step went.
enum Progress {
    /// Questions were sent.
    Waits,
    /// All of the batch is in its memory.
    Filled,
    /// Its client is gone.
    Unwanted,
    /// There is no memory for so many bytes now.
    NoRoom(u64),
}

/// A batch that is being filled.
struct Rows {
    layout: Layout,
    memory: BatchMemory,
    /// What peers were asked for, in the order of their questions.
    asked: Vec<RowsAsked>,
}

struct RowsAsked {
    /// Which rows of the tensor they become.
    places: Vec<u32>,
    /// Where the tensor lies.
    tensor: Range<usize>,
    row_bytes: usize,
    /// Where they may be kept, and whose they are.
    keeps: Option<(Arc<RowCache>, Vec<u64>)>,
}

/// This server's share of a tensor's rows.
struct LocalRows {
    source: Source,
    half: bool,
    ids: Vec<u64>,
    places: Vec<u32>,
    /// How many rows the tensor has.
    count: usize,
    tensor: Range<usize>,
}

/// What a batch waits for.
struct Waiting {
    core: Arc<Core>,
    /// Answers that are missing, and one for the worker that asked.
    left: AtomicUsize,
    replies: Mutex<Replies>,
    job: Mutex<Option<Box<Job>>>,
}

/// The questions of one step to peers.
struct Asking {
    waiting: Arc<Waiting>,
    /// Who is asked.
    lineup: Arc<Lineup>,
}

/// Begins a batch.
pub(crate) fn begin(core: &Arc<Core>, turn: Turn, memory: &mut Memory) {
    let Some(channel) = core.channel_in_epoch(turn) else {
        core.work.scheduler(|scheduler| scheduler.abandoned(turn));
        return;
    };
    let (machine, life) = (Some(channel.backend.machine()), channel.lives.begun(turn.epoch, turn.g));
    let (began, sampled) = (Instant::now(), Duration::ZERO);
    let job = Job {
        turn,
        channel,
        machine,
        stage: Stage::Begin,
        splits: Vec::new(),
        asked: Vec::new(),
        lineup: core.cluster.lineup(),
        attempts: 0,
        began,
        sampled,
        life,
    };
    run(core, Box::new(job), Vec::new(), memory);
}

/// Goes on with a batch whose answers have arrived, until it is finished or waits again.
fn run(core: &Arc<Core>, mut job: Box<Job>, mut replies: Replies, memory: &mut Memory) {
    loop {
        if core.channel_in_epoch(job.turn).is_none() {
            return job.abandon(core);
        }
        let asking = Asking::new(core);
        let step = || job.advance(std::mem::take(&mut replies), &asking, memory);
        let outcome = catch_unwind(AssertUnwindSafe(step));
        match outcome {
            Ok(Ok(Progress::Filled)) => return job.finish(core),
            Ok(Ok(Progress::Unwanted)) => return job.abandon(core),
            Ok(Ok(Progress::NoRoom(bytes))) => return job.put_back(core, bytes),
            Ok(Ok(Progress::Waits)) => match asking.wait(job) {
                None => return,
                Some((back, arrived)) => (job, replies) = (back, arrived),
            },
            Ok(Err(refusal)) => return job.fail(core, &refusal),
            Err(panic) => {
                *memory = Memory::default();
                // What the machine was doing is unknown, so it does not go on.
                job.machine = Some(Machine::new(&job.channel.backend.plan));
                return job
                    .fail(core, &Refusal::internal(format!("sampling panicked: {}", panic_message(panic.as_ref()))));
            }
        }
    }
}

impl Job {
    /// One step: as far as it goes without an answer from a peer.
    fn advance(&mut self, replies: Replies, asking: &Asking, memory: &mut Memory) -> Result<Progress, Refusal> {
        let before = std::mem::replace(&mut self.lineup, Arc::clone(&asking.lineup));
        let lost = replies.iter().find_map(|(_, reply)| reply.as_ref().err());
        if let Some(refusal) = lost
            && Cluster::again(&before, &asking.lineup, refusal, &mut self.attempts)
        {
            return self.ask_again(asking, memory);
        }
        let plan = Arc::clone(&self.channel.backend.plan);
        let stage = self.life.stage().entered();
        let Some(machine) = &mut self.machine else { return Err(Refusal::internal("a batch has no machine")) };
        match &mut self.stage {
            Stage::Begin => {
                let id = BatchId { epoch: self.turn.epoch, g: self.turn.g, repeated: false };
                self.channel.cut(id, &mut memory.cut)?;
                machine.begin(&plan, memory.cut.seeds(&self.channel.seeds), id)?;
                self.stage = Stage::Asked;
            }
            Stage::Asked => {
                read_answers(&mut self.splits, &self.asked, replies)?;
                for (split, (need, answer)) in self.splits.iter().zip(machine.needs()) {
                    split.merge(need.ask, answer)?;
                }
            }
            Stage::Rows(rows) => {
                rows.take(replies)?;
                return Ok(Progress::Filled);
            }
        }
        loop {
            if machine.step(&plan)? == Step::Done {
                self.sampled = self.began.elapsed();
                drop(stage);
                self.life.sampled();
                let _stage = self.life.stage().entered();
                return self.gather(asking);
            }
            if asking.lineup.is_whole() {
                for (need, answer) in machine.needs() {
                    asking.lineup.view.answer(&need, answer, &mut memory.scratch)?;
                }
                // PageRank may take any number of rounds: they are not gone through for somebody who has left.
                if asking.waiting.core.channel_in_epoch(self.turn).is_none() {
                    return Ok(Progress::Unwanted);
                }
                continue;
            }
            asking.ask_owners(machine, self.turn.g, &mut self.splits, &mut self.asked, memory)?;
            return Ok(Progress::Waits);
        }
    }

    /// Asks the questions of the last step once more, because a peer was lost over one of them: others have what it had.
    fn ask_again(&mut self, asking: &Asking, memory: &mut Memory) -> Result<Progress, Refusal> {
        let _stage = self.life.stage().entered();
        if matches!(self.stage, Stage::Rows(_)) {
            return self.gather(asking);
        }
        let Some(machine) = &mut self.machine else { return Err(Refusal::internal("a batch has no machine")) };
        asking.ask_owners(machine, self.turn.g, &mut self.splits, &mut self.asked, memory)?;
        Ok(Progress::Waits)
    }

    /// Lays the batch out and fills it; what peers have is asked for.
    fn gather(&mut self, asking: &Asking) -> Result<Progress, Refusal> {
        let Some(machine) = &self.machine else { return Err(Refusal::internal("a batch has no machine")) };
        let (plan, lineup) = (&self.channel.backend.plan, &asking.lineup);
        let layout = Layout::of(plan, machine);
        let Some(outlet) = self.channel.outlet() else { return Ok(Progress::Unwanted) };
        let most = Limits::CLIENT.body;
        if layout.bytes() as u64 > most {
            let bytes = layout.bytes();
            let reason = format!("it has {bytes} bytes, a client takes {most}; lower the fanouts or the batch size");
            return Err(Refusal::invalid(reason));
        }
        let mut memory = match outlet.memory(layout.bytes()) {
            Ok(memory) => memory,
            Err(refusal) if refusal.busy => return Ok(Progress::NoRoom(layout.bytes() as u64)),
            Err(refusal) => return Err(refusal),
        };
        let buffer = memory.bytes_mut();
        layout.write(plan, machine, buffer)?;
        let mut asked = Vec::new();
        let gathers: Vec<(Gather<'_>, Range<usize>)> = layout.gathers(plan, machine).collect();
        if lineup.is_whole() {
            for (rows, place) in gathers {
                lineup.view.gather(rows, &mut buffer[place])?;
            }
        } else {
            let (owners, caches) = (lineup.owners(self.turn.g), &asking.cluster().row_caches);
            let (mut local, mut kept) = (Vec::new(), Vec::new());
            for (rows, tensor) in gathers.into_iter().filter(|(rows, _)| !rows.ids.is_empty()) {
                let mut split = RowSplit::default();
                let book = asking.cluster().book(rows.source)?.open();
                split
                    .split(rows.ids, lineup.owner_count(), book, |partition| owners.of(partition))
                    .map_err(|error| lineup.explain(error))?;
                let Gather { source, half, .. } = rows;
                let (count, row_bytes) = (rows.ids.len(), tensor.len() / rows.ids.len());
                let (cache, mut found) = (caches.of(source, half, row_bytes), KeptRows::default());
                for (owner, (mut ids, mut places)) in split.shares.into_iter().enumerate() {
                    if ids.is_empty() {
                        continue;
                    }
                    if owner == 0 {
                        local.push(LocalRows { source, half, ids, places, count, tensor: tensor.clone() });
                        continue;
                    }
                    if let Some(cache) = &cache {
                        let before = found.len();
                        cache.take_out(&mut ids, &mut places, &mut found)?;
                        asking.waiting.core.metrics.peer_rows(found.len() - before, ids.len());
                    }
                    let most = (ROWS_ASKED / row_bytes.max(1)).clamp(1, exchange::ASKED_IDS);
                    for (ids, places) in ids.chunks(most).zip(places.chunks(most)) {
                        asking.ask(asked.len(), owner, Question::gather(Gather { source, half, ids }));
                        let keeps = cache.as_ref().filter(|cache| !cache.is_full());
                        let keeps = keeps.map(|cache| (Arc::clone(cache), ids.to_vec()));
                        asked.push(RowsAsked { places: places.to_vec(), tensor: tensor.clone(), row_bytes, keeps });
                    }
                }
                kept.extend(cache.filter(|_| !found.is_empty()).map(|cache| (cache, found, tensor)));
            }
            for LocalRows { source, half, ids, places, count, tensor } in local {
                lineup.view.gather_to(Gather { source, half, ids: &ids }, &places, count, &mut buffer[tensor])?;
            }
            for (cache, found, tensor) in kept {
                cache.copy(&found, &mut buffer[tensor])?;
            }
        }
        let progress = if asked.is_empty() { Progress::Filled } else { Progress::Waits };
        self.stage = Stage::Rows(Rows { layout, memory, asked });
        Ok(progress)
    }

    /// Sends the finished batch.
    fn finish(mut self: Box<Self>, core: &Core) {
        let Stage::Rows(Rows { layout, memory, .. }) = std::mem::replace(&mut self.stage, Stage::Begin) else {
            return self.fail(core, &Refusal::internal("a batch was finished before it was filled"));
        };
        let (channel, turn) = (&self.channel, self.turn);
        let Some(machine) = &self.machine else { return };
        let bytes = layout.bytes() as u64;
        let queued = self.began.duration_since(turn.asked);
        let gathered = self.began.elapsed().saturating_sub(self.sampled);
        let head = proto::BatchHead {
            size: machine.batch_size(&channel.backend.plan) as u64,
            tensors: graphmill_wire::batch::tensors(&layout),
            bytes,
            slot: None,
            times: Some(proto::Times {
                queued: queued.as_micros() as u64,
                sampled: self.sampled.as_micros() as u64,
                gathered: gathered.as_micros() as u64,
            }),
        };
        let work = machine.num_edges() * EDGE_WORK + bytes;
        channel.count(queued, self.sampled + gathered);
        core.metrics.batch(queued, self.sampled, gathered, machine.num_edges(), bytes);
        // Before it is sent: the client may take it at once.
        core.work.scheduler(|scheduler| scheduler.finished(turn, work, bytes));
        let (header, life) = (self.header(Kind::Batch), std::mem::replace(&mut self.life, Life::unheard()));
        match channel.outlet() {
            Some(outlet) if outlet.send_batch(header, head, memory, channel.id, life.gathered(bytes)) => {}
            _ => core.work.scheduler(|scheduler| scheduler.consumed(channel.id, bytes)),
        }
        self.end(core);
    }

    fn fail(self: Box<Self>, core: &Core, refusal: &Refusal) {
        let Turn { epoch, g, .. } = self.turn;
        let refusal = refusal.clone().while_doing(&format!("cannot sample batch {g} of epoch {epoch}"));
        self.channel.count_failed(epoch, g, &refusal.reason);
        core.metrics.failed();
        // What it would have cost is not known; the time it took is.
        let work = (self.began.elapsed().as_nanos() as u64).saturating_mul(WORK_PER_NS);
        core.work.scheduler(|scheduler| scheduler.failed(self.turn, work));
        if let Some(outlet) = self.channel.outlet() {
            outlet.send_message(self.header(Kind::Failed), Message::Failed(refusal.failed()));
        }
        self.end(core);
    }

    /// Waits for its turn again, now that it is known how much memory it needs. What was sampled is lost; a channel's batches
    /// are much of a size, so that this happens to few of them.
    fn put_back(self: Box<Self>, core: &Core, bytes: u64) {
        core.work.scheduler(|scheduler| scheduler.put_back(self.turn, bytes));
        self.end(core);
    }

    fn abandon(self: Box<Self>, core: &Core) {
        core.work.scheduler(|scheduler| scheduler.abandoned(self.turn));
        self.end(core);
    }

    fn header(&self, kind: Kind) -> Header {
        Header { channel: self.channel.id, epoch: self.turn.epoch, g: self.turn.g, ..Header::new(kind) }
    }

    fn end(mut self: Box<Self>, core: &Core) {
        if let Some(machine) = self.machine.take() {
            self.channel.backend.rest(machine);
        }
        core.registry.batch_ended(&self.channel.backend);
    }
}

/// Puts answers where their questions came from.
fn read_answers(splits: &mut [Split], asked: &[(usize, usize)], mut replies: Replies) -> Result<(), Refusal> {
    // As they were asked: the pieces of a share one after the other.
    replies.sort_unstable_by_key(|(number, _)| *number);
    for (number, reply) in replies {
        let answered = reply?;
        let Message::Answer(head) = &answered.message else { return Err(answered.unexpected()) };
        let (place, owner) = *asked.get(number).ok_or_else(|| Refusal::internal("an answer has no question"))?;
        let share = splits.get_mut(place).and_then(|split| split.shares().get_mut(owner));
        let share = share.ok_or_else(|| Refusal::internal("an answer has no question"))?;
        let first = number == 0 || asked[number - 1] != (place, owner);
        let read = if first { exchange::read_answer } else { exchange::read_more };
        read(head, answered.body(), &mut share.answer).map_err(Refusal::of_answer)?;
    }
    Ok(())
}

impl Rows {
    fn take(&mut self, replies: Replies) -> Result<(), Refusal> {
        let buffer = self.memory.bytes_mut();
        for (number, reply) in replies {
            let answered = reply?;
            let Message::Rows(_) = &answered.message else { return Err(answered.unexpected()) };
            let asked = self.asked.get(number).ok_or_else(|| Refusal::internal("rows have no question"))?;
            let into = &mut buffer[asked.tensor.clone()];
            RowSplit::scatter(&asked.places, answered.body(), into, asked.row_bytes)?;
            if let Some((cache, ids)) = &asked.keeps {
                cache.offer(ids, answered.body());
            }
        }
        Ok(())
    }
}

impl Asking {
    fn new(core: &Arc<Core>) -> Self {
        let waiting = Waiting {
            core: Arc::clone(core),
            left: AtomicUsize::new(1),
            replies: Mutex::default(),
            job: Mutex::default(),
        };
        Self { waiting: Arc::new(waiting), lineup: core.cluster.lineup() }
    }

    fn cluster(&self) -> &Cluster {
        &self.waiting.core.cluster
    }

    /// Sends the shares of other owners, then answers this server's.
    fn ask_owners(
        &self,
        machine: &mut Machine,
        pick: u64,
        splits: &mut Vec<Split>,
        asked: &mut Vec<(usize, usize)>,
        memory: &mut Memory,
    ) -> Result<(), Refusal> {
        let (cluster, lineup) = (self.cluster(), &self.lineup);
        let (owners, count) = (lineup.owners(pick), lineup.owner_count());
        let mut questions = 0;
        asked.clear();
        for (place, (need, _)) in machine.needs().enumerate() {
            if splits.len() == place {
                splits.push(Split::default());
            }
            let book = cluster.dataset.node_book(cluster.list_type(need.edge_type, need.direction)?).open();
            splits[place]
                .split(&need, count, book, |partition| owners.of(partition))
                .map_err(|error| lineup.explain(error))?;
            questions += 1;
            let at_once = cluster.at_once(&need)?;
            for (owner, share) in splits[place].shares().iter().enumerate().skip(1) {
                // Those within which edges are looked for go with every piece.
                if matches!(need.ask, Ask::Within { .. }) && share.others.len() > exchange::ASKED_IDS {
                    return Err(Refusal::invalid(format!(
                        "{} nodes are too many to induce a subgraph of",
                        need.others.len()
                    )));
                }
                let share = Need { ids: &share.ids, others: &share.others, ..need };
                for piece in exchange::pieces(share, at_once) {
                    self.ask(asked.len(), owner, Question::ask(&piece));
                    asked.push((place, owner));
                }
            }
        }
        splits.truncate(questions);
        for (split, (need, _)) in splits.iter_mut().zip(machine.needs()) {
            let here = &mut split.shares()[0];
            if !here.ids.is_empty() {
                let need = Need { ids: &here.ids, others: &here.others, ..need };
                lineup.view.answer(&need, &mut here.answer, &mut memory.scratch)?;
            }
        }
        Ok(())
    }

    /// Sends a question that has a number within this step.
    fn ask(&self, number: usize, owner: usize, question: Question) {
        let waiting = Arc::clone(&self.waiting);
        waiting.left.fetch_add(1, Ordering::AcqRel);
        self.lineup.ask_peer(owner, question, move |reply| {
            lock(&waiting.replies).push((number, reply));
            waiting.arrived();
        });
    }

    /// Puts a job aside until the last answer arrives; gives it back if all have.
    fn wait(self, job: Box<Job>) -> Option<Answers> {
        *lock(&self.waiting.job) = Some(job);
        if self.waiting.left.fetch_sub(1, Ordering::AcqRel) == 1 { self.waiting.take() } else { None }
    }
}

impl Waiting {
    fn take(&self) -> Option<Answers> {
        let job = lock(&self.job).take()?;
        Some((job, std::mem::take(&mut *lock(&self.replies))))
    }

    fn arrived(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some((job, replies)) = self.take()
        {
            let core = Arc::clone(&self.core);
            self.core.work.urgent(move |memory| run(&core, job, replies, memory));
        }
    }
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
