//! Servers of every transport, and other processes that use them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use graphmill_objects::{Config, Connector, Key, ServerConfig, Spawn};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Long enough for a machine that is busy with something else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How objects travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Tcp,
    Tls,
    Unix,
    /// A Unix socket, with large objects in shared memory.
    Shared,
    /// The same for a connector that was given a TCP address.
    SharedByTcp,
    Redis,
}

impl Way {
    pub(crate) const SERVERS: [Self; 5] = [Self::Tcp, Self::Tls, Self::Unix, Self::Shared, Self::SharedByTcp];

    pub(crate) fn shares(self) -> bool {
        matches!(self, Self::Shared | Self::SharedByTcp)
    }
}

/// A place for objects, which ends with this.
pub(crate) struct Place {
    pub(crate) way: Way,
    pub(crate) config: Config,
    pub(crate) folder: TempDir,
    redis: Option<Child>,
}

impl Place {
    /// A place where a server can be started, and is not yet.
    pub(crate) fn new(way: Way, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = match way {
            Way::Unix | Way::Shared => format!("unix:{}", folder.path().join("objects.sock").display()),
            Way::Tcp | Way::Tls | Way::SharedByTcp | Way::Redis => format!("127.0.0.1:{}", free_port()),
        };
        let mut server = ServerConfig { linger: Some(5.0), budget: 64 << 20, ..ServerConfig::default() };
        let mut config = Config {
            address,
            shared_memory: way.shares(),
            deadline: PATIENCE.as_secs_f64(),
            put_wait: 0.2,
            wait: 5.0,
            ..Config::default()
        };
        if way == Way::Tls {
            let authority = Authority::new(folder.path());
            (config.tls_ca, server.tls_cert, server.tls_key) =
                (Some(authority.ca), Some(authority.cert), Some(authority.key));
        }
        change(&mut server);
        config.spawn = Some(Spawn { command: this_binary("spawned_server"), deadline: PATIENCE.as_secs_f64(), server });
        Self { way, config, folder, redis: None }
    }

    /// Redis; nothing, and a word about it, where it is not installed.
    pub(crate) fn redis(arguments: &[&str]) -> Option<Self> {
        let mut place = Self::new(Way::Redis, |_| {});
        let port = place.config.address.rsplit_once(':').unwrap().1.to_owned();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]).args(arguments);
        command.current_dir(place.folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(redis) = command.spawn() else {
            eprintln!("skipped: redis is not installed (Debian's package is redis-server)");
            return None;
        };
        place.redis = Some(redis);
        place.config.address = format!("redis://127.0.0.1:{port}");
        place.config.spawn = None;
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_err() {
            assert!(began.elapsed() < PATIENCE, "redis listens in time");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(place)
    }

    pub(crate) fn open(&self) -> Connector {
        Connector::open(self.config.clone()).unwrap()
    }

    /// Opens without starting anything.
    pub(crate) fn find(&self) -> graphmill_objects::Result<Connector> {
        Connector::open(Config { spawn: None, wait: 0.5, ..self.config.clone() })
    }

    /// The same place with other settings of the connector.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Config)) -> Config {
        let mut config = self.config.clone();
        change(&mut config);
        config
    }

    /// The process of a watched server.
    pub(crate) fn server_process(&self) -> i32 {
        let pid = std::fs::read_to_string(self.folder.path().join("pid")).expect("a server was started");
        pid.trim().parse().unwrap()
    }

    /// Has a watched server do nothing until it is resumed.
    pub(crate) fn pause_server(&self) {
        self.signal_server(Signal::STOP);
        let state = || std::fs::read_to_string(format!("/proc/{}/status", self.server_process())).unwrap();
        eventually("it has stopped", || state().contains("State:\tT"));
    }

    pub(crate) fn resume_server(&self) {
        self.signal_server(Signal::CONT);
    }

    fn signal_server(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.server_process()).unwrap(), signal).unwrap();
    }

    /// Kills a watched server.
    pub(crate) fn kill_server(&self) {
        self.signal_server(Signal::KILL);
    }

    /// Has the server's process and each start written down.
    pub(crate) fn watched(mut self) -> Self {
        let spawn = self.config.spawn.as_mut().unwrap();
        let script = r#"echo $$ > "$0/pid"; echo started >> "$0/starts"; exec "$@""#;
        let folder = self.folder.path().to_str().unwrap().to_owned();
        let mut command = ["/bin/sh", "-c", script, &folder].map(str::to_owned).to_vec();
        command.append(&mut spawn.command);
        spawn.command = command;
        self
    }

    /// How often a server was started.
    pub(crate) fn starts(&self) -> usize {
        std::fs::read_to_string(self.folder.path().join("starts")).unwrap_or_default().lines().count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(redis) = &mut self.redis {
            let _ = redis.kill();
            let _ = redis.wait();
        } else if let Ok(connector) = self.find() {
            let _ = connector.close(true);
        }
    }
}

/// Runs a test over every transport.
pub(crate) fn everywhere(test: impl Fn(&Place)) {
    for way in Way::SERVERS {
        eprintln!("over {way:?}");
        test(&Place::new(way, |_| {}));
    }
    if let Some(place) = Place::redis(&[]) {
        eprintln!("over Redis");
        test(&place);
    }
}

/// Bytes that are not alike anywhere.
pub(crate) fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut words = vec![0u8; bytes];
    for chunk in words.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    words
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What runs a part of this binary as a process of its own.
fn this_binary(part: &str) -> Vec<String> {
    let binary = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&binary, part, "--exact", "--ignored", "--nocapture", "--test-threads=2"].map(str::to_owned).to_vec()
}

/// Files of certificates.
pub(crate) struct Authority {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let files = ["ca.pem", "cert.pem", "key.pem"].map(|name| folder.join(name));
        for (file, text) in files.iter().zip([issuer.pem(), cert.pem(), key.serialize_pem()]) {
            std::fs::write(file, text).unwrap();
            std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
        }
        let [ca, cert, key] = files;
        Self { ca, cert, key }
    }
}

/// Another process, which opens a connector and does what it is told, a line at a time.
pub(crate) struct Other {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Other {
    pub(crate) fn start(config: &Config) -> Self {
        let command = this_binary("other_process");
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .env("OBJECTS_CONFIG", config.to_json())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Tells it something, without waiting.
    pub(crate) fn tell(&mut self, text: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{text}").unwrap();
    }

    /// What it says next.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("the process goes on").unwrap();
            // The rest is the test harness'.
            if let Some(said) = line.strip_prefix("> ") {
                return said.to_owned();
            }
        }
    }

    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.tell(text);
        self.hear()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process' part.
pub(crate) fn other_process() {
    let config = Config::from_json(&std::env::var("OBJECTS_CONFIG").unwrap()).unwrap();
    let mut connector = None;
    let mut held = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        let connector = connector.get_or_insert_with(|| Connector::open(config.clone()));
        let Ok(connector) = connector else {
            println!("> error {}", connector.as_ref().unwrap_err());
            continue;
        };
        let said = match (words.next().unwrap(), words.next(), words.next()) {
            ("open", ..) => "opened".to_owned(),
            ("put", Some(bytes), Some(seed)) => {
                match connector.put(&content(bytes.parse().unwrap(), seed.parse().unwrap())) {
                    Ok(key) => key.to_string(),
                    Err(error) => format!("error {}", error.kind().name()),
                }
            }
            ("get", Some(key), Some(seed)) => match connector.get(&key.parse::<Key>().unwrap()) {
                Ok(Some(object)) => {
                    let right = object[..] == content(object.len(), seed.parse().unwrap());
                    held.push(object);
                    if right { "right".to_owned() } else { "wrong".to_owned() }
                }
                Ok(None) => "none".to_owned(),
                Err(error) => format!("error {}", error.kind().name()),
            },
            // Gets an object so often, and holds on to all of them.
            ("hold", Some(key), Some(times)) => {
                let key = key.parse::<Key>().unwrap();
                let first = connector.get(&key).unwrap().unwrap();
                let more = (1..times.parse::<usize>().unwrap()).map(|_| connector.get(&key).unwrap().unwrap());
                let all: Vec<_> = more.inspect(|object| assert!(object[..] == first[..])).collect();
                let mapped = all.iter().chain([&first]).filter(|object| object.is_mapped()).count();
                drop((first, all));
                let again = connector.get(&key).unwrap().unwrap().is_mapped();
                format!("{mapped} mapped, then {again}")
            }
            ("close", ..) => {
                held.clear();
                connector.close(false).unwrap();
                "closed".to_owned()
            }
            other => panic!("{other:?}"),
        };
        println!("> {said}");
    }
}
