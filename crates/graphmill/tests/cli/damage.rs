//! `inspect` on datasets that are not what was written.

use serde_json::Value;

use crate::support::{Workplace, files_below};

#[test]
fn verify_names_a_file_with_a_flipped_byte() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    let manifest = place.path("g/manifest.json");
    let arrays: Vec<_> = files_below(&place.path("g")).into_iter().filter(|file| *file != manifest).collect();
    for file in arrays {
        let sound = std::fs::read(&file).unwrap();
        let mut damaged = sound.clone();
        *damaged.last_mut().unwrap() ^= 1;
        std::fs::write(&file, damaged).unwrap();

        let ended = place.run("inspect g --verify");
        assert_eq!(ended.code, Some(1), "{}", file.display());
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(ended.stdout.contains("1 problem found") && ended.stdout.contains(name), "{}", ended.stdout);
        let ended = place.run("inspect g --verify --json");
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((ended.code, &report["verified"]["ok"]), (Some(1), &Value::Bool(false)));
        assert_eq!(report["num_nodes"], 34);
        std::fs::write(&file, sound).unwrap();
    }
    place.succeed("inspect g --verify");
}

#[test]
fn a_truncated_array_is_refused_with_both_lengths() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    let lists = files_below(&place.path("g")).into_iter().find(|file| file.ends_with("in.neighbors.u32")).unwrap();
    let bytes = std::fs::read(&lists).unwrap();
    std::fs::write(&lists, &bytes[..600]).unwrap();
    let refused = place.fail("inspect g");
    assert!(refused.contains("in.neighbors.u32") && refused.contains("expected 624 bytes, found 600"), "{refused}");
    assert!(place.run("inspect g --verify").stdout.contains("expected 624 bytes, found 600"));
}

#[test]
fn a_newer_version_is_refused() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    let manifest = std::fs::read_to_string(place.path("g/manifest.json")).unwrap();
    place.write("g/manifest.json", &manifest.replace("\"version\": 1", "\"version\": 2"));
    let refused = place.fail("inspect g");
    assert!(refused.contains("format version 2, expected at most 1"), "{refused}");
}
