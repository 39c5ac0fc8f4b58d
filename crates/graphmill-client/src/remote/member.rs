//! One server: a data connection that is kept up, over which batches are asked for and arrive.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use graphmill_net::{Endpoint, FrameReader, FrameWriter, HeldSlot, ReceivedSlots, Stream};
use graphmill_sample::{Buffer, Pool, law};
use graphmill_wire::proto::{self, Code, Role};
use graphmill_wire::{Header, Kind, Limits, Message};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tracing::Instrument as _;

use super::control::Control;
use super::inbox::{Arrival, Inbox, lock};
use super::{ConnectOptions, Transport};

/// How long a connection and its greeting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// The pause before another attempt: doubled each time, up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// A server is asked at least this often whether it is there, and given up when it said nothing for so long.
const PING: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(10);
/// Bytes that a server must send in a microsecond, at least.
const SLOWEST: u64 = 1;
/// Buffers that are kept for batches that arrive over a socket.
const KEPT: usize = 16;

/// A server.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) control: Control,
    pub(crate) counters: Counters,
    greeting: proto::Hello,
    tls: Option<graphmill_net::ClientTls>,
    transport: Transport,
    state: Mutex<State>,
    /// Who waits for batches of which channel.
    inboxes: Mutex<HashMap<u64, Weak<Inbox>>>,
    pool: Pool,
    /// The partitions it said it has.
    partitions: Mutex<Option<Vec<u32>>>,
    stopped: AtomicBool,
    stop: Notify,
}

#[derive(Debug)]
enum State {
    /// Not connected, for a reason.
    Down(String),
    /// Connected; what is sent goes here.
    Up(mpsc::UnboundedSender<(Header, Message)>),
}

/// What arrived from a server.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) socket_bytes: AtomicU64,
    pub(crate) shared_bytes: AtomicU64,
    pub(crate) copied_bytes: AtomicU64,
}

/// A batch in shared memory.
#[derive(Debug)]
struct BatchSlot(HeldSlot);

impl graphmill_sample::Slot for BatchSlot {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

/// A greeted connection.
struct Connected {
    reader: FrameReader,
    writer: FrameWriter,
    lease: Duration,
}

impl Member {
    /// Begins to keep a connection; to be called inside the runtime.
    pub(super) fn start(
        control: Control,
        options: &ConnectOptions,
        client: [u8; 16],
        fingerprint: String,
    ) -> Arc<Self> {
        let greeting = proto::Hello {
            oldest_wire: graphmill_wire::OLDEST.into(),
            newest_wire: graphmill_wire::VERSION.into(),
            law: law::VERSION,
            fingerprint,
            token: options.token.as_ref().map(|token| token.reveal().to_owned()).unwrap_or_default(),
            client: client.to_vec(),
            role: Role::Client.into(),
            slots: false,
        };
        let member = Arc::new(Self {
            control,
            counters: Counters::default(),
            greeting,
            tls: options.tls.clone(),
            transport: options.transport,
            state: Mutex::new(State::Down("not connected yet".to_owned())),
            inboxes: Mutex::default(),
            pool: Pool::new(KEPT),
            partitions: Mutex::default(),
            stopped: AtomicBool::new(false),
            stop: Notify::new(),
        });
        tokio::spawn(Arc::clone(&member).keep_connected());
        member
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.stop.notify_one();
    }

    /// Whether it is let go of, for good.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// It said which partitions it has.
    pub(super) fn tell_partitions(&self, partitions: Vec<u32>) {
        *lock(&self.partitions) = Some(partitions);
    }

    /// Whether it said which partitions it has.
    pub(super) fn told_partitions(&self) -> bool {
        lock(&self.partitions).is_some()
    }

    /// Whether it said that it has a partition.
    pub(super) fn has_partition(&self, partition: u32) -> bool {
        lock(&self.partitions).as_ref().is_some_and(|told| told.contains(&partition))
    }

    /// Whether it may have one of some partitions: so it does if it did not say.
    pub(super) fn may_have(&self, partitions: &[u32]) -> bool {
        lock(&self.partitions).as_ref().is_none_or(|told| told.iter().any(|has| partitions.contains(has)))
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(&*lock(&self.state), State::Up(_))
    }

    /// Where it is and how it does, for messages.
    pub(crate) fn describe(&self) -> String {
        match &*lock(&self.state) {
            State::Up(_) => format!("server {} is connected", self.control.endpoint),
            State::Down(reason) => format!("server {}: {reason}", self.control.endpoint),
        }
    }

    /// Sends a frame; says whether there is a connection to send it over.
    pub(crate) fn send(&self, header: Header, message: Message) -> bool {
        match &*lock(&self.state) {
            State::Up(queue) => queue.send((header, message)).is_ok(),
            State::Down(_) => false,
        }
    }

    /// Batches of a channel are for this inbox from now on.
    pub(crate) fn route(&self, channel: u64, inbox: &Arc<Inbox>) {
        let mut inboxes = lock(&self.inboxes);
        inboxes.retain(|_, inbox| inbox.strong_count() > 0);
        inboxes.insert(channel, Arc::downgrade(inbox));
    }

    /// Whether a channel is this server's.
    pub(crate) fn has_channel(&self, channel: u64) -> bool {
        lock(&self.inboxes).contains_key(&channel)
    }

    fn inbox(&self, channel: u64) -> Option<Arc<Inbox>> {
        lock(&self.inboxes).get(&channel).and_then(Weak::upgrade)
    }

    fn each_inbox(&self, call: impl Fn(&Inbox)) {
        let inboxes: Vec<Arc<Inbox>> = lock(&self.inboxes).values().filter_map(Weak::upgrade).collect();
        for inbox in inboxes {
            call(&inbox);
        }
    }

    async fn keep_connected(self: Arc<Self>) {
        let mut pause = PAUSE.0;
        while !self.stopped.load(Ordering::Relaxed) {
            let reason = match timeout(CONNECT, self.connect()).await {
                Err(_) => format!("no answer within {} s", CONNECT.as_secs()),
                Ok(Err(reason)) => reason,
                Ok(Ok(connected)) => {
                    pause = PAUSE.0;
                    tokio::select! {
                        reason = self.exchange(connected) => reason,
                        () = self.stop.notified() => "it is not needed any more".to_owned(),
                    }
                }
            };
            tracing::debug!(server = %self.control.endpoint, reason, "no connection");
            *lock(&self.state) = State::Down(reason);
            self.each_inbox(|inbox| inbox.member_down(&self));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.notified() => {}
            }
            pause = (2 * pause).min(PAUSE.1);
        }
    }

    /// Connects, over the server's Unix socket if it is on this host and may be used.
    async fn connect(&self) -> Result<Connected, String> {
        let (first, welcome) = self.greet(&self.control.endpoint, false).await?;
        let same_host =
            !welcome.unix_socket.is_empty() && welcome.host == graphmill_net::host_id() && !welcome.host.is_empty();
        if self.transport == Transport::Socket || (self.transport == Transport::Auto && !same_host) {
            return Ok(first);
        }
        let slots = self.transport != Transport::UnixSocket;
        let second = if same_host {
            self.greet(&Endpoint::Unix(welcome.unix_socket.into()), slots).await
        } else {
            Err("the server is on another host, or shares no memory".to_owned())
        };
        match second {
            Ok((connected, welcome)) if !slots || welcome.slots => Ok(connected),
            Ok(_) if self.transport == Transport::Auto => Ok(first),
            Ok(_) => Err("the server does not share memory with this user".to_owned()),
            Err(reason) if self.transport == Transport::Auto => {
                tracing::debug!(server = %self.control.endpoint, reason, "no shared memory");
                Ok(first)
            }
            Err(reason) => Err(reason),
        }
    }

    async fn greet(&self, endpoint: &Endpoint, slots: bool) -> Result<(Connected, proto::Welcome), String> {
        let stream: Stream = graphmill_net::connect_data(endpoint, self.tls.as_ref(), CONNECT)
            .await
            .map_err(|error| error.to_string())?;
        let (mut reader, mut writer) = graphmill_net::split(stream, graphmill_wire::GREETING, Limits::CLIENT);
        let hello = Message::Hello(proto::Hello { slots, ..self.greeting.clone() });
        writer.write(Header::new(hello.kind()), &hello, &[]).await.map_err(|error| error.to_string())?;
        match reader.next().await.map_err(|error| error.to_string())?.map(|frame| frame.message) {
            Some(Message::Welcome(welcome)) => {
                let version = graphmill_wire::chosen(welcome.wire).map_err(|error| error.to_string())?;
                reader.set_version(version);
                writer.set_version(version);
                let lease = Duration::from_millis(welcome.lease_ms);
                Ok((Connected { reader, writer, lease }, welcome))
            }
            Some(Message::Refused(refused)) => {
                let reason = format!("refused: {}", refused.reason);
                if refused.code() != Code::Unavailable {
                    // It will be refused again.
                    self.each_inbox(|inbox| inbox.refused(&self.control.endpoint, &refused));
                }
                Err(reason)
            }
            Some(other) => Err(format!("it answered {:?} to the greeting", other.kind())),
            None => Err("it hung up".to_owned()),
        }
    }

    /// Sends and receives until the connection breaks, and says why.
    async fn exchange(&self, connected: Connected) -> String {
        let Connected { reader, mut writer, lease } = connected;
        let (queue, mut outgoing) = mpsc::unbounded_channel();
        let (returns, mut returned) = mpsc::unbounded_channel();
        *lock(&self.state) = State::Up(queue);
        self.each_inbox(Inbox::member_up);
        let slots = ReceivedSlots::new(returns);
        // A server that is asked this often and says nothing for a while is frozen, or the network is.
        let mut alive = tokio::time::interval((lease / 3).clamp(Duration::from_millis(10), PING));
        let heard = Mutex::new((Instant::now(), SILENCE));
        let silent = async {
            loop {
                tokio::time::sleep(SILENCE / 10).await;
                let (last, patience) = *lock(&heard);
                if last.elapsed() > patience {
                    return format!("it said nothing for {} s", patience.as_secs());
                }
            }
        };
        let write = async {
            loop {
                let (header, message) = tokio::select! {
                    Some(frame) = outgoing.recv() => frame,
                    Some(back) = returned.recv() => (Header::new(Kind::Return), Message::Return(back)),
                    _ = alive.tick() => (Header::new(Kind::Ping), Message::Ping(proto::Ping {})),
                };
                if let Err(error) = writer.write(header, &message, &[]).await {
                    return error.to_string();
                }
            }
        };
        tokio::select! {
            reason = write => reason,
            reason = self.read(reader, &slots, &heard) => reason,
            reason = silent => reason,
        }
    }

    async fn read(
        &self,
        mut reader: FrameReader,
        slots: &Arc<ReceivedSlots>,
        heard: &Mutex<(Instant, Duration)>,
    ) -> String {
        loop {
            let frame = match reader.next().await {
                Ok(Some(frame)) => frame,
                Ok(None) => return "it hung up".to_owned(),
                Err(error) => return error.to_string(),
            };
            // A long body takes its time, if only over a slow link.
            *lock(heard) = (Instant::now(), SILENCE + Duration::from_micros(frame.header.body / SLOWEST));
            let Header { channel, epoch, g, body, .. } = frame.header;
            match frame.message {
                Message::Batch(head) => {
                    let server = &self.control.endpoint;
                    let span =
                        tracing::trace_span!(target: "graphmill::batch", "received", %server, channel, epoch, g, body);
                    let arrival = match self.receive(&mut reader, head, body, slots).instrument(span).await {
                        Ok(arrival) => arrival,
                        Err(reason) => return reason,
                    };
                    self.counters.batches.fetch_add(1, Ordering::Relaxed);
                    if let Some(inbox) = self.inbox(channel) {
                        inbox.arrived(&self.control.endpoint, channel, epoch, g, arrival);
                    }
                }
                Message::Failed(failed) => {
                    if let Some(inbox) = self.inbox(channel) {
                        inbox.arrived(&self.control.endpoint, channel, epoch, g, Arrival::Failed(failed));
                    }
                }
                Message::Lost(lost) => {
                    if let Some(inbox) = self.inbox(channel) {
                        inbox.lost(self, channel, &lost.reason);
                    }
                }
                Message::Slot(slot) => {
                    if let Err(reason) = slots.accept(&slot, frame.fd) {
                        return reason;
                    }
                }
                Message::Pong(_) => {}
                Message::Refused(refused) => {
                    self.each_inbox(|inbox| inbox.refused(&self.control.endpoint, &refused));
                    return refused.reason;
                }
                other => return format!("it sent {:?}, which has no place here", other.kind()),
            }
        }
    }

    /// A batch in its memory, which is its slot, or a buffer that the socket is read into. Without memory for it only this
    /// batch fails; what came of it is skipped.
    async fn receive(
        &self,
        reader: &mut FrameReader,
        head: proto::BatchHead,
        body: u64,
        slots: &Arc<ReceivedSlots>,
    ) -> Result<Arrival, String> {
        let no_memory = |error: graphmill_sample::Error| {
            Arrival::Failed(proto::Failed { code: Code::OverBudget.into(), reason: error.to_string() })
        };
        let Some(number) = head.slot else {
            if body != head.bytes {
                return Err(format!("a batch of {} bytes came with {body}", head.bytes));
            }
            let mut buffer = match self.pool.take(body as usize) {
                Ok(buffer) => buffer,
                Err(error) => return Ok(no_memory(error)),
            };
            reader.read_body(buffer.bytes_mut()).await.map_err(|error| error.to_string())?;
            self.counters.socket_bytes.fetch_add(body, Ordering::Relaxed);
            return Ok(Arrival::Batch(head, buffer));
        };
        let slot = slots.take(number, head.bytes as usize).ok_or_else(|| format!("slot {number} is not known"))?;
        if slot.bytes().len() != head.bytes as usize {
            return Err(format!("a batch of {} bytes does not fit slot {number}", head.bytes));
        }
        self.counters.shared_bytes.fetch_add(head.bytes, Ordering::Relaxed);
        if slots.crowded(head.bytes as usize) {
            self.counters.copied_bytes.fetch_add(head.bytes, Ordering::Relaxed);
            let mut buffer = match self.pool.take(head.bytes as usize) {
                Ok(buffer) => buffer,
                Err(error) => return Ok(no_memory(error)),
            };
            buffer.bytes_mut().copy_from_slice(slot.bytes());
            return Ok(Arrival::Batch(head, buffer));
        }
        Ok(Arrival::Batch(head, Buffer::in_slot(Box::new(BatchSlot(slot)))))
    }
}
