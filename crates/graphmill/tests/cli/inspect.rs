//! `inspect`.

use std::process::Stdio;

use serde_json::Value;

use crate::support::Workplace;

#[test]
fn the_json_has_totals_at_the_top_and_details_below() {
    let place = Workplace::new();
    place.succeed("generate karate --layout both --out g");
    let report = place.inspect("g");
    assert_eq!(report["num_nodes"], 34);
    assert_eq!(report["num_edges"], 156);
    assert_eq!(report["num_partitions"], 1);
    assert_eq!(report["homogeneous"], true);
    assert_eq!(report["edge_dir"], "in");
    assert_eq!(report["edge_cut"], 0);
    assert_eq!(report["isolated_nodes"], 0);
    assert_eq!(report["topology_bytes"], 2 * (35 + 156) * 4);
    assert_eq!(report["fingerprint"].as_str().unwrap().len(), 32);
    // Both directions of every friendship are stored.
    let degrees = serde_json::json!({"min": 1, "median": 3, "p99": 17, "max": 17, "zero": 0});
    assert_eq!(report["edge_types"][0]["degrees"]["in"], degrees);
    assert_eq!(report["edge_types"][0]["degrees"]["out"], degrees);
    assert_eq!(report.get("verified"), None);
}

#[test]
fn bytes_add_up() {
    let place = Workplace::new();
    place.succeed("generate sbm --nodes 1k --edges 4k --edge-ids --out whole");
    place.succeed("partition whole --parts 4 --method hash --out parts");
    for dataset in ["whole", "parts"] {
        let report = place.inspect(dataset);
        let bytes = |key: &str| report[key].as_u64().unwrap();
        let keys = ["topology_bytes", "edge_data_bytes", "feature_bytes", "label_bytes", "book_bytes", "other_bytes"];
        assert_eq!(keys.iter().map(|key| bytes(key)).sum::<u64>(), bytes("total_bytes"));
        let parts = report["partitions"].as_array().unwrap();
        let stored: u64 = parts.iter().map(|part| part["bytes"].as_u64().unwrap()).sum();
        assert_eq!(stored + bytes("book_bytes"), bytes("total_bytes"));
        assert_eq!(bytes("edge_data_bytes"), 4 * 4000);
    }
}

#[test]
fn a_node_is_isolated_when_it_has_no_edge_in_either_direction() {
    let place = Workplace::new();
    for layout in ["in", "out", "both"] {
        place.succeed(&format!("generate uniform --nodes 1k --edges 1k --layout {layout} --out {layout}"));
    }
    let isolated = |layout: &str| place.inspect(layout)["isolated_nodes"].as_u64().unwrap();
    // Of a thousand nodes with two random ends each, about e^-2 have none.
    assert!((90..190).contains(&isolated("both")), "{}", isolated("both"));
    assert_eq!([isolated("in"), isolated("out")], [isolated("both"); 2]);
    let degrees = &place.inspect("in")["edge_types"][0]["degrees"]["in"];
    assert!(degrees["zero"].as_u64().unwrap() > isolated("in"));
}

#[test]
fn the_table_shows_what_there_is() {
    let place = Workplace::new();
    place.succeed("generate sbm --nodes 2k --edges 9k --features 5 --node-weights --out g");
    place.succeed("partition g --parts 2 --out g2");
    let table = place.succeed("inspect g2");
    for word in [
        "g2 (homogeneous)",
        "2,000",
        "9,000",
        "x f32[5]",
        "single i64",
        "weights",
        "train ",
        "2 by ldg",
        "median",
        "p99",
    ] {
        assert!(table.contains(word), "{word} is missing in:\n{table}");
    }
}

#[test]
fn verify_says_what_it_read() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    assert!(place.succeed("inspect g --verify").contains("verified: "));
    let report: Value = serde_json::from_str(&place.succeed("inspect g --verify --json")).unwrap();
    assert_eq!(report["verified"]["ok"], true);
    assert_eq!(report["verified"]["bytes"], report["total_bytes"]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    for line in ["inspect g", "inspect g --json"] {
        let mut child = place.command(line).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
}

#[test]
fn dense_ids_are_their_own_names() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    assert_eq!(place.succeed("inspect g --lookup 3,0"), "3 -> 3\n0 -> 0\n");
    assert_eq!(place.succeed("inspect g --original-ids 33"), "33 -> 33\n");
    assert!(place.fail("inspect g --original-ids 34").contains("out of range"));
    assert!(place.fail("inspect g --lookup mister-hi").contains("called by numbers"));
    let missing = place.run("inspect g --lookup 99,-1");
    assert_eq!((missing.code, missing.stdout.as_str()), (Some(1), "99 -> not found\n-1 -> not found\n"));
}
