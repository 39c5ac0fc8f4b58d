//! The bad network does what it says, and nothing else.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use graphmill_testing::{Fault, Proxy, Storm, Way};

const MOMENT: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(20);

/// A server that sends back what it gets, and says goodbye at the end.
fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut bytes = [0; 4096];
                while let Ok(count) = stream.read(&mut bytes) {
                    if count == 0 {
                        let _ = stream.write_all(b"bye");
                        return;
                    }
                    if stream.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// What comes back for bytes.
fn say(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(bytes)?;
    let mut heard = vec![0; bytes.len()];
    stream.read_exact(&mut heard)?;
    Ok(heard)
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(MOMENT)).unwrap();
    let silent =
        stream.read(&mut [0]).is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    stream.set_read_timeout(Some(LONG)).unwrap();
    silent
}

#[test]
fn a_good_day_changes_nothing() {
    let proxy = Proxy::start(echo(), 1).unwrap();
    let mut stream = connect(&proxy);
    let bytes: Vec<u8> = (0..3_000_000u32).map(|number| (number >> 3) as u8).collect();
    let mut sender = stream.try_clone().unwrap();
    let sent = bytes.clone();
    let sending = std::thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    sending.join().unwrap();
    assert!(heard == [&bytes[..], b"bye"].concat(), "{} bytes", heard.len());
}

#[test]
fn bytes_are_late_by_the_latency() {
    let proxy = Proxy::start(echo(), 1).unwrap();
    let mut stream = connect(&proxy);
    proxy.apply(Fault::Latency(Way::Up, MOMENT));
    proxy.apply(Fault::Latency(Way::Down, MOMENT));
    let began = Instant::now();
    assert_eq!(say(&mut stream, b"late").unwrap(), b"late");
    assert!(began.elapsed() >= 2 * MOMENT);
}

#[test]
fn what_is_held_comes_when_it_is_mended() {
    let proxy = Proxy::start(echo(), 1).unwrap();
    for fault in [Fault::Stall(Way::Up), Fault::Stall(Way::Down), Fault::Partition] {
        let mut stream = connect(&proxy);
        assert_eq!(say(&mut stream, b"a").unwrap(), b"a");
        proxy.apply(fault);
        stream.write_all(b"held").unwrap();
        assert!(is_silent(&mut stream), "{fault:?}");
        let mut newcomer = connect(&proxy);
        newcomer.write_all(b"new").unwrap();
        assert!(is_silent(&mut newcomer), "{fault:?}");
        proxy.apply(Fault::Heal);
        let mut heard = [0; 4];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"held");
        newcomer.read_exact(&mut heard[..3]).unwrap();
        assert_eq!(&heard[..3], b"new");
    }
}

#[test]
fn a_sender_that_is_held_up_fills_no_memory() {
    let proxy = Proxy::start(echo(), 1).unwrap();
    let mut stream = connect(&proxy);
    proxy.apply(Fault::Stall(Way::Up));
    stream.set_nonblocking(true).unwrap();
    let (mut taken, mut refused_since) = (0, Instant::now());
    while refused_since.elapsed() < MOMENT {
        match stream.write(&vec![0; 65536]) {
            Ok(count) => (taken, refused_since) = (taken + count, Instant::now()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(taken < 256 << 20, "there is no end to it");
    }
}

#[test]
fn a_reset_ends_what_there_is_and_nothing_that_comes() {
    let proxy = Proxy::start(echo(), 1).unwrap();
    let mut stream = connect(&proxy);
    assert_eq!(say(&mut stream, b"a").unwrap(), b"a");
    assert_eq!(proxy.connections(), 1);
    proxy.apply(Fault::Reset);
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(say(&mut connect(&proxy), b"b").unwrap(), b"b");
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    let proxy = Proxy::start(echo(), 1).unwrap();
    let mut stream = connect(&proxy);
    assert_eq!(say(&mut stream, b"a").unwrap(), b"a");
    proxy.apply(Fault::HalfClose(Way::Up));
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"bye", "the server has seen the end, and answers it");
    assert_eq!(say(&mut connect(&proxy), b"b").unwrap(), b"b");
}

#[test]
fn corrupted_bytes_depend_on_the_seed_alone() {
    let (server, sent) = (echo(), vec![0u8; 20_000]);
    let wrong = |seed| {
        let proxy = Proxy::start(server, seed).unwrap();
        proxy.apply(Fault::Corrupt(Way::Down, 1000));
        let heard = say(&mut connect(&proxy), &sent).unwrap();
        heard.into_iter().enumerate().filter(|(_, byte)| *byte != 0).collect::<Vec<_>>()
    };
    let first = wrong(7);
    assert!((5..60).contains(&first.len()) && first.iter().all(|(_, byte)| byte.is_power_of_two()), "{first:?}");
    assert_eq!(first, wrong(7));
    assert_ne!(first, wrong(8));
}

#[test]
fn storms_are_the_same_for_the_same_seed_and_pass() {
    let drawn = |seed| Storm::new(seed, MOMENT).take(40).collect::<Vec<_>>();
    assert_eq!(drawn(3), drawn(3));
    assert_ne!(drawn(3), drawn(4));
    let proxy = Proxy::start(echo(), 1).unwrap();
    proxy.weather(Storm::new(5, MOMENT / 10), MOMENT);
    assert_eq!(say(&mut connect(&proxy), b"calm").unwrap(), b"calm");
}

#[test]
fn faults_read_as_they_are_written() {
    let rows = [
        ("partition", Fault::Partition),
        ("reset", Fault::Reset),
        ("heal", Fault::Heal),
        ("stall up", Fault::Stall(Way::Up)),
        ("half-close down", Fault::HalfClose(Way::Down)),
        ("latency up 50", Fault::Latency(Way::Up, Duration::from_millis(50))),
        ("corrupt down 1000", Fault::Corrupt(Way::Down, 1000)),
    ];
    for (line, fault) in rows {
        assert_eq!(line.parse(), Ok(fault));
    }
    for wrong in ["", "rain", "stall", "stall left", "latency up", "latency up soon", "heal now"] {
        assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
    }
}
