//! Asking servers: each call goes to the next of them, and to another one if that one cannot be reached. Reading changes
//! nothing, so that a call may be made again from the start.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use graphmill_wire::proto::dataset_service_client::DatasetServiceClient;
use tokio::time::timeout;
use tonic::{Response, Status, Streaming};

use super::RemoteDataset;
use crate::remote::control::{Control, ControlTransport};
use crate::{Error, Result};

/// The largest message that is taken.
const LARGEST: usize = 64 << 20;
/// The pause before all servers are asked again: doubled each time, up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

pub(super) type Service = DatasetServiceClient<ControlTransport>;
type Answered<T> = std::result::Result<T, Status>;

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
        let deadline = self.remote.options.deadline;
        self.in_turn(doing, move |service| {
            let answer = call(service, request.clone());
            async move { in_time(deadline, answer).await.map(Response::into_inner) }
        })
    }

    /// Asks for an answer in parts, and puts them together. Each part may take as long as the deadline.
    pub(super) fn read<Q, P, T, F>(
        &self,
        doing: &'static str,
        request: Q,
        call: impl Fn(Service, Q) -> F + Send + Sync + 'static,
        add: fn(&mut T, P),
    ) -> Result<T>
    where
        Q: Clone + Send + Sync + 'static,
        P: Send + 'static,
        T: Default + Send + 'static,
        F: Future<Output = Answered<Response<Streaming<P>>>> + Send + 'static,
    {
        let deadline = self.remote.options.deadline;
        self.in_turn(doing, move |service| {
            let answer = call(service, request.clone());
            async move {
                let mut parts = in_time(deadline, answer).await?.into_inner();
                let mut whole = T::default();
                while let Some(part) = in_time(deadline, parts.message()).await? {
                    add(&mut whole, part);
                }
                Ok(whole)
            }
        })
    }

    /// Makes a call with one server after the other, until one answers or refuses.
    fn in_turn<T, F>(&self, doing: &'static str, call: impl Fn(Service) -> F + Send + Sync + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Answered<T>> + Send + 'static,
    {
        self.remote.check_process()?;
        let members = self.remote.members();
        let first = self.next.fetch_add(1, Ordering::Relaxed) % members.len().max(1);
        let (before, after) = members.split_at(first);
        let controls: Vec<Control> = after.iter().chain(before).map(|member| member.control.clone()).collect();
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let deadline = self.remote.options.deadline;
        self.remote.runtime().spawn(async move {
            let _ = sender.send(try_until(deadline, &controls, doing, call).await);
        });
        // Every step of a call has a deadline, so this ends.
        receiver.recv().unwrap_or_else(|_| {
            Err(Error::Unavailable {
                server: self.remote.describe_members(),
                doing: doing.to_owned(),
                reason: "the connection was closed".to_owned(),
            })
        })
    }
}

/// Asks all servers, and all of them again while there is time: one may be starting, or have lost a peer for a moment.
async fn try_until<T, F>(
    deadline: Duration,
    controls: &[Control],
    doing: &str,
    call: impl Fn(Service) -> F,
) -> Result<T>
where
    F: Future<Output = Answered<T>>,
{
    let began = Instant::now();
    let mut pause = PAUSE.0;
    loop {
        let failed = match try_each(controls, doing, &call).await {
            Err(error @ Error::Unavailable { .. }) => error,
            settled => return settled,
        };
        if began.elapsed() + pause >= deadline {
            return Err(failed);
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE.1);
    }
}

async fn try_each<T, F>(controls: &[Control], doing: &str, call: impl Fn(Service) -> F) -> Result<T>
where
    F: Future<Output = Answered<T>>,
{
    let mut failed: Vec<(String, String)> = Vec::new();
    for control in controls {
        let service = DatasetServiceClient::new(control.transport()).max_decoding_message_size(LARGEST);
        let status = match call(service).await {
            Ok(answer) => return Ok(answer),
            Err(status) => status,
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

async fn in_time<T>(deadline: Duration, answer: impl Future<Output = Answered<T>>) -> Answered<T> {
    timeout(deadline, answer)
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("no answer within {} s", deadline.as_secs_f64()))))
}
