//! `graphmill serve URL`: a dataset that is fetched, checked and served.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Loader, Options, Remote, Seeding};
use graphmill_sample::Config;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Ended, Workplace, files_below, finish};

const LISTEN: &str = "--listen 127.0.0.1:0";

/// Starts a server and waits until it listens; gives its address.
fn serve(place: &Workplace, line: &str) -> (Child, String) {
    let mut child = place.command(&format!("--quiet {line} {LISTEN}")).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let Some(address) = first.trim_end().strip_prefix("listening on ") else {
        panic!("{:#?}", finish(child));
    };
    (child, address.to_owned())
}

fn stop(child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = finish(child);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

/// A dataset of two partitions, and its URL.
fn two_parts(place: &Workplace) -> String {
    place.succeed("generate karate --out whole");
    place.succeed("partition whole --parts 2 --out g");
    format!("file://{}", place.path("g").display())
}

#[test]
fn a_dataset_from_a_url_is_served() {
    let place = Workplace::new();
    let url = two_parts(&place);
    let (child, address) = serve(&place, &format!("serve {url} --cache-dir cache"));

    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /healthz HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");

    let remote = Remote::connect(&[address.parse().unwrap()], ConnectOptions::default()).unwrap();
    let options = Options { batch_size: 34, ..Options::default() };
    let loader = Loader::remote(&remote, Config::default(), Seeding::All, options).unwrap();
    let batches: Vec<_> = loader.epoch(0).collect::<Result<_, _>>().unwrap();
    assert_eq!(batches.len(), 1);
    drop((batches, loader, remote));
    stop(child);

    // Served from where it was put; the source is only asked what it has.
    let fetched = files_below(&place.path("cache"));
    assert_eq!(fetched.len(), files_below(&place.path("g")).len());
    let modified = |path: &std::path::PathBuf| path.metadata().unwrap().modified().unwrap();
    let times: Vec<_> = fetched.iter().map(modified).collect();
    let (child, _) = serve(&place, &format!("serve {url} --cache-dir cache --partition 1"));
    stop(child);
    assert_eq!(files_below(&place.path("cache")).iter().map(modified).collect::<Vec<_>>(), times);
}

#[test]
fn only_the_partitions_that_are_served_are_fetched() {
    let place = Workplace::new();
    let url = two_parts(&place);
    for mmap in ["", "--mmap"] {
        let (child, _) = serve(&place, &format!("serve {url} --cache-dir cache --partition 1 {mmap}"));
        stop(child);
    }
    let fetched = files_below(&place.path("cache"));
    assert!(fetched.iter().any(|path| path.to_string_lossy().contains("/part-00001/")));
    assert!(!fetched.iter().any(|path| path.to_string_lossy().contains("/part-00000/")));

    let message = place.fail(&format!("serve {url} --cache-dir other --partition 0,2 {LISTEN}"));
    assert_eq!(message, "there is no partition `2`; there are: 0 to 1");
    assert!(!place.path("other").exists());
}

#[test]
fn without_a_flag_the_users_cache_is_used() {
    let place = Workplace::new();
    let url = two_parts(&place);
    let line = format!("serve {url} {LISTEN} --until-stdin-closes");
    // Standard input is closed from the start, so it ends as soon as it is ready.
    let run = |set: &str, folder: &str| {
        let mut command = place.command(&line);
        command.env_remove("GRAPHMILL_CACHE_DIR").env_remove("XDG_CACHE_HOME").env("HOME", place.path("home"));
        let ended = Ended::from(command.env(set, place.path(folder)).output().unwrap());
        assert_eq!(ended.code, Some(0), "{ended:#?}");
    };
    run("HOME", "home");
    assert_eq!(place.path("home/.cache/graphmill").read_dir().unwrap().count(), 1);
    run("XDG_CACHE_HOME", "xdg");
    assert_eq!(place.path("xdg/graphmill").read_dir().unwrap().count(), 1);
    run("GRAPHMILL_CACHE_DIR", "told");
    assert_eq!(place.path("told").read_dir().unwrap().count(), 1);
}

#[test]
fn a_disk_that_is_full_is_an_error_with_the_file() {
    let place = Workplace::new();
    place.succeed("generate rmat --nodes 2K --edges 4K --features 16 --out g");
    // A limit on the size of files stands for a full disk: the write fails in the same way.
    let serve = format!(
        "{} --quiet serve file://{} --cache-dir cache",
        env!("CARGO_BIN_EXE_graphmill"),
        place.path("g").display()
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("trap '' XFSZ; ulimit -f 64; exec {serve} {LISTEN}")]);
    let ended = Ended::from(command.current_dir(place.path(".")).output().unwrap());
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.stderr.starts_with("error: cannot write cache/"), "{ended:#?}");
    assert!(ended.stderr.contains("/part-00000/nodes/"), "{ended:#?}");
    let left = files_below(&place.path("cache"));
    assert!(
        left.iter().all(|path| !path.ends_with("manifest.json") && !path.to_string_lossy().contains(".fetching")),
        "{left:?}"
    );
    stop(self::serve(&place, &format!("serve file://{} --cache-dir cache", place.path("g").display())).0);
}

#[test]
fn a_fetch_that_is_interrupted_says_that_it_can_go_on() {
    let place = Workplace::new();
    // A server that accepts and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/g", listener.local_addr().unwrap());
    let child = place.command(&format!("--quiet serve {url} --cache-dir cache {LISTEN}")).spawn().unwrap();
    let accepted = listener.accept().unwrap();
    let asked = Instant::now();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = finish(child);
    assert!(asked.elapsed() < Duration::from_secs(10));
    assert_eq!(ended.code, Some(143), "{ended:#?}");
    assert_eq!(ended.stderr, "interrupted; what was fetched is kept, and the same command goes on from there\n");
    drop(accepted);
}
