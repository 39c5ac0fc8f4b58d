//! The questions that a batch has for peers, and the batch that waits for their answers.

use graphmill_codec::query as codec;
use graphmill_sample::{Ask, Need, Split};

use crate::Refusal;
use crate::cluster::{Answered, Lineup, Question};
use crate::core::Core;
use crate::job::{self, Job};
use crate::machinery::Machinery;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::work::Memory;

/// What peers said, by the numbers of their questions.
pub(crate) type Replies = Vec<(usize, Result<Answered, Refusal>)>;
/// A batch, and what it waited for.
type Answers = (Box<Job>, Replies);

/// The questions of one step to peers.
pub(crate) struct Asking {
    waiting: Arc<Waiting>,
    /// Who is asked.
    pub(crate) lineup: Arc<Lineup>,
}

/// What a batch waits for.
struct Waiting {
    core: Arc<Core>,
    /// Answers that are missing, and one for the worker that asked.
    left: AtomicUsize,
    replies: Mutex<Replies>,
    job: Mutex<Option<Box<Job>>>,
}

impl Asking {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let waiting = Waiting {
            core: Arc::clone(core),
            left: AtomicUsize::new(1),
            replies: Mutex::default(),
            job: Mutex::default(),
        };
        Self { waiting: Arc::new(waiting), lineup: core.cluster.lineup() }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.waiting.core
    }

    /// Sends the shares of other owners, then answers this server's.
    pub(crate) fn ask_owners(
        &self,
        Machinery { machine, splits, .. }: &mut Machinery,
        pick: u64,
        asked: &mut Vec<(usize, usize)>,
        memory: &mut Memory,
    ) -> Result<(), Refusal> {
        let (cluster, lineup) = (&self.core().cluster, &self.lineup);
        let (owners, count) = (lineup.owners(pick), lineup.owner_count());
        asked.clear();
        for (place, (need, _)) in machine.needs().enumerate() {
            if splits.len() == place {
                splits.push(Split::default());
            }
            let book = cluster.dataset.node_book(cluster.list_type(need.edge_type, need.direction)?).open();
            splits[place]
                .split(&need, count, book, |partition| owners.of(partition))
                .map_err(|error| lineup.explain(error))?;
            let at_once = cluster.at_once(&need)?;
            for (owner, share) in splits[place].shares().iter().enumerate().skip(1) {
                // Those within which edges are looked for go with every piece.
                if matches!(need.ask, Ask::Within { .. }) && share.others.len() > codec::ASKED_IDS {
                    return Err(Refusal::invalid(format!(
                        "{} nodes are too many to induce a subgraph of",
                        need.others.len()
                    )));
                }
                let share = Need { ids: &share.ids, others: &share.others, ..need };
                for piece in codec::pieces(share, at_once) {
                    self.ask(asked.len(), owner, Question::ask(&piece));
                    asked.push((place, owner));
                }
            }
        }
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
    pub(crate) fn ask(&self, number: usize, owner: usize, question: Question) {
        let waiting = Arc::clone(&self.waiting);
        waiting.left.fetch_add(1, Ordering::AcqRel);
        self.lineup.ask_peer(owner, question, move |reply| {
            lock(&waiting.replies).push((number, reply));
            waiting.arrived();
        });
    }

    /// Puts a job aside until the last answer arrives; gives it back if all have.
    pub(crate) fn wait(self, job: Box<Job>) -> Option<Answers> {
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
            self.core.work.urgent(move |memory| job::run(&core, job, replies, memory));
        }
    }
}
