//! Strangers, foreign bytes, wrong secrets: each is told, and the server goes on. So does a client whose server means harm.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use graphmill_net::{Endpoint, Stream};
use graphmill_objects::{Config, Connector, ErrorKind, Key};
use graphmill_wire::proto::{self, Code, Role};
use graphmill_wire::{Header, Kind, Limits, Message, VERSION};
use proptest::prelude::*;

use crate::support::{Authority, PATIENCE, Place, Way, content, eventually};

/// Lets nobody else read a file, as secrets must be.
fn private(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn a_wrong_token_is_denied_and_the_right_one_is_not() {
    for way in Way::SERVERS {
        let mut place = Place::new(way, |_| {});
        let write = |name: &str, text: &str| {
            let path = place.folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            private(&path);
            Some(path)
        };
        let (right, wrong) = (write("right", "open-sesame"), write("wrong", "open-barley"));
        place.config.spawn.as_mut().unwrap().server.token_file = right.clone();
        place.config.token_file = right;
        let connector = place.open();
        for token in [wrong, None] {
            let error = Connector::open(place.with(|config| config.token_file = token)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{way:?}: {error}");
            assert!(!error.to_string().contains("sesame") && !error.to_string().contains("barley"));
        }
        assert!(connector.put(b"x").is_ok());
    }
}

#[test]
fn a_wrong_password_of_redis_is_denied() {
    let Some(mut place) = Place::redis(&["--requirepass", "open-sesame"]) else { return };
    let error = Connector::open(place.config.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let path = place.folder.path().join("password");
    std::fs::write(&path, "open-sesame").unwrap();
    private(&path);
    place.config.token_file = Some(path);
    let connector = place.open();
    let key = connector.put(b"x").unwrap();
    assert!(!key.to_string().contains("sesame"));
    assert!(connector.exists(&key).unwrap());
}

#[test]
fn tls_is_wanted_by_both_sides_or_none() {
    let place = Place::new(Way::Tls, |_| {});
    let connector = place.open();
    let elsewhere = tempfile::tempdir().unwrap();
    let foreign = Authority::new(elsewhere.path());
    for ca in [Some(foreign.ca), None] {
        let error = Connector::open(place.with(|config| config.tls_ca = ca)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    let plain = Place::new(Way::Tcp, |_| {});
    let key = plain.open().put(b"x").unwrap();
    assert_eq!(connector.get(&key).unwrap_err().kind(), ErrorKind::BadKey, "no way from TLS to plain TCP");
    let key = connector.put(b"x").unwrap();
    assert_eq!(plain.open().get(&key).unwrap_err().kind(), ErrorKind::BadKey);
}

#[test]
fn foreign_bytes_harm_nobody() {
    let place = Place::new(Way::Tcp, |_| {});
    let connector = place.open();
    let key = connector.put(b"x").unwrap();
    let preface = graphmill_wire::PREFACE.to_vec();
    let frame = |kind: Kind| [&preface[..], &Header::new(kind).encode()].concat();
    let mut huge = frame(Kind::Hello);
    huge[8 + 4..8 + 8].fill(0xff);
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        content(5000, 1),
        preface.clone(),
        [&preface[..], &content(5000, 2)].concat(),
        frame(Kind::Put),
        frame(Kind::Stop),
        huge,
    ] {
        let mut stranger = std::net::TcpStream::connect(&place.config.address).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may hang up while it is still being written to.
        let _ = stranger.write_all(&bytes);
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        let _ = stranger.read_to_end(&mut Vec::new());
        assert!(connector.exists(&key).unwrap());
    }
    assert_eq!(connector.stat().unwrap().connections, 1);
}

/// A client that does not keep to the protocol.
struct Rogue {
    reader: graphmill_net::FrameReader,
    writer: graphmill_net::FrameWriter,
    generation: u64,
}

impl Rogue {
    async fn connect(place: &Place) -> Self {
        let endpoint: Endpoint = place.config.address.parse().unwrap();
        let stream: Stream = graphmill_net::connect_data(&endpoint, None, PATIENCE).await.unwrap();
        let (mut reader, mut writer) = graphmill_net::split(stream, VERSION, Limits::CLIENT);
        let hello = Message::Hello(proto::Hello {
            oldest_wire: 1,
            newest_wire: VERSION.into(),
            role: Role::Objects.into(),
            slots: true,
            ..proto::Hello::default()
        });
        writer.write(Header::new(Kind::Hello), &hello, &[]).await.unwrap();
        let Message::Welcome(welcome) = reader.next().await.unwrap().unwrap().message else { panic!("not welcome") };
        Self { reader, writer, generation: welcome.incarnation }
    }

    async fn send(&mut self, message: Message, body: &[u8]) {
        let header = Header { channel: 1, epoch: 2, g: self.generation, ..Header::new(message.kind()) };
        self.writer.write(header, &message, &[body]).await.unwrap();
    }

    async fn answer(&mut self) -> Option<Message> {
        tokio::time::timeout(PATIENCE, self.reader.next()).await.unwrap().unwrap().map(|frame| frame.message)
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn clients_that_break_the_rules_are_told_and_the_server_goes_on() {
    for way in [Way::Tcp, Way::Shared] {
        let place = Place::new(way, |server| server.object_limit = Some(100_000));
        let connector = place.open();
        runtime().block_on(async {
            // An object over the limit ends the connection, with a reason.
            let mut rogue = Rogue::connect(&place).await;
            rogue.send(Message::Put(proto::Put::default()), &content(100_001, 1)).await;
            let Some(Message::Refused(refused)) = rogue.answer().await else { panic!("it was not refused") };
            assert!(refused.reason.contains("100000"), "{}", refused.reason);
            // So does a message that is for clients.
            let mut rogue = Rogue::connect(&place).await;
            rogue.send(Message::Welcome(proto::Welcome::default()), &[]).await;
            assert!(matches!(rogue.answer().await, Some(Message::Refused(_))));
            // What can be answered is, and the connection goes on.
            let mut rogue = Rogue::connect(&place).await;
            for (message, code) in [
                (Message::Put(proto::Put { memory: true, bytes: 70_000, ..proto::Put::default() }), Code::Invalid),
                (Message::Reserve(proto::Reserve { bytes: u64::MAX, wait_ms: 0 }), Code::TooLarge),
            ] {
                rogue.send(message, &[]).await;
                let Some(Message::Failed(failed)) = rogue.answer().await else { panic!("it did not fail") };
                assert_eq!(failed.code(), code, "{}", failed.reason);
            }
            rogue.send(Message::Return(proto::Return { returned: vec![1, 7], retired: vec![u32::MAX] }), &[]).await;
            rogue.send(Message::Get(proto::Get { wait_ms: 0 }), &[]).await;
            assert!(matches!(rogue.answer().await, Some(Message::Object(proto::Object { found: false, .. }))));
        });
        assert!(connector.put(b"x").is_ok());
        eventually("nothing stays charged", || connector.stat().unwrap().used < 1000);
    }
}

#[test]
fn a_client_that_is_gone_behind_its_own_requests_is_not_waited_for() {
    const HOUR: u64 = 3_600_000;
    for way in [Way::Tcp, Way::Shared] {
        let place = Place::new(way, |server| (server.budget, server.object_limit) = (4 << 20, Some(4 << 20)));
        let connector = place.open();
        let full = connector.put(&content(3 << 20, 1)).unwrap();
        let waits = [
            Message::Get(proto::Get { wait_ms: HOUR }),
            Message::Reserve(proto::Reserve { bytes: 2 << 20, wait_ms: HOUR }),
        ];
        runtime().block_on(async {
            for wait in waits {
                let mut rogue = Rogue::connect(&place).await;
                rogue.send(wait, &[]).await;
                for _ in 0..3 {
                    rogue.send(Message::Has(proto::Has {}), &[]).await;
                }
            }
        });
        eventually("its connections are over", || connector.stat().unwrap().connections == 1);
        assert!(connector.exists(&full).unwrap());
    }
}

#[test]
fn a_client_that_returns_nothing_is_lent_no_more_than_so_much() {
    let place = Place::new(Way::Shared, |_| {});
    let connector = place.open();
    let key = connector.put(&content(64 << 10, 1)).unwrap();
    let (channel, epoch) = ((key.id.0 >> 64) as u64, key.id.0 as u64);
    runtime().block_on(async {
        let mut rogue = Rogue::connect(&place).await;
        let mut slots = 0;
        for _ in 0..16_400 {
            let header = Header { channel, epoch, g: rogue.generation, ..Header::new(Kind::Get) };
            rogue.writer.write(header, &Message::Get(proto::Get { wait_ms: 0 }), &[]).await.unwrap();
            let Some(Message::Object(object)) = rogue.answer().await else { panic!("it is not there") };
            assert!(object.found);
            slots += usize::from(object.slot.is_some());
        }
        assert_eq!(slots, 16_384);
    });
}

#[test]
fn memory_that_could_still_change_is_not_taken() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use std::os::fd::AsFd as _;
    let place = Place::new(Way::Shared, |_| {});
    let connector = place.open();
    let bytes = 200_000;
    let memory = |size: u64, seals: SealFlags| {
        let file = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, size).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    runtime().block_on(async {
        let mut rogue = Rogue::connect(&place).await;
        for (file, reason) in [
            (memory(bytes, SealFlags::SHRINK | SealFlags::GROW), "seals"),
            (memory(bytes, SealFlags::WRITE | SealFlags::GROW), "seals"),
            (memory(bytes + 1, all), "expected 200000"),
            (memory(bytes - 1, all), "expected 200000"),
            (std::fs::File::open("/dev/null").unwrap().into(), "cannot be sealed"),
        ] {
            rogue.send(Message::Reserve(proto::Reserve { bytes, wait_ms: 0 }), &[]).await;
            assert!(matches!(rogue.answer().await, Some(Message::Done(_))));
            let put = Message::Put(proto::Put { memory: true, bytes, ..proto::Put::default() });
            let header = Header { channel: 1, epoch: 2, g: rogue.generation, ..Header::new(Kind::Put) };
            rogue.writer.write_with_fd(header, &put, file.as_fd()).await.unwrap();
            let Some(Message::Failed(failed)) = rogue.answer().await else { panic!("it was taken") };
            let words: Vec<&str> = reason.split(' ').collect();
            assert!(
                words.iter().all(|word| failed.reason.contains(word.trim_start_matches("cannot"))),
                "{}",
                failed.reason
            );
        }
        // The same, as it should be.
        rogue.send(Message::Reserve(proto::Reserve { bytes, wait_ms: 0 }), &[]).await;
        assert!(matches!(rogue.answer().await, Some(Message::Done(_))));
        let put = Message::Put(proto::Put { memory: true, bytes, ..proto::Put::default() });
        let header = Header { channel: 1, epoch: 2, g: rogue.generation, ..Header::new(Kind::Put) };
        rogue.writer.write_with_fd(header, &put, memory(bytes, all).as_fd()).await.unwrap();
        assert!(matches!(rogue.answer().await, Some(Message::Done(_))));
    });
    assert_eq!(connector.stat().unwrap().objects, 1);
}

#[test]
fn trays_that_could_change_their_size_or_are_taken_or_unknown_are_refused() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use std::os::fd::{AsFd as _, OwnedFd};
    /// A tray's number, the bytes of its object, its memory, and why it is refused.
    type Case = (u32, u64, Option<OwnedFd>, Result<(), &'static str>);
    let place = Place::new(Way::Shared, |server| server.object_limit = Some(1 << 20));
    let connector = place.open();
    let memory = |seals: SealFlags| {
        let file = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 100_000).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        Some(file)
    };
    let all = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let no_file = || Some(std::fs::File::open("/dev/null").unwrap().into());
    let cases: Vec<Case> = vec![
        (3, 70_000, None, Err("tray 3 did not come along")),
        (64, 70_000, memory(all), Err("numbered from 0 to 63")),
        (u32::MAX, 70_000, memory(all), Err("numbered from 0 to 63")),
        (3, 70_000, memory(SealFlags::SHRINK | SealFlags::GROW), Err("seals")),
        (3, 70_000, memory(SealFlags::FUTURE_WRITE | SealFlags::GROW), Err("seals")),
        (3, 70_000, memory(SealFlags::FUTURE_WRITE | SealFlags::SHRINK), Err("can grow")),
        (3, 70_000, no_file(), Err("not a file that can be sealed")),
        (3, 100_001, memory(all), Err("has 100000 bytes, its object 100001")),
        (3, (1 << 20) + 1, None, Err("accepted are 1048576")),
        (3, u64::MAX, None, Err("accepted are 1048576")),
        (3, 100_000, memory(all), Ok(())),
        (3, 70_000, None, Err("an object lies in tray 3")),
        (3, 70_000, memory(all), Err("an object lies in tray 3")),
    ];
    runtime().block_on(async {
        let mut rogue = Rogue::connect(&place).await;
        for (number, bytes, file, expected) in cases {
            let tray = proto::Put { memory: file.is_some(), bytes, tray: Some(number), ..proto::Put::default() };
            let header = Header { channel: 1, epoch: 2, g: rogue.generation, ..Header::new(Kind::Put) };
            match file {
                Some(file) => rogue.writer.write_with_fd(header, &Message::Put(tray), file.as_fd()).await.unwrap(),
                None => rogue.writer.write(header, &Message::Put(tray), &[]).await.unwrap(),
            }
            match (rogue.answer().await, expected) {
                (Some(Message::Done(done)), Ok(())) => assert!(done.yes),
                (Some(Message::Failed(failed)), Err(reason)) => {
                    assert!(failed.reason.contains(reason), "{}", failed.reason);
                }
                (answer, expected) => panic!("{answer:?} instead of {expected:?}"),
            }
        }
        // It is told when its tray is empty, before the answer that comes next.
        rogue.send(Message::Evict(proto::Evict {}), &[]).await;
        let Some(Message::Return(news)) = rogue.answer().await else { panic!("it was not told") };
        assert_eq!((news.returned, news.retired), (vec![3], vec![]));
        assert!(matches!(rogue.answer().await, Some(Message::Done(_))));
    });
    assert_eq!(connector.stat().unwrap().used, 0);
}

#[test]
fn over_tcp_there_are_no_trays() {
    let place = Place::new(Way::Tcp, |_| {});
    let _connector = place.open();
    runtime().block_on(async {
        let mut rogue = Rogue::connect(&place).await;
        rogue.send(Message::Put(proto::Put { bytes: 70_000, tray: Some(0), ..proto::Put::default() }), &[]).await;
        let Some(Message::Failed(failed)) = rogue.answer().await else { panic!("it was taken") };
        assert!(failed.reason.contains("shares no memory"), "{}", failed.reason);
    });
}

#[test]
fn more_than_a_greeting_is_not_taken_from_a_stranger() {
    let place = Place::new(Way::Tcp, |_| {});
    let _connector = place.open();
    let refused = runtime().block_on(async {
        use tokio::io::AsyncWriteExt as _;
        let endpoint: Endpoint = place.config.address.parse().unwrap();
        let mut stream = graphmill_net::connect_data(&endpoint, None, PATIENCE).await.unwrap();
        stream.write_all(&Header { head: 4097, ..Header::new(Kind::Hello) }.encode()).await.unwrap();
        let (mut reader, _writer) = graphmill_net::split(stream, VERSION, Limits::CLIENT);
        reader.next().await.unwrap().unwrap().message
    });
    let Message::Refused(refused) = refused else { panic!("{refused:?}") };
    assert!(refused.reason.contains("accepted are 4096"), "{}", refused.reason);
}

#[test]
fn a_storage_servers_client_is_sent_away() {
    let place = Place::new(Way::Tcp, |_| {});
    let _connector = place.open();
    let refused = runtime().block_on(async {
        let endpoint: Endpoint = place.config.address.parse().unwrap();
        let stream = graphmill_net::connect_data(&endpoint, None, PATIENCE).await.unwrap();
        let (mut reader, mut writer) = graphmill_net::split(stream, VERSION, Limits::CLIENT);
        let hello = proto::Hello { oldest_wire: 1, newest_wire: VERSION.into(), ..proto::Hello::default() };
        writer.write(Header::new(Kind::Hello), &Message::Hello(hello), &[]).await.unwrap();
        reader.next().await.unwrap().unwrap().message
    });
    let Message::Refused(refused) = refused else { panic!("{refused:?}") };
    assert!(refused.reason.contains("object server"), "{}", refused.reason);
}

#[test]
fn something_else_that_listens_is_no_server() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stranger, _) = listener.accept().unwrap();
        let _ = stranger.write_all(b"220 mail.example.org ESMTP, and some more words so that it is long enough\r\n");
        std::thread::sleep(Duration::from_millis(100));
    });
    let error = Connector::open(Config { wait: 20.0, ..Config::at(address) }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    answering.join().unwrap();
}

/// A server that welcomes whoever comes, lies about its limit, and answers every request with the same bytes.
fn liar(object_limit: u64, answer: Vec<u8>) -> Config {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Config { deadline: PATIENCE.as_secs_f64(), ..Config::at(listener.local_addr().unwrap().to_string()) };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            let objects =
                Some(proto::ObjectLimits { object_limit, budget: u64::MAX, ..proto::ObjectLimits::default() });
            let welcome = proto::Welcome { wire: 1, incarnation: 1, objects, ..proto::Welcome::default() };
            std::thread::spawn(move || {
                let mut asked = [0; 4096];
                // The preface and the greeting, in however many pieces, then a request.
                let mut came = 0;
                while came < graphmill_wire::PREFACE.len() + graphmill_wire::HEADER {
                    came += stream.read(&mut asked)?.max(1);
                }
                stream.write_all(&frame(&Message::Welcome(welcome), 0, &[]))?;
                while stream.read(&mut asked)? > 0 {
                    stream.write_all(&answer)?;
                }
                std::io::Result::Ok(())
            });
        }
    });
    config
}

/// A frame that announces so many bytes and has others.
fn frame(message: &Message, announced: u64, body: &[u8]) -> Vec<u8> {
    let head = message.encode();
    let header = Header { head: head.len() as u32, body: announced, ..Header::new(message.kind()) };
    [&header.encode(), &head[..], body].concat()
}

fn key(config: &Config, rest: &str) -> Key {
    format!("graphmill+tcp://{}/{}?{rest}", config.address, "0".repeat(32)).parse().unwrap()
}

#[test]
fn a_server_that_lies_gives_an_error_and_does_no_harm() {
    let found = Message::Object(proto::Object { found: true, ..proto::Object::default() });
    let slot = Message::Object(proto::Object { found: true, slot: Some(1), bytes: 7 });
    for (object_limit, announced, answer, rest, reason) in [
        // More than its limit, more than a machine has, and memory that does not come along.
        (1 << 20, 1 << 21, &found, "generation=1", "2097152 bytes"),
        (1 << 20, u64::MAX, &found, "generation=1", "bytes"),
        (u64::MAX, u64::MAX, &found, "generation=1", "room for a body"),
        (u64::MAX, 1 << 60, &found, "generation=1", "room for a body"),
        (u64::MAX, 0, &slot, "size=7&generation=1", "did not come along"),
    ] {
        let config = liar(object_limit, frame(answer, announced, b"1234567"));
        let connector = Connector::open(config.clone()).unwrap();
        let key = key(&config, rest);
        let error = connector.get(&key).unwrap_err();
        assert!(error.kind() == ErrorKind::Refused && error.to_string().contains(reason), "{error}");
        let errors = connector.get_batch(&[&key, &key], Duration::ZERO).unwrap();
        assert!(errors.iter().all(Result::is_err));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever a server answers, and however it is cut off or damaged, there is an answer or an error.
    #[test]
    fn no_answer_makes_a_client_panic_or_hang(
        kind in proptest::sample::select(&Kind::ALL[..]), head: Vec<u8>, announced in prop_oneof![0u64..100, any::<u64>()],
        body: Vec<u8>, garbage: bool,
    ) {
        let header = Header { head: head.len() as u32, body: announced, ..Header::new(kind) };
        let answer = if garbage { body } else { [&header.encode(), &head[..], &body].concat() };
        let config = Config { deadline: 0.05, ..liar(1 << 20, answer) };
        if let Ok(connector) = Connector::open(config.clone()) {
            let key = key(&config, "generation=1");
            let _ = (connector.get(&key).is_ok(), connector.exists(&key), connector.put(b"x"));
        }
    }
}
