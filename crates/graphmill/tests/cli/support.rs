//! Running the binary in a directory of its own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use graphmill_testing::reset_signals;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long a command may run.
const EXIT_TIMEOUT: Duration = Duration::from_secs(180);

/// A directory that goes away, to run commands in.
pub(crate) struct Workplace(TempDir);

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Workplace {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file that nobody else can read, as secrets must be.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(0o600)).unwrap();
    }

    /// A command line such as `inspect g --json`; its words contain no blanks.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graphmill"));
        command.args(line.split_whitespace()).current_dir(self.0.path()).env("TMPDIR", self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        reset_signals(&mut command);
        command
    }

    pub(crate) fn run(&self, line: &str) -> Ended {
        finish(self.command(line).spawn().unwrap())
    }

    /// Runs a command that must succeed and gives its stdout.
    pub(crate) fn succeed(&self, line: &str) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "`{line}` ended with {ended:#?}");
        ended.stdout
    }

    /// Runs a command that must fail with exit code 1 and one `error:` line, and gives that line.
    pub(crate) fn fail(&self, line: &str) -> String {
        let ended = self.run(&format!("--quiet {line}"));
        assert_eq!(ended.code, Some(1), "`{line}` ended with {ended:#?}");
        assert_eq!(ended.stdout, "", "`{line}` failed and still printed a result");
        let message = ended.stderr.strip_prefix("error: ").unwrap_or_else(|| panic!("{ended:#?}"));
        assert_eq!(message.lines().count(), 1, "{message}");
        message.trim_end().to_owned()
    }

    pub(crate) fn inspect(&self, dataset: &str) -> Value {
        serde_json::from_str(&self.succeed(&format!("inspect {dataset} --json"))).unwrap()
    }

    /// Everything in the directory, hidden or not, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = self.0.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Starts a command that writes and waits until it does.
    pub(crate) fn start_writing(&self, line: &str) -> Child {
        let mut child = self.command(line).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.names().iter().any(|name| name.contains(".writing-") && self.path(name).join("lock").exists()) {
            assert!(child.try_wait().unwrap().is_none(), "`{line}` ended before it wrote");
            assert!(Instant::now() < deadline, "`{line}` does not begin to write");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Waits for a child and kills it after [`EXIT_TIMEOUT`].
pub(crate) fn finish(child: Child) -> Ended {
    let process = Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    if let Ok(output) = receiver.recv_timeout(EXIT_TIMEOUT) {
        return output.unwrap().into();
    }
    let _ = kill_process(process, Signal::KILL);
    panic!("the process did not exit within {EXIT_TIMEOUT:?}");
}

/// All files below a folder.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect();
    files.sort();
    files
}
