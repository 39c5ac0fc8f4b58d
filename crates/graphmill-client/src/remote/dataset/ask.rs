//! Asking servers: each call goes to the next of them, and to another one if that one cannot be reached. Reading changes
//! nothing, so that a call may be made again from the start.

use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use graphmill_wire::proto::dataset_service_client::DatasetServiceClient;
use tonic::{Response, Status, Streaming};

use super::RemoteDataset;
use super::patience::Patience;
use crate::remote::control::{Control, ControlTransport};
use crate::{Error, Result};

/// The largest message that is taken.
const LARGEST: usize = 64 << 20;
/// The pause before all servers are asked again: doubled each time, up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// What a call that is over may take to say so.
const GRACE: Duration = Duration::from_secs(1);

pub(super) type Service = DatasetServiceClient<ControlTransport>;
type Answered<T> = std::result::Result<T, Status>;

/// Why a call to one server came to nothing.
enum Failed {
    /// The server, or the way to it.
    There(Status),
    /// What it sent cannot be used here, so nobody else is asked.
    Here(Error),
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self::There(status)
    }
}

impl RemoteDataset {
    /// Asks for an answer in one piece.
    pub(super) fn ask<Q, T, F>(
        &self,
        doing: &'static str,
        request: Q,
        call: impl Fn(Service, Q) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        Q: Clone + Send + Sync + 'static,
        T: Send + 'static,
        F: Future<Output = Answered<Response<T>>> + Send + 'static,
    {
        self.in_turn(doing, move |service, patience| {
            let answer = call(service, request.clone());
            async move { Ok(patience.step(answer).await.map(Response::into_inner)?) }
        })
    }

    /// Asks for an answer in parts, and puts them together: `add` says how many bytes a part had, or refuses it.
    pub(super) fn read<Q, P, T, F>(
        &self,
        doing: &'static str,
        request: Q,
        call: impl Fn(Service, Q) -> F + Send + Sync + 'static,
        add: impl Fn(&mut T, P) -> Result<u64> + Clone + Send + Sync + 'static,
    ) -> Result<T>
    where
        Q: Clone + Send + Sync + 'static,
        P: Send + 'static,
        T: Default + Send + 'static,
        F: Future<Output = Answered<Response<Streaming<P>>>> + Send + 'static,
    {
        self.in_turn(doing, move |service, patience| {
            let (answer, add) = (call(service, request.clone()), add.clone());
            async move {
                let mut parts = patience.step(answer).await?.into_inner();
                let mut whole = T::default();
                while let Some(part) = patience.step(parts.message()).await? {
                    patience.count(add(&mut whole, part).map_err(Failed::Here)?);
                }
                Ok(whole)
            }
        })
    }

    /// Makes a call with one server after the other, until one answers or refuses, or the time is over.
    fn in_turn<T, F>(
        &self,
        doing: &'static str,
        call: impl Fn(Service, Patience) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, Failed>> + Send + 'static,
    {
        self.remote.check_process()?;
        let members = self.remote.members();
        let first = self.next.fetch_add(1, Ordering::Relaxed) % members.len().max(1);
        let (before, after) = members.split_at(first);
        let controls: Vec<Control> = after.iter().chain(before).map(|member| member.control.clone()).collect();
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let patience = Patience::new(self.remote.options.deadline, controls.len());
        let patient = patience.clone();
        let calling = self.remote.runtime().spawn(async move {
            let _ = sender.send(try_until(&patient, &controls, doing, call).await);
        });
        let reason = loop {
            // Longer than the call gives itself, which then says more about why.
            match receiver.recv_timeout(patience.left() + GRACE) {
                Ok(answered) => return answered,
                Err(RecvTimeoutError::Timeout) if !patience.left().is_zero() => {}
                Err(RecvTimeoutError::Timeout) => break "no answer, or not all of it, in time",
                Err(RecvTimeoutError::Disconnected) => break "the connection was closed",
            }
        };
        calling.abort();
        let server = self.remote.describe_members();
        Err(Error::Unavailable { server, doing: doing.to_owned(), reason: reason.to_owned() })
    }
}

/// Asks all servers, and all of them again while there is time: one may be starting, or have lost a peer for a moment.
async fn try_until<T, F>(
    patience: &Patience,
    controls: &[Control],
    doing: &str,
    call: impl Fn(Service, Patience) -> F,
) -> Result<T>
where
    F: Future<Output = std::result::Result<T, Failed>>,
{
    let mut pause = PAUSE.0;
    loop {
        let failed = match try_each(controls, doing, |service| call(service, patience.clone())).await {
            Err(error @ Error::Unavailable { .. }) => error,
            settled => return settled,
        };
        if patience.ends_within(pause) {
            return Err(failed);
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE.1);
    }
}

async fn try_each<T, F>(controls: &[Control], doing: &str, call: impl Fn(Service) -> F) -> Result<T>
where
    F: Future<Output = std::result::Result<T, Failed>>,
{
    let mut failed: Vec<(String, String)> = Vec::new();
    for control in controls {
        let service = DatasetServiceClient::new(control.transport()).max_decoding_message_size(LARGEST);
        let status = match call(service).await {
            Ok(answer) => return Ok(answer),
            Err(Failed::Here(error)) => return Err(error),
            Err(Failed::There(status)) => status,
        };
        // A server says nothing about sources: what has one was said by the transport.
        let unanswered = std::error::Error::source(&status).is_some();
        match control.error(doing, &status) {
            Error::Unavailable { server, reason, .. } => failed.push((server, reason)),
            Error::Refused { server, reason, .. } | Error::Denied { server, reason, .. } if unanswered => {
                failed.push((server, reason));
            }
            refused => return Err(refused),
        }
    }
    let reason = match &failed[..] {
        [(_, reason)] => reason.clone(),
        all => all.iter().map(|(server, reason)| format!("{server}: {reason}")).collect::<Vec<_>>().join("; "),
    };
    let servers: Vec<String> = failed.into_iter().map(|(server, _)| server).collect();
    Err(Error::Unavailable { server: servers.join(", "), doing: doing.to_owned(), reason })
}
