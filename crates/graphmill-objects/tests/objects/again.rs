//! Memory that is used again for other objects: nobody who has one sees that.

use std::collections::BTreeSet;

use graphmill_objects::{Key, Object, PutOptions};
use proptest::prelude::*;

use crate::support::{Place, Way, content, eventually};

const SIZE: usize = 100_000;

fn place() -> Place {
    Place::new(Way::Shared, |server| server.budget = 16 << 20).watched()
}

/// The trays that a server has.
fn trays(place: &Place) -> BTreeSet<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let files = std::fs::read_dir(format!("/proc/{}/fd", place.server_process())).unwrap().filter_map(Result::ok);
    let is_tray = |link: std::path::PathBuf| link.to_string_lossy().contains("memfd:graphmill-slot");
    let trays = files.filter(|file| std::fs::read_link(file.path()).is_ok_and(is_tray));
    trays.filter_map(|file| Some(std::fs::metadata(file.path()).ok()?.ino())).collect()
}

#[test]
fn what_was_put_got_and_evicted_makes_room_without_new_memory() {
    let place = place();
    let connector = place.open();
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        // Sizes that are alike share their memory.
        let object = content(SIZE + seed as usize, seed);
        let key = connector.put(&object).unwrap();
        seen.append(&mut trays(&place));
        let got = connector.get(&key).unwrap().unwrap();
        assert!(got.is_mapped() && got[..] == object);
        drop(got);
        eventually("it is given back", || connector.list(None, 10).unwrap()[0].readers == Some(0));
        connector.evict(&key).unwrap();
        assert_eq!(connector.stat().unwrap().used, 0);
    }
    assert_eq!(seen.len(), 1, "one tray served all");
}

#[test]
fn what_a_closed_connector_got_stays_as_it_is() {
    let place = place();
    let (reader, other) = (place.open(), place.open());
    let key = other.put(&content(SIZE, 1)).unwrap();
    let got = reader.get(&key).unwrap().unwrap();
    assert!(got.is_mapped() && trays(&place).len() == 1);
    reader.close(false).unwrap();
    eventually("its connection is gone", || other.stat().unwrap().connections == 1);
    other.evict(&key).unwrap();
    let keys: Vec<Key> = (2..20).map(|seed| other.put(&content(SIZE, seed)).unwrap()).collect();
    assert!(got[..] == content(SIZE, 1));
    drop(keys);
}

#[test]
fn trays_that_make_way_are_kept_by_nobody() {
    let place = place();
    let connector = place.open();
    for seed in 0..60 {
        // Another size each time, of which a few fit.
        let object = content(SIZE + 150_000 * (seed as usize % 20), seed);
        let key = connector.put(&object).unwrap();
        assert!(connector.get(&key).unwrap().unwrap()[..] == object);
        eventually("it is given back", || connector.list(None, 10).unwrap()[0].readers == Some(0));
        connector.evict(&key).unwrap();
        assert!(trays(&place).len() <= 8, "{:?}", trays(&place));
    }
}

#[test]
fn whoever_puts_more_than_fits_its_trays_loses_nothing() {
    let place = Place::new(Way::Shared, |server| server.budget = 64 << 20).watched();
    let connector = place.open();
    let keys: Vec<Key> = (0..40).map(|seed| connector.put(&content(1_000_000, seed)).unwrap()).collect();
    assert_eq!(trays(&place).len(), 8, "others came as sealed memory");
    for (seed, key) in (0..).zip(&keys) {
        assert!(connector.get(key).unwrap().unwrap()[..] == content(1_000_000, seed));
    }
    // Who put them is gone, and they are still there.
    connector.close(false).unwrap();
    let other = place.open();
    for (seed, key) in (0..).zip(&keys) {
        assert!(other.get(key).unwrap().unwrap()[..] == content(1_000_000, seed));
        other.evict(key).unwrap();
    }
    eventually("no tray is left", || trays(&place).is_empty());
    assert_eq!(other.stat().unwrap().used, 0);
}

/// What may happen next: a put, a get, letting go, an evict, another content.
fn steps() -> impl Strategy<Value = Vec<(u8, usize, usize)>> {
    proptest::collection::vec((0u8..5, 0usize..8, 64usize << 10..200_000), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Against a plain list: every object that is held or stored is what was put, whatever became of its neighbours.
    #[test]
    fn no_object_ever_shows_the_bytes_of_another(steps in steps()) {
        let place = Place::new(Way::Shared, |server| server.budget = 16 << 20);
        let connectors = [place.open(), place.open()];
        let mut stored: Vec<(Key, Vec<u8>)> = Vec::new();
        let mut held: Vec<(Object, Vec<u8>)> = Vec::new();
        for (number, (what, which, size)) in steps.into_iter().enumerate() {
            let connector = &connectors[which % 2];
            let fresh = content(size, number as u64);
            match what {
                0 => stored.extend(connector.put(&fresh).ok().map(|key| (key, fresh))),
                1 if !stored.is_empty() => {
                    let (key, bytes) = &stored[which % stored.len()];
                    held.push((connector.get(key).unwrap().unwrap(), bytes.clone()));
                }
                2 if !held.is_empty() => drop(held.remove(which % held.len())),
                3 if !stored.is_empty() => connector.evict(&stored.remove(which % stored.len()).0).unwrap(),
                4 if !stored.is_empty() => {
                    let place = which % stored.len();
                    let (key, bytes) = &mut stored[place];
                    if connector.set(key, &[&fresh], PutOptions::default()).is_ok() {
                        *bytes = fresh;
                    }
                }
                _ => {}
            }
            prop_assert!(held.iter().all(|(object, bytes)| object[..] == bytes[..]));
        }
        for (key, bytes) in &stored {
            prop_assert!(connectors[0].get(key).unwrap().unwrap()[..] == bytes[..]);
        }
    }
}
