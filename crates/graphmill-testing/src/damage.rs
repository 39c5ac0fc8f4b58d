//! Files of a dataset to damage, and ways to make the damage look intended: a manifest whose checksums fit again.

use std::path::{Path, PathBuf};

use graphmill_graph::MANIFEST_FILE;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

/// Every file of a dataset, sorted.
pub fn files(dataset: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dataset).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Ends a manifest's text in the checksum that fits it, in place of the one it may have.
pub fn seal(text: &[u8]) -> Vec<u8> {
    const KEY: &[u8] = b",\n  \"checksum\": \"";
    const ZEROS: &[u8] = b"0000000000000000";
    let stated = text.windows(KEY.len()).rposition(|window| window == KEY);
    let end = stated.or_else(|| text.iter().rposition(|&byte| byte == b'}')).unwrap_or(text.len());
    let mut sealed = [text[..end].trim_ascii_end(), KEY, ZEROS, b"\"\n}\n"].concat();
    let digits = format!("{:016x}", xxh3_64(&sealed));
    let start = sealed.len() - digits.len() - 4;
    sealed[start..start + digits.len()].copy_from_slice(digits.as_bytes());
    sealed
}

/// Changes a dataset's manifest and seals it again.
pub fn edit_manifest(dataset: &Path, edit: impl FnOnce(&mut Value)) {
    let path = dataset.join(MANIFEST_FILE);
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    manifest.as_object_mut().unwrap().remove("checksum");
    edit(&mut manifest);
    std::fs::write(&path, seal(&serde_json::to_vec_pretty(&manifest).unwrap())).unwrap();
}

/// States in the manifest the checksums of the arrays as they are now.
pub fn reseal(dataset: &Path) {
    edit_manifest(dataset, |manifest| {
        restate(&mut manifest["book_arrays"], &dataset.join("book"));
        for (number, partition) in manifest["partitions"].as_array_mut().unwrap().iter_mut().enumerate() {
            restate(&mut partition["arrays"], &dataset.join(graphmill_graph::path::part(number as u32)));
        }
    });
}

fn restate(arrays: &mut Value, folder: &Path) {
    for (path, stored) in arrays.as_object_mut().unwrap() {
        let checksum = xxh3_64(&std::fs::read(folder.join(path)).unwrap());
        stored["xxh3"] = Value::from(format!("{checksum:016x}"));
    }
}
