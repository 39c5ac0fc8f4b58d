//! `generate`, `partition` and `demo`.

use serde_json::Value;

use crate::support::{Workplace, files_below};

#[test]
fn generate_writes_what_was_asked_for() {
    let place = Workplace::new();
    let said = place
        .succeed("generate rmat --nodes 1k --edges 5_000 --features 4 --layout both --weights --node-weights --out g");
    assert!(said.starts_with("wrote g: 1,000 nodes, 5,000 edges, "), "{said}");
    assert!(said.trim_end().ends_with("edges/s)"), "{said}");
    let report = place.inspect("g");
    assert_eq!(report["num_nodes"], 1000);
    assert_eq!(report["num_edges"], 5000);
    assert_eq!(report["feature_bytes"], 1000 * 4 * 4);
    assert_eq!(report["edge_types"][0]["weights"], true);
    assert_eq!(report["node_types"][0]["weights"], true);
    assert_eq!(report["edge_data_bytes"], 2 * 5000 * (4 + 4 + 8 + 8));
    assert_eq!(report["book_bytes"], 1000 * 8);
    assert_eq!(report["edge_types"][0]["layouts"].as_array().unwrap().len(), 2);
    assert_eq!(report["node_types"][0]["label"], Value::Null);
}

#[test]
fn every_kind_of_graph_can_be_generated() {
    let place = Workplace::new();
    for kind in ["rmat", "uniform", "sbm", "karate"] {
        place.succeed(&format!("generate {kind} --nodes 500 --edges 2k --out {kind}"));
        place.succeed(&format!("inspect {kind} --verify"));
    }
    let karate = place.inspect("karate");
    assert_eq!([&karate["num_nodes"], &karate["num_edges"]], [34, 156]);
    assert_ne!(place.inspect("sbm")["node_types"][0]["label"], Value::Null);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let place = Workplace::new();
    for (seed, out) in [(7, "a"), (7, "b"), (8, "c")] {
        place.succeed(&format!("generate sbm --nodes 300 --edges 1k --seed {seed} --out {out}"));
    }
    let content = |name: &str| -> Vec<Vec<u8>> {
        files_below(&place.path(name)).iter().map(|path| std::fs::read(path).unwrap()).collect()
    };
    assert!(content("a") == content("b"));
    assert!(content("a") != content("c"));
}

#[test]
fn an_existing_dataset_is_replaced_only_by_force() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    let refused = place.fail("generate uniform --nodes 50 --edges 70 --out g");
    assert!(refused.contains("g exists already") && refused.ends_with("--force"), "{refused}");
    assert_eq!(place.inspect("g")["num_nodes"], 34);
    place.succeed("generate uniform --nodes 50 --edges 70 --out g --force");
    assert_eq!(place.inspect("g")["num_nodes"], 50);
    assert_eq!(place.names(), ["g"]);
}

#[test]
fn force_does_not_replace_what_is_no_dataset() {
    let place = Workplace::new();
    std::fs::create_dir(place.path("photos")).unwrap();
    place.write("photos/cat.txt", "meow");
    assert!(place.fail("generate karate --out photos --force").contains("is not a dataset"));
    assert!(place.path("photos/cat.txt").exists());
}

#[test]
fn partition_reports_the_cut_and_the_balance_and_keeps_the_fingerprint() {
    let place = Workplace::new();
    place.succeed("generate sbm --nodes 2k --edges 20k --layout both --out g");
    let whole = place.inspect("g");
    for method in ["range", "hash", "ldg"] {
        let out = format!("{method}-3");
        let said = place.succeed(&format!("partition g --parts 3 --method {method} --json --out {out}"));
        let said: Value = serde_json::from_str(&said).unwrap();
        let parts = place.inspect(&out);
        assert_eq!(parts["fingerprint"], whole["fingerprint"]);
        assert_eq!(parts["num_partitions"], 3);
        assert_eq!(parts["method"], method);
        assert_eq!(said["edge_cut"], parts["edge_cut"]);
        assert!(said["edge_cut"].as_u64().unwrap() > 0);
        let balance = said["node_types"][0]["balance"].as_f64().unwrap();
        assert!((1.0..1.3).contains(&balance), "{method}: {balance}");
        for key in ["num_nodes", "num_edges"] {
            let sum: u64 = parts["partitions"].as_array().unwrap().iter().map(|part| part[key].as_u64().unwrap()).sum();
            assert_eq!(whole[key], sum, "{method} {key}");
        }
        assert_eq!(parts["edge_types"][0]["degrees"], whole["edge_types"][0]["degrees"], "{method}");
    }
    let table = place.succeed("partition g --parts 3 --out again");
    assert!(table.contains("3 partitions by ldg") && table.contains("cut %"), "{table}");
}

#[test]
fn partition_takes_an_outside_assignment() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    let assignment: Vec<String> = (0..34).map(|node| (node % 2).to_string()).collect();
    place.write("parts.csv", &assignment.join("\n"));
    place.succeed("partition g --parts 2 --method file --assignment parts.csv --out g2");
    let parts = place.inspect("g2");
    assert_eq!(parts["method"], "file");
    assert_eq!(parts["partitions"][0]["num_nodes"], 17);
    assert!(place.fail("partition g --parts 2 --method hash --assignment parts.csv --out h").contains("--method file"));
}

#[test]
fn what_cannot_be_partitioned_says_why() {
    let place = Workplace::new();
    assert!(place.fail("partition nowhere --parts 2 --out g2").contains("cannot open nowhere"));
    std::fs::create_dir(place.path("empty")).unwrap();
    assert!(place.fail("partition empty --parts 2 --out g2").contains("empty is not a dataset"));
    assert_eq!(place.names(), ["empty"]);
}

#[test]
fn the_demo_works_and_leaves_nothing() {
    let place = Workplace::new();
    let said = place.succeed("demo --nodes 1k --edges 10k");
    for step in
        ["$ graphmill generate", "$ graphmill partition", "$ graphmill inspect", "verified: ", "cut, same fingerprint"]
    {
        assert!(said.contains(step), "{step} is missing in:\n{said}");
    }
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn the_demo_ends_with_a_training_command_against_its_servers() {
    let place = Workplace::new();
    let said = place.succeed("demo --nodes 1k --edges 10k -- echo trained");
    let told = said.lines().find(|line| line.starts_with("trained --servers 127.0.0.1:")).unwrap_or_default();
    assert_eq!(told.split(',').count(), 2, "{said}");
    let ended = place.run("demo --nodes 1k --edges 10k -- false");
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("the training command ended with exit status: 1"), "{ended:#?}");
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_mistyped_word_is_a_usage_error_with_advice() {
    let place = Workplace::new();
    for (line, advice) in [
        ("generat karate --out g", "generate"),
        ("generate krate --out g", "karate"),
        ("generate rmat --nodes many --out g", "20M"),
        ("generate rmat --memory 2G --out g", "2GiB"),
        ("partition g --parts 0 --out g2", "--parts"),
        ("partition g --parts 2 --method file --out g2", "--assignment"),
    ] {
        let ended = place.run(line);
        assert_eq!(ended.code, Some(2), "{line}");
        assert!(ended.stderr.contains(advice), "{line}: {}", ended.stderr);
    }
}

#[test]
fn every_command_has_help_with_the_version_of_the_binary() {
    let place = Workplace::new();
    for command in ["generate", "ingest", "partition", "inspect", "demo"] {
        assert!(place.succeed(&format!("{command} --help")).contains("Usage: graphmill"));
    }
    assert_eq!(place.succeed("--version"), format!("graphmill {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn progress_is_plain_lines_on_stderr_and_quiet_is_silent() {
    let place = Workplace::new();
    let loud = place.run("generate uniform --out a");
    assert!(loud.stderr.contains("100,000 edges in "), "{}", loud.stderr);
    assert_eq!(loud.stdout.lines().count(), 1);
    let quiet = place.run("generate uniform --out b --quiet");
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
}
