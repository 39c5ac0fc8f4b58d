//! What is written is what is read, however it is stored and opened.

use std::sync::atomic::{AtomicU64, Ordering};

use graphmill_graph::{Dataset, DatasetWriter, Direction, OpenOptions, Place, Replace, Storage};
use graphmill_testing::{
    Assignment, files, fingerprint, graphs, layouts, placed_graphs, read, sample, tempdir, touch_everything, write,
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_dataset_holds_what_was_written((graph, layouts, assignment) in placed_graphs()) {
        let folder = tempdir();
        let path = folder.path().join("dataset");
        let manifest = write(&graph, &path, &layouts, &assignment)?;
        prop_assert_eq!(manifest.fingerprint, fingerprint(&graph));
        for storage in [Storage::Mmap, Storage::Ram] {
            let dataset = Dataset::open_with(&path, &OpenOptions { storage, partitions: None })?;
            prop_assert_eq!(&read(&dataset)?, &graph);
            prop_assert_eq!(dataset.fingerprint(), manifest.fingerprint);
            touch_everything(&dataset);
        }
        let verified = Dataset::verify(&path, |_| {})?;
        prop_assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    }

    #[test]
    fn the_same_content_is_the_same_bytes(graph in graphs(), layouts in layouts()) {
        let folder = tempdir();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        write(&graph, &first, &layouts, &Assignment::whole(&graph))?;
        write(&graph, &second, &layouts, &Assignment::whole(&graph))?;
        let (one, two) = (files(&first), files(&second));
        prop_assert_eq!(one.len(), two.len());
        for (one, two) in one.iter().zip(&two) {
            prop_assert_eq!(std::fs::read(one)?, std::fs::read(two)?);
        }
    }
}

#[test]
fn verify_reads_every_byte_of_every_array() {
    let folder = tempdir();
    let path = folder.path().join("dataset");
    let manifest = write(&sample(), &path, &[Direction::In], &Assignment::ranges(&sample(), 2)).unwrap();
    let told = AtomicU64::new(0);
    let tell = |bytes| {
        told.fetch_add(bytes, Ordering::Relaxed);
    };
    let verified = Dataset::verify(&path, tell).unwrap();
    assert_eq!(verified.bytes, manifest.bytes_of(|_| true) + manifest.book_bytes());
    assert_eq!(told.into_inner(), verified.bytes);
    assert_eq!(verified.arrays, files(&path).len() - 1);
}

#[test]
fn an_array_can_be_read_back_once_it_is_finished() {
    let folder = tempdir();
    let writer = DatasetWriter::create(&folder.path().join("dataset"), Replace::No).unwrap();
    let mut array = writer.array(Place::Part(0), "nodes/n/weights.f32").unwrap();
    array.write(bytemuck::cast_slice(&[1.5f32, 0.25, 4.0])).unwrap();
    assert!(writer.finished::<f32>(Place::Part(0), "nodes/n/weights.f32").is_err());
    array.finish().unwrap();
    assert_eq!(writer.finished::<f32>(Place::Part(0), "nodes/n/weights.f32").unwrap()[..], [1.5, 0.25, 4.0]);
    assert!(writer.finished::<f32>(Place::Part(1), "nodes/n/weights.f32").is_err());
    assert!(
        writer.finished::<u64>(Place::Part(0), "nodes/n/weights.f32").is_err(),
        "12 bytes are no whole numbers of 8"
    );
}

#[test]
fn names_are_asked_for_as_the_graph_has_them() {
    let folder = tempdir();
    let path = folder.path().join("dataset");
    let graph = sample();
    write(&graph, &path, &[Direction::In], &Assignment::whole(&graph)).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    assert_eq!(dataset.resolve_node_type(Some("paper")).unwrap(), 1);
    let error = dataset.resolve_node_type(Some("papre")).unwrap_err().to_string();
    assert_eq!(error, "there is no node type `papre`; there are: author, paper, venue/press");
    assert!(dataset.resolve_node_type(None).is_err());
    let name = graph.edges.keys().next().unwrap();
    assert_eq!(dataset.resolve_edge_type(Some(name)).unwrap(), 0);
    assert!(dataset.resolve_edge_type(None).is_err());
}
