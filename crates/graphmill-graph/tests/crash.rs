//! A writer that fails or is killed leaves no half dataset and, after the next one, nothing at all.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use graphmill_graph::random::Stream;
use graphmill_graph::{
    Dataset, DatasetWriter, Direction, Error, MANIFEST_FILE, Manifest, NodeTypeInfo, Place, Replace,
};
use graphmill_testing::{Assignment, fingerprint, sample, write, write_with};
use tempfile::tempdir;

fn write_sample(target: &Path, replace: Replace) -> graphmill_graph::Result<Manifest> {
    let graph = sample();
    write_with(DatasetWriter::create(target, replace)?, &graph, &[Direction::In], &Assignment::ranges(&graph, 2))
}

fn begin_array(writer: &DatasetWriter) {
    let mut array = writer.array(Place::Part(0), "nodes/paper/timestamp.i64").unwrap();
    array.write(&[7; 80]).unwrap();
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let folder = tempdir().unwrap();
    let writer = DatasetWriter::create(&folder.path().join("dataset"), Replace::No).unwrap();
    begin_array(&writer);
    let mut placed = writer.placed_array(Place::Part(0), "nodes/paper/feature.x.f32", 1 << 12).unwrap();
    placed.bytes_mut().fill(1);
    placed.finish().unwrap();
    fs::write(writer.scratch().unwrap().join("notes"), "much").unwrap();
    assert_eq!(names_in(folder.path()).len(), 1);
    drop(writer);
    assert_eq!(names_in(folder.path()), [""; 0]);
}

#[test]
fn a_finished_writer_leaves_a_dataset_and_nothing_else() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("dataset");
    write_sample(&target, Replace::No).unwrap();
    assert_eq!(names_in(folder.path()), ["dataset"]);
    assert_eq!(names_in(&target), ["book", "manifest.json", "part-00000", "part-00001"]);
}

/// Not a test: what the tests below run in a process of their own, to kill it.
#[test]
#[ignore = "runs for ever; the other tests start and kill it"]
fn write_until_killed() {
    let target = PathBuf::from(std::env::var_os("GRAPHMILL_TEST_TARGET").expect("the target to write"));
    if std::env::var_os("GRAPHMILL_TEST_STOP").is_some() {
        let writer = DatasetWriter::create(&target, Replace::No).unwrap();
        begin_array(&writer);
        println!("\nready");
        std::thread::sleep(Duration::from_secs(600));
    }
    println!("\nready");
    loop {
        write_sample(&target, Replace::Yes).unwrap();
    }
}

/// Starts a writer in a process of its own and waits until it writes.
fn start_writer(target: &Path, stop_midway: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "write_until_killed", "--ignored", "--nocapture"]).env("GRAPHMILL_TEST_TARGET", target);
    if stop_midway {
        command.env("GRAPHMILL_TEST_STOP", "1");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "the writer did not start");
    child
}

fn kill(mut writer: Child) {
    writer.kill().unwrap();
    writer.wait().unwrap();
}

#[test]
fn the_next_writer_removes_what_a_killed_one_left() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("dataset");
    let dying = start_writer(&target, true);
    let left = names_in(folder.path());
    assert!(left.len() == 1 && left[0].starts_with(".dataset.writing-"), "{left:?}");

    let other = folder.path().join("other");
    drop(DatasetWriter::create(&target, Replace::No).unwrap());
    assert_eq!(names_in(folder.path()), left, "a living writer's directory was touched");
    kill(dying);
    assert_eq!(names_in(folder.path()), left);
    write_sample(&other, Replace::No).unwrap();
    assert_eq!(names_in(folder.path()).len(), 2, "the writer of another target removed it");
    write_sample(&target, Replace::No).unwrap();
    assert_eq!(names_in(folder.path()), ["dataset", "other"]);
}

#[test]
fn a_dataset_is_whole_whenever_its_writer_is_killed() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("dataset");
    let random = Stream::new(7, &[]);
    for trial in 0..12 {
        let writer = start_writer(&target, false);
        std::thread::sleep(Duration::from_micros(random.below(trial, 40_000)));
        kill(writer);
        if target.exists() {
            let verified = Dataset::verify(&target, |_| {}).unwrap();
            assert!(verified.problems.is_empty(), "{:?}", verified.problems);
            assert_eq!(Manifest::read(&target).unwrap().fingerprint, fingerprint(&sample()));
        }
    }
    write_sample(&target, Replace::Yes).unwrap();
    // A kill between making a directory and its lock leaves an empty one, which a writer about to lock it may own.
    let left: Vec<_> = names_in(folder.path()).into_iter().filter(|name| name != "dataset").collect();
    assert!(left.iter().all(|name| names_in(&folder.path().join(name)).is_empty()), "{left:?}");
}

#[test]
fn writers_of_the_same_target_do_not_hinder_each_other() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("dataset");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let writer = DatasetWriter::create(&target, Replace::No).unwrap();
                    begin_array(&writer);
                }
            });
        }
    });
    assert_eq!(names_in(folder.path()), [""; 0]);

    let first = DatasetWriter::create(&target, Replace::No).unwrap();
    let second = DatasetWriter::create(&target, Replace::No).unwrap();
    let graph = sample();
    write_with(second, &graph, &[Direction::In], &Assignment::whole(&graph)).unwrap();
    let late = write_with(first, &graph, &[Direction::In], &Assignment::whole(&graph));
    assert!(matches!(late, Err(Error::Exists { .. })), "{late:?}");
    assert_eq!(names_in(folder.path()), ["dataset"]);
}

#[test]
fn whatever_exists_is_not_overwritten_unless_asked() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("dataset");
    for make in [|path: &Path| fs::write(path, "a file"), |path: &Path| fs::create_dir(path)] {
        make(&target).unwrap();
        assert!(matches!(write_sample(&target, Replace::No), Err(Error::Exists { .. })));
        assert_eq!(names_in(folder.path()), ["dataset"]);
        let _ = fs::remove_file(&target).or_else(|_| fs::remove_dir(&target));
    }
}

#[test]
fn replacing_swaps_one_dataset_for_another() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("dataset");
    let mut graph = sample();
    graph.nodes.get_mut("paper").unwrap().timestamps = None;
    let old = write(&graph, &target, &[Direction::Out], &Assignment::whole(&graph)).unwrap();
    let reader = Dataset::open(&target).unwrap();
    let new = write_sample(&target, Replace::Yes).unwrap();
    assert_ne!(old.fingerprint, new.fingerprint);
    assert_eq!(Dataset::open(&target).unwrap().compute_fingerprint().unwrap(), new.fingerprint);
    assert_eq!(names_in(folder.path()), ["dataset"]);
    assert_eq!(reader.compute_fingerprint().unwrap(), old.fingerprint, "a reader lost what it had mapped");
}

#[test]
fn replacing_works_on_a_broken_dataset_and_where_nothing_is() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("deep").join("dataset");
    write_sample(&target, Replace::Yes).unwrap();
    let manifest = target.join(MANIFEST_FILE);
    let half = fs::read(&manifest).unwrap();
    fs::write(&manifest, &half[..half.len() / 2]).unwrap();
    write_sample(&target, Replace::Yes).unwrap();
    assert!(Dataset::verify(&target, |_| {}).unwrap().problems.is_empty());
}

#[test]
fn what_is_not_a_dataset_is_never_replaced() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("homework");
    let refuse = |expected: &str| {
        let text = write_sample(&target, Replace::Yes).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
        assert_eq!(names_in(folder.path()), ["homework"]);
    };
    fs::write(&target, "a file").unwrap();
    refuse("is not a dataset");
    assert_eq!(fs::read_to_string(&target).unwrap(), "a file");
    fs::remove_file(&target).unwrap();

    fs::create_dir(&target).unwrap();
    fs::write(target.join("essay.txt"), "precious").unwrap();
    refuse("is not a dataset");
    fs::write(target.join(MANIFEST_FILE), "{\"name\": \"some web page\"}").unwrap();
    refuse("expected format `graphmill-dataset`");
    assert_eq!(fs::read_to_string(target.join("essay.txt")).unwrap(), "precious");
    assert_eq!(names_in(&target), ["essay.txt", "manifest.json"]);
}

#[test]
fn arrays_that_do_not_fit_the_manifest_are_not_published() {
    let folder = tempdir().unwrap();
    let target = folder.path().join("dataset");
    let finish = |arrays: &[(Place, &str, usize)]| {
        let writer = DatasetWriter::create(&target, Replace::No).unwrap();
        for &(place, path, bytes) in arrays {
            let mut array = writer.array(place, path).unwrap();
            array.write(&vec![0; bytes]).unwrap();
            array.finish().unwrap();
        }
        let mut info = NodeTypeInfo::new("paper", 3);
        info.timestamps = true;
        let manifest = Manifest::new(true, Direction::In, vec![info], vec![]);
        let error = writer.finish(manifest).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert_eq!(names_in(folder.path()), [""; 0]);
        error.to_string()
    };
    let timestamps = (Place::Part(0), "nodes/paper/timestamp.i64", 24);
    let text = finish(&[]);
    assert!(text.contains("part-00000/nodes/paper/timestamp.i64 is missing"), "{text}");
    let text = finish(&[(timestamps.0, timestamps.1, 16)]);
    assert!(text.contains("nodes/paper/timestamp.i64: expected 24 bytes, found 16"), "{text}");
    let text = finish(&[timestamps, (Place::Part(0), "nodes/paper/label.i64", 24)]);
    assert!(text.contains("part-00000 has 2 arrays, expected 1"), "{text}");
    let text = finish(&[timestamps, (Place::Book, "nodes/paper/owner.u8", 3)]);
    assert!(text.contains("book has 1 arrays, expected 0"), "{text}");
    let text = finish(&[timestamps, (Place::Part(1), timestamps.1, 24)]);
    assert!(text.contains("is in partition 1, which is not declared"), "{text}");
}
