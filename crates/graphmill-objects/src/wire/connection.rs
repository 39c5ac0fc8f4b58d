//! A connection to an object server: dialling, greeting, and the runtime that moves it.
//!
//! A connection of a connector that blocks has a runtime of its own, which runs in the thread that makes a call and only then. So a
//! call needs no other thread: nothing is handed over, and nobody is woken but the server.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use graphmill_net::{ClientTls, Endpoint, FrameReader, FrameWriter, Incoming, Token};
use graphmill_wire::proto::{self, Role};
use graphmill_wire::{Header, Limits, Message};
use tokio::runtime::Runtime;

use super::calls::Io;
use super::tray::{TrayRoom, Trays};
use crate::interrupt::block_on;
use crate::key::Location;
use crate::{Error, Interrupt, Result, ServerInfo};

/// How a server is greeted and waited for.
#[derive(Debug, Clone)]
pub(super) struct Dialing {
    pub(super) token: Option<Token>,
    pub(super) tls: Option<ClientTls>,
    pub(super) shared_memory: bool,
    pub(super) interrupt: Option<Interrupt>,
    pub(super) tray_room: Arc<TrayRoom>,
}

/// A connection that was greeted.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) runtime: OwnRuntime,
    pub(super) io: Io,
}

/// A runtime that may be dropped anywhere, inside of another one, too.
#[derive(Debug)]
pub(super) struct OwnRuntime(Option<Runtime>);

impl Deref for OwnRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Connection {
    /// Connects; the server must take the connection within a time, and answer within another.
    pub(super) fn open(location: &Location, dialing: &Dialing, taken: Duration, answered: Duration) -> Result<Self> {
        let at = location.to_string();
        let broken = |reason: String| Error::unreachable("connect", &at, reason);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = OwnRuntime(Some(runtime.map_err(|error| broken(error.to_string()))?));
        let connect = async { tokio::time::timeout(answered, dialing.dial(location, taken)).await };
        let opened = block_on(&runtime, dialing.interrupt.as_ref(), connect);
        let opened = opened.ok_or(Error::Interrupted { doing: "connect" })?;
        let io = opened.map_err(|_| Error::Timeout { doing: "connect", at: at.clone(), within: answered })??;
        Ok(Self { runtime, io })
    }
}

impl Dialing {
    /// Connects to a server, which must take the connection within a time.
    pub(super) async fn dial(&self, location: &Location, taken: Duration) -> Result<Io> {
        let at = location.to_string();
        let no_server = || Error::unreachable("connect", &at, "it is not an object server");
        self.connect(&location.endpoint().ok_or_else(no_server)?, &at, taken).await
    }

    /// Connects, over the server's Unix socket if it is on this host and may be used.
    async fn connect(&self, endpoint: &Endpoint, at: &str, taken: Duration) -> Result<Io> {
        let tls = self.tls.as_ref();
        let is_unix = matches!(endpoint, Endpoint::Unix(_));
        let (first, welcome) = self.greet(endpoint, tls, at, self.shared_memory && is_unix, taken).await?;
        let same_host = !welcome.host.is_empty() && welcome.host == graphmill_net::host_id();
        if is_unix || !self.shared_memory || !same_host || welcome.unix_socket.is_empty() {
            return Ok(first);
        }
        let socket = Endpoint::Unix(welcome.unix_socket.into());
        // Shared memory is a matter of speed alone; and whoever listens there must be the same server.
        match self.greet(&socket, None, at, true, taken).await {
            Ok((second, again)) if again.slots && again.incarnation == welcome.incarnation => Ok(second),
            _ => Ok(first),
        }
    }

    async fn greet(
        &self,
        endpoint: &Endpoint,
        tls: Option<&ClientTls>,
        at: &str,
        slots: bool,
        taken: Duration,
    ) -> Result<(Io, proto::Welcome)> {
        const DOING: &str = "connect";
        let broken = |error: graphmill_net::Error| Error::from_net(DOING, at, &error);
        let stream = graphmill_net::connect_data(endpoint, tls, taken).await.map_err(broken)?;
        let greeting = Limits { body: 0, ..Limits::CLIENT };
        let (mut reader, mut writer) = graphmill_net::split(stream, graphmill_wire::GREETING, greeting);
        let hello = Message::Hello(proto::Hello {
            oldest_wire: graphmill_wire::OLDEST.into(),
            newest_wire: graphmill_wire::VERSION.into(),
            token: self.token.as_ref().map(|token| token.reveal().to_owned()).unwrap_or_default(),
            role: Role::Objects.into(),
            slots,
            ..proto::Hello::default()
        });
        writer.write(Header::new(hello.kind()), &hello, &[]).await.map_err(broken)?;
        let welcome = welcome(&mut reader, at).await?;
        agree(&mut reader, &mut writer, &welcome).map_err(broken)?;
        let Some(limits) = welcome.objects else {
            return Err(Error::refused(DOING, at, "it is a server of graphmill, but not of objects"));
        };
        reader.set_limits(Limits { body: limits.object_limit, ..Limits::CLIENT });
        let info = ServerInfo {
            address: at.to_owned(),
            generation: welcome.incarnation,
            object_limit: limits.object_limit,
            budget: limits.budget,
            spawned: limits.spawned,
            shared_memory: welcome.slots,
        };
        let trays = Trays::new(&self.tray_room, limits.budget);
        Ok((Io::new(reader, writer, info, &limits, trays), welcome))
    }
}

async fn welcome(reader: &mut FrameReader, at: &str) -> Result<proto::Welcome> {
    const DOING: &str = "connect";
    match reader.next().await {
        Ok(Some(Incoming { message: Message::Welcome(welcome), .. })) => Ok(welcome),
        Ok(Some(Incoming { message: Message::Refused(refused), .. })) => {
            Err(Error::from_server(DOING, at, refused.code(), refused.reason))
        }
        Ok(Some(frame)) => Err(Error::refused(DOING, at, format!("it answered with {:?}", frame.header.kind))),
        Ok(None) => Err(Error::unreachable(DOING, at, "it hung up")),
        Err(error) => Err(Error::from_net(DOING, at, &error)),
    }
}

fn agree(reader: &mut FrameReader, writer: &mut FrameWriter, welcome: &proto::Welcome) -> graphmill_net::Result<()> {
    let version = graphmill_wire::chosen(welcome.wire)?;
    reader.set_version(version);
    writer.set_version(version);
    Ok(())
}
