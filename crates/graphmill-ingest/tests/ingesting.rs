//! What comes out of an ingest does not depend on how the input happens to lie.

use std::fmt::Write as _;
use std::path::Path;

use graphmill_graph::{Dataset, Direction, OriginalId, Replace, Split};
use graphmill_ingest::Job;
use graphmill_ingest::ingest::{OnError, Options, ingest};
use graphmill_testing::{read, tempdir};
use proptest::prelude::*;

const PLENTY: u64 = 1 << 30;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_order_of_rows_does_not_change_the_topology(
        edges in prop::collection::vec((0u64..30, 0u64..30), 0..200),
        order in any::<u64>(),
    ) {
        let mut shuffled = edges.clone();
        shuffled.sort_by_key(|&(src, dst)| graphmill_graph::random::mix(order ^ (src << 32 | dst)));
        let folder = tempdir();
        let [one, other] = [("one", &edges), ("other", &shuffled)].map(|(name, edges)| {
            ingest_edges(&folder.path().join(name), edges, "", PLENTY)
        });
        prop_assert_eq!(one.fingerprint(), other.fingerprint());
        prop_assert_eq!(read(&one)?, read(&other)?);
    }

    #[test]
    fn little_memory_gives_the_same_dataset(
        edges in prop::collection::vec((0u64..5000, 0u64..5000), 3000..6000),
        undirected in any::<bool>(),
        keyed in any::<bool>(),
    ) {
        let keys = if keyed { "[[nodes]]\nid_type = \"int\"\n" } else { "" };
        let extra = format!("undirected = {undirected}\nedge_ids = true\nduplicates = \"drop\"\n");
        let folder = tempdir();
        let [small, large] = [("small", 1), ("large", PLENTY)].map(|(name, memory)| {
            ingest_described(&folder.path().join(name), &edges, keys, &extra, memory)
        });
        prop_assert_eq!(small.fingerprint(), large.fingerprint());
    }

    #[test]
    fn weighted_lists_have_the_tables_of_their_weights(
        edges in prop::collection::vec((0u64..40, 0u64..3, 0..=f32::MAX.to_bits()), 0..3000),
        undirected in any::<bool>(),
    ) {
        let folder = tempdir();
        let mut csv = String::from("src,dst,w\n");
        for (src, dst, bits) in &edges {
            writeln!(csv, "{src},{dst},{:e}", f32::from_bits(*bits)).unwrap();
        }
        let toml = format!("layout = \"both\"\n[[edges]]\nfiles = \"edges.csv\"\nweight = \"w\"\nundirected = {undirected}\n");
        let dataset = run(folder.path(), &csv, &toml, 1, OnError::Stop)?;
        // Reading compares every table with one made in whole numbers.
        let found = read(&dataset)?;
        let found = found.edges.values().flat_map(|edges| &edges.edges);
        for edge in found {
            prop_assert_eq!(edge.weight, Some(edges[edge.id.unwrap() as usize].2));
        }
    }

    #[test]
    fn duplicates_and_loops_go_when_asked(edges in prop::collection::vec((0u64..8, 0u64..8), 1..120)) {
        let folder = tempdir();
        let extra = "duplicates = \"drop\"\nself_loops = \"drop\"\nundirected = true\nedge_ids = true\n";
        let dataset = ingest_edges(&folder.path().join("g"), &edges, extra, PLENTY);
        // The oracle: of all rows that join two nodes, the first names the edge in both directions.
        let mut expected = std::collections::BTreeMap::new();
        for (row, &(src, dst)) in edges.iter().enumerate().rev().filter(|(_, (src, dst))| src != dst) {
            expected.insert((src, dst), row as u64);
            expected.insert((dst, src), row as u64);
        }
        let found = read(&dataset)?;
        let found = found.edges.values().flat_map(|edges| &edges.edges);
        let found: Vec<_> = found.map(|edge| ((edge.src, edge.dst), edge.id.unwrap())).collect();
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn every_original_id_is_found_again(
        keys in prop::collection::btree_set("[a-zé]{1,12}", 1..60),
        order in any::<u64>(),
    ) {
        let mut names: Vec<&String> = keys.iter().collect();
        names.sort_by_key(|name| name.bytes().fold(order, |hash, byte| graphmill_graph::random::mix(hash ^ u64::from(byte))));
        let folder = tempdir();
        let mut csv = String::from("src,dst\n");
        for name in &names {
            writeln!(csv, "{name},{}", names[0]).unwrap();
        }
        let toml = "[[nodes]]\nid_type = \"string\"\n[[edges]]\nfiles = \"edges.csv\"\n";
        let dataset = run(folder.path(), &csv, toml, PLENTY, OnError::Stop).unwrap();
        let asked: Vec<_> = keys.iter().map(|key| OriginalId::String(key)).collect();
        let ids: Vec<u64> = dataset.lookup(0, &asked)?.into_iter().map(Option::unwrap).collect();
        // Ids follow the bytewise order of the keys, whatever the order of rows.
        prop_assert_eq!(&ids, &(0..keys.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(dataset.original_ids(0, &ids)?, asked);
        prop_assert_eq!(dataset.lookup(0, &[OriginalId::String("A"), OriginalId::Int(0)])?, vec![None, None]);
    }
}

#[test]
fn label_edges_are_kept_apart_and_their_sources_are_split() {
    let folder = tempdir();
    let mut csv = String::from("src,dst\n");
    (0..400).for_each(|user| writeln!(csv, "{},{}", 2 * user, user % 7).unwrap());
    let toml = r#"
        [[nodes]]
        type = "user"
        count = 1000
        splits = { by = "anchor", edges = "user:buys:item", train = 0.5, val = 0.25, test = 0.25 }
        [[edges]]
        type = "user:buys:item"
        files = "edges.csv"
        [[edges]]
        type = ["user", "views", "item"]
        files = "edges.csv"
    "#;
    let dataset = run(folder.path(), &csv, toml, PLENTY, OnError::Stop).unwrap();
    let [buys, views] = dataset.edge_types() else { panic!() };
    assert_eq!(buys.role.name(), "label");
    assert_eq!(buys.layouts, [Direction::Out]);
    assert_eq!((views.role.name(), &views.layouts[..]), ("message", &[Direction::In][..]));
    let user = dataset.resolve_node_type(Some("user")).unwrap();
    let sets = Split::ALL.map(|split| dataset.split_ids(user, split).unwrap());
    let mut anchors = sets.concat();
    anchors.sort_unstable();
    assert_eq!(anchors, (0..400).map(|user| 2 * user).collect::<Vec<_>>());
    assert!(sets.iter().all(|set| set.len() > 50), "{:?}", sets.map(|set| set.len()));
}

#[test]
fn hashed_splits_stay_when_nodes_are_added_and_fractions_are_exact() {
    let folder = tempdir();
    let split = |name: &str, count: u64, by: &str| {
        let toml = format!(
            "[[nodes]]\ncount = {count}\nsplits = {{ {by}, train = 0.8, val = 0.1, test = 0.1 }}\n\
             [[edges]]\nfiles = \"edges.csv\"\n"
        );
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let dataset = run(&path, "src,dst\n0,1\n", &toml, PLENTY, OnError::Stop).unwrap();
        Split::ALL.map(|split| dataset.split_ids(0, split).unwrap())
    };
    let (small, large) = (split("small", 500, "by = \"hash\""), split("large", 800, "by = \"hash\""));
    for (small, large) in small.iter().zip(&large) {
        assert_eq!(*small, large.iter().copied().filter(|&node| node < 500).collect::<Vec<_>>());
    }
    let exact = split("exact", 1000, "by = \"fraction\", seed = 4");
    assert_eq!(exact.map(|set| set.len()), [800, 100, 100]);
}

#[test]
fn bad_rows_stop_with_their_place_or_are_counted() {
    let folder = tempdir();
    let csv = "src,dst\n0,1\n1,x\n5,0\n1,0\n";
    let toml = "[[nodes]]\ncount = 3\n[[edges]]\nfiles = \"edges.csv\"\nedge_ids = true\n";
    let stopped = run(folder.path(), csv, toml, PLENTY, OnError::Stop).unwrap_err().to_string();
    assert!(stopped.contains("edges.csv: row 2:") && stopped.contains("--on-error skip"), "{stopped}");
    assert!(!folder.path().join("out").exists());

    let options = Options { on_error: OnError::Skip, memory: PLENTY, replace: Replace::No };
    let out = folder.path().join("out");
    let report = ingest(&folder.path().join("graph.toml"), &out, &options, &Job::silent()).unwrap();
    assert_eq!(report.skipped, 2);
    assert!(report.examples[1].contains("row 3: node id 5 is out of range"), "{:?}", report.examples);
    let edges = read(&Dataset::open(&out).unwrap()).unwrap();
    let ids: Vec<_> = edges.edges.values().flat_map(|edges| &edges.edges).map(|edge| edge.id.unwrap()).collect();
    assert_eq!(ids, [0, 3], "ids are input rows, the skipped ones leave gaps");
}

#[test]
fn weights_of_nodes_come_by_row_by_list_and_by_key() {
    let toml = |id_type: &str, weights: &str| {
        format!("[[nodes]]\n{id_type}\nweights = {{ {weights} }}\n[[edges]]\nfiles = \"edges.csv\"\n")
    };
    let listed = "id_type = \"int\"\nids = { files = \"w.csv\", column = \"id\" }";
    let columns = "files = \"w.csv\", columns = [\"w\"]";
    let keyed = format!("{columns}, key = \"id\"");
    for (nodes, csv) in [
        (toml("count = 4", columns), "id,w\n0,0.5\n1,0\n2,3\n3,1e-42\n"),
        (toml("count = 4", &keyed), "id,w\n3,1e-42\n0,0.5\n2,3\n"),
        (toml(listed, columns), "id,w\n3,1e-42\n1,0\n0,0.5\n2,3\n"),
        (toml(listed, &keyed), "id,w\n1,0\n3,1e-42\n0,0.5\n2,3\n"),
    ] {
        let folder = tempdir();
        std::fs::write(folder.path().join("w.csv"), csv).unwrap();
        let dataset = run(folder.path(), "src,dst\n0,1\n", &nodes, PLENTY, OnError::Stop).unwrap();
        let expected = [0.5f32, 0.0, 3.0, 1e-42].map(f32::to_bits).to_vec();
        assert_eq!(read(&dataset).unwrap().nodes["node"].weights, Some(expected), "{nodes}");
        assert_eq!(dataset.node_cumulative(0).unwrap()[..], [1 << 56, 1 << 56, 7 << 56, (7 << 56) + 1]);
    }
}

#[test]
fn a_weight_that_is_none_is_refused_or_leaves_zero() {
    for wrong in ["-1", "nan", "inf", "-inf", "1e39"] {
        for key in ["", ", key = \"id\""] {
            let folder = tempdir();
            std::fs::write(folder.path().join("w.csv"), format!("id,w\n0,1\n1,{wrong}\n2,2\n")).unwrap();
            let weights = format!("weights = {{ files = \"w.csv\", columns = [\"w\"]{key} }}");
            let toml = format!("[[nodes]]\ncount = 3\n{weights}\n[[edges]]\nfiles = \"edges.csv\"\n");
            let refused = run(folder.path(), "src,dst\n0,1\n", &toml, PLENTY, OnError::Stop).unwrap_err().to_string();
            assert!(refused.contains("w.csv: row 2: "), "{wrong}: {refused}");
            let skipped = run(folder.path(), "src,dst\n0,1\n", &toml, PLENTY, OnError::Skip).unwrap();
            assert_eq!(skipped.partition(0).unwrap().nodes(0).weights().unwrap(), [1.0, 0.0, 2.0]);
        }
    }
    let folder = tempdir();
    let toml = "[[nodes]]\nweights = { files = \"edges.csv\" }\n[[edges]]\nfiles = \"edges.csv\"\n";
    let wide = run(folder.path(), "src,dst\n0,1\n", toml, PLENTY, OnError::Stop).unwrap_err().to_string();
    assert!(wide.contains("expected one weight per node, found 2"), "{wide}");
}

#[test]
fn a_node_without_a_label_has_none() {
    let folder = tempdir();
    std::fs::write(folder.path().join("y.csv"), "y\n1\nbad\n2\n").unwrap();
    let toml = "[[nodes]]\nlabels = { files = \"y.csv\" }\n[[edges]]\nfiles = \"edges.csv\"\n";
    let dataset = run(folder.path(), "src,dst\n0,1\n", toml, PLENTY, OnError::Skip).unwrap();
    let label = dataset.partition(0).unwrap().nodes(0).label().unwrap().clone();
    let classes: Vec<i64> = label.bytes().as_chunks().0.iter().map(|class| i64::from_le_bytes(*class)).collect();
    assert_eq!(classes, [1, -1, 2]);
}

#[test]
fn input_that_would_be_misread_is_refused_in_words() {
    let refuse = |csv: &str, nodes: &str| {
        let folder = tempdir();
        std::fs::write(folder.path().join("train.csv"), "0\n1\n").unwrap();
        let toml = format!("{nodes}[[edges]]\nfiles = \"edges.csv\"\n");
        run(folder.path(), csv, &toml, PLENTY, OnError::Skip).unwrap_err().to_string()
    };
    let one_wrong_id = refuse("src,dst\n0,99999999999\n", "");
    assert!(one_wrong_id.contains("the largest id of node type `node` is 99999999999, but only 2"), "{one_wrong_id}");
    let no_header = refuse("src,dst\n0,1\n", "[[nodes]]\nsplits = { by = \"files\", train = \"train.csv\" }\n");
    assert!(no_header.contains("its first line looks like a row (`0`)"), "{no_header}");
    let open_quote = refuse("src,dst\n0,1\n\"1,0\n1,0\n0,0\n", "");
    assert!(open_quote.contains("row 2:") && open_quote.contains("is a quote not closed?"), "{open_quote}");
    let too_many = refuse("src,dst\n0,1\n", "[[nodes]]\ncount = 2000000000000\n");
    assert!(too_many.contains("`count` is at most 2^40"), "{too_many}");
}

#[test]
fn a_row_without_an_id_is_counted_once() {
    let folder = tempdir();
    std::fs::write(folder.path().join("ids.csv"), "id\n7\nx\n9\n").unwrap();
    let toml = "[[nodes]]\nid_type = \"int\"\nids = { files = \"ids.csv\" }\n[[edges]]\nfiles = \"edges.csv\"\n";
    std::fs::write(folder.path().join("edges.csv"), "src,dst\n7,9\n").unwrap();
    std::fs::write(folder.path().join("graph.toml"), toml).unwrap();
    let options = Options { on_error: OnError::Skip, memory: PLENTY, replace: Replace::No };
    let report =
        ingest(&folder.path().join("graph.toml"), &folder.path().join("out"), &options, &Job::silent()).unwrap();
    assert_eq!(report.skipped, 1);
}

#[test]
fn a_job_that_was_cancelled_publishes_nothing() {
    use std::sync::atomic::AtomicBool;
    let folder = tempdir();
    std::fs::write(folder.path().join("edges.csv"), "src,dst\n0,1\n").unwrap();
    std::fs::write(folder.path().join("graph.toml"), "[[edges]]\nfiles = \"edges.csv\"\n").unwrap();
    let options = Options { on_error: OnError::Stop, memory: PLENTY, replace: Replace::No };
    let job = Job::new(&graphmill_ingest::Silent, std::sync::Arc::new(AtomicBool::new(true)));
    let stopped = ingest(&folder.path().join("graph.toml"), &folder.path().join("out"), &options, &job).unwrap_err();
    assert!(matches!(stopped, graphmill_ingest::Error::Interrupted));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing but the input is left");
}

#[test]
fn a_description_that_makes_no_sense_is_refused_in_words() {
    let refuse = |toml: &str| {
        let folder = tempdir();
        let error = run(folder.path(), "src,dst\n0,1\n", toml, PLENTY, OnError::Stop).unwrap_err().to_string();
        assert!(!folder.path().join("out").exists());
        error
    };
    assert!(refuse("").contains("it describes no graph"));
    assert!(refuse("[[edges]]\nfiles = \"edges.csv\"\nfoo = 1\n").contains("unknown field `foo`"));
    assert!(refuse("[[edges]]\nfiles = \"edges.csv\"\nsrc = \"from\"\n").contains("from"));
    assert!(refuse("[[edges]]\nfiles = \"nowhere.csv\"\n").contains("nowhere.csv"));
    assert!(refuse("[[edges]]\ntype = \"a:b\"\nfiles = \"edges.csv\"\n").contains("source:relation:target"));
    assert!(
        refuse("[[edges]]\ntype = \"a:b:c\"\nundirected = true\nfiles = \"edges.csv\"\n")
            .contains("undirected needs the same type at both ends")
    );
    for table in [
        "labels = { files = \"edges.csv\", colums = [1] }",
        "splits = { by = \"hash\", train = 0.5, vaal = 0.5 }",
        "splits = { by = \"anchor\", edges = \"a:b:c\", trian = 0.5 }",
        "features.x = { files = \"edges.csv\", dype = \"f32\" }",
    ] {
        let refused = refuse(&format!("[[nodes]]\n{table}\n[[edges]]\nfiles = \"edges.csv\"\n"));
        assert!(refused.contains("unknown field"), "{table}: {refused}");
    }
    let shares = "[[nodes]]\nsplits = { by = \"hash\", train = 0.8, val = 0.8 }\n[[edges]]\nfiles = \"edges.csv\"\n";
    assert!(refuse(shares).contains("add up to at most 1"));
}

fn ingest_edges(folder: &Path, edges: &[(u64, u64)], extra: &str, memory: u64) -> Dataset {
    ingest_described(folder, edges, "", extra, memory)
}

fn ingest_described(folder: &Path, edges: &[(u64, u64)], nodes: &str, extra: &str, memory: u64) -> Dataset {
    std::fs::create_dir(folder).unwrap();
    let mut csv = String::from("src,dst\n");
    for (src, dst) in edges {
        writeln!(csv, "{src},{dst}").unwrap();
    }
    let toml = format!("{nodes}[[edges]]\nfiles = \"edges.csv\"\n{extra}");
    run(folder, &csv, &toml, memory, OnError::Stop).unwrap()
}

fn run(folder: &Path, csv: &str, toml: &str, memory: u64, on_error: OnError) -> graphmill_ingest::Result<Dataset> {
    std::fs::write(folder.join("edges.csv"), csv).unwrap();
    std::fs::write(folder.join("graph.toml"), toml).unwrap();
    let options = Options { on_error, memory, replace: Replace::No };
    let out = folder.join("out");
    ingest(&folder.join("graph.toml"), &out, &options, &Job::silent())?;
    assert!(Dataset::verify(&out, |_| {})?.problems.is_empty());
    Ok(Dataset::open(&out)?)
}
