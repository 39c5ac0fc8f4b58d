//! `graphmill objects serve`: an object server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::BoolishValueParser;
use graphmill_objects::{ServerConfig, serve_spawned, start_server};

use crate::context::Context;
use crate::terminal::logs::{self, LogFormat};
use crate::terminal::numbers::{self, parse_size};
use crate::terminal::output;

const EXAMPLES: &str = "\
Examples:
  graphmill objects serve                                           the user's own server, on a Unix socket
  graphmill objects serve --listen 127.0.0.1:4200 --budget 8GiB
  graphmill objects serve --listen 0.0.0.0:4200 --token-file token  for other hosts, which must know the token
  graphmill objects serve --budget 2GiB --evict --ttl 3600          a cache";

/// Hold objects for other processes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[allow(clippy::struct_excessive_bools, reason = "flags")]
pub(crate) struct Args {
    /// Where to listen: host:port, or `unix:/path`; repeat it for several, or separate them by commas
    /// [default: a socket of the user's own]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', env = "GRAPHMILL_LISTEN")]
    listen: Vec<String>,

    /// Bytes that all objects may take
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    budget: u64,

    /// Bytes that one object may have [default: a quarter of the budget]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    object_limit: Option<u64>,

    /// Seconds after which an object is gone that names no time itself [default: never]
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<f64>,

    /// Let puts take the room of objects that were used least lately
    #[arg(long)]
    evict: bool,

    /// Seconds without a connection after which it ends [default: runs until it is stopped]
    #[arg(long, value_name = "SECONDS")]
    linger: Option<f64>,

    /// A file with the token that clients must know
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

    /// Listen beyond this host without token and certificates
    #[arg(long, env = "GRAPHMILL_INSECURE", value_parser = BoolishValueParser::new())]
    insecure: bool,

    /// Never share memory with clients on this host
    #[arg(long, env = "GRAPHMILL_NO_SHARED_MEMORY", value_parser = BoolishValueParser::new())]
    no_shared_memory: bool,

    /// Threads for connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,

    /// How to write logs; `GRAPHMILL_LOG` says which, as in `graphmill=debug`
    #[arg(long, value_enum, default_value_t, env = "GRAPHMILL_LOG_FORMAT")]
    log: LogFormat,

    /// Read the configuration from standard input and say `ready`, as connectors expect of what they start
    #[arg(long)]
    spawned: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    if args.spawned {
        serve_spawned()?;
        return Ok(ExitCode::SUCCESS);
    }
    let logs = logs::start(args.log);
    let config = ServerConfig {
        listen: args.listen.clone(),
        budget: args.budget,
        object_limit: args.object_limit,
        ttl: args.ttl,
        evict: args.evict,
        linger: args.linger,
        token_file: args.token_file.clone(),
        tls_cert: args.tls_cert.clone(),
        tls_key: args.tls_key.clone(),
        tls_client_ca: args.tls_client_ca.clone(),
        insecure: args.insecure,
        shared_memory: !args.no_shared_memory,
        threads: args.threads.clamp(1, 1024),
    };
    let mut printed = Ok(());
    start_server(&config, |endpoints| {
        printed = endpoints.iter().try_for_each(|endpoint| output::print(&format!("listening on {endpoint}")));
        context.note(&format!("holding up to {}", numbers::bytes(config.budget)));
    })?;
    printed?;
    context.note_in(&logs, "stopped");
    Ok(ExitCode::SUCCESS)
}
