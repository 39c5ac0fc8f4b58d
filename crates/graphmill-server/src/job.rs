//! A batch at work on this server: a sampler's machine whose questions go to whoever owns the nodes.
//!
//! The questions to peers are sent first; while they travel, the share of this server is answered. A batch that waits for
//! answers is put aside and holds no thread; the last answer to arrive brings it back to the workers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use graphmill_codec::query as codec;
use graphmill_sample::{BatchId, Layout, Split, Step};
use graphmill_wire::{Header, Kind, Limits, Message, proto};

use crate::Refusal;
use crate::asking::{Asking, Replies};
use crate::cluster::{Cluster, Lineup};
use crate::core::Core;
use crate::life::Life;
use crate::machinery::Machinery;
use crate::registry::Channel;
use crate::rows::{self, Rows};
use crate::scheduler::Turn;
use crate::sync::Arc;
use crate::work::Memory;

/// What an edge costs, in bytes of features: reading and renumbering it takes about as long as copying so many.
const EDGE_WORK: u64 = 64;

/// What a nanosecond is worth, in the same bytes, when a batch fails.
const WORK_PER_NS: u64 = 4;

/// What never happens to a batch before it has ended.
const NO_MACHINERY: &str = "a batch has nothing to be made with";

/// A batch at work.
pub(crate) struct Job {
    turn: Turn,
    channel: Arc<Channel>,
    /// None only while its memory is being given back.
    machinery: Option<Machinery>,
    stage: Stage,
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

/// Begins a batch.
pub(crate) fn begin(core: &Arc<Core>, turn: Turn, memory: &mut Memory) {
    let Some(channel) = core.channel_in_epoch(turn) else {
        core.work.scheduler(|scheduler| scheduler.abandoned(turn));
        return;
    };
    let (machinery, life) = (Some(channel.backend.machinery()), channel.lives.begun(turn.epoch, turn.g));
    let (began, sampled) = (Instant::now(), Duration::ZERO);
    let job = Job {
        turn,
        channel,
        machinery,
        stage: Stage::Begin,
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
pub(crate) fn run(core: &Arc<Core>, mut job: Box<Job>, mut replies: Replies, memory: &mut Memory) {
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
                // What it was doing is unknown, so it does not go on.
                job.machinery = Some(Machinery::new(&job.channel.backend.plan));
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
        let Some(machinery) = &mut self.machinery else { return Err(Refusal::internal(NO_MACHINERY)) };
        let Machinery { machine, splits, .. } = machinery;
        match &mut self.stage {
            Stage::Begin => {
                let id = BatchId { epoch: self.turn.epoch, g: self.turn.g, repeated: false };
                self.channel.cut(id, &mut memory.cut)?;
                machine.begin(&plan, memory.cut.seeds(&self.channel.seeds), id)?;
                self.stage = Stage::Asked;
            }
            Stage::Asked => {
                read_answers(splits, &self.asked, replies)?;
                for (split, (need, answer)) in splits.iter().zip(machine.needs()) {
                    split.merge(need.ask, answer)?;
                }
            }
            Stage::Rows(rows) => {
                rows.take(replies)?;
                return Ok(Progress::Filled);
            }
        }
        loop {
            if machinery.machine.step(&plan)? == Step::Done {
                self.sampled = self.began.elapsed();
                drop(stage);
                self.life.sampled();
                let _stage = self.life.stage().entered();
                return self.gather(asking);
            }
            if asking.lineup.is_whole() {
                for (need, answer) in machinery.machine.needs() {
                    asking.lineup.view.answer(&need, answer, &mut memory.scratch)?;
                }
                // PageRank may take any number of rounds: they are not gone through for somebody who has left.
                if asking.core().channel_in_epoch(self.turn).is_none() {
                    return Ok(Progress::Unwanted);
                }
                continue;
            }
            asking.ask_owners(machinery, self.turn.g, &mut self.asked, memory)?;
            return Ok(Progress::Waits);
        }
    }

    /// Asks the questions of the last step once more, because a peer was lost over one of them: others have what it had.
    fn ask_again(&mut self, asking: &Asking, memory: &mut Memory) -> Result<Progress, Refusal> {
        let _stage = self.life.stage().entered();
        if matches!(self.stage, Stage::Rows(_)) {
            return self.gather(asking);
        }
        let Some(machinery) = &mut self.machinery else { return Err(Refusal::internal(NO_MACHINERY)) };
        asking.ask_owners(machinery, self.turn.g, &mut self.asked, memory)?;
        Ok(Progress::Waits)
    }

    /// Lays the batch out and fills it; what peers have is asked for.
    fn gather(&mut self, asking: &Asking) -> Result<Progress, Refusal> {
        let Some(machinery) = &mut self.machinery else { return Err(Refusal::internal(NO_MACHINERY)) };
        let Machinery { machine, rows: lists, .. } = machinery;
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
        let gathers = layout.gathers(plan, machine);
        let asked = if lineup.is_whole() {
            for (rows, place) in gathers {
                lineup.view.gather(rows, &mut buffer[place])?;
            }
            Vec::new()
        } else {
            rows::fill(asking, self.turn.g, gathers, buffer, lists)?
        };
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
        let Some(Machinery { machine, .. }) = &self.machinery else { return };
        let bytes = layout.bytes() as u64;
        let queued = self.began.duration_since(turn.asked);
        let gathered = self.began.elapsed().saturating_sub(self.sampled);
        let head = proto::BatchHead {
            size: machine.batch_size(&channel.backend.plan) as u64,
            tensors: graphmill_codec::batch::tensors(&layout),
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
        if let Some(machinery) = self.machinery.take() {
            self.channel.backend.rest(machinery);
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
        let read = if first { codec::read_answer } else { codec::read_more };
        read(head, answered.body(), &mut share.answer).map_err(Refusal::of_answer)?;
    }
    Ok(())
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
