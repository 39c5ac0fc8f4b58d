//! `graphmill rendezvous serve`: a coordinator.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::builder::BoolishValueParser;
use graphmill_net::{ServerTls, Stopping, Token};
use graphmill_rendezvous::{Coordinator, Keeping, service};
use graphmill_server::HttpServer;
use tonic::service::Routes;

use crate::commands::serve::{endpoints, stdin_end};
use crate::context::Context;
use crate::terminal::logs::{self, LogFormat};
use crate::terminal::output;

const EXAMPLES: &str = "\
Examples:
  graphmill rendezvous serve                                        for this host, in memory
  graphmill rendezvous serve --state /var/lib/rendezvous            survives its own restart
  graphmill rendezvous serve --state etcd://a:2379,b:2379,c:2379    one of several, of which one leads
  graphmill rendezvous serve --listen 0.0.0.0:4300 --token-file t   for other hosts, which must know the token";

/// Coordinate runs: who takes part, with which rank, in which round
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where to listen: host:port, or `unix:/path`; repeat it for several, or separate them by commas
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        default_value = "127.0.0.1:4300",
        env = "GRAPHMILL_LISTEN"
    )]
    listen: Vec<String>,

    /// Where to keep runs: a folder, or etcd as `etcd://HOST:PORT,HOST:PORT/PREFIX?ca=FILE&cert=FILE&key=FILE&user=NAME&password_file=FILE`;
    /// without it they are gone when this process is
    #[arg(long, value_name = "DIR|URL", env = "GRAPHMILL_STATE")]
    state: Option<String>,

    /// The address at which members reach this coordinator, which they find in etcd [default: the first of --listen]
    #[arg(long, value_name = "ADDRESS", env = "GRAPHMILL_ADVERTISE")]
    advertise: Option<String>,

    /// A file with the token that members must know
    #[arg(long, value_name = "FILE", env = "GRAPHMILL_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// This coordinator's certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "GRAPHMILL_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "GRAPHMILL_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// Who signs the certificates of members; then they must have one
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "GRAPHMILL_TLS_CLIENT_CA")]
    tls_client_ca: Option<PathBuf>,

    /// Listen beyond this host without token and certificates
    #[arg(long, env = "GRAPHMILL_INSECURE", value_parser = BoolishValueParser::new())]
    insecure: bool,

    /// How to write logs; `GRAPHMILL_LOG` says which, as in `graphmill=debug`
    #[arg(long, value_enum, default_value_t, env = "GRAPHMILL_LOG_FORMAT")]
    log: LogFormat,

    /// Stop when standard input ends, as it does when the parent is gone
    #[arg(long)]
    until_stdin_closes: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let logs = logs::start(args.log);
    let token = args.token_file.as_ref().map(|path| Token::from_file(path)).transpose()?;
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(ServerTls::load(cert, key, args.tls_client_ca.as_deref())?),
        _ => None,
    };
    let listen = endpoints(&args.listen)?;
    let advertised = args.advertise.as_ref().or(args.listen.first()).context("say where to listen")?.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the threads for connections")?;
    runtime.block_on(async {
        let mut stopping = Stopping::listen()?;
        let has_token = token.is_some();
        let keeping = args.state.as_ref().map_or(Ok(Keeping::Memory), |state| Keeping::parse(state, &advertised))?;
        let coordinator = Coordinator::new(keeping)?;
        let routes = Routes::new(service::service(Arc::clone(&coordinator), token));
        let server = HttpServer::start(&listen, tls, has_token, args.insecure, routes).await?;
        for endpoint in server.endpoints() {
            output::print(&format!("listening on {endpoint}"))?;
        }
        tokio::select! {
            () = stopping.asked() => {}
            () = stdin_end(args.until_stdin_closes) => {}
        }
        context.note_in(&logs, "stopping");
        drop(server);
        coordinator.resign().await;
        anyhow::Ok(())
    })?;
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}
