//! Partitioning moves content, and never changes it.

use graphmill_graph::{Dataset, Direction, Error, OpenOptions, Split, Storage};
use graphmill_testing::{Assignment, assignments, graphs, layouts, read, sample, tempdir, write};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn partitions_put_together_are_the_graph(
        (graph, one, other) in graphs().prop_flat_map(|graph| {
            let (one, other) = (assignments(&graph), assignments(&graph));
            (Just(graph), one, other)
        }),
        layouts in (layouts(), layouts()),
    ) {
        let folder = tempdir();
        let [whole, first, second] = ["whole", "first", "second"].map(|name| folder.path().join(name));
        let name = write(&graph, &whole, &layouts.0, &Assignment::whole(&graph))?.fingerprint;
        for (path, layouts, assignment) in [(&first, &layouts.0, &one), (&second, &layouts.1, &other)] {
            let manifest = write(&graph, path, layouts, assignment)?;
            prop_assert_eq!(manifest.fingerprint, name);
            let dataset = Dataset::open(path)?;
            prop_assert_eq!(&read(&dataset)?, &graph);
            for (place, info) in dataset.edge_types().iter().enumerate() {
                prop_assert_eq!(dataset.count_cut(place)?, info.cut);
            }
        }
    }
}

#[test]
fn more_partitions_than_a_byte_can_count_are_found() {
    let folder = tempdir();
    let path = folder.path().join("dataset");
    let graph = sample();
    let assignment = Assignment::assigned(&graph, 300, |_, id| 299 - 60 * id as u16);
    write(&graph, &path, &[Direction::In], &assignment).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    assert_eq!(read(&dataset).unwrap(), graph);
    assert_eq!(dataset.locate_node(1, 4).unwrap().partition, 59);
    assert!(Dataset::verify(&path, |_| {}).unwrap().problems.is_empty());
}

#[test]
fn partitions_that_were_not_opened_are_said_to_be_absent() {
    let folder = tempdir();
    let path = folder.path().join("dataset");
    let graph = sample();
    write(&graph, &path, &[Direction::Out], &Assignment::ranges(&graph, 3)).unwrap();
    for storage in [Storage::Mmap, Storage::Ram] {
        let options = OpenOptions { storage, partitions: Some(vec![1]) };
        let dataset = Dataset::open_with(&path, &options).unwrap();
        assert_eq!(dataset.partitions().map(|(number, _)| number).collect::<Vec<_>>(), [1]);
        assert_eq!(dataset.partition(1).unwrap().nodes(1).rows(), 2);
        assert_eq!(dataset.node_cumulative(1).map(|table| table.len()), Some(5), "the table of all papers");
        assert!(matches!(dataset.partition(0), Err(Error::PartitionAbsent { partition: 0, .. })));
        assert!(matches!(dataset.compute_fingerprint(), Err(Error::PartitionAbsent { partition: 0, .. })));
        assert!(matches!(dataset.split_ids(1, Split::Train), Err(Error::PartitionAbsent { partition: 0, .. })));
        assert_eq!(dataset.locate_node(1, 4).unwrap().partition, 2);
        assert!(matches!(dataset.original_ids(1, &[4]), Err(Error::PartitionAbsent { partition: 2, .. })));
    }
    let options = OpenOptions { storage: Storage::Mmap, partitions: Some(vec![0, 3]) };
    let error = Dataset::open_with(&path, &options).unwrap_err().to_string();
    assert_eq!(error, "there is no partition `3`; there are: 0 to 2");
}
