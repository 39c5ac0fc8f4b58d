//! `sample` and `bench sample`.

use serde_json::Value;

use crate::support::Workplace;

fn karate() -> Workplace {
    let place = Workplace::new();
    place.succeed("generate karate --layout both --edge-ids --out karate");
    place
}

#[test]
fn a_small_batch_is_counted_and_drawn() {
    let shown = karate().succeed("sample karate --seeds 0,33,0 --fanouts 2,1 --features x");
    assert!(shown.contains("2 (3 asked for)"), "{shown}");
    assert!(shown.contains("node:to:node edges"), "{shown}");
    assert!(shown.lines().any(|line| line == "0") && shown.lines().any(|line| line == "33"), "{shown}");
    let branches = shown.lines().filter(|line| line.contains("─ ")).count();
    assert_eq!(branches, 4 + 4, "two edges of each seed and one of each of their neighbours:\n{shown}");
}

#[test]
fn pagerank_is_listed_with_scores() {
    let shown = karate().succeed("sample karate --seeds 0 --sampler ppr --max-nodes 3");
    assert!(shown.contains("0.556387"), "{shown}");
    // Node 0 has 16 neighbours; of one fetched neighbour at a time fewer nodes are met.
    let nodes = |flags: &str| -> usize {
        let shown = karate().succeed(&format!("sample karate --seeds 0 --sampler ppr --max-nodes 40 --json {flags}"));
        serde_json::from_str::<Value>(&shown).unwrap()["nodes"]["node"]["node"].as_array().unwrap().len()
    };
    assert!(nodes("--neighbors-per-hop 1") < nodes(""));
}

#[test]
fn without_a_number_all_batches_of_the_epoch_are_printed() {
    let place = karate();
    let line = "sample karate --seeds 0,1,2,3,4 --batch-size 2 --fanouts 1 --json";
    let seeds = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seed"].clone()).collect()
    };
    let all = seeds(&place.succeed(line));
    assert_eq!(all, [serde_json::json!([0, 1]), serde_json::json!([2, 3]), serde_json::json!([4])]);
    assert_eq!(seeds(&place.succeed(&format!("{line} --batch 1"))), all[1..2]);
    assert_eq!(place.fail(&format!("{line} --batch 3")), "there is no batch 3; the epoch has 3");
}

#[test]
fn mistakes_are_named() {
    let place = karate();
    place.write("bad.json", r#"{"expand": {"neighbours": {}}}"#);
    let cases = [
        ("--fanouts 2", "there is nothing to sample from; give --seeds, --pairs or --split"),
        ("--seeds 1,34 --fanouts 2", "node id 34 is out of range: there are 34 of type `node`"),
        ("--seeds 1 --fanouts 2 --features y", "the sampler cannot be configured: no node type has a feature `y`"),
        ("--seeds 1 --links --fanouts 1", "the seeds are not of the kind that the task takes"),
        ("--seeds 1 --sampler weighted --fanouts 1", "no edge type that is walked has weights; take --sampler uniform"),
        ("--pairs 0:1,2:3:4 --links --fanouts 1", "1 of 2 pairs have a class; give one to all or to none"),
        ("--seeds 1 --config bad.json", "bad.json is not a sampler's configuration: unknown variant `neighbours`"),
    ];
    for (flags, expected) in cases {
        let message = place.fail(&format!("sample karate {flags}"));
        assert!(message.contains(expected), "{flags}: {message}");
    }
}

#[test]
fn a_bench_reports_rates_phases_and_the_memory() {
    let place = Workplace::new();
    place.succeed("generate rmat --nodes 2k --edges 20k --features 8 --weights --out g");
    let line = "bench sample g --fanouts 5,5 --batch-size 64 --batches 20 --features --json --quiet";
    for flags in ["", "--threads 2 --storage ram", "--sampler weighted --edge-ids"] {
        let found: Value = serde_json::from_str(&place.succeed(&format!("{line} {flags}"))).unwrap();
        for key in ["seeds_per_s", "edges_per_s", "bytes_per_s", "nodes_per_batch", "edges_per_batch"] {
            assert!(found[key].as_f64().unwrap() > 0.0, "{key}: {found}");
        }
        assert!(found["phase_ms"]["gather"].as_f64().unwrap() > 0.0);
        assert!(found["ceiling"]["random_read_bytes_per_s"].as_f64().unwrap() > 0.0);
        assert_eq!(found["batches"], 20);
    }
    let shown = place.succeed("bench sample g --fanouts 5,5 --batch-size 64 --batches 20 --quiet");
    assert!(shown.contains("edges/s") && shown.contains("renumber"), "{shown}");
}
