//! What is not a sound dataset of a known version is refused, with the reason.

use std::fs;
use std::path::{Path, PathBuf};

use graphmill_graph::{DType, FeatureInfo, LabelInfo, LabelKind, Place};
use graphmill_graph::{Dataset, DatasetWriter, Direction, Error, MANIFEST_FILE, Manifest, NodeTypeInfo, Replace};
use graphmill_testing::{Assignment, edit_manifest, files, sample, seal, tempdir, touch_everything, write};
use serde_json::{Value, json};
use tempfile::TempDir;

fn written_sample() -> (TempDir, PathBuf) {
    let folder = tempdir();
    let path = folder.path().join("dataset");
    let graph = sample();
    let assignment = Assignment::assigned(&graph, 2, |_, id| (id % 2) as u16);
    write(&graph, &path, &[Direction::Out, Direction::In], &assignment).unwrap();
    (folder, path)
}

#[test]
fn a_newer_version_is_named_with_the_newest_that_is_read() {
    let (_folder, path) = written_sample();
    edit_manifest(&path, |manifest| {
        manifest["version"] = json!(2);
        manifest["of the future"] = json!("unknown here");
    });
    let error = Dataset::open(&path).unwrap_err();
    assert!(matches!(error, Error::NewerVersion { found: 2, supported: 1, .. }));
    let manifest = path.join(MANIFEST_FILE);
    let expected = "has format version 2, expected at most 1; open it with a newer graphmill";
    assert_eq!(error.to_string(), format!("{} {expected}", manifest.display()));
}

#[test]
fn a_foreign_format_is_named_with_the_expected_one() {
    let (_folder, path) = written_sample();
    edit_manifest(&path, |manifest| manifest["format"] = json!("parquet"));
    let text = Dataset::open(&path).unwrap_err().to_string();
    assert!(text.ends_with("expected format `graphmill-dataset`, found `parquet`"), "{text}");
}

#[test]
fn an_unknown_key_is_refused() {
    let (_folder, path) = written_sample();
    edit_manifest(&path, |manifest| manifest["node_types"][0]["colour"] = json!("red"));
    let text = Dataset::open(&path).unwrap_err().to_string();
    assert!(text.contains("unknown field `colour`"), "{text}");
}

#[test]
fn a_manifest_of_garbage_is_refused() {
    let (_folder, path) = written_sample();
    let deep = vec![b'['; 1 << 20];
    let garbage: [&[u8]; 7] = [b"", b"\0\xff\xfe", b"{}", b"[]", b"null", b"{\"format\": 3}", &deep];
    for bytes in garbage {
        for bytes in [bytes.to_vec(), seal(bytes)] {
            fs::write(path.join(MANIFEST_FILE), &bytes).unwrap();
            let error = Dataset::open(&path).unwrap_err();
            assert!(matches!(error, Error::Manifest { .. }), "{error}");
        }
    }
}

#[test]
fn a_directory_without_manifest_is_not_a_dataset() {
    let (_folder, path) = written_sample();
    fs::remove_file(path.join(MANIFEST_FILE)).unwrap();
    let error = Dataset::open(&path).unwrap_err();
    assert!(matches!(error, Error::NotADataset { .. }));
    assert_eq!(error.to_string(), format!("{} is not a dataset: it has no manifest.json", path.display()));
    assert!(matches!(Dataset::open(path.join("nowhere")), Err(Error::Io { action: "open", .. })));
    fs::create_dir(path.join(MANIFEST_FILE)).unwrap();
    assert!(matches!(Dataset::open(&path), Err(Error::Io { action: "read", .. })));
}

#[test]
fn a_missing_array_is_named() {
    let (_folder, path) = written_sample();
    for file in files(&path).into_iter().filter(|file| !file.ends_with(MANIFEST_FILE)) {
        let bytes = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let text = Dataset::open(&path).unwrap_err().to_string();
        assert!(text.starts_with(&format!("cannot open {}: No such file", file.display())), "{text}");
        let verified = Dataset::verify(&path, |_| {}).unwrap();
        assert_eq!(verified.problems.len(), 1);
        assert_eq!(verified.problems[0].to_string(), text);
        fs::write(&file, bytes).unwrap();
    }
}

/// Keys whose value is free: what they say concerns people, or the choice of a default.
const FREE: [&str; 3] = ["/written_by", "/method", "/edge_dir"];

#[test]
fn no_single_value_of_a_manifest_can_be_another() {
    let (_folder, path) = written_sample();
    let sound = fs::read(path.join(MANIFEST_FILE)).unwrap();
    let mut manifest: Value = serde_json::from_slice(&sound).unwrap();
    manifest.as_object_mut().unwrap().remove("checksum");
    let mut places = Vec::new();
    list_places(&manifest, String::new(), &mut places);
    for place in places.iter().filter(|place| !FREE.contains(&place.as_str())) {
        let reversible = place.ends_with("/layouts");
        for other in others(manifest.pointer(place).unwrap(), reversible) {
            let what = format!("{place} = {other}");
            edit_manifest(&path, |manifest| *manifest.pointer_mut(place).unwrap() = other);
            assert!(is_refused(&path), "{what}");
            fs::write(path.join(MANIFEST_FILE), &sound).unwrap();
        }
    }
    assert!(!is_refused(&path));
}

fn list_places(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let key = key.replace('~', "~0").replace('/', "~1");
                list_places(member, format!("{place}/{key}"), places);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                list_places(element, format!("{place}/{index}"), places);
            }
        }
        _ => {}
    }
    places.push(place);
}

/// Values that could stand in place of one, but do not; the order of a `reversible` list is free.
fn others(value: &Value, reversible: bool) -> Vec<Value> {
    let mut others = match value {
        Value::Null => vec![json!(0)],
        Value::Bool(flag) => vec![json!(!flag)],
        Value::Number(number) => {
            let number = number.as_u64().unwrap();
            let near = [number.checked_sub(1), Some(number + 1), Some(number ^ (1 << 32))];
            let far = [1 << 31, 1 << 62, u64::MAX / 8, u64::MAX].map(Some);
            near.into_iter()
                .chain(far)
                .flatten()
                .map(Value::from)
                .chain([json!(-1), json!(0.5), json!(1e300)])
                .collect()
        }
        Value::String(text) => {
            [String::new(), format!("{text}x"), "\0".to_owned(), "é".repeat(40)].map(Value::from).to_vec()
        }
        Value::Array(elements) if elements.is_empty() => vec![json!([null]), json!([0]), json!([{}]), json!(["in"])],
        Value::Array(elements) => {
            let mut others = vec![json!([]), Value::from(elements[1..].to_vec())];
            others.push(Value::from([&elements[..1], elements].concat()));
            if elements.len() > 1 && !reversible {
                others.push(elements.iter().rev().cloned().collect());
            }
            others
        }
        Value::Object(members) => {
            let without = members.keys().map(|key| {
                let mut members = members.clone();
                members.remove(key);
                Value::from(members)
            });
            without.chain([json!({"": null})]).collect()
        }
    };
    others.push(if value.is_null() { json!([]) } else { Value::Null });
    others.retain(|other| other != value);
    others
}

fn is_refused(path: &Path) -> bool {
    let Ok(dataset) = Dataset::open(path) else { return true };
    touch_everything(&dataset);
    Dataset::verify(path, |_| {}).map_or(true, |verified| !verified.problems.is_empty())
}

#[test]
fn arrays_that_are_too_large_together_are_refused() {
    let (_folder, path) = written_sample();
    edit_manifest(&path, |manifest| {
        for partition in manifest["partitions"].as_array_mut().unwrap() {
            partition["arrays"]["nodes/paper/original.utf8.u8"]["bytes"] = json!(u64::MAX);
        }
    });
    assert!(matches!(Manifest::read(&path), Err(Error::Manifest { .. })));
}

#[test]
fn rows_without_elements_are_refused() {
    let folder = tempdir();
    let mut featured = NodeTypeInfo::new("node", u64::MAX);
    featured.features = vec![FeatureInfo { name: "x".to_owned(), dtype: DType::F32, shape: vec![3, 0] }];
    let mut labelled = NodeTypeInfo::new("node", u64::MAX);
    labelled.label = Some(LabelInfo { kind: LabelKind::Multi, dtype: DType::U8, width: 0 });
    for (info, path) in [(featured, "nodes/node/feature.x.f32"), (labelled, "nodes/node/label.u8")] {
        let writer = DatasetWriter::create(&folder.path().join("dataset"), Replace::No).unwrap();
        writer.array(Place::Part(0), path).unwrap().finish().unwrap();
        let written = writer.finish(Manifest::new(true, Direction::In, vec![info], vec![]));
        assert!(matches!(written, Err(Error::Invalid { .. })), "{written:?}");
    }
}
