//! Datasets written by released versions stay readable. See `fixtures/README.md`.

use std::path::{Path, PathBuf};

use graphmill_graph::{Dataset, Direction, OpenOptions, Storage};
use graphmill_testing::{Assignment, ModelGraph, files, read, sample, tempdir, write};

/// The fingerprint of the graph in the fixtures of version 1.
const FINGERPRINT: &str = "2886c6d12010595f188b1f7026d0160e";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

/// The fixtures by name: how the sample was laid out.
fn recipes(graph: &ModelGraph) -> [(&'static str, Vec<Direction>, Assignment); 2] {
    [
        ("whole", vec![Direction::In], Assignment::whole(graph)),
        ("assigned", vec![Direction::Out, Direction::In], Assignment::assigned(graph, 2, |_, id| (id % 2) as u16)),
    ]
}

#[test]
fn version_1_is_read() {
    for name in ["whole", "assigned"] {
        let path = fixtures().join(name);
        for storage in [Storage::Mmap, Storage::Ram] {
            let dataset = Dataset::open_with(&path, &OpenOptions { storage, partitions: None }).unwrap();
            assert_eq!(dataset.fingerprint().to_string(), FINGERPRINT);
            assert_eq!(read(&dataset).unwrap(), sample());
        }
        let verified = Dataset::verify(&path, |_| {}).unwrap();
        assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    }
}

#[test]
fn version_1_is_written_byte_for_byte() {
    let folder = tempdir();
    for (name, layouts, assignment) in recipes(&sample()) {
        let (written, fixture) = (folder.path().join(name), fixtures().join(name));
        write(&sample(), &written, &layouts, &assignment).unwrap();
        let relative = |root: &Path| -> Vec<PathBuf> {
            files(root).iter().map(|file| file.strip_prefix(root).unwrap().to_owned()).collect()
        };
        assert_eq!(relative(&written), relative(&fixture));
        for file in relative(&written).iter().filter(|file| !file.ends_with("manifest.json")) {
            let [found, expected] = [&written, &fixture].map(|root| std::fs::read(root.join(file)).unwrap());
            assert_eq!(found, expected, "{}", file.display());
        }
    }
}

#[test]
#[ignore = "writes the fixtures of the current version; see fixtures/README.md"]
fn write_the_fixtures() {
    for (name, layouts, assignment) in recipes(&sample()) {
        let manifest = write(&sample(), &fixtures().join(name), &layouts, &assignment).unwrap();
        println!("{name}: {}", manifest.fingerprint);
    }
}
