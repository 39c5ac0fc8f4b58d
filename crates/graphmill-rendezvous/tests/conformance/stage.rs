//! A run, its clock, and a keeper that it is read from again after every event.

use std::sync::Arc;
use std::time::Duration;

use graphmill_rendezvous::etcd::{Etcd, Leader};
use graphmill_rendezvous::keeper::{EtcdKeeper, FileKeeper, Keeper, MemoryKeeper, Token, Written};
use graphmill_rendezvous::records::{self, Changes};
use graphmill_rendezvous::state::{State, Time};
use graphmill_rendezvous::{Effect, Event, Node, Outcome, Run, Settings};
use tokio::sync::watch;

use crate::etcd::Nodes;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn node(counter: u32) -> Arc<Node> {
    Arc::new(Node::new("host", 1, counter))
}

/// A run on a keeper.
pub(crate) struct Stage {
    pub(crate) run: Run,
    pub(crate) now: Time,
    pub(crate) keeper: Keeper,
    pub(crate) token: Option<Token>,
}

impl Stage {
    pub(crate) fn new(settings: Settings, keeper: Keeper) -> Self {
        Self { run: Run::new(settings), now: Duration::ZERO, keeper, token: None }
    }

    /// Lets something happen: a change is one write and nothing else is any, and what is kept is where the run stands.
    pub(crate) async fn happens(&mut self, event: Event) -> Vec<(u32, Outcome)> {
        let effects = self.run.handle(event.clone(), self.now);
        if effects.contains(&Effect::Changed) {
            let changes = changes(&mut self.run);
            let Written::Set(token) = self.keeper.write(changes, self.token).await.unwrap() else {
                panic!("nobody else writes")
            };
            assert_ne!(Some(token), self.token);
            self.token = Some(token);
        }
        let kept = self.keeper.read().await.unwrap();
        assert_eq!(kept.as_ref().map(|(_, token)| *token), self.token, "{event:?}");
        let state = kept.map_or_else(State::default, |(kept, _)| records::read(&kept).unwrap().unwrap().state);
        assert_eq!(lists(&state), lists(self.run.state()), "{event:?}");
        let answer = |effect| match effect {
            Effect::Answer(node, outcome) => Some((node.counter, outcome)),
            Effect::Changed => None,
        };
        let mut answers: Vec<_> = effects.into_iter().filter_map(answer).collect();
        answers.sort_by_key(|(counter, _)| *counter);
        answers
    }

    /// Lets time pass, in which some say that they are alive.
    pub(crate) async fn pass(&mut self, time: Duration, alive: &[u32]) -> Vec<(u32, Outcome)> {
        let (end, mut answers) = (self.now + time, Vec::new());
        loop {
            // At most a keep-alive's interval, and to the instant at which something is due.
            let due = self.run.next_tick().unwrap_or(end).max(self.now + Duration::from_nanos(1));
            self.now = end.min(due).min(self.now + 5 * SECOND);
            for &counter in alive {
                answers.extend(self.happens(Event::KeepAlive(node(counter))).await);
            }
            answers.extend(self.happens(Event::Tick).await);
            if self.now >= end {
                return answers;
            }
        }
    }

    /// The coordinator is gone, and another goes on later with what was kept.
    pub(crate) async fn restart(&mut self) {
        let (kept, _) = self.keeper.read().await.unwrap().unwrap();
        let kept = records::read(&kept).unwrap().unwrap();
        self.now += 5_000 * SECOND;
        self.run = Run::restored(kept.settings, kept.state, self.now);
    }
}

/// What is to be kept of a run's changes.
pub(crate) fn changes(run: &mut Run) -> Changes {
    let touched = run.take_touched();
    let mut changes: Changes = touched.iter().map(|node| records::member_change(run.state(), node)).collect();
    changes.push(records::run_change(run.settings(), run.state()));
    changes
}

/// Everything that is kept of a state.
fn lists(state: &State) -> impl PartialEq + std::fmt::Debug + use<> {
    let State { round, complete, closed, last_call, participants, waiting, redundant, former, .. } = state.clone();
    (round, complete, closed, last_call.is_some(), participants, waiting, redundant, former)
}

/// Every keeper there is; etcd where it is installed.
pub(crate) struct Keepers {
    folder: tempfile::TempDir,
    etcd: Option<Led>,
}

/// An etcd in which this process leads.
struct Led {
    _nodes: Nodes,
    etcd: Arc<Etcd>,
    revision: i64,
    _leading: watch::Receiver<Leader>,
}

impl Keepers {
    pub(crate) async fn start() -> Self {
        let etcd = match Nodes::start(1) {
            None => None,
            Some(nodes) => {
                let etcd = nodes.connect("conformance");
                let (leading, revision) = crate::etcd::lead(&etcd, "here").await;
                Some(Led { _nodes: nodes, etcd, revision, _leading: leading })
            }
        };
        Self { folder: tempfile::tempdir().unwrap(), etcd }
    }

    /// New keepers, for a run of this name.
    pub(crate) async fn all(&self, run: &str) -> Vec<(&'static str, Keeper)> {
        let path = self.folder.path().join(run.replace(' ', "-"));
        let mut keepers = vec![
            ("memory", Keeper::Memory(MemoryKeeper::default())),
            ("file", Keeper::File(FileKeeper::open(path).await.unwrap())),
        ];
        if let Some(led) = &self.etcd {
            keepers.push(("etcd", Keeper::Etcd(EtcdKeeper::new(Arc::clone(&led.etcd), run, led.revision))));
        }
        keepers
    }
}
