//! However a dataset is cut, and cut again, it stays the same dataset.

use std::path::{Path, PathBuf};

use graphmill_graph::{Dataset, Direction, MANIFEST_FILE, Replace};
use graphmill_ingest::partition::{Method, partition};
use graphmill_ingest::{Error, Job};
use graphmill_testing::{
    Assignment, ModelGraph, edit_manifest, files, graphs, layouts, read, reseal, sample, tempdir, write,
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_method_keeps_the_content_and_one_part_restores_the_bytes(
        graph in graphs(),
        layouts in layouts(),
        parts in 1u32..6,
        again in 1u32..4,
    ) {
        let folder = tempdir();
        let whole = folder.path().join("whole");
        let fingerprint = write(&graph, &whole, &layouts, &Assignment::whole(&graph))?.fingerprint;
        for method in [Method::Range, Method::Hash, Method::Ldg, assignment_files(&graph, folder.path(), parts)] {
            let [cut, recut, restored] =
                ["cut", "recut", "restored"].map(|step| folder.path().join(format!("{step}-{}", method.name())));
            let manifest = partition(&Dataset::open(&whole)?, parts, &method, &cut, Replace::No, &Job::silent())?;
            prop_assert_eq!(manifest.fingerprint, fingerprint);
            prop_assert_eq!(&read(&Dataset::open(&cut)?)?, &graph);
            let verified = Dataset::verify(&cut, |_| {})?;
            prop_assert!(verified.problems.is_empty(), "{:?}", verified.problems);

            partition(&Dataset::open(&cut)?, again, &Method::Hash, &recut, Replace::No, &Job::silent())?;
            partition(&Dataset::open(&recut)?, 1, &Method::Range, &restored, Replace::No, &Job::silent())?;
            prop_assert_eq!(arrays(&restored), arrays(&whole));
        }
    }
}

#[test]
fn ldg_finds_blocks_and_keeps_the_balance() {
    use graphmill_ingest::generate::{Kind, Options, generate};
    let folder = tempdir();
    let [whole, cut] = ["whole", "cut"].map(|name| folder.path().join(name));
    let options = Options {
        kind: Kind::Sbm,
        nodes: 4000,
        edges: 60_000,
        features: 0,
        classes: 4,
        seed: 3,
        layout: graphmill_ingest::Layout::Both,
        edge_ids: false,
        weights: false,
        node_weights: false,
        memory: 1 << 20,
    };
    generate(&options, &whole, Replace::No, &Job::silent()).unwrap();
    let source = Dataset::open(&whole).unwrap();
    let manifest = partition(&source, 4, &Method::Ldg, &cut, Replace::No, &Job::silent()).unwrap();
    // Random parts cut 3/4 of the edges, the blocks themselves 0.3 * 3/4.
    let share = manifest.edge_types[0].cut as f64 / manifest.edge_types[0].count as f64;
    assert!(share < 0.35, "cut {share}");
    let balance = manifest.node_types[0].book.balance(4);
    assert!(balance < 1.2, "balance {balance}");
}

#[test]
fn a_source_that_lies_about_its_content_is_refused() {
    let folder = tempdir();
    let [whole, cut] = ["whole", "cut"].map(|name| folder.path().join(name));
    write(&sample(), &whole, &[Direction::In], &Assignment::whole(&sample())).unwrap();
    edit_manifest(&whole, |manifest| manifest["fingerprint"] = "0123456789abcdef0123456789abcdef".into());
    let source = Dataset::open(&whole).unwrap();
    let refused = partition(&source, 2, &Method::Hash, &cut, Replace::No, &Job::silent()).unwrap_err();
    assert!(refused.to_string().contains("expected fingerprint 0123456789abcdef0123456789abcdef"), "{refused}");
    assert!(!cut.exists());
}

#[test]
fn a_damaged_table_of_the_source_goes_no_further() {
    let folder = tempdir();
    let [whole, cut] = ["whole", "cut"].map(|name| folder.path().join(name));
    write(&sample(), &whole, &[Direction::In], &Assignment::whole(&sample())).unwrap();
    let is_table = |file: &str| file.ends_with("cumulative.u64") || file.ends_with("alias.u64");
    for file in files(&whole).iter().filter(|file| is_table(file.to_str().unwrap())) {
        std::fs::write(file, vec![0xff; std::fs::read(file).unwrap().len()]).unwrap();
    }
    reseal(&whole);
    assert!(!Dataset::verify(&whole, |_| {}).unwrap().problems.is_empty());
    partition(&Dataset::open(&whole).unwrap(), 2, &Method::Hash, &cut, Replace::No, &Job::silent()).unwrap();
    let verified = Dataset::verify(&cut, |_| {}).unwrap();
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
}

#[test]
fn an_assignment_that_does_not_fit_is_refused_in_words() {
    let folder = tempdir();
    let graph = ModelGraph { homogeneous: true, ..single_type() };
    let whole = folder.path().join("whole");
    write(&graph, &whole, &[Direction::In], &Assignment::whole(&graph)).unwrap();
    let refuse = |text: &str| -> String {
        let file = folder.path().join("owners.csv");
        std::fs::write(&file, text).unwrap();
        let method = Method::File(vec![(None, file)]);
        let source = Dataset::open(&whole).unwrap();
        let out = folder.path().join("cut");
        let error: Error = partition(&source, 2, &method, &out, Replace::No, &Job::silent()).unwrap_err();
        assert!(!out.exists());
        error.to_string()
    };
    assert!(refuse("0\n1\n2\n").contains("row 3: partition 2 does not exist: there are 2"));
    assert!(refuse("0\n1\n").contains("expected a partition for each of 3 nodes of `node`, found 2"));
    assert!(refuse("0\nx\n1\n").contains("row 2"));
}

fn single_type() -> ModelGraph {
    let nodes = graphmill_testing::ModelNodes { count: 3, ..Default::default() };
    ModelGraph {
        homogeneous: true,
        edge_dir: Direction::In,
        nodes: [("node".to_owned(), nodes)].into(),
        edges: [].into(),
    }
}

/// A file per node type that puts node `n` into partition `n mod parts`.
fn assignment_files(graph: &ModelGraph, folder: &Path, parts: u32) -> Method {
    let file = |(number, (name, nodes)): (usize, (&String, &graphmill_testing::ModelNodes))| {
        let path = folder.join(format!("owners-{number}.csv"));
        let owners: Vec<String> = (0..nodes.count).map(|node| (node % u64::from(parts)).to_string()).collect();
        std::fs::write(&path, owners.join("\n")).unwrap();
        (Some(name.clone()), path)
    };
    Method::File(graph.nodes.iter().enumerate().map(file).collect())
}

/// The bytes of every array by its path.
fn arrays(dataset: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(dataset)
        .into_iter()
        .filter(|path| !path.ends_with(MANIFEST_FILE))
        .map(|path| (path.strip_prefix(dataset).unwrap().to_owned(), std::fs::read(&path).unwrap()))
        .collect()
}
