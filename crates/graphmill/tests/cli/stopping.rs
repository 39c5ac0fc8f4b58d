//! Writers that are stopped before they are done.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Ended, Workplace};

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
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = Workplace::new();
        let ended = stop(&place, &format!("--quiet {LONG}"), signal);
        assert_eq!(ended.code, Some(code));
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", "interrupted; nothing was written\n"));
        assert_eq!(place.names(), [""; 0]);
    }
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
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_demo_interrupted_in_training_leaves_no_process_and_no_file() {
    let place = Workplace::new();
    // Its child is in its group, and does not hear of the demo's end by itself.
    std::fs::write(place.path("train.sh"), "sleep 600 & echo $! > writing; mv writing pid; wait").unwrap();
    let child = place.command("demo --nodes 1k --edges 10k -- sh train.sh").spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !place.path("pid").exists() {
        assert!(Instant::now() < deadline, "the training does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(143), "{ended:#?}");
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
    child.wait_with_output().unwrap().into()
}
