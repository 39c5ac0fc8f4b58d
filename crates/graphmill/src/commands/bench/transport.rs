//! `graphmill bench transport`: the data plane beside a bare socket and a copy in memory, all in one run.
//!
//! Sender and receiver are two processes, as they are in life. Each message is read once by the receiver, every byte.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use graphmill_net::{Endpoint, MappedSlot, SharedSlot, Stream};
use graphmill_wire::{Header, Kind, Limits, Message, proto};

use crate::context::Context;
use crate::local::Process;
use crate::terminal::numbers::parse_size;
use crate::terminal::table::{Column, Sheet};
use crate::terminal::{numbers, output};

/// Rounds in which each way is measured once; the median counts.
const ROUNDS: usize = 5;
/// How long a sender may take to connect.
const PATIENCE: Duration = Duration::from_secs(10);
const ABSENT: &str = "the sender did not connect in time";
/// Slots in flight in shared memory.
const SLOTS: usize = 6;

/// Measure the data plane beside a bare socket and a copy in memory
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bytes of a message
    #[arg(long, value_name = "SIZE", default_value = "16MB", value_parser = parse_size)]
    message: u64,

    /// Seconds for each way and round
    #[arg(long, value_name = "T", default_value_t = 1.0)]
    seconds: f64,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// The sender's part, which this command starts itself
    #[arg(long, hide = true, value_name = "WAY ADDRESS", num_args = 2)]
    send: Vec<String>,
}

/// A way for bytes from one process to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    BareTcp,
    BareUnix,
    Tcp,
    Unix,
    SharedMemory,
}

impl Way {
    const ALL: [Self; 5] = [Self::BareTcp, Self::BareUnix, Self::Tcp, Self::Unix, Self::SharedMemory];

    fn name(self) -> &'static str {
        match self {
            Self::BareTcp => "bare-tcp",
            Self::BareUnix => "bare-unix",
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::SharedMemory => "shared-memory",
        }
    }
}

/// What was measured, in bytes per second.
#[derive(Debug, serde::Serialize)]
struct Measured {
    message_bytes: u64,
    bare_tcp_bytes_per_s: f64,
    bare_unix_bytes_per_s: f64,
    tcp_bytes_per_s: f64,
    unix_bytes_per_s: f64,
    shared_memory_bytes_per_s: f64,
    copy_bytes_per_s: f64,
    tcp_by_bare: f64,
    unix_by_bare: f64,
    shared_memory_by_bare_tcp: f64,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    anyhow::ensure!((1 << 10..=1 << 30).contains(&args.message), "a message has 1 kB to 1 GiB");
    let message = args.message.next_multiple_of(64) as usize;
    if let [way, address] = &args.send[..] {
        let way = Way::ALL.into_iter().find(|one| one.name() == way).context("there is no such way")?;
        send(way, address, message, Duration::from_secs_f64(args.seconds))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); Way::ALL.len()];
    let mut copies = Vec::new();
    for round in 1..=ROUNDS {
        context.note(&format!("round {round} of {ROUNDS}"));
        for (rates, way) in rates.iter_mut().zip(Way::ALL) {
            rates.push(measure(way, message, args.seconds)?);
        }
        copies.push(copy(message, args.seconds));
    }
    let [bare_tcp, bare_unix, tcp, unix, shared] = [0, 1, 2, 3, 4].map(|way: usize| median(&mut rates[way]));
    let measured = Measured {
        message_bytes: message as u64,
        bare_tcp_bytes_per_s: bare_tcp,
        bare_unix_bytes_per_s: bare_unix,
        tcp_bytes_per_s: tcp,
        unix_bytes_per_s: unix,
        shared_memory_bytes_per_s: shared,
        copy_bytes_per_s: median(&mut copies),
        tcp_by_bare: tcp / bare_tcp,
        unix_by_bare: unix / bare_unix,
        shared_memory_by_bare_tcp: shared / bare_tcp,
    };
    if args.json {
        output::print_json(&measured)?;
    } else {
        output::print(&render(&measured))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn render(measured: &Measured) -> String {
    let mut sheet = Sheet::new([Column::Text("way"), Column::Number("bytes/s"), Column::Number("of the bare socket")]);
    let rate = |rate: f64| format!("{}/s", numbers::bytes(rate as u64));
    let mut add = |way: &str, bytes: f64, by: Option<f64>| {
        let share = by.map(|by| format!("{:.0}%", 100.0 * by)).unwrap_or_default();
        sheet.add([way.to_owned(), rate(bytes), share]);
    };
    add("bare TCP socket", measured.bare_tcp_bytes_per_s, None);
    add("bare Unix socket", measured.bare_unix_bytes_per_s, None);
    add("frames over TCP", measured.tcp_bytes_per_s, Some(measured.tcp_by_bare));
    add("frames over a Unix socket", measured.unix_bytes_per_s, Some(measured.unix_by_bare));
    add("shared memory", measured.shared_memory_bytes_per_s, Some(measured.shared_memory_by_bare_tcp));
    add("copy in memory", measured.copy_bytes_per_s, None);
    sheet.render()
}

/// Receives from a process that sends for some time; bytes per second.
fn measure(way: Way, message: usize, seconds: f64) -> anyhow::Result<f64> {
    let folder = tempfile::Builder::new().prefix("graphmill-").tempdir()?;
    let path = folder.path().join("socket");
    let start = |address: &str| {
        let arguments = ["bench", "transport", "--message", &message.to_string(), "--seconds", &seconds.to_string()];
        let arguments = arguments.into_iter().chain(["--send", way.name(), address]).map(str::to_owned);
        Process::start("the sender", &arguments.collect::<Vec<_>>())
    };
    match way {
        Way::BareTcp => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let sender = start(&listener.local_addr()?.to_string())?;
            listener.set_nonblocking(true)?;
            let socket = within_patience(|| listener.accept())?.0;
            socket.set_nonblocking(false)?;
            let rate = receive_bare(socket, message);
            sender.end()?;
            Ok(rate)
        }
        Way::BareUnix => {
            let listener = std::os::unix::net::UnixListener::bind(&path)?;
            let sender = start(&path.display().to_string())?;
            listener.set_nonblocking(true)?;
            let socket = within_patience(|| listener.accept())?.0;
            socket.set_nonblocking(false)?;
            let rate = receive_bare(socket, message);
            sender.end()?;
            Ok(rate)
        }
        Way::Tcp | Way::Unix | Way::SharedMemory => runtime()?.block_on(async {
            if way == Way::Tcp {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
                let sender = start(&listener.local_addr()?.to_string())?;
                let rate = receive_frames(
                    Stream::Tcp(tokio::time::timeout(PATIENCE, listener.accept()).await.context(ABSENT)??.0),
                    message,
                )
                .await?;
                sender.end()?;
                return Ok(rate);
            }
            let listener = tokio::net::UnixListener::bind(&path)?;
            let sender = start(&format!("unix:{}", path.display()))?;
            let rate = receive_frames(
                Stream::Unix(tokio::time::timeout(PATIENCE, listener.accept()).await.context(ABSENT)??.0),
                message,
            )
            .await?;
            sender.end()?;
            Ok(rate)
        }),
    }
}

/// Tries until it would not have to wait.
fn within_patience<T>(attempt: impl Fn() -> std::io::Result<T>) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                anyhow::ensure!(began.elapsed() < PATIENCE, ABSENT);
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return Ok(done?),
        }
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Counts what arrives after the first message, which wakes everything up.
struct Clock {
    began: Option<Instant>,
    bytes: u64,
    sum: u64,
}

impl Clock {
    fn new() -> Self {
        Self { began: None, bytes: 0, sum: 0 }
    }

    fn add(&mut self, message: &[u8]) {
        let (words, _) = message.as_chunks::<8>();
        self.sum = words.iter().fold(self.sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
        match self.began {
            None => self.began = Some(Instant::now()),
            Some(_) => self.bytes += message.len() as u64,
        }
    }

    fn rate(&self) -> f64 {
        std::hint::black_box(self.sum);
        self.began.map_or(0.0, |began| self.bytes as f64 / began.elapsed().as_secs_f64())
    }
}

fn receive_bare(mut socket: impl Read, message: usize) -> f64 {
    let mut buffer = vec![0; message];
    let mut clock = Clock::new();
    while socket.read_exact(&mut buffer).is_ok() {
        clock.add(&buffer);
    }
    clock.rate()
}

async fn receive_frames(stream: Stream, message: usize) -> anyhow::Result<f64> {
    let (mut reader, mut writer) = graphmill_net::split(stream, graphmill_wire::VERSION, Limits::CLIENT);
    let mut buffer = vec![0; message];
    let mut slots: Vec<MappedSlot> = Vec::new();
    let mut clock = Clock::new();
    while let Some(frame) = reader.next().await? {
        match frame.message {
            Message::Slot(slot) => {
                let fd = frame.fd.context("a slot came without its descriptor")?;
                slots.push(MappedSlot::map(fd, slot.bytes as usize)?);
            }
            Message::Batch(proto::BatchHead { slot: Some(slot), .. }) => {
                clock.add(&slots.get(slot as usize).context("there is no such slot")?.bytes()[..message]);
                let back = Message::Return(proto::Return { returned: vec![slot], retired: Vec::new() });
                writer.write(Header::new(Kind::Return), &back, &[]).await?;
            }
            Message::Batch(_) => {
                reader.read_body(&mut buffer).await?;
                clock.add(&buffer);
            }
            // The sender's end of the benchmark.
            _ => break,
        }
    }
    Ok(clock.rate())
}

/// The sender's process.
fn send(way: Way, address: &str, message: usize, time: Duration) -> anyhow::Result<()> {
    let content: Vec<u8> = (0..message).map(|place| place as u8).collect();
    match way {
        Way::BareTcp => send_bare(TcpStream::connect(address)?, &content, time),
        Way::BareUnix => send_bare(std::os::unix::net::UnixStream::connect(address)?, &content, time),
        Way::Tcp | Way::Unix | Way::SharedMemory => runtime()?.block_on(send_frames(way, address, &content, time)),
    }
}

fn send_bare(mut socket: impl Write, content: &[u8], time: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    while began.elapsed() < time {
        socket.write_all(content)?;
    }
    Ok(())
}

async fn send_frames(way: Way, address: &str, content: &[u8], time: Duration) -> anyhow::Result<()> {
    let endpoint: Endpoint = address.parse()?;
    let stream = graphmill_net::dial(&endpoint, None, graphmill_net::Plane::Data, Duration::from_secs(5)).await?;
    let (mut reader, mut writer) = graphmill_net::split(stream, graphmill_wire::VERSION, Limits::SERVER);
    let head = |slot| proto::BatchHead { bytes: content.len() as u64, slot, ..proto::BatchHead::default() };
    let began = Instant::now();
    if way == Way::SharedMemory {
        let mut slots = Vec::new();
        for number in 0..SLOTS {
            let slot = SharedSlot::create(content.len())?;
            let message = Message::Slot(proto::Slot { slot: number as u32, bytes: content.len() as u64 });
            writer.write_with_fd(Header::new(Kind::Slot), &message, slot.fd()).await?;
            slots.push(slot);
        }
        let mut free: Vec<u32> = (0..SLOTS as u32).collect();
        while began.elapsed() < time {
            let Some(slot) = free.pop() else {
                let frame = reader.next().await?.context("the receiver is gone")?;
                if let Message::Return(back) = frame.message {
                    free.extend(back.returned);
                }
                continue;
            };
            // What a server does too: it writes the batch into the slot.
            slots[slot as usize].bytes_mut().copy_from_slice(content);
            writer.write(Header::new(Kind::Batch), &Message::Batch(head(Some(slot))), &[]).await?;
        }
    } else {
        while began.elapsed() < time {
            writer.write(Header::new(Kind::Batch), &Message::Batch(head(None)), &[content]).await?;
        }
    }
    let end = Message::Ping(proto::Ping {});
    writer.write(Header::new(Kind::Ping), &end, &[]).await?;
    // The receiver closes first, so that nothing of the last message is lost.
    while reader.next().await?.is_some() {}
    Ok(())
}

/// Copies in this process; bytes per second.
fn copy(message: usize, seconds: f64) -> f64 {
    let from: Vec<u8> = (0..message).map(|place| place as u8).collect();
    let mut to = vec![0; message];
    let (began, mut bytes) = (Instant::now(), 0u64);
    while began.elapsed().as_secs_f64() < seconds {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&to);
        bytes += message as u64;
    }
    bytes as f64 / began.elapsed().as_secs_f64()
}
