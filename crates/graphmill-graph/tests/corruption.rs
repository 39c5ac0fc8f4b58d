//! Damage to any byte of any file is found, and never brings the reader down.

use std::fs;
use std::path::Path;

use graphmill_graph::random::Stream;
use graphmill_graph::{Dataset, Direction, Error, MANIFEST_FILE, OpenOptions, Storage};
use graphmill_testing::{Assignment, files, placed_graphs, reseal, sample, tempdir, touch_everything, write};
use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::TempDir;

/// The sample in one partition by range, and in two by assignment with both layouts.
fn samples() -> Vec<TempDir> {
    let graph = sample();
    let datasets: [(&[Direction], _); 2] = [
        (&[Direction::In], Assignment::whole(&graph)),
        (&[Direction::Out, Direction::In], Assignment::assigned(&graph, 2, |_, id| (id % 2) as u16)),
    ];
    let write_one = |(layouts, assignment): &(&[Direction], Assignment)| {
        let folder = tempdir();
        write(&graph, &folder.path().join("dataset"), layouts, assignment).unwrap();
        folder
    };
    datasets.iter().map(write_one).collect()
}

/// What is wrong with a dataset, in the words of opening or verifying it.
fn complaint(dataset: &Path) -> Option<String> {
    match Dataset::verify(dataset, |_| {}) {
        Err(error) => Some(error.to_string()),
        Ok(verified) => verified.problems.first().map(ToString::to_string),
    }
}

#[test]
fn a_flipped_bit_in_any_byte_of_any_file_is_found() {
    let random = Stream::new(1, &[]);
    for folder in samples() {
        let dataset = folder.path().join("dataset");
        assert_eq!(complaint(&dataset), None);
        for file in files(&dataset) {
            let sound = fs::read(&file).unwrap();
            for at in 0..sound.len() {
                let mut damaged = sound.clone();
                damaged[at] ^= 1 << random.below(at as u64, 8);
                fs::write(&file, &damaged).unwrap();
                let complaint = complaint(&dataset);
                let named = complaint.as_ref().is_some_and(|text| text.contains(file.to_str().unwrap()));
                assert!(named, "byte {at} of {}: {complaint:?}", file.display());
            }
            fs::write(&file, &sound).unwrap();
        }
        assert_eq!(complaint(&dataset), None);
    }
}

#[test]
fn loading_into_ram_checks_every_array() {
    for folder in samples() {
        let dataset = folder.path().join("dataset");
        for file in files(&dataset) {
            let sound = fs::read(&file).unwrap();
            if sound.is_empty() {
                continue;
            }
            let mut damaged = sound.clone();
            damaged[sound.len() / 2] ^= 1;
            fs::write(&file, &damaged).unwrap();
            let options = OpenOptions { storage: Storage::Ram, partitions: None };
            let error = Dataset::open_with(&dataset, &options).unwrap_err().to_string();
            assert!(error.contains(file.to_str().unwrap()), "{error}");
            fs::write(&file, &sound).unwrap();
        }
    }
}

#[test]
fn a_file_of_any_other_length_is_refused_by_name_with_expected_and_found() {
    for folder in samples() {
        let dataset = folder.path().join("dataset");
        for file in files(&dataset) {
            let sound = fs::read(&file).unwrap();
            let longer = [&sound[..], &sound[..sound.len().min(9)], b"\0"].concat();
            fs::write(&file, &longer).unwrap();
            let handle = fs::File::options().write(true).open(&file).unwrap();
            for len in (0..=longer.len()).rev().filter(|&len| len != sound.len()) {
                handle.set_len(len as u64).unwrap();
                let opened = Dataset::open(&dataset).unwrap_err();
                let text = opened.to_string();
                assert!(text.contains(file.to_str().unwrap()), "{text}");
                if file.ends_with(MANIFEST_FILE) {
                    assert!(matches!(opened, Error::Manifest { .. }), "{len} bytes: {text}");
                } else {
                    assert!(text.ends_with(&format!("expected {} bytes, found {len}", sound.len())), "{text}");
                }
                assert_eq!(complaint(&dataset), Some(text));
            }
            fs::write(&file, &sound).unwrap();
        }
        assert_eq!(complaint(&dataset), None);
    }
}

/// What to do to the arrays of a dataset: set bytes, or fill a whole file.
#[derive(Debug, Clone)]
enum Damage {
    Byte(Index, Index, u8),
    Fill(Index, u8),
    Scramble(Index, u64),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let damage = prop_oneof![
        4 => any::<(Index, Index, u8)>().prop_map(|(file, at, byte)| Damage::Byte(file, at, byte)),
        1 => (any::<Index>(), prop_oneof![Just(0), Just(0xff), any::<u8>()]).prop_map(|(file, byte)| Damage::Fill(file, byte)),
        1 => any::<(Index, u64)>().prop_map(|(file, seed)| Damage::Scramble(file, seed)),
    ];
    proptest::collection::vec(damage, 1..12)
}

fn inflict(dataset: &Path, damages: &[Damage]) {
    let arrays: Vec<_> = files(dataset)
        .into_iter()
        .filter(|file| !file.ends_with(MANIFEST_FILE) && file.metadata().unwrap().len() > 0)
        .collect();
    if arrays.is_empty() {
        return;
    }
    for damage in damages {
        let (Damage::Byte(file, ..) | Damage::Fill(file, _) | Damage::Scramble(file, _)) = damage;
        let file = file.get(&arrays);
        let mut bytes = fs::read(file).unwrap();
        match *damage {
            Damage::Byte(_, at, byte) => *at.get_mut(&mut bytes) = byte,
            Damage::Fill(_, byte) => bytes.fill(byte),
            Damage::Scramble(_, seed) => {
                let random = Stream::new(seed, &[]);
                bytes.iter_mut().zip(0..).for_each(|(byte, at)| *byte = random.at(at) as u8);
            }
        }
        fs::write(file, bytes).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_content_of_the_arrays_makes_an_accessor_panic(
        (graph, layouts, assignment) in placed_graphs(),
        damages in damages(),
    ) {
        let folder = tempdir();
        let path = folder.path().join("dataset");
        write(&graph, &path, &layouts, &assignment)?;
        inflict(&path, &damages);
        touch_everything(&Dataset::open(&path)?);
        // With checksums that fit the damage, verification has to go through the structure.
        reseal(&path);
        touch_everything(&Dataset::open(&path)?);
        Dataset::verify(&path, |_| {})?;
    }
}

#[test]
fn damage_under_fitting_checksums_is_found_in_every_byte() {
    for folder in samples() {
        let dataset = folder.path().join("dataset");
        for file in files(&dataset).into_iter().filter(|file| !file.ends_with(MANIFEST_FILE)) {
            let sound = fs::read(&file).unwrap();
            for at in 0..sound.len() {
                let mut damaged = sound.clone();
                damaged[at] ^= 1;
                fs::write(&file, &damaged).unwrap();
                reseal(&dataset);
                let complaint = complaint(&dataset);
                assert!(complaint.is_some(), "byte {at} of {} was changed", file.display());
            }
            fs::write(&file, &sound).unwrap();
        }
        reseal(&dataset);
        assert_eq!(complaint(&dataset), None);
    }
}

#[test]
fn a_row_that_does_not_exist_is_an_error_and_no_other_name() {
    let folder = samples().remove(1);
    let dataset = folder.path().join("dataset");
    let rank = dataset.join("book/nodes/paper/rank.u32");
    fs::write(&rank, [0xff; 8]).unwrap();
    let names = Dataset::open(&dataset).unwrap().original_ids(1, &[0]).map(drop);
    assert!(matches!(names, Err(Error::Corrupt { .. })), "{names:?}");
}
