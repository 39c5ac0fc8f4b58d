//! What a server is told: by flags, by variables, or by a file, in this order.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::BoolishValueParser;
use graphmill_net::{ClientTls, Endpoint, ServerTls, Token};
use graphmill_rendezvous::{Coordinator, Keeping, Target};
use graphmill_server::{Limits, OpenPartitions, Options, Rendezvous};
use serde::Deserialize;
use tonic::service::Routes;

use crate::terminal::logs::LogFormat;
use crate::terminal::numbers;

/// Where a server listens, unless told otherwise.
const LISTEN: &str = "127.0.0.1:4100";
/// How long a server that stops finishes what is under way, unless told otherwise.
const DRAIN: f64 = 10.0;
/// How long a silent client keeps its channels, unless told otherwise.
const LEASE: f64 = 30.0;
/// How long the coordinator waits for a sign of life of a server, unless told otherwise.
const SERVER_LEASE: f64 = 5.0;

/// How a server is run.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Settings {
    /// The partitions to serve [default: all]
    #[arg(long, value_name = "I,...", value_delimiter = ',', env = "GRAPHMILL_PARTITION")]
    pub(crate) partition: Vec<u32>,

    /// Where a dataset from a URL is kept [default: graphmill in the user's cache directory]
    #[arg(long, value_name = "DIR", env = "GRAPHMILL_CACHE_DIR")]
    cache_dir: Option<PathBuf>,

    /// Where to listen: host:port, or `unix:/path`; repeat it for several, or separate them by commas
    /// [default: 127.0.0.1:4100]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', env = "GRAPHMILL_LISTEN")]
    listen: Vec<String>,

    /// The servers with the other partitions
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',', env = "GRAPHMILL_PEERS")]
    peers: Vec<String>,

    /// Coordinators through which servers and clients find each other, instead of --peers: HOST:PORT,HOST:PORT,
    /// graphmill://HOST:PORT/RUN, or etcd://HOST:PORT/RUN for the one that leads
    #[arg(long, value_name = "URL", conflicts_with = "peers", env = "GRAPHMILL_RENDEZVOUS")]
    rendezvous: Option<String>,

    /// The run to serve, for --rendezvous
    #[arg(long, value_name = "NAME", env = "GRAPHMILL_RUN")]
    run: Option<String>,

    /// Servers that each partition is placed on, for --rendezvous [default: 1]
    #[arg(long, value_name = "R", env = "GRAPHMILL_REPLICAS")]
    replicas: Option<u32>,

    /// Servers that partitions are shared out among; further ones are spares [default: as many as there are partitions]
    #[arg(long, value_name = "N", env = "GRAPHMILL_SERVER_COUNT")]
    servers: Option<u32>,

    /// The address at which others reach this server, for --rendezvous and --coordinator [default: the first of --listen]
    #[arg(long, value_name = "ADDRESS", env = "GRAPHMILL_ADVERTISE")]
    advertise: Option<String>,

    /// Seconds without a sign of life after which others take over this server's partitions [default: 5]
    #[arg(long, value_name = "SECONDS", env = "GRAPHMILL_SERVER_LEASE")]
    server_lease: Option<f64>,

    /// Stop when there were clients and none was left for so many seconds
    #[arg(long, value_name = "SECONDS", env = "GRAPHMILL_EXIT_WHEN_IDLE")]
    exit_when_idle: Option<f64>,

    /// Threads that sample [default: as many as there are cores]
    #[arg(long, value_name = "N", env = "GRAPHMILL_THREADS")]
    threads: Option<usize>,

    /// Map the files instead of reading them into memory: starts at once
    #[arg(long, env = "GRAPHMILL_MMAP", value_parser = BoolishValueParser::new())]
    pub(crate) mmap: bool,

    /// A file with the token that clients and peers must know
    #[arg(long, value_name = "FILE", env = "GRAPHMILL_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// This server's certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "GRAPHMILL_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "GRAPHMILL_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// Who signs the certificates of clients; then they must have one
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "GRAPHMILL_TLS_CLIENT_CA")]
    tls_client_ca: Option<PathBuf>,

    /// Who signs the certificates of peers
    #[arg(long, value_name = "FILE", env = "GRAPHMILL_TLS_CA")]
    tls_ca: Option<PathBuf>,

    /// Listen beyond this host without token and certificates
    #[arg(long, env = "GRAPHMILL_INSECURE", value_parser = BoolishValueParser::new())]
    insecure: bool,

    /// A further address for health and metrics alone
    #[arg(long, value_name = "ADDRESS", env = "GRAPHMILL_WATCH_LISTEN")]
    watch_listen: Option<String>,

    /// Never share memory with clients on this host
    #[arg(long, env = "GRAPHMILL_NO_SHARED_MEMORY", value_parser = BoolishValueParser::new())]
    no_shared_memory: bool,

    /// Memory for batches under way or not taken yet, answers to peers and listed seeds, beside the dataset's
    /// [default: a quarter of the machine's, or of the container's, at least 256MiB]
    #[arg(long, value_name = "SIZE", env = "GRAPHMILL_MEMORY_BUDGET")]
    memory_budget: Option<String>,

    /// Memory for rows of other servers that batches need again and again; 0 keeps none [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "GRAPHMILL_ROW_CACHE")]
    row_cache: Option<String>,

    /// The most connections at once; further ones are refused, and may try again [default: 16384]
    #[arg(long, value_name = "N", env = "GRAPHMILL_MAX_CONNECTIONS")]
    max_connections: Option<usize>,

    /// The most open channels; further ones are refused, and may try again [default: 65536]
    #[arg(long, value_name = "N", env = "GRAPHMILL_MAX_CHANNELS")]
    max_channels: Option<usize>,

    /// Seconds for which a silent client keeps its channels [default: 30]
    #[arg(long, value_name = "SECONDS", env = "GRAPHMILL_LEASE")]
    lease: Option<f64>,

    /// Seconds to finish what is under way when stopping [default: 10]
    #[arg(long, value_name = "SECONDS", env = "GRAPHMILL_DRAIN")]
    drain: Option<f64>,

    /// Coordinate runs too, on the same address, as `graphmill rendezvous serve` does
    #[arg(long, env = "GRAPHMILL_COORDINATOR", value_parser = BoolishValueParser::new())]
    coordinator: bool,

    /// Where the coordinator keeps its runs: a folder, or `etcd://HOST:PORT,HOST:PORT/PREFIX`, which it shares with others; without it
    /// they are gone when this process is
    #[arg(long, value_name = "DIR|URL", env = "GRAPHMILL_STATE")]
    state: Option<String>,

    /// How to write logs; `GRAPHMILL_LOG` says which, as in `graphmill=debug`
    #[arg(long, value_enum, env = "GRAPHMILL_LOG_FORMAT")]
    pub(crate) log: Option<LogFormat>,
}

impl Settings {
    /// These, and from a file what they leave open.
    pub(crate) fn or_file(self, path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: Self = toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))?;
        let either = |first: Vec<String>, second| if first.is_empty() { second } else { first };
        Ok(Self {
            partition: if self.partition.is_empty() { file.partition } else { self.partition },
            cache_dir: self.cache_dir.or(file.cache_dir),
            listen: either(self.listen, file.listen),
            peers: either(self.peers, file.peers),
            rendezvous: self.rendezvous.or(file.rendezvous),
            run: self.run.or(file.run),
            replicas: self.replicas.or(file.replicas),
            servers: self.servers.or(file.servers),
            advertise: self.advertise.or(file.advertise),
            server_lease: self.server_lease.or(file.server_lease),
            exit_when_idle: self.exit_when_idle.or(file.exit_when_idle),
            threads: self.threads.or(file.threads),
            mmap: self.mmap || file.mmap,
            token_file: self.token_file.or(file.token_file),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            tls_client_ca: self.tls_client_ca.or(file.tls_client_ca),
            tls_ca: self.tls_ca.or(file.tls_ca),
            insecure: self.insecure || file.insecure,
            watch_listen: self.watch_listen.or(file.watch_listen),
            no_shared_memory: self.no_shared_memory || file.no_shared_memory,
            memory_budget: self.memory_budget.or(file.memory_budget),
            row_cache: self.row_cache.or(file.row_cache),
            max_connections: self.max_connections.or(file.max_connections),
            max_channels: self.max_channels.or(file.max_channels),
            lease: self.lease.or(file.lease),
            drain: self.drain.or(file.drain),
            coordinator: self.coordinator || file.coordinator,
            state: self.state.or(file.state),
            log: self.log.or(file.log),
        })
    }

    /// Where datasets from URLs are kept.
    pub(crate) fn cache_dir(&self) -> anyhow::Result<PathBuf> {
        if let Some(folder) = &self.cache_dir {
            return Ok(folder.clone());
        }
        // A relative one is to be ignored, says the convention that the variable comes from.
        let from = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let user = from("XDG_CACHE_HOME").or_else(|| Some(from("HOME")?.join(".cache")));
        Ok(user
            .context("there is no home directory; say with --cache-dir where to keep the dataset")?
            .join("graphmill"))
    }

    pub(crate) fn drain(&self) -> anyhow::Result<Duration> {
        seconds("--drain", self.drain.unwrap_or(DRAIN))
    }

    /// How long there must be no clients after there were some, for the server to stop by itself.
    pub(crate) fn exit_when_idle(&self) -> anyhow::Result<Option<Duration>> {
        self.exit_when_idle.map(|idle| seconds("--exit-when-idle", idle)).transpose()
    }

    /// Whether servers are met through a coordinator.
    pub(crate) fn meets(&self) -> bool {
        self.rendezvous.is_some()
    }

    /// Where servers are met, if that is through a coordinator.
    fn rendezvous(&self, open: OpenPartitions) -> anyhow::Result<Option<Rendezvous>> {
        let Some(url) = &self.rendezvous else {
            let given = [self.replicas.is_some(), self.servers.is_some(), self.server_lease.is_some()];
            anyhow::ensure!(
                !given.contains(&true) && self.run.is_none() && (self.advertise.is_none() || self.coordinator),
                "--run, --replicas, --servers, --advertise and --server-lease are for servers that meet: say --rendezvous too"
            );
            return Ok(None);
        };
        anyhow::ensure!(self.peers.is_empty(), "peers are named with --peers or met with --rendezvous, not both");
        let target: Target = url.parse().map_err(anyhow::Error::msg)?;
        let run = match (target.run, &self.run) {
            (Some(named), Some(run)) if named != *run => {
                anyhow::bail!("--rendezvous names run `{named}`, --run names `{run}`")
            }
            (Some(run), _) => run,
            (None, Some(run)) => run.clone(),
            (None, None) => anyhow::bail!("which run does this server serve? say --run NAME"),
        };
        Ok(Some(Rendezvous {
            coordinators: target.place,
            run,
            advertise: self.advertise.as_ref().map(|address| address.parse()).transpose()?,
            partitions: self.partition.iter().copied().collect(),
            replicas: self.replicas.unwrap_or(1),
            servers: self.servers.unwrap_or(0),
            lease: seconds("--server-lease", self.server_lease.unwrap_or(SERVER_LEASE))?,
            open,
        }))
    }

    /// The coordinator that is served too, if one is asked for. To be called inside a runtime.
    pub(crate) fn coordinator(&self) -> anyhow::Result<Option<Arc<Coordinator>>> {
        if !self.coordinator {
            return Ok(None);
        }
        let listen = self.listen.first().map_or(LISTEN, String::as_str);
        let address = self.advertise.as_deref().unwrap_or(listen).parse()?;
        let keeping = self.state.as_ref().map_or(Ok(Keeping::Memory), |state| Keeping::parse(state, &address))?;
        Ok(Some(Coordinator::new(keeping)?))
    }

    pub(crate) fn options(&self, open: OpenPartitions) -> anyhow::Result<Options> {
        let defaults = Options::default();
        let listen = if self.listen.is_empty() { vec![LISTEN.to_owned()] } else { self.listen.clone() };
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(ServerTls::load(cert, key, self.tls_client_ca.as_deref())?),
            (None, None) => None,
            _ => anyhow::bail!("--tls-cert and --tls-key belong together"),
        };
        let identity = self.tls_cert.as_deref().zip(self.tls_key.as_deref());
        let peer_tls = self.tls_ca.as_ref().map(|ca| ClientTls::load(ca, identity)).transpose()?;
        anyhow::ensure!(
            tls.is_none() || (self.peers.is_empty() && !self.meets()) || peer_tls.is_some(),
            "peers use TLS too: say with --tls-ca who signs their certificates"
        );
        let token = self.token_file.as_ref().map(|path| Token::from_file(path)).transpose()?;
        anyhow::ensure!(
            self.coordinator || self.state.is_none(),
            "--state is for a coordinator: say --coordinator too"
        );
        Ok(Options {
            listen: endpoints(&listen)?,
            watch_listen: self.watch_listen.as_ref().map(|address| address.parse()).transpose()?,
            peers: endpoints(&self.peers)?,
            rendezvous: self.rendezvous(open)?,
            threads: self.threads.unwrap_or(defaults.threads).clamp(1, 1024),
            token,
            services: Routes::default(),
            tls,
            peer_tls,
            insecure: self.insecure,
            lease: seconds("--lease", self.lease.unwrap_or(LEASE))?.max(Duration::from_millis(100)),
            shared_memory: !self.no_shared_memory,
            limits: self.limits(defaults.limits)?,
            peer_wait: defaults.peer_wait,
            patience: defaults.patience,
        })
    }

    /// How much the server takes on at once.
    fn limits(&self, defaults: Limits) -> anyhow::Result<Limits> {
        let size = |flag: &'static str, text: &Option<String>| {
            let parsed = text.as_deref().map(numbers::parse_size).transpose();
            parsed.map_err(anyhow::Error::msg).context(flag)
        };
        let row_cache = size("--row-cache", &self.row_cache)?.map(usize::try_from).transpose()?;
        Ok(Limits {
            connections: self.max_connections.unwrap_or(defaults.connections),
            channels: self.max_channels.unwrap_or(defaults.channels),
            memory: size("--memory-budget", &self.memory_budget)?.unwrap_or(defaults.memory),
            row_cache: row_cache.unwrap_or(defaults.row_cache),
        })
    }
}

/// Addresses as they were written.
pub(crate) fn endpoints(texts: &[String]) -> anyhow::Result<Vec<Endpoint>> {
    texts.iter().map(|text| text.parse::<Endpoint>().map_err(anyhow::Error::from)).collect()
}

/// A time as it was written: up to a day.
fn seconds(flag: &str, seconds: f64) -> anyhow::Result<Duration> {
    anyhow::ensure!((0.0..=86_400.0).contains(&seconds), "{flag} is {seconds}, expected 0 to 86400 seconds");
    Ok(Duration::from_secs_f64(seconds))
}
