//! Memory: the budget, what is charged against it, and who waits.

use std::time::{Duration, Instant};

use graphmill_objects::{Connector, ErrorKind, Key, PutOptions};

use crate::support::{Place, Way, content, eventually};

const MIB: usize = 1 << 20;
const ONCE: PutOptions = PutOptions { ttl: None };

/// A place with room for ten and a half objects of a megabyte.
fn place(way: Way, evict: bool) -> Place {
    Place::new(way, |server| {
        server.budget = 10 * MIB as u64 + (MIB / 2) as u64;
        server.object_limit = Some(4 * MIB as u64);
        server.evict = evict;
    })
}

#[test]
fn a_put_over_the_budget_waits_and_is_refused_then() {
    for way in Way::SERVERS {
        let place = place(way, false);
        let connector = place.open();
        let keys: Vec<Key> = (0..10).map(|seed| connector.put(&content(MIB, seed)).unwrap()).collect();
        let began = Instant::now();
        let error = connector.put(&content(MIB, 99)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OverBudget, "{error}");
        assert!(began.elapsed() >= Duration::from_secs_f64(place.config.put_wait), "it waited first");
        // A batch: what fits is kept, what does not is refused, each by itself.
        let (small, large) = (content(1000, 1), content(MIB, 2));
        let results = connector.put_batch(&[&small, &large, &small], ONCE).unwrap();
        assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true], "{way:?}");
        // Nothing was lost for it.
        for (seed, key) in keys.iter().enumerate() {
            assert!(connector.get(key).unwrap().unwrap()[..] == content(MIB, seed as u64));
        }
        let stat = connector.stat().unwrap();
        assert!(stat.used <= stat.budget && stat.refused >= 2, "{stat:?}");
    }
}

#[test]
fn a_put_that_waits_goes_on_when_there_is_room() {
    for way in Way::SERVERS {
        let place = place(way, false);
        let connector = Connector::open(place.with(|config| config.put_wait = 40.0)).unwrap();
        let keys: Vec<Key> = (0..10).map(|seed| connector.put(&content(MIB, seed)).unwrap()).collect();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| connector.put(&content(3 * MIB, 50)));
            eventually("it waits", || connector.stat().unwrap().waiting_puts == 1);
            for key in &keys[..3] {
                assert!(!waiting.is_finished());
                connector.evict(key).unwrap();
            }
            let key = waiting.join().unwrap().unwrap();
            assert!(connector.get(&key).unwrap().unwrap()[..] == content(3 * MIB, 50), "{way:?}");
        });
    }
}

#[test]
fn if_asked_for_what_was_used_least_lately_makes_room() {
    for way in Way::SERVERS {
        let place = place(way, true);
        let connector = place.open();
        let keys: Vec<Key> = (0..10).map(|seed| connector.put(&content(MIB, seed)).unwrap()).collect();
        drop(connector.get(&keys[0]).unwrap().unwrap());
        for seed in 20..23 {
            connector.put(&content(MIB, seed)).unwrap();
        }
        let there: Vec<bool> = keys.iter().map(|key| connector.exists(key).unwrap()).collect();
        assert_eq!(there[..4], [true, false, false, false], "{way:?}: {there:?}");
        assert!(there[4..].iter().all(|there| *there));
        assert_eq!(connector.stat().unwrap().evicted, 3);
    }
}

#[test]
fn what_is_evicted_and_mapped_stays_and_stays_charged() {
    for way in [Way::Shared, Way::SharedByTcp] {
        for evict in [false, true] {
            let place = place(way, evict);
            let connector = place.open();
            let objects: Vec<_> = (0..10)
                .map(|seed| {
                    let key = connector.put(&content(MIB, seed)).unwrap();
                    let mapped = connector.get(&key).unwrap().unwrap();
                    connector.evict(&key).unwrap();
                    mapped
                })
                .collect();
            let stat = connector.stat().unwrap();
            assert!(stat.objects == 0 && stat.used >= 10 * MIB as u64, "{stat:?}");
            assert_eq!(connector.put(&content(MIB, 50)).unwrap_err().kind(), ErrorKind::OverBudget);
            for (seed, object) in objects.iter().enumerate() {
                assert!(object.is_mapped() && object[..] == content(MIB, seed as u64));
            }
            drop(objects);
            eventually("all room is back", || connector.stat().unwrap().used == 0);
            connector.put(&content(4 * MIB, 50)).unwrap();
        }
    }
}

#[test]
fn room_is_given_back_while_the_connection_that_lent_it_waits() {
    let place = place(Way::Shared, false);
    let connector = place.open();
    let key = connector.put(&content(MIB, 1)).unwrap();
    let never = connector.new_key().unwrap();
    let mapped = connector.get(&key).unwrap().unwrap();
    connector.evict(&key).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| connector.get_waiting(&never, Duration::from_secs(600)).unwrap().unwrap());
        eventually("it waits", || place.find().unwrap().stat().unwrap().waiting_gets == 1);
        drop(mapped);
        eventually("the room is back", || place.find().unwrap().stat().unwrap().used == 0);
        connector.set(&never, &[b"at last"], ONCE).unwrap();
        assert_eq!(&waiting.join().unwrap()[..], b"at last");
    });
}

#[test]
fn what_a_dead_reader_had_mapped_is_given_back() {
    let place = place(Way::Shared, false);
    let connector = place.open();
    let key = connector.put(&content(MIB, 1)).unwrap();
    let mut other = crate::support::Other::start(&place.config);
    assert_eq!(other.ask(&format!("get {key} 1")), "right");
    connector.evict(&key).unwrap();
    assert!(connector.stat().unwrap().used > MIB as u64);
    other.kill();
    eventually("the room is back", || connector.stat().unwrap().used == 0);
}

#[test]
fn a_process_that_holds_more_than_it_may_map_gets_copies() {
    let place = place(Way::Shared, false);
    let connector = place.open();
    let key = connector.put(&content(64 << 10, 1)).unwrap();
    let mut other = crate::support::Other::start(&place.config);
    assert_eq!(other.ask(&format!("hold {key} 16500")), "16384 mapped, then true");
    connector.evict(&key).unwrap();
    eventually("all room is back", || connector.stat().unwrap().used == 0);
}

#[test]
fn objects_are_let_go_of_at_once_also_where_the_server_hangs() {
    let place = place(Way::Shared, false).watched();
    let connector = place.open();
    let key = connector.put(&content(MIB, 1)).unwrap();
    // More than the buffers of a socket take.
    let objects: Vec<_> = (0..3000).map(|_| connector.get(&key).unwrap().unwrap()).collect();
    place.pause_server();
    let began = Instant::now();
    drop(objects);
    let took = began.elapsed();
    place.resume_server();
    assert!(took < Duration::from_secs(20), "{took:?}");
    connector.evict(&key).unwrap();
    eventually("all room is back", || connector.stat().unwrap().used == 0);
}

#[test]
fn an_object_that_came_over_a_socket_is_mapped_too() {
    let place = place(Way::Shared, false);
    let (sharing, plain) = (place.open(), Connector::open(place.with(|config| config.shared_memory = false)).unwrap());
    let key = plain.put(&content(2 * MIB, 1)).unwrap();
    for _ in 0..3 {
        let got = sharing.get(&key).unwrap().unwrap();
        assert!(got.is_mapped() && got[..] == content(2 * MIB, 1));
        assert!(plain.get(&key).unwrap().unwrap()[..] == content(2 * MIB, 1));
    }
    let used = sharing.stat().unwrap().used;
    assert!(used < 2 * MIB as u64 + 10_000, "the first copy is gone: {used}");
    // Where there is no room for a second copy it comes over the socket.
    let keys = [1, 2, 3].map(|seed| plain.put(&content(2 * MIB, seed)).unwrap());
    let last = plain.put(&content(2 * MIB, 4)).unwrap();
    let got = sharing.get(&last).unwrap().unwrap();
    assert!(!got.is_mapped() && got[..] == content(2 * MIB, 4));
    drop(keys);
}

/// The memory of a process that nobody else has, and the shared memory that it holds open.
fn memory(process: i32) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let own = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().filter_map(Result::ok);
    let shared = files.filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().contains("memfd:graphmill-"))
    });
    own + shared.filter_map(|entry| Some(std::fs::metadata(entry.path()).ok()?.blocks() * 512)).sum::<u64>()
}

#[test]
fn the_budget_is_kept_in_measured_memory_too() {
    for (way, size) in [(Way::Tcp, 200), (Way::Unix, 5000), (Way::Tcp, MIB), (Way::Shared, 300_000)] {
        let place = Place::new(way, |server| server.budget = 48 << 20).watched();
        let connector = Connector::open(place.with(|config| config.put_wait = 0.0)).unwrap();
        let process = place.server_process();
        let empty = memory(process);
        let object = content(size, 1);
        let batch: Vec<&[u8]> = (0..(2 * MIB / size).max(1)).map(|_| &object[..]).collect();
        let mut most = 0;
        // Filled, half emptied and filled again, three times over.
        for _ in 0..3 {
            while connector.put_batch(&batch, ONCE).unwrap().iter().all(Result::is_ok) {
                most = most.max(memory(process));
            }
            most = most.max(memory(process));
            let mut after = None;
            loop {
                let page = connector.list(after, 10_000).unwrap();
                let Some(last) = page.last() else { break };
                after = Some(last.id);
                for entry in page.iter().step_by(2) {
                    connector.evict(&connector.key_of(entry).unwrap()).unwrap();
                }
            }
        }
        let (stat, grown) = (connector.stat().unwrap(), most.saturating_sub(empty));
        assert!(stat.refused > 0 && grown > 16 << 20, "it was full: {grown}");
        // Tables that grow by doubling, and buffers of connections, come on top of what objects take.
        assert!(grown <= (48 << 20) + (8 << 20), "{way:?}, {size} bytes: {grown} of {}", 48 << 20);
    }
}

#[test]
fn redis_refuses_what_it_has_no_room_for() {
    let Some(place) = Place::redis(&["--maxmemory", "8mb", "--maxmemory-policy", "noeviction"]) else { return };
    let connector = place.open();
    let results = connector.put_batch(&[&content(MIB, 1)[..]; 12], ONCE).unwrap();
    let refused = results.into_iter().filter_map(Result::err).map(|error| error.kind()).collect::<Vec<_>>();
    assert!(!refused.is_empty() && refused.iter().all(|kind| *kind == ErrorKind::OverBudget), "{refused:?}");
    assert_eq!(connector.put(&content(MIB, 1)).unwrap_err().kind(), ErrorKind::OverBudget);
}
