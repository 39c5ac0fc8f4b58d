//! The whole graph as this server sees it: the partitions it has itself, and the peers that have the others.

mod ids;
mod owners;
mod peer;
mod read;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use graphmill_graph::{Dataset, Direction};
use graphmill_sample::{Answer, AnswerScratch, Gather, Need, RowSplit, Source, Split, View};
use graphmill_wire::{Message, exchange};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::Refusal;

pub(crate) use ids::Ids;
pub(crate) use owners::Owners;
pub(crate) use peer::{Answered, Dialing, Peer, Question};

/// The graph, here and elsewhere.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) view: Arc<View>,
    peers: Vec<Arc<Peer>>,
    /// Who has which partition now.
    owners: RwLock<Arc<Owners>>,
    /// Counts changes of the owners.
    changed: watch::Sender<u64>,
    /// Per edge type and direction, the node type whose lists they are.
    list_types: Vec<[usize; 2]>,
}

impl Cluster {
    /// A cluster whose peers are not connected yet.
    pub(crate) fn new(dataset: Arc<Dataset>, dialing: Vec<Dialing>) -> Result<Arc<Self>, Refusal> {
        let manifest = dataset.manifest();
        let list_type =
            |info: &graphmill_graph::EdgeTypeInfo, direction| manifest.node_type(info.name.list_owner(direction));
        let list_types = manifest
            .edge_types
            .iter()
            .map(|info| Ok([list_type(info, Direction::In)?, list_type(info, Direction::Out)?]))
            .collect::<Result<_, Refusal>>()?;
        let owners = RwLock::new(Arc::new(Owners::new(&dataset, &[])));
        let peers = dialing.into_iter().map(Peer::new).collect();
        let view = Arc::new(View::new(&dataset));
        Ok(Arc::new(Self { dataset, view, peers, owners, changed: watch::Sender::new(0), list_types }))
    }

    /// Keeps connections to all peers for as long as the result is kept; to be called inside a runtime.
    pub(crate) fn connect(self: &Arc<Self>) -> JoinSet<()> {
        let mut kept = JoinSet::new();
        for peer in &self.peers {
            let (peer, cluster) = (Arc::clone(peer), Arc::downgrade(self));
            let changed = move || {
                if let Some(cluster) = cluster.upgrade() {
                    cluster.recount();
                }
            };
            kept.spawn(peer.keep_connected(changed));
        }
        kept
    }

    fn recount(&self) {
        {
            // Locked before the peers are looked at: of two that change at once, the one that looked first must not have the
            // last word.
            let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
            let partitions: Vec<_> = self.peers.iter().map(|peer| peer.partitions()).collect();
            *owners = Arc::new(Owners::new(&self.dataset, &partitions));
        }
        self.changed.send_modify(|count| *count += 1);
    }

    pub(crate) fn peers(&self) -> &[Arc<Peer>] {
        &self.peers
    }

    /// Whether this server has everything itself.
    pub(crate) fn is_whole(&self) -> bool {
        self.dataset.partitions().count() == self.dataset.parts() as usize
    }

    /// Who has what now.
    pub(crate) fn owners(&self) -> Arc<Owners> {
        Arc::clone(&self.owners.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The node type whose lists an edge type has in a direction.
    pub(crate) fn list_type(&self, edge_type: usize, direction: Direction) -> Result<usize, graphmill_sample::Error> {
        self.list_types
            .get(edge_type)
            .map(|both| both[direction as usize])
            .ok_or_else(|| graphmill_sample::Error::Answer { reason: format!("there is no edge type {edge_type}") })
    }

    /// Waits until every partition has an owner.
    ///
    /// # Errors
    /// When one has none in time; names it, and the peers.
    pub(crate) async fn complete(&self, within: Duration) -> Result<(), Refusal> {
        let mut changed = self.changed.subscribe();
        let all_owned = async {
            while self.owners().missing().is_some() {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(within, all_owned).await.is_ok() {
            return Ok(());
        }
        match self.owners().missing() {
            None => Ok(()),
            Some(partition) => Err(self.without_owner(partition)),
        }
    }

    /// A sampler's error in a server's words: a partition that nobody has is named with the peers.
    pub(crate) fn explain(&self, error: graphmill_sample::Error) -> Refusal {
        match error {
            graphmill_sample::Error::Unowned { partition } => self.without_owner(partition),
            error => error.into(),
        }
    }

    /// Why a partition cannot be reached.
    pub(crate) fn without_owner(&self, partition: u32) -> Refusal {
        let peers: Vec<String> = self.peers.iter().map(|peer| peer.describe()).collect();
        let peers =
            if peers.is_empty() { "there are none; name them with --peers".to_owned() } else { peers.join("; ") };
        Refusal::unavailable(format!(
            "partition {partition} of {} is neither here nor with a peer that can be reached ({peers})",
            self.dataset.parts()
        ))
    }

    /// Answers a question about nodes of any partition. For readers, not for samplers: those have their own way to wait.
    pub(crate) async fn ask(&self, need: &Need<'_>) -> Result<Answer, Refusal> {
        let owners = self.owners();
        let list_type = self.list_type(need.edge_type, need.direction)?;
        let mut split = Split::default();
        let book = self.dataset.node_book(list_type).open();
        split.split(need, self.peers.len() + 1, |id| owners.of(book, id)).map_err(|error| self.explain(error))?;
        let mut replies = Vec::new();
        for (owner, share) in split.shares().iter().enumerate().skip(1).filter(|(_, share)| !share.ids.is_empty()) {
            let question = Question::ask(&Need { ids: &share.ids, others: &share.others, ..*need });
            replies.push((owner, self.send(owner, question)));
        }
        let here = &mut split.shares()[0];
        if !here.ids.is_empty() {
            let asked = Need { ids: &here.ids, others: &here.others, ..*need };
            self.view.answer(&asked, &mut here.answer, &mut AnswerScratch::default())?;
        }
        for (owner, reply) in replies {
            let answered = received(reply).await?;
            let Message::Answer(head) = &answered.message else { return Err(answered.unexpected()) };
            exchange::read_answer(head, answered.body(), &mut split.shares()[owner].answer)
                .map_err(|error| Refusal::internal(error.to_string()))?;
        }
        let mut answer = Answer::default();
        split.merge(need.ask, &mut answer)?;
        Ok(answer)
    }

    /// The rows of ids of any partition, one after the other. For readers, as above.
    pub(crate) async fn rows(&self, source: Source, ids: &[u64]) -> Result<Vec<u8>, Refusal> {
        let owners = self.owners();
        let mut split = RowSplit::default();
        let book = self.book(source)?.open();
        split.split(ids, self.peers.len() + 1, |id| owners.of(book, id)).map_err(|error| self.explain(error))?;
        let mut replies = Vec::new();
        for (owner, (ids, places)) in split.shares.iter().enumerate().skip(1).filter(|(_, (ids, _))| !ids.is_empty()) {
            replies.push((places, self.send(owner, Question::gather(source, ids))));
        }
        let size = self.row_bytes(source)?;
        let mut rows = vec![0; ids.len() * size];
        let (here, places) = &split.shares[0];
        if !here.is_empty() {
            self.view.gather_to(Gather { source, ids: here }, places, ids.len(), &mut rows)?;
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

    /// Sends a question to an owner, counted as [`Owners`] does.
    fn send(&self, owner: usize, question: Question) -> oneshot::Receiver<Result<Answered, Refusal>> {
        let (sender, receiver) = oneshot::channel();
        self.ask_peer(owner, question, move |reply| {
            // Whoever asked may have left.
            let _ = sender.send(reply);
        });
        receiver
    }

    /// Sends a question to an owner other than this server; `reply` is called once, from any thread.
    pub(crate) fn ask_peer(
        &self,
        owner: usize,
        question: Question,
        reply: impl FnOnce(Result<Answered, Refusal>) + Send + 'static,
    ) {
        match owner.checked_sub(1).and_then(|place| self.peers.get(place)) {
            Some(peer) => peer.send(question, Box::new(reply)),
            None => reply(Err(Refusal::internal(format!("there is no owner {owner}")))),
        }
    }
}

async fn received(reply: oneshot::Receiver<Result<Answered, Refusal>>) -> Result<Answered, Refusal> {
    reply.await.unwrap_or_else(|_| Err(Refusal::unavailable("a question to a peer was dropped")))
}

/// A mutex whose holder panicked still holds sound data here: every change is a single step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
