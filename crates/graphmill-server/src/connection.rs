//! A data connection: greeting, what the client asks for, what peers ask.

use std::sync::Arc;
use std::time::{Duration, Instant};

use graphmill_graph::Fingerprint;
use graphmill_net::{FrameReader, FrameWriter, Incoming, PeerInfo, Stream, Token};
use graphmill_sample::law;
use graphmill_wire::proto::{self, Role};
use graphmill_wire::{Header, Kind, Limits, Message};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::Refusal;
use crate::core::Core;
use crate::outlet::{Out, Outlet};
use crate::questions;
use crate::registry::{ClientId, Found};
use crate::sampling::MOST_CREDITS;
use crate::scheduler::Credited;

/// How long a greeting may take.
const GREETING: Duration = Duration::from_secs(5);
/// How long a client that was refused may take to hang up.
const GOODBYE: Duration = Duration::from_secs(1);

/// What a connection is told about the server it reached.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) token: Option<Token>,
    /// The socket for shared memory.
    pub(crate) unix_socket: Option<String>,
    pub(crate) lease: Duration,
    /// How long a peer may be silent, and a question take to arrive.
    pub(crate) patience: Duration,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(core: Arc<Core>, greeting: Arc<Greeting>, stream: Stream, peer: PeerInfo) {
    let shares_memory = matches!(stream, Stream::Unix(_)) && peer.uid == Some(rustix::process::geteuid().as_raw());
    let (mut reader, mut writer) = graphmill_net::split(stream, graphmill_wire::GREETING, Limits::GREETING);
    let greeted = timeout(GREETING, greet(&core, &greeting, &mut reader, &mut writer, shares_memory)).await;
    let hello = match greeted {
        Ok(Ok(hello)) => hello,
        Ok(Err(reason)) => {
            tracing::info!(peer = peer.address, reason, "refused a connection");
            return say_goodbye(&mut reader, &mut writer).await;
        }
        Err(_) => return tracing::info!(peer = peer.address, "a connection did not greet in time"),
    };
    let (client, slots) = (client_id(&hello.client), hello.slots && shares_memory);
    // Whoever takes nothing for as long as a lease is gone, also if it has none.
    writer.set_stall(greeting.lease);
    let (outlet, waiting) = Outlet::new(slots, Arc::clone(&core.budget), Arc::clone(&core.unsent));
    // Here, so that it tells the channels even if the connection ends before the first frame is written.
    let mut queue = Queue { core: &core, outlet: &outlet, waiting, current: None };
    let ended = tokio::select! {
        ended = read(&core, &outlet, &mut reader, &hello, client, greeting.patience) => ended,
        reason = write(&mut queue, &mut writer) => Ended::Gone(reason),
        reason = lease_end(&core, &greeting, &hello, client) => Ended::Gone(reason),
    };
    match ended {
        Ended::Gone(reason) => tracing::debug!(peer = peer.address, reason, "a connection ended"),
        Ended::Refused(reason) => {
            tracing::info!(peer = peer.address, reason, "ended a connection");
            // Not through the queue: nobody writes it any more. It cannot be told if a frame was cut off.
            let message = Message::Refused(Refusal::invalid(reason).refused());
            let _ = timeout(GREETING, writer.write(Header::new(message.kind()), &message, &[])).await;
            say_goodbye(&mut reader, &mut writer).await;
        }
    }
    drop(queue);
    let lost = outlet.give_up();
    core.work.scheduler(|scheduler| lost.iter().for_each(|&(channel, bytes)| scheduler.consumed(channel, bytes)));
}

/// Tells whoever is there that this server takes no more, and hangs up.
pub(crate) async fn turn_away(stream: Stream, refusal: Refusal) {
    let (mut reader, mut writer) = graphmill_net::split(stream, graphmill_wire::GREETING, Limits::GREETING);
    let message = Message::Refused(refusal.refused());
    let _ = timeout(GOODBYE, writer.write(Header::new(message.kind()), &message, &[])).await;
    say_goodbye(&mut reader, &mut writer).await;
}

/// Ends when the lease of a client has ended; a peer has none.
async fn lease_end(core: &Core, greeting: &Greeting, hello: &proto::Hello, client: ClientId) -> String {
    if hello.role() != Role::Client {
        return std::future::pending().await;
    }
    core.registry.renew(client);
    loop {
        tokio::time::sleep(greeting.lease / 4).await;
        if !core.registry.knows(client) {
            return "its lease ended".to_owned();
        }
    }
}

/// Ends a connection so that what was said last arrives: with input unread, the system would throw it away.
async fn say_goodbye(reader: &mut FrameReader, writer: &mut FrameWriter) {
    let _ = timeout(GOODBYE, async {
        writer.shutdown().await?;
        while reader.next().await?.is_some() {}
        graphmill_net::Result::Ok(())
    })
    .await;
}

/// How a connection ended.
enum Ended {
    /// The other side is gone.
    Gone(String),
    /// The other side did what it must not, and is to be told.
    Refused(String),
}

impl From<graphmill_net::Error> for Ended {
    fn from(error: graphmill_net::Error) -> Self {
        match error {
            graphmill_net::Error::Frame(error) => Self::Refused(error.to_string()),
            error => Self::Gone(error.to_string()),
        }
    }
}

async fn greet(
    core: &Core,
    greeting: &Greeting,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    shares_memory: bool,
) -> Result<proto::Hello, String> {
    let hello = match reader.next().await.map_err(Ended::from) {
        Ok(Some(Incoming { message: Message::Hello(hello), .. })) => Ok(hello),
        Ok(Some(frame)) => Err(Refusal::invalid(format!("it began with {:?}", frame.header.kind))),
        Ok(None) => return Err("it hung up".to_owned()),
        Err(Ended::Refused(reason)) => Err(Refusal::invalid(reason)),
        Err(Ended::Gone(reason)) => return Err(reason),
    };
    let checked = hello.and_then(|hello| Ok((check(core, greeting, &hello)?, hello)));
    let answer = match &checked {
        Ok((wire, hello)) => Message::Welcome(proto::Welcome {
            wire: (*wire).into(),
            law: law::VERSION,
            fingerprint: core.cluster.dataset.fingerprint().to_string(),
            incarnation: core.incarnation,
            partitions: core.cluster.lineup().partitions(),
            parts: core.cluster.dataset.parts(),
            unix_socket: greeting.unix_socket.clone().unwrap_or_default(),
            host: graphmill_net::host_id(),
            lease_ms: greeting.lease.as_millis() as u64,
            slots: hello.slots && shares_memory,
            objects: None,
        }),
        Err(refusal) => Message::Refused(refusal.refused()),
    };
    writer.write(Header::new(answer.kind()), &answer, &[]).await.map_err(|error| error.to_string())?;
    let (wire, hello) = checked.map_err(|refusal| refusal.reason)?;
    reader.set_version(wire);
    reader.set_limits(Limits::SERVER);
    writer.set_version(wire);
    Ok(hello)
}

/// Whether a client is welcome; the wire version to speak.
fn check(core: &Core, greeting: &Greeting, hello: &proto::Hello) -> Result<u8, Refusal> {
    if let Some(token) = &greeting.token
        && !token.matches(&hello.token)
    {
        return Err(Refusal::denied("the token is missing or wrong; give both sides the same one"));
    }
    let (oldest, newest) = (graphmill_wire::OLDEST, graphmill_wire::VERSION);
    let Some(wire) = graphmill_wire::agree((oldest, newest), (hello.oldest_wire, hello.newest_wire)) else {
        return Err(Refusal::mismatch(format!(
            "the client speaks wire versions {} to {}, this server {oldest} to {newest}; upgrade the older one",
            hello.oldest_wire, hello.newest_wire
        )));
    };
    if hello.role() == Role::Objects {
        return Err(Refusal::invalid("this is a storage server, which keeps no objects; connect to an object server"));
    }
    same_law(hello.law)?;
    if !hello.fingerprint.is_empty() {
        same_graph(core.cluster.dataset.fingerprint(), &hello.fingerprint)?;
    }
    Ok(wire)
}

/// Fails unless a law version is this server's.
pub(crate) fn same_law(theirs: u64) -> Result<(), Refusal> {
    if theirs == law::VERSION {
        return Ok(());
    }
    let ours = law::VERSION;
    Err(Refusal::mismatch(format!(
        "the client follows law version {theirs}, this server {ours}: their batches would differ; use the same release"
    )))
}

/// Fails unless a fingerprint is this server's dataset's.
pub(crate) fn same_graph(ours: Fingerprint, theirs: &str) -> Result<(), Refusal> {
    if theirs == ours.to_string() {
        return Ok(());
    }
    Err(Refusal::mismatch(format!(
        "the client wants the graph {theirs}, this server has {ours}; serve the same dataset everywhere"
    )))
}

/// A client's name; whoever gives none of the right length is nobody in particular.
pub(crate) fn client_id(bytes: &[u8]) -> ClientId {
    bytes.try_into().unwrap_or_default()
}

/// What waits to be written. However the connection ends, the channels of what was not written are told.
struct Queue<'a> {
    core: &'a Arc<Core>,
    outlet: &'a Arc<Outlet>,
    waiting: mpsc::UnboundedReceiver<Out>,
    /// What is being written now.
    current: Option<Out>,
}

impl Queue<'_> {
    /// What was being written is taken, or lost: its channel is told.
    fn gone(&mut self) {
        let Some(out) = self.current.take() else { return };
        let questions = self.outlet.written(&out);
        let (batch, held) = (out.batch(), out.is_charged());
        // First its memory, so that whoever waits for some finds it.
        drop(out);
        for question in questions {
            questions::hand_over(self.core, self.outlet, question);
        }
        if let Some((channel, bytes)) = batch {
            self.core.work.scheduler(|scheduler| scheduler.consumed(channel, bytes));
        } else if held {
            self.core.work.wake();
        }
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        self.waiting.close();
        self.gone();
        loop {
            match self.waiting.try_recv() {
                Ok(out) => {
                    self.current = Some(out);
                    self.gone();
                }
                // Whoever is just now putting a frame in needs an instant more.
                Err(mpsc::error::TryRecvError::Empty) => std::thread::yield_now(),
                Err(mpsc::error::TryRecvError::Disconnected) => break,
            }
        }
    }
}

/// Writes what is sent, and tells channels what was taken.
async fn write(queue: &mut Queue<'_>, writer: &mut FrameWriter) -> String {
    loop {
        let Some(out) = queue.waiting.recv().await else { return "it is not needed any more".to_owned() };
        let began = Instant::now();
        let out = queue.current.insert(out);
        let written = queue.outlet.write(out, writer).await;
        if out.is_batch() {
            queue.core.metrics.sent(began.elapsed());
        }
        queue.gone();
        if let Err(error) = written {
            return error.to_string();
        }
    }
}

/// Does what the other side asks, until it ends.
async fn read(
    core: &Arc<Core>,
    outlet: &Arc<Outlet>,
    reader: &mut FrameReader,
    hello: &proto::Hello,
    client: ClientId,
    patience: Duration,
) -> Ended {
    let is_client = hello.role() == Role::Client;
    loop {
        // A peer asks often whether this server is there. A client may be quiet for as long as its lease.
        let silence = if is_client { Duration::MAX } else { patience };
        let frame = match timeout(silence, reader.next()).await {
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) => return Ended::Gone("it hung up".to_owned()),
            Ok(Err(error)) => return error.into(),
            Err(_) => return Ended::Refused(format!("it said nothing for {} s", patience.as_secs_f64())),
        };
        if is_client {
            core.registry.renew(client);
        }
        // Whoever asks and does not read the answers is not read either.
        outlet.backlog.room().await;
        let done = match &frame.message {
            Message::Credit(credit) if is_client => take_credit(core, outlet, client, &frame.header, credit),
            Message::Return(back) => {
                for (channel, bytes) in outlet.returned(back) {
                    core.work.scheduler(|scheduler| scheduler.consumed(channel, bytes));
                }
                Ok(())
            }
            Message::Ping(_) => {
                outlet.send_message(
                    Header { request: frame.header.request, ..Header::new(Kind::Pong) },
                    Message::Pong(proto::Pong {}),
                );
                Ok(())
            }
            Message::Ask(_) | Message::Gather(_) | Message::Read(_) if !is_client => {
                questions::take(core, outlet, reader, frame, patience).await
            }
            other => Err(format!("it sent {:?}, which has no place here", other.kind())),
        };
        if let Err(reason) = done {
            return Ended::Refused(reason);
        }
    }
}

fn take_credit(
    core: &Core,
    outlet: &Arc<Outlet>,
    client: ClientId,
    header: &Header,
    credit: &proto::Credit,
) -> Result<(), String> {
    let channel = match core.registry.find(header.channel) {
        Found::Open(channel) if channel.client == client => channel,
        Found::Closed => return Ok(()),
        // A channel of somebody else's is as unknown as one that never was.
        Found::Open(_) | Found::Lost | Found::Never => {
            let reason = format!("channel {} is not known here; open it again", header.channel);
            let lost = Header { channel: header.channel, epoch: header.epoch, ..Header::new(Kind::Lost) };
            outlet.send_message(lost, Message::Lost(proto::Lost { reason }));
            return Ok(());
        }
    };
    // Before each of them is answered.
    if credit.g.len() as u64 > MOST_CREDITS {
        return Err(format!("channel {} asked for more batches at once than it may", channel.id));
    }
    if core.is_stopping() {
        let refusal = Refusal::unavailable("this server stops; ask another one, or later");
        for &g in &credit.g {
            let header = Header { channel: channel.id, epoch: header.epoch, g, ..Header::new(Kind::Failed) };
            outlet.send_message(header, Message::Failed(refusal.failed()));
        }
        return Ok(());
    }
    let batches = channel.batches();
    if let Some(g) = credit.g.iter().find(|&&g| g >= batches) {
        return Err(format!("batch {g} was asked for, an epoch of channel {} has {batches}", channel.id));
    }
    channel.attach(outlet);
    let now = Instant::now();
    channel.lives.asked(channel.id, header.epoch, &credit.g);
    match core.work.scheduler(|scheduler| scheduler.credit(channel.id, header.epoch, &credit.g, now)) {
        Credited::Taken | Credited::Stale | Credited::Unknown => Ok(()),
        Credited::TooMany => Err(format!("channel {} asked for more batches at once than it may", channel.id)),
    }
}
