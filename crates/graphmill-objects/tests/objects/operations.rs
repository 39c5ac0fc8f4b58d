//! What every transport does alike.

use std::time::Duration;

use graphmill_objects::{Config, Connector, Error, ErrorKind, Key, ObjectId, PutOptions};

use crate::support::{Place, Way, content, eventually, everywhere};

const ONCE: PutOptions = PutOptions { ttl: None };

#[test]
fn objects_of_every_size_around_the_limits_come_back_as_they_were() {
    everywhere(|place| {
        let connector = place.open();
        let (head, ahead, shared) = (48, 16 << 10, 64 << 10);
        let mut sizes: Vec<usize> = [0, head, ahead - head, ahead, shared, 1 << 20]
            .into_iter()
            .flat_map(|size: usize| [size.saturating_sub(1), size, size + 1])
            .collect();
        let limit = connector.stat().unwrap().object_limit as usize;
        if place.way != Way::Redis {
            sizes.extend([limit - 1, limit]);
        }
        for size in sizes {
            let object = content(size, size as u64);
            let key = connector.put(&object).unwrap();
            assert_eq!(key.size, Some(size as u64));
            let got = connector.get(&key).unwrap().unwrap_or_else(|| panic!("{size} bytes are there"));
            assert!(got[..] == object, "{size} bytes");
            assert_eq!(got.is_mapped(), place.way.shares() && size >= shared, "{size} bytes");
            drop(got);
            connector.evict(&key).unwrap();
        }
        let error = connector.put(&vec![0; limit + 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert_eq!(connector.stat().unwrap().objects, 0);
    });
}

#[test]
fn parts_become_one_object() {
    everywhere(|place| {
        let connector = place.open();
        let large = content(100_000, 3);
        let key = connector.put_with(&[b"head", b"", &large], ONCE).unwrap();
        let got = connector.get(&key).unwrap().unwrap();
        assert!(got[..4] == *b"head" && got[4..] == large);
    });
}

#[test]
fn a_batch_has_a_result_for_each_item_in_order() {
    everywhere(|place| {
        let connector = place.open();
        let limit = connector.stat().unwrap().object_limit as usize;
        let mut objects: Vec<Vec<u8>> = (0..200).map(|number| content(number * 37, number as u64)).collect();
        objects[17] = content(100_000, 17);
        objects[90] = content(300_000, 90);
        if place.way != Way::Redis {
            objects[50] = vec![0; limit + 1];
        }
        let slices: Vec<&[u8]> = objects.iter().map(Vec::as_slice).collect();
        let keys = connector.put_batch(&slices, ONCE).unwrap();
        assert_eq!(keys.len(), 200);
        let refused: Vec<usize> = (0..200).filter(|&place| keys[place].is_err()).collect();
        if place.way == Way::Redis {
            assert!(refused.is_empty());
        } else {
            assert_eq!(refused, [50]);
            assert_eq!(keys[50].as_ref().unwrap_err().kind(), ErrorKind::TooLarge);
        }
        let missing = connector.new_key().unwrap();
        let keys: Vec<&Key> = keys.iter().map(|key| key.as_ref().unwrap_or(&missing)).collect();
        let got = connector.get_batch(&keys, Duration::ZERO).unwrap();
        for (number, (got, object)) in got.into_iter().zip(&objects).enumerate() {
            let got = got.unwrap();
            if refused.contains(&number) {
                assert!(got.is_none());
            } else {
                assert!(got.unwrap()[..] == object[..], "object {number}");
            }
        }
        assert!(connector.get_batch(&[], Duration::ZERO).unwrap().is_empty());
        assert!(connector.put_batch(&[], ONCE).unwrap().is_empty());
    });
}

#[test]
fn what_is_evicted_is_gone_and_evicting_it_again_is_fine() {
    everywhere(|place| {
        let connector = place.open();
        for bytes in [10, 200_000] {
            let key = connector.put(&content(bytes, 1)).unwrap();
            assert!(connector.exists(&key).unwrap());
            connector.evict(&key).unwrap();
            connector.evict(&key).unwrap();
            assert!(!connector.exists(&key).unwrap());
            assert!(connector.get(&key).unwrap().is_none());
        }
    });
}

#[test]
fn a_get_that_waits_is_answered_when_the_object_is_set() {
    everywhere(|place| {
        let connector = place.open();
        for bytes in [5, 150_000] {
            let key = connector.new_key().unwrap();
            assert!(connector.get(&key).unwrap().is_none());
            assert!(connector.get_waiting(&key, Duration::from_millis(30)).unwrap().is_none());
            // A batch waits once for all, not for each.
            let (there, began) = (connector.put(b"there").unwrap(), std::time::Instant::now());
            let missing = [&key, &there, &key, &key, &key, &key, &key, &key];
            let got = connector.get_batch(&missing, Duration::from_millis(1500)).unwrap();
            assert_eq!(got.iter().filter(|one| matches!(one, Ok(Some(_)))).count(), 1);
            assert!((1.4..9.0).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
            std::thread::scope(|scope| {
                let waiting = [(); 3].map(|()| scope.spawn(|| connector.get_waiting(&key, Duration::from_secs(60))));
                if place.way != Way::Redis {
                    eventually("all wait", || connector.stat().unwrap().waiting_gets == 3);
                }
                connector.set(&key, &[&content(bytes, 7)], ONCE).unwrap();
                for one in waiting {
                    assert!(one.join().unwrap().unwrap().unwrap()[..] == content(bytes, 7));
                }
            });
            if place.way != Way::Redis {
                assert_eq!(connector.stat().unwrap().waiting_gets, 0);
            }
        }
    });
}

#[test]
fn setting_again_replaces_and_leaves_what_was_handed_out() {
    everywhere(|place| {
        let connector = place.open();
        for bytes in [100, 200_000] {
            let key = connector.new_key().unwrap();
            connector.set(&key, &[&content(bytes, 1)], ONCE).unwrap();
            let first = connector.get(&key).unwrap().unwrap();
            connector.set(&key, &[&content(bytes + 1, 2)], ONCE).unwrap();
            assert!(connector.get(&key).unwrap().unwrap()[..] == content(bytes + 1, 2));
            assert!(first[..] == content(bytes, 1));
        }
    });
}

#[test]
fn what_was_got_can_be_edited_and_nobody_else_sees_it() {
    everywhere(|place| {
        let connector = place.open();
        let key = connector.put(&content(200_000, 1)).unwrap();
        let mut got = connector.get(&key).unwrap().unwrap();
        got.bytes_mut().fill(0);
        assert!(connector.get(&key).unwrap().unwrap()[..] == content(200_000, 1));
        assert!(got.into_vec() == vec![0; 200_000]);
    });
}

#[test]
fn a_configuration_opens_the_same_place_elsewhere() {
    everywhere(|place| {
        let connector = place.open();
        let key = connector.put(b"shared").unwrap();
        let again = Config::from_json(&connector.config().to_json()).unwrap();
        assert_eq!(&again, connector.config());
        let second = Connector::open(again).unwrap();
        let text = key.to_string();
        assert_eq!(&second.get(&text.parse().unwrap()).unwrap().unwrap()[..], b"shared");
        // The second goes; the first has everything it had.
        second.close(false).unwrap();
        drop(second);
        assert_eq!(&connector.get(&key).unwrap().unwrap()[..], b"shared");
        // Closing ends the lease, not the connector.
        connector.close(false).unwrap();
        assert!(connector.exists(&key).unwrap());
    });
}

#[test]
fn an_object_lives_as_long_as_it_was_given() {
    everywhere(|place| {
        let connector = place.open();
        let (short, long) = (Some(Duration::from_millis(150)), Some(Duration::from_secs(600)));
        let keys = [short, long, None].map(|ttl| connector.put_with(&[b"x"], PutOptions { ttl }).unwrap());
        eventually("the first is gone", || !connector.exists(&keys[0]).unwrap());
        assert!(connector.get(&keys[0]).unwrap().is_none());
        assert!(connector.exists(&keys[1]).unwrap() && connector.exists(&keys[2]).unwrap());
        eventually("it was swept", || connector.stat().unwrap().objects == 2);
    });
}

#[test]
fn many_threads_share_a_connector() {
    everywhere(|place| {
        let connector = place.open();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let connector = &connector;
                scope.spawn(move || {
                    for round in 0..40 {
                        let bytes = if round % 8 == 0 { 70_000 } else { 100 };
                        let object = content(bytes, thread * 1000 + round);
                        let key = connector.put(&object).unwrap();
                        assert!(connector.get(&key).unwrap().unwrap()[..] == object);
                        connector.evict(&key).unwrap();
                    }
                });
            }
        });
        assert_eq!(connector.stat().unwrap().objects, 0);
    });
}

#[test]
fn objects_are_listed_in_the_order_of_their_ids() {
    everywhere(|place| {
        let connector = place.open();
        let mut keys: Vec<Key> = (0..25).map(|number| connector.put(&vec![0; number]).unwrap()).collect();
        keys.sort_by_key(|key| key.id);
        let mut listed = Vec::new();
        let mut after = None;
        loop {
            let page = connector.list(after, 10).unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            listed.extend(page);
        }
        assert_eq!(listed.iter().map(|entry| connector.key_of(entry).unwrap()).collect::<Vec<_>>(), keys);
    });
}

#[test]
fn a_key_is_followed_to_the_server_that_it_names() {
    for way in [Way::Tcp, Way::Unix, Way::Shared] {
        let (first, second) = (Place::new(way, |_| {}), Place::new(way, |_| {}));
        let (first, second) = (first.open(), second.open());
        let key = first.put(&content(100_000, 1)).unwrap();
        let own = second.put(b"own").unwrap();
        assert!(second.get(&key).unwrap().unwrap()[..] == content(100_000, 1));
        let both = second.get_batch(&[&own, &key, &own], Duration::ZERO).unwrap();
        assert_eq!(both.into_iter().map(|one| one.unwrap().unwrap().len()).collect::<Vec<_>>(), [3, 100_000, 3]);
        assert_eq!((first.stat().unwrap().objects, second.stat().unwrap().objects), (1, 1), "two servers on one host");
        first.close(true).unwrap();
        second.close(true).unwrap();
    }
}

#[test]
fn keys_that_lead_nowhere_are_told_from_objects_that_are_not_there() {
    everywhere(|place| {
        let connector = place.open();
        let key = connector.put(b"x").unwrap();
        let other = Key { id: ObjectId(key.id.0 ^ 1), ..key.clone() };
        assert!(connector.get(&other).unwrap().is_none());
        if place.way == Way::Redis {
            let tcp: Key = "graphmill+tcp://127.0.0.1:1/00000000000000000000000000000000".parse().unwrap();
            assert_eq!(connector.get(&tcp).unwrap_err().kind(), ErrorKind::BadKey);
            return;
        }
        let earlier = Key { generation: key.generation ^ 2, ..key.clone() };
        assert!(connector.get(&earlier).unwrap().is_none() && !connector.exists(&earlier).unwrap());
        connector.evict(&earlier).unwrap();
        assert!(connector.exists(&key).unwrap(), "an earlier start's key does not reach this one's object");
        assert!(matches!(connector.set(&earlier, &[b"y"], ONCE).unwrap_err(), Error::Refused { .. }));
        let redis: Key = "graphmill+redis://127.0.0.1:1/00000000000000000000000000000000".parse().unwrap();
        assert_eq!(connector.get(&redis).unwrap_err().kind(), ErrorKind::BadKey);
        let nobody: Key = format!("graphmill+unix:///nowhere/{}", key.id).parse().unwrap();
        assert_eq!(connector.get(&nobody).unwrap_err().kind(), ErrorKind::Unreachable);
    });
}
