//! What is read as a key is written the same. Whatever a client sends to an object server after its greeting, the server goes
//! on, and when the client is gone nothing is charged but the objects that are there.
//!
//! An input that begins like a key is one, and one that begins like a connection is all that a stranger sends; any other is
//! what a client sends after its greeting.

#![no_main]

mod corpus;
mod seeds;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

use graphmill_objects::{Config, Connector, Key, Server, ServerConfig};
use graphmill_wire::proto::{self, Role};
use graphmill_wire::{Header, Kind, Limits, Message, PREFACE, VERSION};
use libfuzzer_sys::fuzz_target;

/// A server in this process, and a connector to it.
struct Running {
    path: std::path::PathBuf,
    connector: Connector,
    greeting: Vec<u8>,
}

fn running() -> &'static Running {
    static RUNNING: OnceLock<Running> = OnceLock::new();
    RUNNING.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("graphmill-fuzz-{}.sock", std::process::id()));
        let address = format!("unix:{}", path.display());
        let config = ServerConfig { listen: vec![address.clone()], budget: 1 << 20, ..ServerConfig::default() };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(Server::start(&config)).unwrap();
        // For as long as the process.
        std::mem::forget((server, runtime));
        let connector = Connector::open(Config::at(address)).unwrap();
        let hello = Message::Hello(proto::Hello {
            oldest_wire: 1,
            newest_wire: VERSION.into(),
            role: Role::Objects.into(),
            slots: true,
            ..proto::Hello::default()
        });
        let head = hello.encode();
        let header = Header { head: head.len() as u32, ..Header::new(Kind::Hello) };
        Running { path, connector, greeting: [&PREFACE[..], &header.encode(), &head].concat() }
    })
}

fn send(bytes: &[u8]) {
    let running = running();
    let mut client = UnixStream::connect(&running.path).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let greets = !bytes.starts_with(&PREFACE[..]);
    if greets {
        client.write_all(&running.greeting).unwrap();
    }
    // Frames of this start of the server reach its objects.
    let generation = running.connector.new_key().unwrap().generation.to_le_bytes();
    let mut bytes = if greets { impatient(bytes) } else { bytes.to_vec() };
    if let Some(g) = bytes.get_mut(40..48).filter(|g| g[0] % 2 == 0) {
        g.copy_from_slice(&generation);
    }
    // The server may hang up in the middle.
    let _ = client.write_all(&bytes);
    let _ = client.shutdown(std::net::Shutdown::Write);
    let mut answers = Vec::new();
    let _ = client.read_to_end(&mut answers);
    assert!(!greets || !answers.is_empty(), "the greeting is answered at least");
    drop(client);
    let connector = &running.connector;
    for entry in connector.list(None, 1000).unwrap() {
        connector.evict(&connector.key_of(&entry).unwrap()).unwrap();
    }
    for look in 0..1200 {
        let stat = connector.stat().unwrap();
        if stat.used == 0 && stat.connections == 1 {
            return;
        }
        // Mostly it is a matter of microseconds.
        if look >= 200 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    panic!("something is left behind: {:?}", connector.stat().unwrap());
}

/// The same frames without long waits, as far as they can be read: hours tell nothing that milliseconds do not.
fn impatient(mut bytes: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk() {
        let Ok(mut header) = Header::decode(header, VERSION, Limits::SERVER) else { break };
        let Some((head, rest)) = rest.split_at_checked(header.head as usize) else { break };
        let (body, rest) = rest.split_at(rest.len().min(header.body as usize));
        let shortened = match Message::decode(header.kind, head) {
            Ok(Message::Put(put)) => Some(Message::Put(proto::Put { wait_ms: put.wait_ms % 4, ..put })),
            Ok(Message::Get(get)) => Some(Message::Get(proto::Get { wait_ms: get.wait_ms % 4 })),
            Ok(Message::Reserve(one)) => Some(Message::Reserve(proto::Reserve { wait_ms: one.wait_ms % 4, ..one })),
            _ => None,
        };
        let head = shortened.map_or_else(|| head.to_vec(), |message| message.encode());
        header.head = head.len() as u32;
        frames.extend([&header.encode(), &head[..], body].concat());
        bytes = rest;
    }
    frames.extend_from_slice(bytes);
    frames
}

fn inputs() -> Vec<Vec<u8>> {
    let id = "00f1e2d3c4b5a69788796a5b4c3d2e1f";
    let keys = [
        format!("graphmill+tcp://127.0.0.1:4200/{id}?size=1024&generation=5f0a7c31"),
        format!("graphmill+tls://[::1]:4200/{id}?generation=5f0a7c31"),
        format!("graphmill+unix:///run/user/1000/a%20b.sock/{id}?size=0&generation=1"),
        format!("graphmill+redis://127.0.0.1:6379/{id}?size=7&database=2"),
    ];
    let stranger = |frame: Vec<u8>| [&PREFACE[..], &frame].concat();
    let strangers = seeds::frames().into_iter().map(stranger).chain([running().greeting.clone()]);
    let clients = seeds::frames().into_iter().chain([seeds::objects().concat()]);
    keys.map(String::into_bytes).into_iter().chain(clients).chain(strangers).collect()
}

fuzz_target!(init: corpus::write_to_corpus(&inputs()), |input: &[u8]| {
    if input.starts_with(b"graphmill+") {
        let Ok(text) = std::str::from_utf8(input) else { return };
        if let Ok(key) = text.parse::<Key>() {
            assert_eq!(key.to_string(), text);
        }
    } else {
        send(input);
    }
});
