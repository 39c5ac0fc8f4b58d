//! Disks that are full, or fail: a clear error, and never a torn dataset or a wrong batch.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Loader, Options, Remote, SeedList, Seeding, Transport};
use graphmill_graph::{Dataset, Split};
use graphmill_sample::Config;
use rustix::process::Signal;

use crate::servers::Served;
use crate::support::{Ended, Workplace, files_below, finish};

/// Runs commands of a shell in a mount namespace with a disk of a megabyte, `small`, which goes away with them. None where the
/// system does not let us.
fn on_a_small_disk(place: &Workplace, script: &str) -> Option<Ended> {
    std::fs::create_dir_all(place.path("small")).unwrap();
    let binary = env!("CARGO_BIN_EXE_graphmill");
    let script = format!(
        "mount -t tmpfs -o size=1m none small || exit 99\ngraphmill() {{ {binary} --quiet \"$@\"; }}\n{script}"
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).current_dir(place.path("."));
    let ended = command.output().ok().map(Ended::from).filter(|ended| ended.code != Some(99));
    if ended.is_none() {
        eprintln!("skipped: no file system can be mounted here");
    }
    ended
}

#[test]
fn a_full_disk_ends_every_writer_with_the_file_and_leaves_no_dataset() {
    let place = Workplace::new();
    place.succeed("generate uniform --nodes 20k --edges 60k --features 16 --out big");
    place.succeed("generate karate --out karate");
    let rows: Vec<String> = (0..60_000).map(|row| format!("{},{}\n", row % 20_000, (row * 7) % 20_000)).collect();
    let rows = rows.concat();
    place.write("edges.csv", &format!("src,dst\n{rows}"));
    place.write(
        "graph.toml",
        "[[edges]]\ntype = [\"node\", \"to\", \"node\"]\nfiles = \"edges.csv\"\nsrc = \"src\"\ndst = \"dst\"\n",
    );
    let writers = [
        ("generate uniform --nodes 20k --edges 60k --features 16", "g"),
        ("ingest graph.toml", "g"),
        ("partition big --parts 2", "g"),
        // What was there before stays as it was.
        ("partition big --parts 2 --force", "karate"),
    ];
    for (writer, out) in writers {
        let script = format!(
            "cp -r karate small/karate\n\
             graphmill {writer} --out small/{out} && exit 98\n\
             ls -A small\n\
             graphmill inspect small/karate --verify >/dev/null && echo whole"
        );
        let Some(ended) = on_a_small_disk(&place, &script) else { return };
        assert_eq!(ended.code, Some(0), "{writer}: {ended:#?}");
        assert_eq!(ended.stdout, "karate\nwhole\n", "{writer}: {ended:#?}");
        let message = ended.stderr.strip_prefix("error: ").unwrap_or_else(|| panic!("{writer}: {ended:#?}"));
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("small/") && message.contains("No space left on device"), "{writer}: {message}");
    }
}

#[test]
fn a_full_disk_under_the_cache_is_an_error_and_what_was_fetched_is_no_dataset() {
    let place = Workplace::new();
    place.succeed("generate uniform --nodes 20k --edges 60k --features 16 --out g");
    let url = format!("file://{}", place.path("g").display());
    let script = format!(
        "graphmill serve {url} --cache-dir small/cache --listen 127.0.0.1:0 && exit 98\nfind small -name manifest.json -o -name '.fetching*'"
    );
    let Some(ended) = on_a_small_disk(&place, &script) else { return };
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:#?}");
    assert!(ended.stderr.starts_with("error: cannot write small/cache/"), "{ended:#?}");
    assert!(ended.stderr.contains("No space left on device"), "{ended:#?}");
}

#[test]
fn a_log_that_cannot_be_written_is_lost_and_the_server_goes_on() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    for log in ["text", "json"] {
        let mut command = place.command(&format!("serve g --mmap --listen 127.0.0.1:0 --log {log}"));
        command.env("GRAPHMILL_LOG", "trace").stderr(File::options().write(true).open("/dev/full").unwrap());
        let mut child = command.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address = first.trim_end().strip_prefix("listening on ").unwrap();
        let remote = Remote::connect(&[address.parse().unwrap()], ConnectOptions::default()).unwrap();
        let options = Options { batch_size: 4, ..Options::default() };
        let loader = Loader::remote(&remote, Config::neighbors(&[2]), Seeding::All, options).unwrap();
        assert_eq!(loader.epoch(0).map(Result::unwrap).count(), 9);
        drop((loader, remote));
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    // A result that cannot be written is an error.
    let mut command = place.command("inspect g");
    let ended = Ended::from(command.stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap());
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("cannot write to stdout: No space left on device"), "{ended:#?}");
}

#[test]
fn a_log_that_nobody_reads_holds_up_no_batch_and_tells_how_much_is_missing() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    for log in ["text", "json"] {
        let mut command = place.command(&format!("serve g --mmap --listen 127.0.0.1:0 --log {log}"));
        let mut child = command.env("GRAPHMILL_LOG", "trace").stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address = first.trim_end().strip_prefix("listening on ").unwrap();
        let remote = Remote::connect(&[address.parse().unwrap()], ConnectOptions::default()).unwrap();
        let options = Options { batch_size: 1, ..Options::default() };
        let loader = Loader::remote(&remote, Config::neighbors(&[2]), Seeding::All, options).unwrap();
        // Several times what a pipe and the server's own queue hold.
        for epoch in 0..200 {
            assert_eq!(loader.epoch(epoch).map(Result::unwrap).count(), 34);
        }
        if log == "json" {
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
            assert!(lines.any(|line| line.contains("lines of the log are missing here")));
            assert_ne!(lines.by_ref().take(10).count(), 0, "what is logged after that is there");
        }
        drop((loader, remote));
        // It ends though nobody reads.
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_server_does_not_start_on_a_dataset_with_a_flipped_bit() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    let array = files_below(&place.path("g")).into_iter().find(|file| file.ends_with("in.neighbors.u32")).unwrap();
    let mut bytes = std::fs::read(&array).unwrap();
    bytes[40] ^= 4;
    std::fs::write(&array, bytes).unwrap();
    let refused = place.fail("serve g --listen 127.0.0.1:0");
    assert!(refused.contains("in.neighbors.u32 is corrupted: expected checksum"), "{refused}");
}

#[test]
fn a_file_cut_short_under_a_mapped_server_ends_it_with_a_message_and_costs_no_batch() {
    let place = Workplace::new();
    place.succeed("generate sbm --nodes 6k --edges 30k --features 64 --classes 4 --out g");
    place.succeed("generate sbm --nodes 6k --edges 30k --features 64 --classes 4 --out same");
    let serving = "--quiet serve g --mmap --listen 127.0.0.1:0 --threads 2";
    let mut failing = place.command(serving).env("GRAPHMILL_LOG", "error").stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(failing.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let address = first.trim_end().strip_prefix("listening on ").unwrap().to_owned();
    let (other, other_address) = Served::start(&place, "same --mmap --listen 127.0.0.1:0");

    let options =
        ConnectOptions { transport: Transport::Socket, deadline: Duration::from_secs(20), ..ConnectOptions::default() };
    let remote = Remote::connect(&[address.parse().unwrap(), other_address.parse().unwrap()], options).unwrap();
    let config = Config { features: vec!["x".to_owned()], labels: true, ..Config::neighbors(&[5, 3]) };
    let loading = Options { batch_size: 64, shuffle: true, ..Options::default() };
    let loader = Loader::remote(&remote, config.clone(), Seeding::Split(Split::Train), loading.clone()).unwrap();
    let mut batches = loader.epoch(0);
    let mut found: Vec<_> = batches.by_ref().take(3).map(Result::unwrap).collect();
    let array = files_below(&place.path("g"))
        .into_iter()
        .filter(|file| file.to_string_lossy().contains("/nodes/"))
        .max_by_key(|file| file.metadata().unwrap().len())
        .unwrap();
    File::options().write(true).open(&array).unwrap().set_len(0).unwrap();
    found.extend(batches.map(Result::unwrap));

    let dataset = Dataset::open(place.path("same")).unwrap();
    let seeds = SeedList::split(&dataset, None, Split::Train).unwrap();
    let expected = Loader::new(&dataset, config, seeds, loading).unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected.epoch(0)) {
        assert_eq!(found.bytes(), expected.unwrap().bytes());
    }
    let began = Instant::now();
    while failing.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = finish(failing);
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let name = array.file_name().unwrap().to_str().unwrap();
    assert!(ended.stderr.contains("error: cannot read g/") && ended.stderr.contains(name), "{ended:#?}");
    assert!(ended.stderr.contains("the file was cut short, or its disk fails"), "{ended:#?}");
    let refused = place.fail("serve g --mmap --listen 127.0.0.1:0");
    assert!(refused.contains("is truncated or overlong"), "{refused}");
    drop((found, loader, remote));
    assert_eq!(other.stop(Signal::TERM), Some(0));
}
