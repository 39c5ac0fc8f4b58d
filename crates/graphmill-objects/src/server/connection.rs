//! A connection to an object server: its requests are answered one after the other, in their order.
//!
//! Answers to requests that came together are sent together. While a request waits, for its object or for room, nothing else
//! of the connection goes on; only its end is noticed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use graphmill_net::{Eagerness, FrameReader, FrameWriter, Incoming, PeerInfo, SealedMemory, Stream, random};
use graphmill_wire::proto::{self, Code, Role};
use graphmill_wire::{Header, Kind, Limits, Message};
use tokio::time::{sleep_until, timeout, timeout_at};

use super::blob::{Blob, heap_charge, shared_charge};
use super::budget::{Charge, RIGHT_OF_WAY};
use super::tray::Trays;
use super::{Core, SHARED_FROM};
use crate::ObjectId;
use crate::wire::lock;

/// How long a greeting may take.
const GREETING: Duration = Duration::from_secs(5);
/// How long a client that was refused may take to hang up.
const GOODBYE: Duration = Duration::from_secs(1);
/// The longest that a request may wait.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);
/// The longest that a put may wait whose bytes are already on their way: that its sender is gone is not seen before they are
/// read.
const LONGEST_PUT_WAIT: Duration = Duration::from_secs(60);
/// The longest that a request may wait after another one has come, behind which its sender's end cannot be seen.
const LONGEST_WAIT_FOLLOWED: Duration = Duration::from_secs(5);
/// How long the body of an object may take, and a second more for each of so many bytes.
const BODY: (Duration, u64) = (Duration::from_secs(30), 1 << 20);
/// How often a put looks for objects that are not read any more, if those make room.
const LOOK: Duration = Duration::from_millis(20);
/// Objects up to this size are copied to be sent with other answers.
const SMALL: u64 = 16 << 10;
/// Bytes of answers that wait before they are sent.
const TOGETHER: usize = 64 << 10;
/// The most objects of a listing.
const LISTED: usize = 10_000;
/// The most objects that a connection has lent; what is asked for beyond comes over the socket.
const LENT: usize = 16_384;
/// Objects from this size on are copied by another thread.
const LONG_COPY: u64 = 1 << 20;

/// Serves a connection until it ends.
pub(super) async fn serve(core: Arc<Core>, stream: Stream, peer: PeerInfo) {
    if let Err(error) = stream.keep_alive() {
        return tracing::debug!(peer = peer.address, %error, "a connection ended at once");
    }
    let shares_memory = core.unix_socket.is_some()
        && matches!(stream, Stream::Unix(_))
        && peer.uid == Some(rustix::process::geteuid().as_raw());
    let (mut reader, mut writer) = graphmill_net::split(stream, graphmill_wire::GREETING, Limits::GREETING);
    let number = random();
    let shares = match timeout(GREETING, greet(&core, &mut reader, &mut writer, number, shares_memory)).await {
        Ok(Ok(shares)) => shares,
        Ok(Err(reason)) => {
            tracing::info!(peer = peer.address, reason, "refused a connection");
            return say_goodbye(&mut reader, &mut writer).await;
        }
        Err(_) => return tracing::info!(peer = peer.address, "a connection did not greet in time"),
    };
    let _lease = Lease::new(&core, number);
    let mut connection = Connection {
        core: Arc::clone(&core),
        reader,
        writer,
        shares,
        held: None,
        held_until: Instant::now(),
        number,
        next_slot: 0,
        eagerness: Eagerness::default(),
        trays: Trays::default(),
        reserved: None,
        reserved_until: Instant::now(),
    };
    match connection.run().await {
        Ended::Gone(reason) => tracing::debug!(peer = peer.address, reason, "a connection ended"),
        Ended::Refused(reason) => {
            tracing::info!(peer = peer.address, reason, "ended a connection");
            let Connection { reader, writer, .. } = &mut connection;
            let message = Message::Refused(proto::Refused { code: Code::Invalid.into(), reason });
            // It cannot be told if a frame was cut off.
            let _ = timeout(GOODBYE, writer.write(Header::new(message.kind()), &message, &[])).await;
            say_goodbye(reader, writer).await;
        }
    }
}

/// A connection as a reason for the server to stay.
struct Lease {
    core: Arc<Core>,
    number: u64,
}

impl Lease {
    fn new(core: &Arc<Core>, number: u64) -> Self {
        core.connections.fetch_add(1, Ordering::AcqRel);
        core.changed.notify_one();
        Self { core: Arc::clone(core), number }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // What it lent and did not get back is not filled again, but takes no room any more when its object goes.
        let lent = lock(&self.core.lent).remove(&self.number);
        drop(lent);
        self.core.connections.fetch_sub(1, Ordering::AcqRel);
        self.core.changed.notify_one();
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

/// Greets a client; says whether it gets objects in shared memory.
async fn greet(
    core: &Core,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    number: u64,
    shares_memory: bool,
) -> Result<bool, String> {
    let refused = |code: Code, reason: String| proto::Refused { code: code.into(), reason };
    let hello = match reader.next().await.map_err(Ended::from) {
        Ok(Some(Incoming { message: Message::Hello(hello), .. })) => Ok(hello),
        Ok(Some(frame)) => Err(refused(Code::Invalid, format!("it began with {:?}", frame.header.kind))),
        Ok(None) => return Err("it hung up".to_owned()),
        Err(Ended::Refused(reason)) => Err(refused(Code::Invalid, reason)),
        Err(Ended::Gone(reason)) => return Err(reason),
    };
    let checked = hello.and_then(|hello| Ok((check(core, &hello)?, hello.slots && shares_memory)));
    let answer = match &checked {
        Ok((wire, shares)) => Message::Welcome(proto::Welcome {
            wire: (*wire).into(),
            incarnation: core.generation,
            unix_socket: core.unix_socket.clone().unwrap_or_default(),
            host: graphmill_net::host_id(),
            slots: *shares,
            objects: Some(proto::ObjectLimits {
                object_limit: core.object_limit,
                budget: core.budget.total(),
                shared_from: SHARED_FROM,
                spawned: core.linger.is_some(),
                connection: number,
            }),
            ..proto::Welcome::default()
        }),
        Err(refused) => Message::Refused(refused.clone()),
    };
    writer.write(Header::new(answer.kind()), &answer, &[]).await.map_err(|error| error.to_string())?;
    let (wire, shares) = checked.map_err(|refused| refused.reason)?;
    reader.set_version(wire);
    reader.set_limits(Limits { body: core.object_limit, ..Limits::SERVER });
    writer.set_version(wire);
    Ok(shares)
}

/// Whether a client is welcome; the wire version to speak.
fn check(core: &Core, hello: &proto::Hello) -> Result<u8, proto::Refused> {
    let refused = |code: Code, reason: String| Err(proto::Refused { code: code.into(), reason });
    if let Some(token) = &core.token
        && !token.matches(&hello.token)
    {
        return refused(Code::Denied, "the token is missing or wrong; give both sides the same one".to_owned());
    }
    let (oldest, newest) = (graphmill_wire::OLDEST, graphmill_wire::VERSION);
    let Some(wire) = graphmill_wire::agree((oldest, newest), (hello.oldest_wire, hello.newest_wire)) else {
        let reason = format!(
            "the client speaks wire versions {} to {}, this server {oldest} to {newest}; upgrade the older one",
            hello.oldest_wire, hello.newest_wire
        );
        return refused(Code::Mismatch, reason);
    };
    if hello.role() != Role::Objects {
        let reason = "this is an object server, which has no graph; connect to a storage server".to_owned();
        return refused(Code::Invalid, reason);
    }
    Ok(wire)
}

/// Why a request is not done, though its connection can go on.
struct Failure {
    code: Code,
    reason: String,
}

fn failure(code: Code, reason: impl Into<String>) -> Failure {
    Failure { code, reason: reason.into() }
}

/// A greeted connection.
struct Connection {
    core: Arc<Core>,
    reader: FrameReader,
    writer: FrameWriter,
    /// Whether large objects go through shared memory.
    shares: bool,
    /// A request that came while another waited, and until when that may wait on.
    held: Option<Incoming>,
    held_until: Instant,
    /// What it is called where memory that it lent is returned.
    number: u64,
    next_slot: u32,
    eagerness: Eagerness,
    trays: Trays,
    /// Room for memory that is about to be sent, and until when it must be.
    reserved: Option<Charge>,
    reserved_until: Instant,
}

impl Connection {
    /// Answers requests until the connection ends.
    async fn run(&mut self) -> Ended {
        loop {
            if let Err(ended) = self.step().await {
                return ended;
            }
        }
    }

    async fn step(&mut self) -> Result<(), Ended> {
        let held = self.held.take();
        if held.is_none() && !self.reader.is_next_here() || self.writer.waiting() >= TOGETHER {
            self.writer.flush().await?;
        }
        let frame = match held {
            Some(frame) => frame,
            None => self.next_request().await?,
        };
        let request = frame.header.request;
        self.push_news()?;
        let answer = match frame.message {
            Message::Put(put) => {
                let put = self.put(&frame.header, put, frame.fd).await?;
                put.map(|yes| Message::Done(proto::Done { yes }))
            }
            Message::Get(get) => return self.get(&frame.header, get).await,
            Message::Has(_) => Ok(Message::Done(proto::Done { yes: self.has(&frame.header) })),
            Message::Evict(_) => {
                if self.is_current(&frame.header) {
                    lock(&self.core.store).remove(id(&frame.header));
                }
                Ok(Message::Done(yes()))
            }
            Message::Reserve(reserve) => {
                let reserved = self.reserve(reserve).await?;
                self.reserved_until = Instant::now() + patience(reserve.bytes);
                reserved.map(|()| Message::Done(yes()))
            }
            Message::Return(back) => {
                self.take_back(frame.header.channel, &back);
                return Ok(());
            }
            Message::List(list) => Ok(Message::Listing(self.list(&frame.header, list))),
            Message::Stop(_) => self.stop().map(|()| Message::Done(yes())),
            other => return Err(Ended::Refused(format!("it sent {:?}, which has no place here", other.kind()))),
        };
        let stops = matches!(frame.header.kind, Kind::Stop) && answer.is_ok();
        let answer = answer
            .unwrap_or_else(|Failure { code, reason }| Message::Failed(proto::Failed { code: code.into(), reason }));
        // Before the answer: its client may fill at once what an evict has left.
        self.push_news()?;
        self.writer.push(Header { request, ..Header::new(answer.kind()) }, &answer, &[])?;
        if stops {
            self.writer.flush().await?;
            self.core.stop.notify_one();
        }
        Ok(())
    }

    /// Tells the client what became of its trays.
    fn push_news(&mut self) -> Result<(), Ended> {
        match self.trays.news() {
            Some(news) => Ok(self.writer.push(Header::new(Kind::Return), &Message::Return(news), &[])?),
            None => Ok(()),
        }
    }

    /// The next request. What was reserved for one that does not come is given back.
    async fn next_request(&mut self) -> Result<Incoming, Ended> {
        let mut frame = None;
        if self.reserved.is_some() {
            frame = timeout_at(self.reserved_until.into(), self.reader.next()).await.ok();
            self.reserved = self.reserved.take().filter(|_| frame.is_some());
        }
        let frame = match frame {
            Some(frame) => frame?,
            None => self.eagerness.wait(self.reader.next()).await?,
        };
        frame.ok_or_else(|| Ended::Gone("it hung up".to_owned()))
    }

    /// Keeps an object; says no if it is to come another way.
    async fn put(
        &mut self,
        header: &Header,
        put: proto::Put,
        memory: Option<OwnedFd>,
    ) -> Result<Result<bool, Failure>, Ended> {
        self.trays.drop_all(put.dropped_trays);
        if !self.is_current(header) {
            self.trays.forget(put.tray);
            let reason = "the key is of an earlier start of this server; make a new one";
            return Ok(Err(failure(Code::Mismatch, reason)));
        }
        let blob = match put.tray {
            Some(number) => self.lay(number, &put, memory).await?,
            None if put.memory => self.take_over(&put, memory).map(Some),
            None => self.receive(header.body, wait(put.wait_ms).min(LONGEST_PUT_WAIT)).await?.map(Some),
        };
        let blob = match blob {
            Ok(Some(blob)) => blob,
            Ok(None) => return Ok(Ok(false)),
            Err(failure) => return Ok(Err(failure)),
        };
        let ttl = if put.ttl_ms == 0 { self.core.ttl } else { Some(Duration::from_millis(put.ttl_ms)) };
        lock(&self.core.store).put(id(header), Arc::new(blob), ttl, Instant::now());
        Ok(Ok(true))
    }

    /// Makes an object of what lies in a tray, when there is room for it; nothing if the tray cannot be kept.
    async fn lay(
        &mut self,
        number: u32,
        put: &proto::Put,
        memory: Option<OwnedFd>,
    ) -> Result<Result<Option<Blob>, Failure>, Ended> {
        if !self.shares {
            return Ok(Err(failure(Code::Invalid, "this connection shares no memory")));
        }
        if let Err(failure) = self.fits(put.bytes) {
            return Ok(Err(failure));
        }
        let filled = match self.trays.take(number, put, memory, &self.core.descriptors) {
            Ok(Some(filled)) => filled,
            Ok(None) => return Ok(Ok(None)),
            Err(reason) => return Ok(Err(failure(Code::Invalid, reason))),
        };
        let charge = self.room(shared_charge(filled.capacity()), wait(put.wait_ms), true).await?;
        Ok(match charge {
            Ok(charge) => Ok(Some(Blob::tray(filled, charge))),
            Err(failure) => {
                drop(filled);
                self.trays.forget(Some(number));
                Err(failure)
            }
        })
    }

    /// Reads an object.
    async fn receive(&mut self, bytes: u64, wait: Duration) -> Result<Result<Blob, Failure>, Ended> {
        // Before the body is read, which waits in the sockets till then: that is what holds a sender back.
        let charge = match self.room(heap_charge(bytes), wait, false).await? {
            Ok(charge) => charge,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut object = vec![0; bytes as usize].into_boxed_slice();
        self.read_body(&mut object).await?;
        Ok(Ok(Blob::heap(object, charge)))
    }

    async fn read_body(&mut self, room: &mut [u8]) -> Result<(), Ended> {
        match timeout(patience(room.len() as u64), self.reader.read_body(room)).await {
            Ok(read) => Ok(read?),
            Err(_) => Err(Ended::Gone("it does not send the object that it announced".to_owned())),
        }
    }

    /// Makes an object of memory that was sent, in the room that was reserved for it.
    fn take_over(&mut self, put: &proto::Put, memory: Option<OwnedFd>) -> Result<Blob, Failure> {
        let invalid = |reason: String| failure(Code::Invalid, reason);
        let charge = self.reserved.take().filter(|charge| charge.bytes() >= shared_charge(put.bytes));
        let charge = charge.ok_or_else(|| invalid("no room was reserved for it".to_owned()))?;
        let memory = memory.ok_or_else(|| invalid("its memory did not come along".to_owned()))?;
        let memory = SealedMemory::check(memory, put.bytes).map_err(|error| invalid(error.to_string()))?;
        if let Some(descriptor) = self.core.descriptors.take(1) {
            return Ok(Blob::sealed(memory, descriptor, charge));
        }
        let mapped = memory.map().map_err(|error| failure(Code::Internal, error.to_string()))?;
        Ok(Blob::heap(mapped.bytes().into(), charge))
    }

    /// Takes room for memory that is about to be sent.
    async fn reserve(&mut self, reserve: proto::Reserve) -> Result<Result<(), Failure>, Ended> {
        // What was reserved before and not used is given back first.
        self.reserved = None;
        if let Err(failure) = self.fits(reserve.bytes) {
            return Ok(Err(failure));
        }
        let charge = self.room(shared_charge(reserve.bytes), wait(reserve.wait_ms), true).await?;
        Ok(charge.map(|charge| self.reserved = Some(charge)))
    }

    fn fits(&self, bytes: u64) -> Result<(), Failure> {
        let limit = self.core.object_limit;
        if bytes <= limit {
            return Ok(());
        }
        Err(failure(Code::TooLarge, format!("it has {bytes} bytes, accepted are {limit}")))
    }

    async fn get(&mut self, header: &Header, get: proto::Get) -> Result<(), Ended> {
        let id = id(header);
        let found = if self.is_current(header) {
            let until = wait(get.wait_ms);
            let (found, coming) = {
                let mut store = lock(&self.core.store);
                let found = store.get(id, Instant::now());
                let waits = found.is_none() && !until.is_zero();
                (found, waits.then(|| store.wait(id)))
            };
            match coming {
                None => found,
                Some(coming) => {
                    let came = self.while_connected(until, coming, true).await?;
                    if came.is_none() {
                        lock(&self.core.store).forget_waiting(id);
                    }
                    came.and_then(Result::ok)
                }
            }
        } else {
            None
        };
        let header = Header { request: header.request, ..Header::new(Kind::Object) };
        match found {
            Some(blob) => self.send(header, id, blob).await,
            None => Ok(self.writer.push(header, &Message::Object(proto::Object::default()), &[])?),
        }
    }

    /// Sends an object.
    async fn send(&mut self, header: Header, id: ObjectId, blob: Arc<Blob>) -> Result<(), Ended> {
        let bytes = blob.len();
        let lends = || lock(&self.core.lent).get(&self.number).is_none_or(|lent| lent.len() < LENT);
        let large = self.shares && bytes >= SHARED_FROM && lends();
        let blob = if large { self.shared(id, blob).await } else { blob };
        if large && let Some(memory) = blob.lend() {
            let slot = self.next_slot;
            self.next_slot = slot.wrapping_add(1);
            let message = Message::Object(proto::Object { found: true, slot: Some(slot), bytes });
            // First, for it may come back at once, over another connection.
            lock(&self.core.lent).entry(self.number).or_default().insert(slot, Arc::clone(&blob));
            self.writer.write_with_fd(header, &message, memory).await?;
            return Ok(());
        }
        let message = Message::Object(proto::Object { found: true, ..proto::Object::default() });
        match blob.read() {
            Ok(object) if bytes <= SMALL => self.writer.push(header, &message, &object)?,
            Ok(object) => self.writer.write(header, &message, &[&object]).await?,
            Err(error) => {
                let reason = format!("cannot map the object: {error}");
                let failed = Message::Failed(proto::Failed { code: Code::Internal.into(), reason });
                self.writer.push(header, &failed, &[])?;
            }
        }
        Ok(())
    }

    /// The same object in shared memory, if there is room for another copy of it. It stays there.
    async fn shared(&self, id: ObjectId, blob: Arc<Blob>) -> Arc<Blob> {
        if blob.is_shared() {
            return blob;
        }
        let (budget, descriptors) = (&self.core.budget, &self.core.descriptors);
        let Some((charge, descriptor)) = budget.take(shared_charge(blob.len())).zip(descriptors.take(1)) else {
            return blob;
        };
        let copied = if blob.len() < LONG_COPY {
            blob.copy()
        } else {
            let blob = Arc::clone(&blob);
            tokio::task::spawn_blocking(move || blob.copy()).await.unwrap_or_else(|error| Err(io::Error::other(error)))
        };
        let Ok(memory) = copied else { return blob };
        let shared = Arc::new(Blob::sealed(memory, descriptor, charge));
        lock(&self.core.store).replace(id, &blob, &shared);
        shared
    }

    /// Memory that some connection lent is not mapped any more.
    fn take_back(&self, lender: u64, back: &proto::Return) {
        let mut lent = lock(&self.core.lent);
        let Some(of_lender) = lent.get_mut(&lender) else { return };
        let returned: Vec<_> = back.returned.iter().filter_map(|slot| of_lender.remove(slot)).collect();
        let retired: Vec<_> = back.retired.iter().filter_map(|slot| of_lender.remove(slot)).collect();
        drop(lent);
        for blob in &returned {
            blob.take_back();
        }
        drop((returned, retired));
    }

    fn has(&self, header: &Header) -> bool {
        self.is_current(header) && lock(&self.core.store).has(id(header), Instant::now())
    }

    fn list(&self, header: &Header, list: proto::List) -> proto::Listing {
        let (after, now) = ((header.g != 0).then(|| id(header)), Instant::now());
        let stats = Some(self.core.stats());
        if list.limit == 0 {
            return proto::Listing { entries: Vec::new(), stats };
        }
        let store = lock(&self.core.store);
        let entries = store.list(after, LISTED.min(list.limit as usize)).into_iter().map(|(id, entry)| {
            let (high, low) = id.halves();
            proto::ObjectEntry {
                high,
                low,
                bytes: entry.blob.len(),
                age_ms: now.duration_since(entry.since).as_millis() as u64,
                expires_ms: entry.end.map(|end| end.saturating_duration_since(now).as_millis() as u64),
                readers: Arc::strong_count(&entry.blob) as u32 - 1,
            }
        });
        proto::Listing { entries: entries.collect(), stats }
    }

    fn stop(&self) -> Result<(), Failure> {
        if self.core.linger.is_some() {
            return Ok(());
        }
        Err(failure(Code::Invalid, "this server was started by hand; whoever did stops it with a signal"))
    }

    /// Room for an object, for which a put waits so long.
    async fn room(&mut self, bytes: u64, wait: Duration, may_read: bool) -> Result<Result<Charge, Failure>, Ended> {
        let core = Arc::clone(&self.core);
        if let Some(charge) = lock(&core.store).make_room(&core.budget, bytes, Instant::now()) {
            return Ok(Ok(charge));
        }
        let wait = if bytes > core.budget.total() { Duration::ZERO } else { wait };
        let charge = self.wait_for_room(bytes, wait, may_read).await;
        if !matches!(charge, Ok(Some(_))) {
            core.budget.look_again();
        }
        Ok(charge?.ok_or_else(|| {
            lock(&core.store).counts.refused += 1;
            let (used, total) = (core.budget.used(), core.budget.total());
            failure(Code::OverBudget, format!("it needs {bytes} bytes, and {used} of {total} are in use"))
        }))
    }

    async fn wait_for_room(&mut self, bytes: u64, wait: Duration, may_read: bool) -> Result<Option<Charge>, Ended> {
        if wait.is_zero() {
            return Ok(None);
        }
        let core = Arc::clone(&self.core);
        let until = Instant::now() + wait;
        let mut coming = core.budget.wait(bytes);
        loop {
            let until = if self.held.is_some() { until.min(self.held_until) } else { until };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let slice = left.min(if core.evicts { LOOK } else { RIGHT_OF_WAY });
            if let Some(Ok(charge)) = self.while_connected(slice, &mut coming, may_read).await? {
                return Ok(Some(charge));
            }
            // What is not read any more makes room only when somebody looks.
            lock(&core.store).make_way(&core.budget, bytes);
            core.budget.look_again();
        }
    }

    /// Waits for something, so long at most and only while the other side is there. Its next request is held, if it may be
    /// read already: not while a body is to come.
    async fn while_connected<T>(
        &mut self,
        within: Duration,
        what: impl Future<Output = T>,
        may_read: bool,
    ) -> Result<Option<T>, Ended> {
        self.writer.flush().await?;
        let mut what = std::pin::pin!(timeout(within, what));
        loop {
            let reads = may_read && self.held.is_none();
            tokio::select! {
                biased;
                done = &mut what => return Ok(done.ok()),
                frame = self.reader.next(), if reads => match frame? {
                    Some(frame) => {
                        self.held = Some(frame);
                        self.held_until = Instant::now() + LONGEST_WAIT_FOLLOWED;
                    }
                    None => return Err(Ended::Gone("it hung up".to_owned())),
                },
                () = sleep_until(self.held_until.into()), if self.held.is_some() => return Ok(None),
            }
        }
    }

    /// Whether a request is about an object that this start of the server can have.
    fn is_current(&self, header: &Header) -> bool {
        header.g == self.core.generation
    }
}

fn id(header: &Header) -> ObjectId {
    ObjectId::from_halves(header.channel, header.epoch)
}

fn wait(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).min(LONGEST_WAIT)
}

/// How long an object of so many bytes may take to come.
fn patience(bytes: u64) -> Duration {
    BODY.0 + Duration::from_secs(bytes / BODY.1)
}

fn yes() -> proto::Done {
    proto::Done { yes: true }
}
