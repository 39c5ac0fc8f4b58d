//! Servers and ranks as processes of this machine, for the demo and the benchmarks. They end with this process, however it
//! ends: their standard input closes.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::Pid;

use crate::commands::rank::{Order, Pulled};

/// How long a server may take to listen, beside loading its partitions.
const LISTENING: Duration = Duration::from_secs(120);
/// How long all ranks may be silent.
const SILENCE: Duration = Duration::from_secs(90);
/// How long a process may take to end by itself.
const ENDING: Duration = Duration::from_secs(15);

/// A process of this binary.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    /// Open while it is wanted.
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
}

impl Process {
    pub(crate) fn start(name: &str, arguments: &[String]) -> anyhow::Result<Self> {
        let binary = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(binary);
        // A group of its own: Ctrl-C is for this process, which ends the others in good order.
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        if std::env::var_os("GRAPHMILL_LOG").is_none() {
            command.env("GRAPHMILL_LOG", "error");
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        Ok(Self { name: name.to_owned(), child, stdin, stdout })
    }

    /// What it prints, line by line; for one reader.
    pub(crate) fn lines(&mut self) -> impl Iterator<Item = std::io::Result<String>> + Send + use<> {
        let stdout = self.stdout.take();
        stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines())
    }

    /// Where it listens, when it does.
    pub(crate) fn address(&mut self) -> anyhow::Result<String> {
        Ok(self.addresses(1)?.remove(0))
    }

    /// So many of the places where it listens, when it does.
    pub(crate) fn addresses(&mut self, count: usize) -> anyhow::Result<Vec<String>> {
        let (sender, receiver) = mpsc::channel();
        let lines = self.lines();
        // Its later output is read and dropped, so that it never waits for a reader.
        std::thread::spawn(move || {
            for line in lines {
                let _ = sender.send(line);
            }
        });
        let address = |_| {
            let line = receiver.recv_timeout(LISTENING).ok().transpose()?;
            let address = line.as_deref().and_then(|line| line.strip_prefix("listening on "));
            Ok(address.with_context(|| format!("{} does not listen", self.name))?.to_owned())
        };
        (0..count).map(address).collect()
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end and waits; kills it if that takes too long.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        drop(self.stdin.take());
        self.wait()
    }

    /// Waits until it ends by itself; kills it if that takes too long.
    pub(crate) fn wait(mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + ENDING;
        loop {
            if let Some(status) = self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))? {
                anyhow::ensure!(status.success(), "{} ended with {status}", self.name);
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "{} did not end within {} s", self.name, ENDING.as_secs());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + ENDING;
        // One that is killed leaves its socket behind.
        while !matches!(self.child.try_wait(), Ok(Some(_))) {
            if Instant::now() > deadline {
                // It may end at this very moment.
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Servers of one dataset.
#[derive(Debug)]
pub(crate) struct Servers {
    processes: Vec<Process>,
    pub(crate) addresses: Vec<String>,
    /// Their sockets.
    _folder: Option<tempfile::TempDir>,
}

/// How servers are started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerOptions {
    pub(crate) servers: usize,
    pub(crate) mmap: bool,
    /// Threads that sample, per server; as many as it has by itself, if none are given.
    pub(crate) threads: Option<usize>,
}

impl Servers {
    /// Starts servers; partition `i` is with server `i mod servers`. Loading is not waited for twice: all start at once.
    pub(crate) fn start(dataset: &Path, parts: u32, options: ServerOptions) -> anyhow::Result<Self> {
        let count = options.servers;
        anyhow::ensure!(
            count >= 1 && count <= parts as usize,
            "{count} servers cannot share {parts} partitions; cut the dataset with `graphmill partition DIR --parts {count}`"
        );
        let folder =
            tempfile::Builder::new().prefix("graphmill-").tempdir().context("cannot make a temporary directory")?;
        let socket = |server: usize| format!("unix:{}", folder.path().join(format!("{server}.sock")).display());
        let mut processes = Vec::new();
        for server in 0..count {
            let partitions: Vec<String> =
                (0..parts).filter(|part| *part as usize % count == server).map(|part| part.to_string()).collect();
            let peers: Vec<String> = (0..count).filter(|other| *other != server).map(socket).collect();
            let mut arguments = vec!["serve".to_owned(), dataset.display().to_string(), "--quiet".to_owned()];
            let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
            flag("--partition", partitions.join(","));
            flag("--listen", "127.0.0.1:0".to_owned());
            if count > 1 {
                flag("--listen", socket(server));
                flag("--peers", peers.join(","));
            }
            if let Some(threads) = options.threads {
                flag("--threads", threads.to_string());
            }
            arguments.push("--until-stdin-closes".to_owned());
            if options.mmap {
                arguments.push("--mmap".to_owned());
            }
            processes.push(Process::start(&format!("server {server}"), &arguments)?);
        }
        let mut addresses = Vec::new();
        for process in &mut processes {
            addresses.push(process.address()?);
        }
        Ok(Self { processes, addresses, _folder: Some(folder) })
    }

    /// Servers that somebody else started, and will end.
    pub(crate) fn at(addresses: &[String]) -> Self {
        Self { processes: Vec::new(), addresses: addresses.to_vec(), _folder: None }
    }

    /// Ends all of them in good order, all at once.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.processes.iter_mut().for_each(|process| drop(process.stdin.take()));
        self.processes.into_iter().try_for_each(Process::end)
    }
}

/// Ranks that pull batches, and what they say.
#[derive(Debug)]
pub(crate) struct Ranks {
    processes: Vec<Process>,
    heard: mpsc::Receiver<(usize, anyhow::Result<Pulled>)>,
}

impl Ranks {
    pub(crate) fn start(orders: &[Order]) -> anyhow::Result<Self> {
        let (sender, heard) = mpsc::channel();
        let mut processes = Vec::new();
        for (rank, order) in orders.iter().enumerate() {
            let mut process =
                Process::start(&format!("rank {rank}"), &["rank".to_owned(), serde_json::to_string(order)?])?;
            let (lines, sender) = (process.lines(), sender.clone());
            std::thread::spawn(move || {
                for line in lines {
                    let told = line.map_err(anyhow::Error::from).and_then(|line| Ok(serde_json::from_str(&line)?));
                    if sender.send((rank, told)).is_err() {
                        return;
                    }
                }
            });
            processes.push(process);
        }
        Ok(Self { processes, heard })
    }

    /// The processes.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        self.processes.iter().map(|process| Pid::from_child(&process.child)).collect()
    }

    /// Hears what ranks say until all are done, and ends them. `hear` is called often, with nothing if nobody spoke.
    pub(crate) fn listen(
        self,
        mut hear: impl FnMut(Option<(usize, Pulled)>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut done = vec![false; self.processes.len()];
        let mut spoke = Instant::now();
        while !done.iter().all(|done| *done) {
            match self.heard.recv_timeout(Duration::from_millis(100)) {
                Ok((rank, told)) => {
                    let told = told.with_context(|| format!("rank {rank} said something strange"))?;
                    done[rank] = told.done;
                    spoke = Instant::now();
                    hear(Some((rank, told)))?;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => hear(None)?,
                // What a rank that failed had to say stands on stderr.
                Err(mpsc::RecvTimeoutError::Disconnected) => anyhow::bail!("a rank ended before it was done"),
            }
            anyhow::ensure!(spoke.elapsed() < SILENCE, "no rank spoke for {} s", SILENCE.as_secs());
        }
        // They still have to give their leases back.
        self.processes.into_iter().try_for_each(Process::wait)
    }
}
