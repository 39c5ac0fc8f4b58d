//! The whole graph as this server sees it: the partitions it has itself, and the peers that have the others.

mod ids;
mod lineup;
mod owners;
mod peer;
mod read;
mod roster;
mod row_caches;

use std::time::Duration;

use graphmill_codec::query as codec;
use graphmill_graph::{Dataset, Direction};
use graphmill_sample::{Answer, AnswerScratch, Gather, Need, RowSplit, Source, Split};
use graphmill_wire::Message;
use graphmill_wire::proto::Code;
use tokio::sync::{oneshot, watch};

use crate::Refusal;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, PoisonError, RwLock};
use roster::Roster;
use row_caches::RowCaches;

pub(crate) use ids::Ids;
pub(crate) use lineup::Lineup;
pub(crate) use peer::{Answered, Dialing, Peer, Question};
pub(crate) use roster::{Announced, Connected};

/// How often something is asked again of others because a peer was lost over it.
const ATTEMPTS: u32 = 4;

/// The graph, here and elsewhere.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The manifest and the books, which never change. The partitions that are here may become more: see [`Lineup`].
    pub(crate) dataset: Arc<Dataset>,
    /// Locked after the lineup, where both are.
    roster: Mutex<Roster>,
    /// Who has what now.
    lineup: RwLock<Arc<Lineup>>,
    /// Counts changes of the lineup.
    changed: watch::Sender<u64>,
    /// Counts questions of readers, so that they are spread over replicas.
    picks: AtomicU64,
    /// Per edge type and direction, the node type whose lists they are.
    list_types: Vec<[usize; 2]>,
    /// Rows of peers that are needed often.
    pub(crate) row_caches: RowCaches,
}

impl Cluster {
    /// A cluster whose peers are not connected yet, and of whose rows up to so many bytes may be kept.
    pub(crate) fn new(dataset: Arc<Dataset>, dialing: Vec<Dialing>, row_cache: usize) -> Result<Arc<Self>, Refusal> {
        let manifest = dataset.manifest();
        let list_type =
            |info: &graphmill_graph::EdgeTypeInfo, direction| manifest.node_type(info.name.list_owner(direction));
        let list_types = manifest
            .edge_types
            .iter()
            .map(|info| Ok([list_type(info, Direction::In)?, list_type(info, Direction::Out)?]))
            .collect::<Result<_, Refusal>>()?;
        let roster = Roster::new(Arc::clone(&dataset), dialing);
        let lineup = RwLock::new(Arc::new(roster.lineup()));
        let (roster, changed, picks) = (Mutex::new(roster), watch::Sender::new(0), AtomicU64::new(0));
        let row_caches = RowCaches::new(row_cache);
        Ok(Arc::new(Self { dataset, roster, lineup, changed, picks, list_types, row_caches }))
    }

    /// Who has what now.
    pub(crate) fn lineup(&self) -> Arc<Lineup> {
        Arc::clone(&self.lineup.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Which of several replicas are asked next.
    pub(crate) fn pick(&self) -> u64 {
        self.picks.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether what was asked of one lineup and refused is worth asking of another: only if a peer was lost over it, and
    /// somebody else has what it had.
    pub(crate) fn again(before: &Arc<Lineup>, now: &Arc<Lineup>, refusal: &Refusal, attempts: &mut u32) -> bool {
        *attempts += 1;
        let lost = refusal.code == Code::Unavailable && !Arc::ptr_eq(before, now);
        lost && *attempts < ATTEMPTS && now.missing().is_none()
    }

    /// The node type whose lists an edge type has in a direction.
    pub(crate) fn list_type(&self, edge_type: usize, direction: Direction) -> Result<usize, graphmill_sample::Error> {
        self.list_types
            .get(edge_type)
            .map(|both| both[direction as usize])
            .ok_or_else(|| graphmill_sample::Error::Answer { reason: format!("there is no edge type {edge_type}") })
    }

    /// How many ids a peer is asked about at once.
    pub(crate) fn at_once(&self, need: &Need<'_>) -> Result<usize, graphmill_sample::Error> {
        let nodes = self.dataset.node_types()[self.list_type(need.edge_type, need.direction)?].count;
        let average = self.dataset.edge_types()[need.edge_type].count.div_ceil(nodes.max(1));
        Ok(codec::at_once(need.ask, average))
    }

    /// Waits until every partition has an owner.
    ///
    /// # Errors
    /// When one has none in time; names it, and the peers.
    pub(crate) async fn complete(&self, within: Duration) -> Result<(), Refusal> {
        let mut changed = self.changed.subscribe();
        let all_owned = async {
            while self.lineup().missing().is_some() {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(within, all_owned).await.is_ok() {
            return Ok(());
        }
        let lineup = self.lineup();
        match lineup.missing() {
            None => Ok(()),
            Some(partition) => Err(lineup.without_owner(partition)),
        }
    }

    /// Answers a question about nodes of any partition. For readers, not for samplers: those have their own way to wait.
    pub(crate) async fn ask(&self, need: &Need<'_>) -> Result<Answer, Refusal> {
        let (mut lineup, mut attempts) = (self.lineup(), 0);
        loop {
            let refusal = match self.ask_of(&lineup, need).await {
                Err(refusal) => refusal,
                answered => return answered,
            };
            let now = self.lineup();
            if !Self::again(&lineup, &now, &refusal, &mut attempts) {
                return Err(refusal);
            }
            lineup = now;
        }
    }

    async fn ask_of(&self, lineup: &Lineup, need: &Need<'_>) -> Result<Answer, Refusal> {
        let owners = lineup.owners(self.pick());
        let list_type = self.list_type(need.edge_type, need.direction)?;
        let mut split = Split::default();
        let book = self.dataset.node_book(list_type).open();
        split
            .split(need, lineup.owner_count(), book, |partition| owners.of(partition))
            .map_err(|error| lineup.explain(error))?;
        let mut replies = Vec::new();
        for (owner, share) in split.shares().iter().enumerate().skip(1).filter(|(_, share)| !share.ids.is_empty()) {
            let question = Question::ask(&Need { ids: &share.ids, others: &share.others, ..*need });
            replies.push((owner, send(lineup, owner, question)));
        }
        let here = &mut split.shares()[0];
        if !here.ids.is_empty() {
            let asked = Need { ids: &here.ids, others: &here.others, ..*need };
            lineup.view.answer(&asked, &mut here.answer, &mut AnswerScratch::default())?;
        }
        for (owner, reply) in replies {
            let answered = received(reply).await?;
            let Message::Answer(head) = &answered.message else { return Err(answered.unexpected()) };
            codec::read_answer(head, answered.body(), &mut split.shares()[owner].answer).map_err(Refusal::of_answer)?;
        }
        let mut answer = Answer::default();
        split.merge(need.ask, &mut answer)?;
        Ok(answer)
    }

    /// The rows of ids of any partition, one after the other. For readers, as above.
    pub(crate) async fn rows(&self, source: Source, ids: &[u64]) -> Result<Vec<u8>, Refusal> {
        let (mut lineup, mut attempts) = (self.lineup(), 0);
        loop {
            let refusal = match self.rows_of(&lineup, source, ids).await {
                Err(refusal) => refusal,
                rows => return rows,
            };
            let now = self.lineup();
            if !Self::again(&lineup, &now, &refusal, &mut attempts) {
                return Err(refusal);
            }
            lineup = now;
        }
    }

    async fn rows_of(&self, lineup: &Lineup, source: Source, ids: &[u64]) -> Result<Vec<u8>, Refusal> {
        let owners = lineup.owners(self.pick());
        let mut split = RowSplit::default();
        let book = self.book(source)?.open();
        split
            .split(ids, lineup.owner_count(), book, |partition| owners.of(partition))
            .map_err(|error| lineup.explain(error))?;
        let mut replies = Vec::new();
        for (owner, (ids, places)) in split.shares.iter().enumerate().skip(1).filter(|(_, (ids, _))| !ids.is_empty()) {
            replies.push((places, send(lineup, owner, Question::gather(Gather { source, half: false, ids }))));
        }
        let size = self.row_bytes(source)?;
        let mut rows = vec![0; ids.len() * size];
        let (here, places) = &split.shares[0];
        if !here.is_empty() {
            lineup.view.gather_to(Gather { source, half: false, ids: here }, places, ids.len(), &mut rows)?;
        }
        for (places, reply) in replies {
            let answered = received(reply).await?;
            RowSplit::scatter(places, answered.body(), &mut rows, size)?;
        }
        Ok(rows)
    }

    /// The book that says who has a row.
    pub(crate) fn book(&self, source: Source) -> Result<&graphmill_graph::Book, Refusal> {
        match source {
            Source::Node { node_type, .. } | Source::Label { node_type } => Ok(self.dataset.node_book(node_type)),
            Source::Edge { edge_type, .. } => {
                let book = self.dataset.edge_book(edge_type);
                book.ok_or_else(|| Refusal::invalid(format!("edge type {edge_type} has no features")))
            }
        }
    }

    /// The bytes of a row, from the manifest.
    fn row_bytes(&self, source: Source) -> Result<usize, Refusal> {
        let (nodes, edges) = (self.dataset.node_types(), self.dataset.edge_types());
        let info = match source {
            Source::Node { node_type, feature } => nodes[node_type].features.get(feature).cloned(),
            Source::Label { node_type } => nodes[node_type].label.map(|label| label.as_feature()),
            Source::Edge { edge_type, feature } => edges[edge_type].features.get(feature).cloned(),
        };
        let bytes = info.and_then(|info| info.row_bytes());
        bytes.map(|bytes| bytes as usize).ok_or_else(|| Refusal::invalid(format!("there are no rows of {source:?}")))
    }
}

/// Sends a question to an owner of a lineup.
fn send(lineup: &Lineup, owner: usize, question: Question) -> oneshot::Receiver<Result<Answered, Refusal>> {
    let (sender, receiver) = oneshot::channel();
    lineup.ask_peer(owner, question, move |reply| {
        // Whoever asked may have left.
        let _ = sender.send(reply);
    });
    receiver
}

async fn received(reply: oneshot::Receiver<Result<Answered, Refusal>>) -> Result<Answered, Refusal> {
    reply.await.unwrap_or_else(|_| Err(Refusal::unavailable("a question to a peer was dropped")))
}
