//! Writers that are stopped before they are done.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::support::{Ended, Workplace, finish};

/// Long enough that no machine finishes it before the signal arrives.
const LONG: &str = "generate rmat --nodes 2M --edges 40M --features 64 --out g";

#[test]
fn a_killed_writer_leaves_no_dataset_and_the_next_one_cleans_up() {
    let place = Workplace::new();
    let mut child = place.start_writing(LONG);
    child.kill().unwrap();
    child.wait().unwrap();
    let [left] = &place.names()[..] else { panic!("{:?}", place.names()) };
    assert!(left.starts_with(".g.writing-"), "{left}");
    assert!(place.fail("inspect g").contains("cannot open g"));

    place.succeed("generate karate --out g");
    assert_eq!(place.names(), ["g"]);
    place.succeed("inspect g --verify");
}

#[test]
fn an_interrupted_writer_leaves_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let place = Workplace::new();
        let ended = stop(&place, &format!("--quiet {LONG}"), signal);
        assert_eq!(ended.code, Some(code));
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", "interrupted; nothing was written\n"));
        assert_eq!(place.names(), [""; 0]);
    }
}

#[test]
fn a_terminal_that_closes_ends_no_writer_that_was_told_to_ignore_it() {
    let place = Workplace::new();
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$0\" --quiet generate rmat --nodes 200k --edges 2M --features 16 --out g"]);
    command
        .arg(env!("CARGO_BIN_EXE_graphmill"))
        .current_dir(place.path("."))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !place.names().iter().any(|name| name.contains(".writing-")) {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "it does not begin to write");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(place.names(), ["g"]);
}

#[test]
fn an_interrupted_replacement_leaves_the_old_dataset() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    let ended = stop(&place, &format!("{LONG} --force"), Signal::INT);
    assert_eq!(ended.code, Some(130));
    assert_eq!(place.names(), ["g"]);
    assert_eq!(place.inspect("g")["num_nodes"], 34);
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let place = Workplace::new();
    let child = place.command("demo --nodes 2M --edges 40M").spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while place.names().is_empty() {
        assert!(Instant::now() < deadline, "the demo does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = finish(child);
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_demo_interrupted_in_training_leaves_no_process_and_no_file() {
    interrupt_training(Signal::TERM, 143, kill_process);
    // A terminal that closes tells the servers too, all at once and more than once.
    interrupt_training(Signal::HUP, 129, |group, signal| {
        kill_process_group(group, signal)?;
        kill_process_group(group, signal)
    });
}

fn interrupt_training(signal: Signal, code: i32, send: impl Fn(Pid, Signal) -> rustix::io::Result<()>) {
    let place = Workplace::new();
    // Its child is in its group, and does not hear of the demo's end by itself.
    std::fs::write(place.path("train.sh"), "sleep 600 & echo $! > writing; mv writing pid; wait").unwrap();
    let child = place.command("demo --nodes 1k --edges 10k -- sh train.sh").process_group(0).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !place.path("pid").exists() {
        assert!(Instant::now() < deadline, "the training does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    send(Pid::from_child(&child), signal).unwrap();
    let ended = finish(child);
    assert_eq!(ended.code, Some(code), "{ended:#?}");
    assert_eq!(place.names(), ["pid", "train.sh"]);
    let sleeping = std::fs::read_to_string(place.path("pid")).unwrap();
    let alive =
        || std::fs::read_to_string(format!("/proc/{}/cmdline", sleeping.trim())).is_ok_and(|line| !line.is_empty());
    while alive() {
        assert!(Instant::now() < deadline, "the training's child is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn stop(place: &Workplace, line: &str, signal: Signal) -> Ended {
    let child = place.start_writing(line);
    kill_process(Pid::from_child(&child), signal).unwrap();
    finish(child)
}
