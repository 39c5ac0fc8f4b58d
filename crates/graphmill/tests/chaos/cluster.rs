//! Servers of one dataset as processes, with a bad network before each: their readers and their peers reach them through it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Remote, Servers, Transport};
use graphmill_net::ClientTls;
use graphmill_testing::Proxy;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::net::TcpSocket;

use crate::servers::{Coordinator, Served};
use crate::support::Workplace;

/// Long enough for a machine that is busy with something else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How servers and their readers find each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// By lists of addresses; each partition is with one server.
    Addresses,
    /// Through a coordinator; each partition is with so many servers.
    Run { replicas: usize },
}

/// What kind of cluster it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) meeting: Meeting,
    pub(crate) servers: usize,
    /// Whether everything is encrypted.
    pub(crate) tls: bool,
    /// Whether servers may share memory, with readers and with each other: then not all bytes pass the bad network.
    pub(crate) sharing: bool,
    /// Further flags of servers.
    pub(crate) flags: &'static str,
}

impl Setup {
    /// Servers all of whose bytes pass the bad network.
    pub(crate) fn new(meeting: Meeting, servers: usize) -> Self {
        Self { meeting, servers, tls: false, sharing: false, flags: "" }
    }
}

/// Servers of `g4`, and the networks before them.
pub(crate) struct Cluster {
    pub(crate) proxies: Vec<Proxy>,
    /// How each server is started.
    lines: Vec<String>,
    addresses: Vec<SocketAddr>,
    servers: Vec<Mutex<Option<Served>>>,
    coordinator: Option<Meet>,
    tls: Option<ClientTls>,
    /// Bound and not listened on, so that nobody else is given the ports of servers that are away.
    _ports: Vec<TcpSocket>,
    pub(crate) place: Workplace,
}

/// A coordinator, and where it is.
struct Meet {
    address: String,
    replicas: usize,
    process: Mutex<Option<Coordinator>>,
}

impl Cluster {
    /// Starts servers of a dataset of four partitions, `g4`, which is there.
    pub(crate) fn start(place: Workplace, setup: Setup, seed: u64) -> Self {
        let ports: Vec<TcpSocket> = (0..setup.servers).map(|_| reserve()).collect();
        let addresses: Vec<SocketAddr> = ports.iter().map(|port| port.local_addr().unwrap()).collect();
        let proxies: Vec<Proxy> =
            addresses.iter().zip(seed..).map(|(address, seed)| Proxy::start(*address, seed).unwrap()).collect();
        let coordinator = match setup.meeting {
            Meeting::Addresses => None,
            Meeting::Run { replicas } => {
                let (process, address) = Coordinator::start(&place, "--listen 127.0.0.1:0 --state meeting");
                Some(Meet { address, replicas, process: Mutex::new(Some(process)) })
            }
        };
        let certificates = if setup.tls { certificates(&place) } else { String::new() };
        let line = |server: usize| {
            let (listen, proxy) = (addresses[server], proxies[server].address());
            let meeting = if let Some(Meet { address, replicas, .. }) = &coordinator {
                let count = setup.servers;
                let meet = format!("--rendezvous {address} --run train --replicas {replicas} --servers {count}");
                format!("{meet} --advertise {proxy}")
            } else {
                let parts: Vec<String> =
                    (server..4).step_by(setup.servers).map(|partition| partition.to_string()).collect();
                let peers = proxies.iter().enumerate().filter(|(other, _)| *other != server);
                let peers: Vec<String> = peers.map(|(_, proxy)| proxy.address().to_string()).collect();
                let peers = if peers.is_empty() { String::new() } else { format!("--peers {}", peers.join(",")) };
                format!("--partition {} {peers}", parts.join(","))
            };
            let sharing = if setup.sharing { "" } else { "--no-shared-memory" };
            let flags = setup.flags;
            format!("g4 --mmap --threads 1 --drain 2 --listen {listen} {meeting} {certificates} {sharing} {flags}")
        };
        let lines: Vec<String> = (0..setup.servers).map(line).collect();
        let servers = lines.iter().map(|line| Mutex::new(Some(Served::start(&place, line).0))).collect();
        let tls = setup.tls.then(|| ClientTls::load(&place.path("ca.pem"), None).unwrap());
        Self { proxies, lines, addresses, servers, coordinator, tls, _ports: ports, place }
    }

    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }

    /// How readers find the servers: through their networks.
    pub(crate) fn names(&self) -> Vec<String> {
        match &self.coordinator {
            Some(Meet { address, .. }) => vec![format!("graphmill://{address}/train")],
            None => self.proxies.iter().map(|proxy| proxy.address().to_string()).collect(),
        }
    }

    /// Where a server listens, past its network.
    pub(crate) fn address(&self, server: usize) -> SocketAddr {
        self.addresses[server]
    }

    pub(crate) fn connect(&self, transport: Transport) -> Arc<Remote> {
        let options =
            ConnectOptions { transport, deadline: PATIENCE, tls: self.tls.clone(), ..ConnectOptions::default() };
        Remote::connect_to(&Servers::parse(&self.names()).unwrap(), options).unwrap()
    }

    /// Kills a server, which has no time for a word.
    pub(crate) fn kill(&self, server: usize) {
        self.end(server, Signal::KILL);
    }

    /// Ends a server that runs.
    pub(crate) fn end(&self, server: usize, signal: Signal) {
        if let Some(served) = self.servers[server].lock().unwrap().take() {
            served.stop(signal);
        }
    }

    /// Starts a server again, where it was.
    pub(crate) fn start_again(&self, server: usize) {
        let mut served = self.servers[server].lock().unwrap();
        if served.is_none() {
            *served = Some(Served::start(&self.place, &self.lines[server]).0);
        }
    }

    /// Sends a signal to a server.
    pub(crate) fn signal(&self, server: usize, signal: Signal) {
        if let Some(served) = &*self.servers[server].lock().unwrap() {
            kill_process(Pid::from_child(&served.child), signal).unwrap();
        }
    }

    /// Whether a server that was started has not ended.
    pub(crate) fn lives(&self, server: usize) -> bool {
        let mut served = self.servers[server].lock().unwrap();
        served.as_mut().is_some_and(|served| served.child.try_wait().unwrap().is_none())
    }

    /// The process of a server that runs.
    pub(crate) fn process(&self, server: usize) -> u32 {
        self.servers[server].lock().unwrap().as_ref().expect("it runs").child.id()
    }

    /// The process of the coordinator, which there is.
    pub(crate) fn coordinator_process(&self) -> u32 {
        let meet = self.coordinator.as_ref().expect("they meet");
        meet.process.lock().unwrap().as_ref().expect("it runs").0.id()
    }

    /// Kills the coordinator.
    pub(crate) fn kill_coordinator(&self) {
        if let Some(Meet { process, .. }) = &self.coordinator {
            drop(process.lock().unwrap().take());
        }
    }

    /// Starts the coordinator again, where it was and with what it kept.
    pub(crate) fn coordinate_again(&self) {
        if let Some(Meet { address, process, .. }) = &self.coordinator {
            let mut process = process.lock().unwrap();
            if process.is_none() {
                let line = format!("--listen {address} --state meeting");
                *process = Some(Coordinator::start(&self.place, &line).0);
            }
        }
    }

    /// Waits until a server is in its place again: with a coordinator until everything is served as often as it is to be.
    pub(crate) fn until_whole(&self) {
        let Some(Meet { address, replicas, .. }) = &self.coordinator else { return };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.place.run(&format!("rendezvous status {address}/train --json"));
            let status = serde_json::from_str::<Value>(&shown.stdout).unwrap_or_default();
            let servers: Vec<&Value> = status["storage"]["servers"].as_array().into_iter().flatten().collect();
            let serves = |server: &Value, partition: u64| {
                server["serving"].as_array().is_some_and(|serving| serving.contains(&partition.into()))
            };
            // More often than that, where somebody took over from one that came back.
            let often_enough =
                |partition| servers.iter().filter(|server| serves(server, partition)).count() >= *replicas;
            if (0..4).all(often_enough) {
                return;
            }
            assert!(Instant::now() < deadline, "not everything is served as often as it should be: {status:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A port that nobody else is given.
fn reserve() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    socket
}

/// Writes certificates for loopback, and gives the flags that name them.
fn certificates(place: &Workplace) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    for (file, text) in [("ca.pem", issuer.pem()), ("cert.pem", cert.pem()), ("key.pem", key.serialize_pem())] {
        place.write(file, &text);
    }
    "--tls-cert cert.pem --tls-key key.pem --tls-ca ca.pem".to_owned()
}
