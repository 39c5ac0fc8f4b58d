//! The servers that a client knows: named once and for all, or as the registry of a run tells.

use std::sync::{Arc, PoisonError, RwLock};

use graphmill_net::Endpoint;
use graphmill_rendezvous::storage::Following;
use graphmill_wire::proto::StorageStatus;

use super::ConnectOptions;
use super::control::Control;
use super::member::Member;

/// Members as they are at a moment.
pub(crate) type Members = Arc<Vec<Arc<Member>>>;

/// The servers that are known now.
#[derive(Debug)]
pub(super) struct Roster {
    members: RwLock<Members>,
    options: ConnectOptions,
    client: [u8; 16],
    fingerprint: String,
}

impl Roster {
    /// Begins to keep connections; to be called inside the runtime.
    pub(super) fn start(
        endpoints: &[Endpoint],
        options: &ConnectOptions,
        client: [u8; 16],
        fingerprint: String,
    ) -> Arc<Self> {
        let roster = Self { members: RwLock::default(), options: options.clone(), client, fingerprint };
        roster.set(endpoints.iter().map(|endpoint| roster.member(endpoint)).collect());
        Arc::new(roster)
    }

    pub(super) fn members(&self) -> Members {
        Arc::clone(&self.members.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, members: Vec<Arc<Member>>) {
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(members);
    }

    fn member(&self, endpoint: &Endpoint) -> Arc<Member> {
        let control = Control::new(endpoint.clone(), &self.options, Some(self.fingerprint.clone()));
        Member::start(control, &self.options, self.client, self.fingerprint.clone())
    }

    /// Learns of servers that come and go, for as long as the registry is followed.
    pub(super) async fn keep_up(self: Arc<Self>, following: Following) {
        let mut status = following.status();
        loop {
            let now = status.borrow_and_update().clone();
            if let Some(now) = now {
                self.learn(&now);
            }
            if status.changed().await.is_err() {
                return;
            }
        }
    }

    /// Begins with servers that are new. One that is not in the registry is let go of if it cannot be reached, or if the
    /// others serve everything: whoever serves all the same, and only lost touch with the coordinator, is better than nobody.
    fn learn(&self, status: &StorageStatus) {
        if status.settings.as_ref().is_some_and(|settings| settings.fingerprint != self.fingerprint) {
            return tracing::warn!(run = status.run, "the servers of the run serve another dataset now");
        }
        let listed = serving(status);
        let complete = status.settings.is_some() && status.missing.is_empty();
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for member in self.members().iter() {
            let stays = listed.contains(&member.control.endpoint) || (member.is_up() && !complete);
            if stays { &mut kept } else { &mut gone }.push(Arc::clone(member));
        }
        let is_new = |endpoint: &&Endpoint| !kept.iter().any(|member| member.control.endpoint == **endpoint);
        let new: Vec<_> = listed.iter().filter(is_new).collect();
        if new.is_empty() && gone.is_empty() {
            return;
        }
        for endpoint in &new {
            tracing::info!(run = status.run, server = %endpoint, "a server came");
        }
        kept.extend(new.into_iter().map(|endpoint| self.member(endpoint)));
        self.set(kept);
        // After that: what was asked of them is asked of others.
        for member in gone {
            tracing::info!(run = status.run, server = %member.control.endpoint, "a server is gone");
            member.stop();
        }
    }
}

/// Where the servers of a registry are that serve something.
pub(super) fn serving(status: &StorageStatus) -> Vec<Endpoint> {
    let serving = status.servers.iter().filter(|server| !server.serving.is_empty());
    serving
        .filter_map(|server| {
            let parsed = server.address.parse::<Endpoint>();
            parsed.inspect_err(|error| tracing::warn!(address = server.address, %error, "a server has no address")).ok()
        })
        .collect()
}
