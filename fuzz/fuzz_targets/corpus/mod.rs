//! What a corpus begins with, made by the target itself.

use std::fs;
use std::path::PathBuf;

/// Writes inputs to the first directory that libFuzzer was given, if it was given one.
pub fn write_to_corpus(inputs: &[Vec<u8>]) {
    let Some(directory) = std::env::args().skip(1).map(PathBuf::from).find(|path| path.is_dir()) else { return };
    for (number, input) in inputs.iter().enumerate() {
        fs::write(directory.join(format!("seed-{number}")), input).unwrap();
    }
}
