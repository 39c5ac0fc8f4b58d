//! A connection to a peer that is kept up, and the questions under way on it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use graphmill_codec::query as codec;
use graphmill_net::{ClientTls, Endpoint, FrameReader, FrameWriter, HeldSlot, Incoming, ReceivedSlots, Token};
use graphmill_sample::{Buffer, Gather, Need, Pool, law};
use graphmill_wire::proto::{self, Role};
use graphmill_wire::{Header, Limits, Message};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::timeout;

use crate::Refusal;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, PoisonError, lock};

/// The most questions under way on a connection.
const UNDER_WAY: usize = 64;
/// Idle memory that is kept for answers.
const KEPT_BYTES: usize = 256 << 20;
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a question may take.
const ANSWER: Duration = Duration::from_secs(30);
/// How often a peer is asked for a sign of life, and how long it may say nothing at all: then it is frozen, or the network is.
const PING: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(10);
/// Bytes that a peer must send in a microsecond, at least.
const SLOWEST: u64 = 1;
/// The pause before another attempt to connect: doubled each time, up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What it takes to reach a peer.
#[derive(Debug, Clone)]
pub(crate) struct Dialing {
    pub(crate) endpoint: Endpoint,
    pub(crate) tls: Option<ClientTls>,
    pub(crate) token: Option<Token>,
    pub(crate) fingerprint: String,
    pub(crate) client: [u8; 16],
}

/// A question to a peer.
#[derive(Debug)]
pub(crate) struct Question {
    header: Header,
    message: Message,
    body: Body,
}

/// What a question carries: ids, or a message.
#[derive(Debug)]
enum Body {
    Ids(Vec<u64>),
    Bytes(Vec<u8>),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Ids(ids) => bytemuck::cast_slice(ids),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Question {
    /// A sampler's question.
    pub(crate) fn ask(need: &Need<'_>) -> Self {
        let message = Message::Ask(codec::ask(need));
        let header = Header { epoch: need.batch.epoch, g: need.batch.g, ..Header::new(message.kind()) };
        let body = Body::Ids(need.ids.iter().chain(need.others).copied().collect());
        Self { header, message, body }
    }

    /// A question for rows.
    pub(crate) fn gather(gather: Gather<'_>) -> Self {
        let message = Message::Gather(codec::gather(gather));
        Self { header: Header::new(message.kind()), message, body: Body::Ids(gather.ids.to_vec()) }
    }

    /// A question of the dataset service.
    pub(crate) fn read(head: proto::Read, body: Vec<u8>) -> Self {
        let message = Message::Read(head);
        Self { header: Header::new(message.kind()), message, body: Body::Bytes(body) }
    }
}

/// A peer's answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) message: Message,
    body: AnswerBody,
}

/// Where an answer's body lies.
#[derive(Debug)]
enum AnswerBody {
    None,
    Buffer(Buffer),
    Slot(HeldSlot),
}

impl Answered {
    pub(crate) fn body(&self) -> &[u8] {
        match &self.body {
            AnswerBody::None => &[],
            AnswerBody::Buffer(buffer) => buffer.bytes(),
            AnswerBody::Slot(slot) => slot.bytes(),
        }
    }

    pub(crate) fn unexpected(&self) -> Refusal {
        Refusal::internal(format!("a peer answered {:?}, which was not asked", self.message.kind()))
    }
}

type Reply = Box<dyn FnOnce(Result<Answered, Refusal>) + Send>;

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer {
    dialing: Dialing,
    state: Mutex<State>,
    /// What a registry last said that it serves, as which incarnation.
    announced: Mutex<(u64, Vec<u32>)>,
    stopped: AtomicBool,
    stop: Notify,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
    /// Memory for what it answers.
    pool: Pool,
}

#[derive(Debug)]
enum State {
    /// Not connected, for a reason.
    Down(String),
    Up {
        incarnation: u64,
        /// What it had when it was greeted.
        partitions: Vec<u32>,
        questions: mpsc::UnboundedSender<Asked>,
    },
}

/// A question and who waits for the answer.
struct Asked {
    question: Question,
    reply: Reply,
}

impl Peer {
    pub(crate) fn new(dialing: Dialing) -> Arc<Self> {
        let state = Mutex::new(State::Down("not connected yet".to_owned()));
        let (bytes_sent, bytes_received, pool) =
            (AtomicU64::new(0), AtomicU64::new(0), Pool::bounded(UNDER_WAY, KEPT_BYTES));
        let (announced, stopped, stop) = (Mutex::default(), AtomicBool::new(false), Notify::new());
        Arc::new(Self { dialing, state, announced, stopped, stop, bytes_sent, bytes_received, pool })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.dialing.endpoint
    }

    /// The partitions it has; none while it is not connected.
    pub(crate) fn partitions(&self) -> Vec<u32> {
        match &*lock(&self.state) {
            State::Up { incarnation, partitions, .. } => {
                // A server never has less than before, unless it was started again.
                let announced = lock(&self.announced);
                let more = announced.1.iter().filter(|_| announced.0 == *incarnation);
                let mut all: Vec<u32> = partitions.iter().chain(more).copied().collect();
                all.sort_unstable();
                all.dedup();
                all
            }
            State::Down(_) => Vec::new(),
        }
    }

    /// What a registry says that it serves now.
    pub(crate) fn announce(&self, incarnation: u64, partitions: &[u32]) {
        *lock(&self.announced) = (incarnation, partitions.to_vec());
    }

    /// Lets go of it, for good; whoever waits for an answer is told.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.stop.notify_one();
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(&*lock(&self.state), State::Up { .. })
    }

    /// Where it is and how it does, for messages.
    pub(crate) fn describe(&self) -> String {
        let reason = match &*lock(&self.state) {
            State::Up { .. } => None,
            State::Down(reason) => Some(reason.clone()),
        };
        match reason {
            Some(reason) => format!("{}: {reason}", self.dialing.endpoint),
            None => format!("{} has partitions {:?}", self.dialing.endpoint, self.partitions()),
        }
    }

    /// Sends a question; `reply` is called once, from any thread.
    pub(crate) fn send(&self, question: Question, reply: Reply) {
        let sent = match &*lock(&self.state) {
            State::Up { questions, .. } => questions.send(Asked { question, reply }).map_err(|unsent| unsent.0.reply),
            State::Down(_) => Err(reply),
        };
        if let Err(reply) = sent {
            reply(Err(Refusal::unavailable(format!("peer {}", self.describe()))));
        }
    }

    /// Connects, and connects again whenever the connection breaks, until it is stopped. `changed` is called when that
    /// changes what it has, before anybody is told that an answer will not come.
    pub(crate) async fn keep_connected(self: Arc<Self>, changed: impl Fn() + Send + Sync) {
        let mut pause = PAUSE.0;
        while !self.stopped.load(Ordering::Acquire) {
            let reason = match timeout(CONNECT, self.connect()).await {
                Err(_) => format!("no answer within {} s", CONNECT.as_secs()),
                Ok(Err(reason)) => reason,
                Ok(Ok((reader, writer, welcome))) => {
                    let (incarnation, partitions) = (welcome.incarnation, welcome.partitions);
                    tracing::info!(peer = %self.dialing.endpoint, ?partitions, "connected to a peer");
                    pause = PAUSE.0;
                    let (sender, questions) = mpsc::unbounded_channel();
                    *lock(&self.state) = State::Up { incarnation, partitions, questions: sender };
                    changed();
                    let reason = self.exchange(reader, writer, questions, &changed).await;
                    tracing::warn!(peer = %self.dialing.endpoint, reason, "lost a peer");
                    reason
                }
            };
            tracing::debug!(peer = %self.dialing.endpoint, reason, "no connection to a peer");
            *lock(&self.state) = State::Down(reason);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.notified() => {}
            }
            pause = (2 * pause).min(PAUSE.1);
        }
    }

    /// Connects, over the peer's Unix socket if it is on this host and shares its memory.
    async fn connect(&self) -> Result<(FrameReader, FrameWriter, proto::Welcome), String> {
        let first = self.greet(&self.dialing.endpoint).await?;
        let welcome = &first.2;
        if welcome.slots || welcome.unix_socket.is_empty() || welcome.host != graphmill_net::host_id() {
            return Ok(first);
        }
        match self.greet(&Endpoint::Unix(welcome.unix_socket.clone().into())).await {
            Ok(second) if second.2.slots => Ok(second),
            _ => Ok(first),
        }
    }

    async fn greet(&self, endpoint: &Endpoint) -> Result<(FrameReader, FrameWriter, proto::Welcome), String> {
        let Dialing { tls, token, fingerprint, client, .. } = &self.dialing;
        let stream =
            graphmill_net::connect_data(endpoint, tls.as_ref(), CONNECT).await.map_err(|error| error.to_string())?;
        let (mut reader, mut writer) = graphmill_net::split(stream, graphmill_wire::GREETING, Limits::SERVER);
        let hello = Message::Hello(proto::Hello {
            oldest_wire: graphmill_wire::OLDEST.into(),
            newest_wire: graphmill_wire::VERSION.into(),
            law: law::VERSION,
            fingerprint: fingerprint.clone(),
            token: token.as_ref().map(|token| token.reveal().to_owned()).unwrap_or_default(),
            client: client.to_vec(),
            role: Role::Peer.into(),
            slots: matches!(endpoint, Endpoint::Unix(_)),
        });
        writer.write(Header::new(hello.kind()), &hello, &[]).await.map_err(|error| error.to_string())?;
        match reader.next().await.map_err(|error| error.to_string())?.map(|frame| frame.message) {
            Some(Message::Welcome(welcome)) => {
                let version = graphmill_wire::chosen(welcome.wire).map_err(|error| error.to_string())?;
                reader.set_version(version);
                writer.set_version(version);
                Ok((reader, writer, welcome))
            }
            Some(Message::Refused(refused)) => Err(refused.reason),
            Some(other) => Err(format!("it answered {:?} to the greeting", other.kind())),
            None => Err("it hung up".to_owned()),
        }
    }

    /// Carries questions and answers until the connection breaks, and says why. Whoever still waits then is told.
    async fn exchange(
        &self,
        reader: FrameReader,
        mut writer: FrameWriter,
        mut questions: mpsc::UnboundedReceiver<Asked>,
        changed: &(impl Fn() + Sync),
    ) -> String {
        let waiting: Mutex<HashMap<u64, (Instant, Reply)>> = Mutex::default();
        let room = Semaphore::new(UNDER_WAY);
        let (returns, mut returned) = mpsc::unbounded_channel();
        let slots = ReceivedSlots::new(returns);
        let mut alive = tokio::time::interval(PING);
        // When it last said something, and how long it may take until it does again.
        let heard = Mutex::new((Instant::now(), SILENCE));
        let write = async {
            let mut request = 0;
            loop {
                let asked = tokio::select! {
                    asked = questions.recv() => asked,
                    message = async {
                        tokio::select! {
                            Some(back) = returned.recv() => Message::Return(back),
                            _ = alive.tick() => Message::Ping(proto::Ping {}),
                        }
                    } => {
                        if let Err(error) = writer.write(Header::new(message.kind()), &message, &[]).await {
                            return error.to_string();
                        }
                        continue;
                    }
                };
                let Some(Asked { question, reply }) = asked else { return "it is not needed any more".to_owned() };
                // The reader gives back what is forgotten here.
                let Ok(permit) = room.acquire().await else { return "it is closed".to_owned() };
                permit.forget();
                request += 1;
                lock(&waiting).insert(request, (Instant::now(), reply));
                let header = Header { request, ..question.header };
                let body = question.body.bytes();
                self.bytes_sent.fetch_add(body.len() as u64, Ordering::Relaxed);
                if let Err(error) = writer.write(header, &question.message, &[body]).await {
                    return error.to_string();
                }
            }
        };
        let late = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if lock(&waiting).values().any(|(asked, _)| asked.elapsed() > ANSWER) {
                    return format!("a question was not answered within {} s", ANSWER.as_secs());
                }
                let (last, patience) = *lock(&heard);
                if last.elapsed() > patience {
                    return format!("it said nothing for {} s", patience.as_secs());
                }
            }
        };
        let reason = tokio::select! {
            reason = write => reason,
            reason = self.read(reader, &heard, &waiting, &room, &slots) => reason,
            reason = late => reason,
            () = self.stop.notified() => "it is not needed any more".to_owned(),
        };
        // Nothing is sent after this, so that everyone is told once.
        *lock(&self.state) = State::Down(reason.clone());
        questions.close();
        // Whoever is told now finds out who else has what this one had.
        changed();
        let gone = || Refusal::unavailable(format!("lost peer {}: {reason}", self.dialing.endpoint));
        let unsent = std::iter::from_fn(|| questions.try_recv().ok()).map(|asked| asked.reply);
        let waiting = waiting.into_inner().unwrap_or_else(PoisonError::into_inner);
        waiting.into_values().map(|(_, reply)| reply).chain(unsent).for_each(|reply| reply(Err(gone())));
        reason
    }

    async fn read(
        &self,
        mut reader: FrameReader,
        heard: &Mutex<(Instant, Duration)>,
        waiting: &Mutex<HashMap<u64, (Instant, Reply)>>,
        room: &Semaphore,
        slots: &Arc<ReceivedSlots>,
    ) -> String {
        loop {
            let frame = match reader.next().await {
                Ok(Some(frame)) => frame,
                Ok(None) => return "it hung up".to_owned(),
                Err(error) => return error.to_string(),
            };
            // A long body takes its time, if only over a slow link.
            *lock(heard) = (Instant::now(), SILENCE + Duration::from_micros(frame.header.body / SLOWEST));
            match &frame.message {
                Message::Pong(_) => continue,
                Message::Slot(slot) => match slots.accept(slot, frame.fd) {
                    Ok(()) => continue,
                    Err(reason) => return reason,
                },
                _ => {}
            }
            let body = match self.receive(&mut reader, &frame, slots).await {
                Ok(body) => body,
                Err(reason) => return reason,
            };
            let Some((_, reply)) = lock(waiting).remove(&frame.header.request) else {
                return format!("it answered question {}, which nobody asked", frame.header.request);
            };
            room.add_permits(1);
            reply(match frame.message {
                Message::Failed(failed) => {
                    let code = failed.code();
                    let reason = format!("peer {}: {}", self.dialing.endpoint, failed.reason);
                    Err(Refusal::new(code, reason))
                }
                message => body.map(|body| Answered { message, body }),
            });
        }
    }

    /// The body of an answer: in its slot, or read from the socket.
    async fn receive(
        &self,
        reader: &mut FrameReader,
        frame: &Incoming,
        slots: &Arc<ReceivedSlots>,
    ) -> Result<Result<AnswerBody, Refusal>, String> {
        if let Message::Rows(proto::Rows { slot: Some(slot), bytes, .. }) = &frame.message {
            let held = slots.take(*slot, *bytes as usize).ok_or_else(|| format!("slot {slot} is not known"))?;
            self.bytes_received.fetch_add(*bytes, Ordering::Relaxed);
            return Ok(Ok(AnswerBody::Slot(held)));
        }
        if frame.header.body == 0 {
            return Ok(Ok(AnswerBody::None));
        }
        let mut buffer = match self.pool.take(frame.header.body as usize) {
            Ok(buffer) => buffer,
            // The body is skipped, and only this question fails.
            Err(error) => return Ok(Err(error.into())),
        };
        reader.read_body(buffer.bytes_mut()).await.map_err(|error| error.to_string())?;
        self.bytes_received.fetch_add(frame.header.body, Ordering::Relaxed);
        Ok(Ok(AnswerBody::Buffer(buffer)))
    }
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.question.fmt(f)
    }
}
