//! The way to a coordinator: what is asked is asked again until one answers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use graphmill_net::{ClientTls, Endpoint, Token, Useless};
use graphmill_wire::proto::{CloseRunRequest, ListRunsRequest, RunRequest, RunStatus};
use tonic::{Code, Status};

use super::Error;
use crate::etcd::{Etcd, PREFIX};
use crate::finder::{Finder, Service};
use crate::keeper::KeepError;
use crate::service::to_wire;
use crate::{Place, Settings};

/// The pause before another attempt.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// A call that took longer was held open, and not refused.
const HELD: Duration = Duration::from_secs(1);

/// How a coordinator is reached.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// What the coordinator wants to know.
    pub token: Option<Token>,
    /// How the coordinator is told from somebody else.
    pub tls: Option<ClientTls>,
}

/// A coordinator, or several of which one serves.
#[derive(Debug, Clone)]
pub struct Connection {
    finder: Arc<Finder>,
    /// When a coordinator answered last, if one did.
    heard: Arc<Mutex<Option<Instant>>>,
}

/// How long an attempt may take.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// Until then.
    Time(tokio::time::Instant),
    /// As long as a coordinator is heard of, by whatever call, at least so often.
    Silence(Duration),
}

impl Connection {
    /// Coordinators at addresses; connects when it is used. To be made inside a runtime.
    pub fn new(endpoints: &[Endpoint], options: &ConnectOptions) -> Self {
        Self { finder: Arc::new(Finder::named(endpoints, options)), heard: Arc::default() }
    }

    /// The coordinators at a place. To be made inside a runtime.
    ///
    /// # Errors
    /// When what is needed to ask etcd cannot be read.
    pub fn open(place: &Place, options: &ConnectOptions) -> Result<Self, KeepError> {
        match place {
            Place::At(endpoints) => Ok(Self::new(endpoints, options)),
            Place::Etcd(url) => {
                let etcd = Etcd::open(url, url.prefix.as_deref().unwrap_or(PREFIX))?;
                Ok(Self { finder: Arc::new(Finder::led(etcd, options)), heard: Arc::default() })
            }
        }
    }

    /// Asks until one answers, or the time is over.
    pub(crate) async fn ask<T, F>(
        &self,
        doing: &'static str,
        within: Duration,
        mut call: impl FnMut(Service) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let over = tokio::time::Instant::now() + within;
        self.ask_until(doing, within, Limit::Time(over), |service, _| call(service)).await
    }

    /// Asks until one answers, however long that takes: only when nobody could be reached for some time, or nobody was heard
    /// of while the answer was waited for, it gives up.
    pub(super) async fn ask_patiently<T, F>(
        &self,
        doing: &'static str,
        patience: Duration,
        silence: Duration,
        call: impl FnMut(Service, bool) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.ask_until(doing, patience, Limit::Silence(silence), call).await
    }

    /// Asks until one answers, an attempt takes too long, or nobody could be reached for some time. What is asked is told
    /// whether it was before.
    async fn ask_until<T, F>(
        &self,
        doing: &'static str,
        patience: Duration,
        limit: Limit,
        mut call: impl FnMut(Service, bool) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let mut out_of_reach = Instant::now();
        let (mut asked, mut before) = (false, None);
        loop {
            let began = Instant::now();
            let picked = tokio::select! {
                picked = self.finder.pick() => picked,
                () = self.too_long(began, limit) => return Err(self.silent(doing, began, before)),
            };
            let error = match picked {
                Err(reason) => Error::Unavailable { doing, at: self.finder.everywhere(), reason },
                Ok(picked) => {
                    let answered = tokio::select! {
                        answered = call(picked.service.clone(), asked) => answered,
                        () = self.too_long(began, limit) => {
                            self.finder.doubt(&picked);
                            return Err(self.silent(doing, began, before));
                        }
                    };
                    let status = match answered {
                        Ok(response) => {
                            self.hear();
                            return Ok(response.into_inner());
                        }
                        Err(status) => status,
                    };
                    asked = true;
                    let useless = graphmill_net::Error::certificate(&status).map(Useless::Denied);
                    match useless.or_else(|| picked.refusal.read()) {
                        Some(Useless::Denied(reason)) => return Err(Error::Denied { doing, reason }),
                        Some(Useless::Stranger(reason)) => return Err(Error::Refused { doing, reason }),
                        None => {}
                    }
                    if !matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal) {
                        self.hear();
                        return Err(Error::refused(doing, &status));
                    }
                    self.finder.doubt(&picked);
                    Error::unavailable(doing, &picked.endpoint, &status)
                }
            };
            // A call that was held open had reached somebody, for as long as keep-alives were answered.
            if let Some(heard) = self.heard()
                && heard > began
                && began.elapsed() > HELD
            {
                out_of_reach = out_of_reach.max(heard);
            }
            if out_of_reach.elapsed() + PAUSE >= patience {
                return Err(error);
            }
            before = Some(error);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Ends when an attempt that began then has taken too long.
    async fn too_long(&self, began: Instant, limit: Limit) {
        let silence = match limit {
            Limit::Time(end) => return tokio::time::sleep_until(end).await,
            Limit::Silence(silence) => silence,
        };
        loop {
            let heard = self.heard().map_or(began, |heard| heard.max(began));
            let left = silence.saturating_sub(heard.elapsed());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// No answer came since then; for an attempt that had hardly begun, what became of the one before says more.
    fn silent(&self, doing: &'static str, since: Instant, before: Option<Error>) -> Error {
        if let Some(before) = before.filter(|_| since.elapsed() < HELD) {
            return before;
        }
        let (at, within) = (self.finder.everywhere(), Duration::from_millis(since.elapsed().as_millis() as u64));
        Error::Unavailable { doing, at, reason: format!("no answer within {within:?}") }
    }

    fn heard(&self) -> Option<Instant> {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Where a run stands.
    ///
    /// # Errors
    /// When there is no such run, or nobody answers.
    pub async fn status(&self, run: &str, within: Duration) -> Result<RunStatus, Error> {
        let request = RunRequest { run: run.to_owned() };
        self.ask("describe the run", within, |mut service| {
            let request = request.clone();
            async move { service.describe_run(request).await }
        })
        .await
    }

    /// The status of a run now, and whenever it changes.
    ///
    /// # Errors
    /// When there is no such run, or nobody answers.
    pub async fn watch(&self, run: &str, within: Duration) -> Result<tonic::Streaming<RunStatus>, Error> {
        let request = RunRequest { run: run.to_owned() };
        self.ask("watch the run", within, |mut service| {
            let request = request.clone();
            async move { service.watch_run(request).await }
        })
        .await
    }

    /// The runs that are under way.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn runs(&self, within: Duration) -> Result<Vec<String>, Error> {
        let listed =
            self.ask("list the runs", within, |mut service| async move { service.list_runs(ListRunsRequest {}).await });
        Ok(listed.await?.runs)
    }

    /// Ends a run for good; with settings also one that has not begun.
    ///
    /// # Errors
    /// When there is no such run, or nobody answers.
    pub async fn close(&self, run: &str, settings: Option<&Settings>, within: Duration) -> Result<(), Error> {
        let request = CloseRunRequest { run: run.to_owned(), settings: settings.map(to_wire) };
        self.ask("close the run", within, |mut service| {
            let request = request.clone();
            async move { service.close_run(request).await }
        })
        .await?;
        Ok(())
    }
}
