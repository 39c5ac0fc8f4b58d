//! Real etcd, of as many nodes as a test wants.
// Each test uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use graphmill_rendezvous::etcd::{Etcd, EtcdUrl, Leader};
use tokio::sync::watch;

/// The nodes of a cluster, which end with this.
pub struct Nodes {
    processes: Vec<Child>,
    addresses: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Nodes {
    /// Starts a cluster; nothing, and a word about it, where etcd is not installed. Where everything is to be tested, that fails.
    pub fn start(count: usize) -> Option<Self> {
        Self::start_with(count, "http", &[])
    }

    /// Starts a node that speaks TLS and lets in who has a certificate of an authority.
    pub fn start_secured(cert: &Path, key: &Path, ca: &Path) -> Option<Self> {
        let [cert, key, ca] = [cert, key, ca].map(|path| path.display().to_string());
        let flags = ["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &ca, "--client-cert-auth"];
        Self::start_with(1, "https", &flags)
    }

    fn start_with(count: usize, scheme: &str, flags: &[&str]) -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "etcd is not installed");
            eprintln!("skipped: etcd is not installed (Debian's package is etcd-server)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let ports = free_ports(2 * count);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let peers: Vec<_> = (0..count).map(|node| format!("n{node}={}", url(ports[2 * node + 1]))).collect();
        let start = |node: usize| {
            let (client, peer) = (format!("{scheme}://127.0.0.1:{}", ports[2 * node]), url(ports[2 * node + 1]));
            let data = folder.path().join(format!("n{node}"));
            let mut command = Command::new("etcd");
            command.args(["--name", &format!("n{node}"), "--data-dir", &data.display().to_string()]);
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", "new"]);
            command.args(flags).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let processes = (0..count).map(start).collect();
        let addresses = (0..count).map(|node| format!("127.0.0.1:{}", ports[2 * node])).collect();
        Some(Self { processes, addresses, _folder: folder })
    }

    /// The cluster as a coordinator has it.
    pub fn connect(&self, prefix: &str) -> Arc<Etcd> {
        let url = EtcdUrl { nodes: self.addresses.clone(), ..EtcdUrl::default() };
        Arc::new(Etcd::open(&url, prefix).unwrap())
    }

    /// The nodes as they stand in a URL.
    pub fn addresses(&self) -> String {
        self.addresses.join(",")
    }

    /// Kills a node.
    pub fn kill(&mut self, node: usize) {
        self.processes[node].kill().unwrap();
        self.processes[node].wait().unwrap();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Waits until somebody leads: what tells who does, and since when.
pub async fn lead(etcd: &Etcd, address: &str) -> (watch::Receiver<Leader>, i64) {
    let mut leader = etcd.campaign(address.to_owned());
    let here =
        tokio::time::timeout(Duration::from_secs(30), leader.wait_for(|leader| matches!(leader, Leader::Here(_))));
    let Leader::Here(revision) = here.await.expect("etcd answers").unwrap().clone() else { unreachable!() };
    (leader, revision)
}

/// Ports that nobody has now.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}
