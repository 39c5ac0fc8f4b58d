//! Servers and coordinators as processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::Workplace;

/// A server of some partitions, and what it prints.
pub(crate) struct Served {
    pub(crate) child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Served {
    /// Starts a server; with its address if `listen` left the port open.
    pub(crate) fn start(place: &Workplace, line: &str) -> (Self, String) {
        let mut child = place
            .command(&format!("--quiet serve {line}"))
            .env("GRAPHMILL_LOG", "error")
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("a server says where it listens").unwrap();
        let address = first.strip_prefix("listening on ").unwrap().to_owned();
        (Self { child, lines }, address)
    }

    /// Asks it to stop and gives its exit code.
    pub(crate) fn stop(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.lines.by_ref().for_each(drop);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Most have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A coordinator.
pub(crate) struct Coordinator(pub(crate) Child);

impl Coordinator {
    pub(crate) fn start(place: &Workplace, line: &str) -> (Self, String) {
        Self::spawn(place.command(&format!("--quiet rendezvous serve {line}")))
    }

    pub(crate) fn spawn(mut command: Command) -> (Self, String) {
        let mut child = command.env("GRAPHMILL_LOG", "error").stderr(Stdio::inherit()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("a coordinator says where it listens").unwrap();
        (Self(child), first.strip_prefix("listening on ").unwrap().to_owned())
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Servers with the four partitions of a dataset between them, over Unix sockets among each other.
pub(crate) fn cluster(place: &Workplace, dataset: &str, servers: usize) -> (Vec<Served>, Vec<String>) {
    let socket = |server: usize| format!("unix:{}", place.path(&format!("{server}.sock")).display());
    let start = |server: usize| {
        let parts: Vec<String> = (0..4).filter(|part| part % servers == server).map(|part| part.to_string()).collect();
        let peers: Vec<String> = (0..servers).filter(|other| *other != server).map(socket).collect();
        let among = format!("--listen {} --peers {}", socket(server), peers.join(","));
        let among = if servers > 1 { among } else { String::new() };
        let parts = parts.join(",");
        Served::start(place, &format!("{dataset} --mmap --threads 1 --listen 127.0.0.1:0 --partition {parts} {among}"))
    };
    (0..servers).map(start).unzip()
}
