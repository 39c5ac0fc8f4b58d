//! A cluster of servers in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use graphmill_client::{ConnectOptions, Remote, Transport};
use graphmill_graph::{Dataset, OpenOptions, Storage};
use graphmill_net::Endpoint;
use graphmill_server::{Options, Server};
use tokio::runtime::Runtime;

/// Some servers of one dataset, each with some of its partitions, and the folder of their sockets.
pub(crate) struct Cluster {
    runtime: Runtime,
    servers: Vec<Server>,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// So many servers; partition `i` is with server `i mod servers`.
    pub(crate) fn start(dataset: &Path, servers: usize) -> Self {
        Self::start_with(dataset, servers, |options| options)
    }

    pub(crate) fn start_with(dataset: &Path, servers: usize, change: impl Fn(Options) -> Options) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = graphmill_testing::tempdir();
        let socket = |server: usize| Endpoint::Unix(folder.path().join(format!("{server}.sock")));
        let parts = Dataset::open(dataset).unwrap().parts();
        let start = |server: usize| {
            let partitions = (0..parts).filter(|part| *part as usize % servers == server).collect();
            let opening = OpenOptions { storage: Storage::Mmap, partitions: Some(partitions) };
            let opened = Dataset::open_with(dataset, &opening).unwrap();
            let options = change(Options {
                listen: vec![Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 0 }, socket(server)],
                peers: (0..servers).filter(|other| *other != server).map(socket).collect(),
                threads: 2,
                ..Options::default()
            });
            runtime.block_on(Server::start(opened, options)).unwrap()
        };
        let servers = (0..servers).map(start).collect();
        Self { runtime, servers, folder }
    }

    /// The servers' addresses over TCP.
    pub(crate) fn addresses(&self) -> Vec<Endpoint> {
        self.servers.iter().map(|server| server.endpoints()[0].clone()).collect()
    }

    pub(crate) fn connect(&self, transport: Transport) -> Arc<Remote> {
        let options = ConnectOptions { transport, deadline: Duration::from_secs(20), ..ConnectOptions::default() };
        Remote::connect(&self.addresses(), options).unwrap()
    }

    /// Stops all servers, and says whether nothing was left.
    pub(crate) fn stop(self) -> bool {
        let Self { runtime, servers, folder } = self;
        let clean = servers.into_iter().all(|server| {
            let left = runtime.block_on(server.stop(Duration::from_secs(5)));
            left == graphmill_server::Leftovers::default()
        });
        drop(folder);
        clean
    }
}
