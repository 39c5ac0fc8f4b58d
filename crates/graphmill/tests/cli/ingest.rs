//! `ingest`, and looking up what its nodes were called.

use serde_json::Value;

use crate::support::Workplace;

const SHOP: &str = r#"
[[nodes]]
type = "item"
id_type = "int"

[[nodes]]
type = "user"
id_type = "string"

[[edges]]
type = ["user", "buys", "item"]
files = "buys.csv"
src = "who"
dst = "what"
"#;

#[test]
fn a_csv_becomes_a_dataset_whose_names_can_be_asked() {
    let place = shop("who,what\nbob,70\nalice,-5\nbob,-5\n");
    let said = place.succeed("ingest graph.toml --out shop");
    assert!(said.starts_with("wrote shop: 4 nodes, 3 edges, "), "{said}");
    assert!(!said.contains("skipped"), "{said}");
    assert_eq!(place.inspect("shop")["homogeneous"], false);
    assert_eq!(place.succeed("inspect shop --type user --lookup bob,alice"), "bob -> 1\nalice -> 0\n");
    assert_eq!(place.succeed("inspect shop --type item --lookup -5,70"), "-5 -> 0\n70 -> 1\n");
    assert_eq!(place.succeed("inspect shop --type user --original-ids 1,0"), "1 -> bob\n0 -> alice\n");
    let missing = place.run("inspect shop --type user --lookup carol --json");
    let answer: Value = serde_json::from_str(&missing.stdout).unwrap();
    assert_eq!((missing.code, &answer["lookup"][0]["id"]), (Some(1), &Value::Null));
    assert!(place.fail("inspect shop --lookup bob").contains("item, user"));
    assert!(place.fail("inspect shop --type usr --lookup bob").contains("there are: item, user"));
}

#[test]
fn a_bad_row_stops_with_file_row_and_reason() {
    let place = shop("who,what\nbob,70\nalice,cheese\n");
    let refused = place.fail("ingest graph.toml --out shop");
    assert!(refused.contains("buys.csv: row 2: ") && refused.contains("cheese"), "{refused}");
    assert_eq!(place.names(), ["buys.csv", "graph.toml"]);
}

#[test]
fn bad_rows_are_counted_and_skipped_when_asked() {
    let place = shop("who,what\nbob,70\nalice,cheese\nbob,wine\n");
    let ended = place.run("ingest graph.toml --out shop --on-error skip");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(
        ended.stdout.contains("1 edges") && ended.stdout.trim_end().ends_with("2 rows skipped"),
        "{}",
        ended.stdout
    );
    assert!(ended.stderr.contains("skipped 2 rows") && ended.stderr.contains("cheese"), "{}", ended.stderr);
}

#[test]
fn a_missing_or_wrong_description_says_so() {
    let place = Workplace::new();
    assert!(place.fail("ingest graph.toml --out g").contains("cannot read graph.toml"));
    place.write("graph.toml", "[[nods]]\n");
    let ended = place.run("ingest graph.toml --out g");
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("graph.toml") && ended.stderr.contains("nods"), "{}", ended.stderr);
    assert_eq!(place.names(), ["graph.toml"]);
}

fn shop(buys: &str) -> Workplace {
    let place = Workplace::new();
    place.write("graph.toml", SHOP);
    place.write("buys.csv", buys);
    place
}
