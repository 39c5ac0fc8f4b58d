//! No content of the arrays makes an accessor of a mapped dataset panic, and verification finds every change of it.
//!
//! An input is a list of edits of four bytes: a position in all arrays put one after the other, and a byte to set there.

#![no_main]

use std::cell::OnceCell;
use std::fs;
use std::path::PathBuf;

use graphmill_graph::{Dataset, Direction, MANIFEST_FILE};
use graphmill_testing::{Assignment, files, reseal, sample, tempdir, touch_everything, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

/// A sound dataset on disk, with the content of its arrays.
struct Sound {
    /// Removed with its thread.
    _folder: TempDir,
    path: PathBuf,
    manifest: Vec<u8>,
    arrays: Vec<(PathBuf, Vec<u8>)>,
}

impl Sound {
    fn write() -> Self {
        let folder = tempdir();
        let path = folder.path().join("dataset");
        let graph = sample();
        let assignment = Assignment::assigned(&graph, 2, |_, id| (id % 2) as u16);
        write(&graph, &path, &[Direction::Out, Direction::In], &assignment).unwrap();
        let manifest = fs::read(path.join(MANIFEST_FILE)).unwrap();
        let arrays = files(&path).into_iter().filter(|file| !file.ends_with(MANIFEST_FILE));
        let arrays = arrays.map(|file| (file.clone(), fs::read(file).unwrap())).collect();
        Self { _folder: folder, path, manifest, arrays }
    }

    /// The arrays that an input changes.
    fn edited(&self, input: &[u8]) -> Vec<(&PathBuf, &[u8], Vec<u8>)> {
        let total: usize = self.arrays.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut edited: Vec<_> = self.arrays.iter().map(|(path, sound)| (path, &sound[..], sound.clone())).collect();
        for edit in input.chunks_exact(4) {
            let mut at = (u32::from_le_bytes([edit[0], edit[1], edit[2], 0]) as usize) % total;
            for (_, _, bytes) in &mut edited {
                if at < bytes.len() {
                    bytes[at] = edit[3];
                    break;
                }
                at -= bytes.len();
            }
        }
        edited.retain(|(_, sound, bytes)| sound != bytes);
        edited
    }
}

thread_local! {
    static SOUND: OnceCell<Sound> = const { OnceCell::new() };
}

fuzz_target!(|input: &[u8]| {
    SOUND.with(|sound| {
        let sound = sound.get_or_init(Sound::write);
        let edited = sound.edited(input);
        for (path, _, bytes) in &edited {
            fs::write(path, bytes).unwrap();
        }
        touch_everything(&Dataset::open(&sound.path).unwrap());
        // Checksums that fit the damage leave it to the check of the structure.
        reseal(&sound.path);
        let verified = Dataset::verify(&sound.path, |_| {}).unwrap();
        assert_eq!(verified.problems.is_empty(), edited.is_empty(), "a change of the arrays was not found");
        for (path, sound, _) in &edited {
            fs::write(path, sound).unwrap();
        }
        fs::write(sound.path.join(MANIFEST_FILE), &sound.manifest).unwrap();
    });
});
