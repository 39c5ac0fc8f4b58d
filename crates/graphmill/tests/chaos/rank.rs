//! Ranks as processes: they tell each batch that they were handed, with where their loader then stands.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::good_day::{Digest, config};
use crate::support::Workplace;

/// What a rank pulls.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) servers: Vec<String>,
    /// `tcp`, `uds` or `shm`.
    pub(crate) transport: &'static str,
    pub(crate) batch_size: usize,
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    /// Epochs to pull; else it pulls for ever.
    pub(crate) epochs: Option<u64>,
    /// Where to go on.
    pub(crate) state: Option<Value>,
}

impl Order {
    /// The train split of `g4` for one rank, one epoch after the other.
    pub(crate) fn new(servers: &[String], transport: &'static str, batch_size: usize) -> Self {
        let servers = servers.to_vec();
        Self { servers, transport, batch_size, rank: 0, world_size: 1, epochs: None, state: None }
    }

    fn json(&self) -> Value {
        let Self { servers, transport, batch_size, rank, world_size, epochs, state } = self;
        let loader = json!({
            "config": config(), "seeds": {"split": "train"}, "batch_size": batch_size, "prefetch": 4, "shuffle": true,
            "state": state,
        });
        json!({
            "servers": servers, "transport": transport, "rank": rank, "world_size": world_size, "epochs": epochs,
            "seconds": null, "each": true, "loaders": [loader],
        })
    }
}

/// A batch that a rank was handed.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Told {
    pub(crate) epoch: u64,
    g: u64,
    /// Whether it only fills up the last round.
    pub(crate) repeated: bool,
    digest: u64,
    /// Where the loader stands with it.
    pub(crate) state: Value,
}

impl Told {
    pub(crate) fn digest(&self) -> Digest {
        (self.g, self.digest)
    }
}

/// A rank, which ends with this.
pub(crate) struct Rank {
    pub(crate) child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Open, or the rank would end.
    _stdin: Option<ChildStdin>,
}

impl Rank {
    pub(crate) fn start(place: &Workplace, order: &Order) -> Self {
        let mut command = place.command("rank");
        command.arg(order.json().to_string()).stdin(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.env("GRAPHMILL_LOG", "error").spawn().unwrap();
        let (lines, stdin) = (BufReader::new(child.stdout.take().unwrap()).lines(), child.stdin.take());
        Self { child, lines, _stdin: stdin }
    }

    /// The next batch that it tells of; none when it has ended.
    pub(crate) fn next(&mut self) -> Option<Told> {
        self.lines.by_ref().map_while(Result::ok).find_map(|line| serde_json::from_str(&line).ok())
    }

    /// Kills it, and gives what it still had to tell.
    pub(crate) fn kill(mut self) -> Vec<Told> {
        self.child.kill().unwrap();
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Everything that it tells until it ends, in good order.
    pub(crate) fn finish(mut self) -> Vec<Told> {
        let told = std::iter::from_fn(|| self.next()).collect();
        assert!(self.child.wait().unwrap().success());
        told
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // Most have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
