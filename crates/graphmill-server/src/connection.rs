//! A data connection: greeting, what the client asks for, what peers ask.

use std::sync::Arc;
use std::time::{Duration, Instant};

use graphmill_graph::Fingerprint;
use graphmill_net::{FrameReader, FrameWriter, Incoming, PeerInfo, Stream, Token};
use graphmill_sample::law;
use graphmill_wire::proto::{self, Role};
use graphmill_wire::{Header, Kind, Limits, Message};
use tokio::time::timeout;

use crate::Refusal;
use crate::core::Core;
use crate::outlet::Outlet;
use crate::queue::Queue;
use crate::registry::ClientId;
use crate::{credits, questions};

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
    let mut queue = Queue::new(&core, &outlet, waiting);
    let ended = tokio::select! {
        ended = read(&core, &outlet, &mut reader, &hello, client, greeting.patience) => ended,
        reason = write(&core, &outlet, &mut queue, &mut writer) => Ended::Gone(reason),
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

/// Writes what is sent, and tells channels what was taken.
async fn write(core: &Core, outlet: &Outlet, queue: &mut Queue<'_>, writer: &mut FrameWriter) -> String {
    loop {
        let Some(out) = queue.next().await else { return "it is not needed any more".to_owned() };
        let began = Instant::now();
        let written = outlet.write(out, writer).await;
        if out.is_batch() {
            core.metrics.sent(began.elapsed());
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
            Message::Credit(credit) if is_client => credits::take(core, outlet, client, &frame.header, credit),
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
