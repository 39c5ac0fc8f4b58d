//! What is asked of a server over a connection.
//!
//! Every call returns two results, one in the other: the outer says whether the connection can go on, the inner what the
//! server answered.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graphmill_net::{Eagerness, FrameReader, FrameWriter, Incoming, SealedMemory, Watch};
use graphmill_wire::{Header, Kind, Message, proto};

use super::pool::{Back, Lent, Pool};
use super::tray::Trays;
use super::{length, milliseconds};
use crate::object::Mapping;
use crate::{Error, Key, Object, ObjectId, Result, ServerInfo};

/// The result of a step on a connection.
pub(super) type Step<T> = graphmill_net::Result<T>;

/// Frames up to this size are copied to be sent with others.
const SMALL: usize = 16 << 10;
/// Bytes of frames that wait before they are sent.
const TOGETHER: usize = 64 << 10;

/// The two directions of a connection.
#[derive(Debug)]
pub(super) struct Io {
    answers: Answers,
    writer: FrameWriter,
    info: ServerInfo,
    /// Objects from this size on go through shared memory.
    shared_from: u64,
    /// The number of the next request.
    next: u64,
    /// What the server calls this connection, to return memory to it.
    lender: u64,
}

impl Io {
    pub(super) fn new(
        reader: FrameReader,
        writer: FrameWriter,
        info: ServerInfo,
        limits: &proto::ObjectLimits,
        trays: Trays,
    ) -> Self {
        let shared_from = if info.shared_memory { limits.shared_from.max(1) } else { u64::MAX };
        let answers = Answers { reader, eagerness: Eagerness::default(), trays };
        Self { answers, writer, info, shared_from, next: 0, lender: limits.connection }
    }

    pub(super) fn info(&self) -> ServerInfo {
        self.info.clone()
    }

    pub(super) fn generation(&self) -> u64 {
        self.info.generation
    }

    /// Keeps an object.
    pub(super) async fn put(
        &mut self,
        id: ObjectId,
        generation: u64,
        head: proto::Put,
        parts: &[&[u8]],
        watch: Watch<'_>,
    ) -> Step<Result<()>> {
        let bytes = length(parts);
        if let Err(error) = self.fits(bytes) {
            return Ok(Err(error));
        }
        if bytes >= self.shared_from {
            return self.put_shared(id, generation, head, parts, watch).await;
        }
        self.put_by_socket(id, generation, head, parts, watch).await
    }

    async fn put_by_socket(
        &mut self,
        id: ObjectId,
        generation: u64,
        head: proto::Put,
        parts: &[&[u8]],
        watch: Watch<'_>,
    ) -> Step<Result<()>> {
        let header = self.header(Kind::Put, id, generation);
        self.writer.write_watched(header, &Message::Put(head), parts, watch).await?;
        let answer = self.answer(header).await?;
        Ok(self.done(answer, "put an object")?.map(drop))
    }

    /// Keeps an object in shared memory: in a tray, or in memory that the server takes over.
    async fn put_shared(
        &mut self,
        id: ObjectId,
        generation: u64,
        head: proto::Put,
        parts: &[&[u8]],
        watch: Watch<'_>,
    ) -> Step<Result<()>> {
        const DOING: &str = "put an object";
        let bytes = length(parts);
        let header = self.header(Kind::Put, id, generation);
        // Without memory for a tray there may be some for the object alone.
        if let Ok(Some(filled)) = self.answers.trays.fill(bytes, parts) {
            let number = filled.number;
            watch(bytes);
            let (memory, dropped_trays) = (filled.memory.is_some(), filled.dropped);
            let put = Message::Put(proto::Put { memory, bytes, tray: Some(number), dropped_trays, ..head });
            match filled.memory {
                Some(memory) => self.writer.write_with_fd(header, &put, memory.fd()).await?,
                None => self.writer.write(header, &put, &[]).await?,
            }
            let answer = self.answer(header).await?;
            let done = self.done(answer, DOING)?;
            if matches!(done, Ok(true)) {
                return Ok(Ok(()));
            }
            self.answers.trays.forget(number);
            if let Err(error) = done {
                return Ok(Err(error));
            }
        }
        let header = self.header(Kind::Reserve, id, generation);
        let reserve = Message::Reserve(proto::Reserve { bytes, wait_ms: head.wait_ms });
        self.writer.write(header, &reserve, &[]).await?;
        let answer = self.answer(header).await?;
        if let Err(error) = self.done(answer, DOING)? {
            return Ok(Err(error));
        }
        let memory = match SealedMemory::write(parts) {
            Ok(memory) => memory,
            // The room that was reserved is given back with the connection.
            Err(source) => return Err(graphmill_net::Error::Io { action: "make shared memory", source }),
        };
        watch(bytes);
        let header = self.header(Kind::Put, id, generation);
        let put = Message::Put(proto::Put { memory: true, bytes, ..head });
        self.writer.write_with_fd(header, &put, memory.fd()).await?;
        let answer = self.answer(header).await?;
        Ok(self.done(answer, DOING)?.map(drop))
    }

    /// Keeps many objects: small ones all at once, then, one by one, large ones and those that have to wait for room. They
    /// wait together no longer than one does alone.
    pub(super) async fn put_batch(
        &mut self,
        ids: &[ObjectId],
        generation: u64,
        head: proto::Put,
        objects: &[&[u8]],
    ) -> Step<Vec<Result<()>>> {
        let mut results: Vec<Result<()>> = objects.iter().map(|object| self.fits(object.len() as u64)).collect();
        let until = Instant::now() + Duration::from_millis(head.wait_ms);
        let is_large = |place: &usize| objects[*place].len() as u64 >= self.shared_from;
        let fitting = (0..objects.len()).filter(|&place| results[place].is_ok());
        let (mut later, small): (Vec<usize>, Vec<usize>) = fitting.partition(is_large);
        let first = self.next;
        self.next += small.len() as u64;
        let message = Message::Put(proto::Put { wait_ms: 0, ..head });
        let writer = &mut self.writer;
        let write = async {
            for (number, &place) in small.iter().enumerate() {
                let header = header(Kind::Put, ids[place], generation, first + number as u64);
                send(writer, header, &message, objects[place]).await?;
            }
            writer.flush().await
        };
        let (answers, results_of) = (&mut self.answers, &mut results);
        let at = &self.info.address;
        let read = async {
            for (number, &place) in small.iter().enumerate() {
                let answer = answers.next(first + number as u64).await?;
                results_of[place] = done(answer, "put an object", at)?.map(drop);
            }
            Step::Ok(())
        };
        // At the same time: a server whose answers nobody takes does not read either.
        tokio::try_join!(write, read)?;
        later.extend(small.iter().filter(|&&place| matches!(results[place], Err(Error::OverBudget(_)))));
        later.sort_unstable();
        for place in later {
            let left = milliseconds(until.saturating_duration_since(Instant::now()));
            if left == 0 && results[place].is_err() {
                continue;
            }
            let head = proto::Put { wait_ms: left, ..head };
            results[place] = self.put(ids[place], generation, head, &[objects[place]], &|_| {}).await?;
        }
        Ok(results)
    }

    pub(super) async fn get(
        &mut self,
        pool: &Arc<Pool>,
        key: &Key,
        wait_ms: u64,
        watch: Watch<'_>,
    ) -> Step<Result<Option<Object>>> {
        let header = self.header(Kind::Get, key.id, key.generation);
        self.writer.write(header, &Message::Get(proto::Get { wait_ms }), &[]).await?;
        let answer = self.answer(header).await?;
        let place = Place { pool, lender: self.lender, at: &self.info.address };
        object(&mut self.answers.reader, answer, place, watch).await
    }

    /// Gets many objects: those that are there all at once, then the others as they come.
    pub(super) async fn get_batch(
        &mut self,
        pool: &Arc<Pool>,
        keys: &[&Key],
        wait: Duration,
    ) -> Step<Vec<Result<Option<Object>>>> {
        let until = Instant::now() + wait;
        let mut objects = self.get_present(pool, keys).await?;
        for (object, key) in objects.iter_mut().zip(keys).filter(|(object, _)| matches!(object, Ok(None))) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            *object = self.get(pool, key, milliseconds(left), &|_| {}).await?;
        }
        Ok(objects)
    }

    async fn get_present(&mut self, pool: &Arc<Pool>, keys: &[&Key]) -> Step<Vec<Result<Option<Object>>>> {
        let first = self.next;
        self.next += keys.len() as u64;
        let message = Message::Get(proto::Get::default());
        let (writer, answers) = (&mut self.writer, &mut self.answers);
        let write = async {
            for (number, key) in keys.iter().enumerate() {
                let header = header(Kind::Get, key.id, key.generation, first + number as u64);
                send(writer, header, &message, &[]).await?;
            }
            writer.flush().await
        };
        let place = Place { pool, lender: self.lender, at: &self.info.address };
        let read = async {
            let mut objects = Vec::with_capacity(keys.len());
            for number in 0..keys.len() as u64 {
                let answer = answers.next(first + number).await?;
                objects.push(object(&mut answers.reader, answer, place, &|_| {}).await?);
            }
            Step::Ok(objects)
        };
        Ok(tokio::try_join!(write, read)?.1)
    }

    pub(super) async fn has(&mut self, key: &Key) -> Step<Result<bool>> {
        let header = self.header(Kind::Has, key.id, key.generation);
        self.writer.write(header, &Message::Has(proto::Has {}), &[]).await?;
        let answer = self.answer(header).await?;
        self.done(answer, "look for an object")
    }

    pub(super) async fn evict(&mut self, key: &Key) -> Step<Result<()>> {
        let header = self.header(Kind::Evict, key.id, key.generation);
        self.writer.write(header, &Message::Evict(proto::Evict {}), &[]).await?;
        let answer = self.answer(header).await?;
        Ok(self.done(answer, "evict an object")?.map(drop))
    }

    pub(super) async fn list(&mut self, after: Option<ObjectId>, limit: u32) -> Step<Result<proto::Listing>> {
        // From the beginning: no id is before the first.
        let header = self.header(Kind::List, after.unwrap_or(ObjectId(0)), u64::from(after.is_some()));
        self.writer.write(header, &Message::List(proto::List { limit }), &[]).await?;
        match self.answer(header).await?.message {
            Message::Listing(listing) => Ok(Ok(listing)),
            other => failed(&other, "list objects", &self.info.address),
        }
    }

    pub(super) async fn stop(&mut self) -> Step<Result<()>> {
        let header = self.header(Kind::Stop, ObjectId(0), self.generation());
        self.writer.write(header, &Message::Stop(proto::Stop {}), &[]).await?;
        let answer = self.answer(header).await?;
        Ok(self.done(answer, "stop the server")?.map(drop))
    }

    /// Gives memory back that connections lent. It is not answered.
    pub(super) async fn give_back(&mut self, lent: &[Back]) -> Step<()> {
        for of_one in lent.chunk_by(|one, other| one.lender == other.lender) {
            let slots = |retired| of_one.iter().filter(move |one| one.retired == retired).map(|one| one.slot).collect();
            let back = Message::Return(proto::Return { returned: slots(false), retired: slots(true) });
            self.writer.push(Header { channel: of_one[0].lender, ..Header::new(Kind::Return) }, &back, &[])?;
        }
        self.writer.flush().await
    }

    fn fits(&self, bytes: u64) -> Result<()> {
        let limit = self.info.object_limit;
        if bytes > limit { Err(Error::TooLarge { bytes, limit, at: self.info.address.clone() }) } else { Ok(()) }
    }

    fn header(&mut self, kind: Kind, id: ObjectId, generation: u64) -> Header {
        self.next += 1;
        header(kind, id, generation, self.next - 1)
    }

    async fn answer(&mut self, question: Header) -> Step<Incoming> {
        self.answers.next(question.request).await
    }

    fn done(&self, answer: Incoming, doing: &'static str) -> Step<Result<bool>> {
        done(answer, doing, &self.info.address)
    }
}

fn header(kind: Kind, id: ObjectId, generation: u64, request: u64) -> Header {
    let (channel, epoch) = id.halves();
    Header { request, channel, epoch, g: generation, ..Header::new(kind) }
}

/// Sends a frame, together with others if it is small.
async fn send(writer: &mut FrameWriter, header: Header, message: &Message, body: &[u8]) -> Step<()> {
    if body.len() > SMALL {
        return writer.write(header, message, &[body]).await;
    }
    writer.push(header, message, body)?;
    if writer.waiting() >= TOGETHER { writer.flush().await } else { Ok(()) }
}

/// What the server says, and the trays that it speaks of between its answers.
#[derive(Debug)]
struct Answers {
    reader: FrameReader,
    eagerness: Eagerness,
    trays: Trays,
}

impl Answers {
    /// The answer to a request; answers come in the order of requests.
    async fn next(&mut self, request: u64) -> Step<Incoming> {
        loop {
            let next = self.eagerness.wait(self.reader.next()).await?;
            let frame = next.ok_or(graphmill_net::Error::Truncated { part: "header" })?;
            match &frame.message {
                Message::Return(news) => self.trays.hear(news),
                Message::Refused(_) => return Ok(frame),
                _ if frame.header.request == request => return Ok(frame),
                _ => {
                    let other = frame.header.request;
                    return Err(contradiction(format!("request {request} was answered with that of {other}")));
                }
            }
        }
    }
}

fn done(answer: Incoming, doing: &'static str, at: &str) -> Step<Result<bool>> {
    match answer.message {
        Message::Done(done) => Ok(Ok(done.yes)),
        other => failed(&other, doing, at),
    }
}

/// Where an answer came from.
#[derive(Clone, Copy)]
struct Place<'a> {
    pool: &'a Arc<Pool>,
    lender: u64,
    at: &'a str,
}

/// The object in an answer.
async fn object(
    reader: &mut FrameReader,
    answer: Incoming,
    place: Place<'_>,
    watch: Watch<'_>,
) -> Step<Result<Option<Object>>> {
    match answer.message {
        Message::Object(proto::Object { found: false, .. }) => Ok(Ok(None)),
        Message::Object(proto::Object { slot: Some(slot), bytes, .. }) => {
            let file = answer.fd.ok_or_else(|| contradiction("an object's memory did not come along".to_owned()))?;
            let lent = Lent::new(place.pool, place.lender, slot);
            let object = in_shared_memory(file, bytes, lent);
            let object = object.map_err(|source| graphmill_net::Error::Io { action: "map an object", source })?;
            watch(bytes);
            Ok(Ok(Some(object)))
        }
        // Room is taken as bytes come: any key may lead to a server that means harm.
        Message::Object(_) => Ok(Ok(Some(Object::heap(reader.read_whole_body(watch).await?)))),
        other => failed(&other, "get an object", place.at),
    }
}

/// The object in memory that was lent: mapped, or a copy where this process has as many mappings as it may.
fn in_shared_memory(file: OwnedFd, bytes: u64, lent: Lent) -> io::Result<Object> {
    let memory = SealedMemory::lent(file, bytes)?;
    if let Some(mapping) = Mapping::new() {
        match memory.map() {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {}
            mapped => return Ok(Object::mapped(mapped?, mapping, lent)),
        }
    }
    let copy = memory.read()?;
    lent.give_back_with_the_call();
    Ok(Object::heap(copy))
}

fn failed<T>(message: &Message, doing: &'static str, at: &str) -> Step<Result<T>> {
    match message {
        Message::Failed(failed) => Ok(Err(Error::from_server(doing, at, failed.code(), failed.reason.clone()))),
        Message::Refused(refused) => Ok(Err(Error::from_server(doing, at, refused.code(), refused.reason.clone()))),
        other => Err(contradiction(format!("it answered with {:?}", other.kind()))),
    }
}

fn contradiction(reason: String) -> graphmill_net::Error {
    graphmill_wire::Error::Content(reason).into()
}
