//! The life of channels: opened, asked, closed, lost, by several at once, with batches under way.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::json;
use shuttle::future::{block_on, yield_now};

use crate::Refusal;
use crate::registry::Found;
use crate::support::{
    AN_HOUR, BATCHES, Came, Connection, MUCH, READER, World, backend, models, open, open_at_last, plan,
};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::thread::JoinHandle;
use crate::sync::{Arc, thread};

models![
    3000 a_backend_is_made_once_for_all_who_ask_at_once,
    3000 a_backend_that_cannot_be_made_leaves_nothing_and_may_be_tried_again,
    3000 who_gives_up_while_a_backend_is_made_leaves_it_to_the_others,
    3000 a_backend_is_there_while_a_channel_on_it_is_open,
    3000 a_backend_that_nobody_used_is_swept_or_used_and_never_both,
    1200 batches_of_an_epoch_come_once_and_the_next_epoch_does_not_wait,
    1200 batches_for_which_there_is_no_memory_come_when_there_is,
    1200 a_channel_that_is_closed_under_way_leaves_nothing,
    1200 a_client_that_comes_back_over_another_connection_gets_everything,
    3000 a_client_that_was_cut_off_and_comes_back_gets_everything,
    1200 a_lease_that_ends_leaves_nothing_and_its_client_is_told,
    1200 a_client_that_takes_leave_while_it_asks_leaves_nothing,
];

const SOMEBODY: [u8; 16] = [1; 16];

fn a_backend_is_made_once_for_all_who_ask_at_once() {
    let world = World::new(0, AN_HOUR, MUCH);
    let made = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let (core, made) = (Arc::clone(&world.core), Arc::clone(&made));
            thread::spawn(move || {
                let make = async move {
                    made.fetch_add(1, Ordering::SeqCst);
                    yield_now().await;
                    Ok(plan())
                };
                block_on(core.registry.backend("run", "key", &json!({}), make)).unwrap()
            })
        })
        .collect();
    let backends: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    assert_eq!(made.load(Ordering::SeqCst), 1);
    assert!(backends.iter().all(|backend| Arc::ptr_eq(backend, &backends[0])));
    let known = world.core.registry.backends();
    assert!(known.len() == 1 && Arc::ptr_eq(&known[0], &backends[0]));
}

fn a_backend_that_cannot_be_made_leaves_nothing_and_may_be_tried_again() {
    let world = World::new(0, AN_HOUR, MUCH);
    let attempts = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let (core, attempts) = (Arc::clone(&world.core), Arc::clone(&attempts));
            thread::spawn(move || {
                let make = async move {
                    attempts.fetch_add(1, Ordering::SeqCst);
                    yield_now().await;
                    Err(Refusal::invalid("no"))
                };
                block_on(core.registry.backend("run", "key", &json!({}), make)).unwrap_err()
            })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.join().unwrap().reason, "no");
    }
    assert!((1..=3).contains(&attempts.load(Ordering::SeqCst)));
    let made = backend(&world.core).unwrap();
    assert!(world.core.registry.backends().iter().all(|known| Arc::ptr_eq(known, &made)));
}

fn who_gives_up_while_a_backend_is_made_leaves_it_to_the_others() {
    let world = World::new(0, Duration::ZERO, MUCH);
    let make = || async {
        yield_now().await;
        Ok(plan())
    };
    let hasty = {
        let core = Arc::clone(&world.core);
        thread::spawn(move || {
            // Asks, and does not wait.
            drop(core.registry.backend("run", "key", &json!({}), make()).now_or_never());
        })
    };
    let patient = {
        let core = Arc::clone(&world.core);
        thread::spawn(move || block_on(core.registry.backend("run", "key", &json!({}), make())).unwrap())
    };
    patient.join().unwrap();
    hasty.join().unwrap();
    world.core.sweep();
    assert!(world.core.registry.backends().is_empty(), "nobody uses it");
    // Also what was begun and given up by everyone is forgotten.
    backend(&world.core).unwrap();
}

fn a_backend_is_there_while_a_channel_on_it_is_open() {
    let world = World::new(0, AN_HOUR, MUCH);
    let first = open(&world.core, READER, 1 << 20).unwrap();
    let closer = {
        let core = Arc::clone(&world.core);
        thread::spawn(move || assert!(core.close(first.id, &READER) && !core.close(first.id, &READER)))
    };
    let others: Vec<_> = [SOMEBODY, [2; 16]]
        .map(|client| {
            let core = Arc::clone(&world.core);
            thread::spawn(move || {
                let channel = open_at_last(&core, client, 1 << 20);
                let known = core.registry.backend_by_id(channel.backend.id).unwrap();
                assert!(Arc::ptr_eq(&known, &channel.backend));
                assert!(!core.close(channel.id, &READER), "it is not the reader's");
                assert!(core.close(channel.id, &client));
                assert!(matches!(core.registry.find(channel.id), Found::Closed));
            })
        })
        .into();
    closer.join().unwrap();
    for other in others {
        other.join().unwrap();
    }
    world.end();
}

fn a_backend_that_nobody_used_is_swept_or_used_and_never_both() {
    let world = World::new(0, Duration::ZERO, MUCH);
    // Made, and not used yet.
    drop(backend(&world.core).unwrap());
    let sweeper = {
        let core = Arc::clone(&world.core);
        thread::spawn(move || core.sweep())
    };
    let clients: Vec<_> = [READER, SOMEBODY]
        .map(|client| {
            let core = Arc::clone(&world.core);
            thread::spawn(move || open_at_last(&core, client, 1 << 20))
        })
        .into();
    sweeper.join().unwrap();
    let opened: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    for channel in &opened {
        match world.core.registry.find(channel.id) {
            Found::Open(found) => {
                let known = world.core.registry.backend_by_id(found.backend.id).unwrap();
                assert!(Arc::ptr_eq(&known, &found.backend), "an open channel has a backend that is known");
            }
            found => assert!(matches!(found, Found::Lost), "{found:?}"),
        }
    }
    world.core.sweep();
    drop(opened);
    world.end();
}

/// All batches of an epoch.
fn all() -> Vec<u64> {
    (0..BATCHES).collect()
}

fn batches_of_an_epoch_come_once_and_the_next_epoch_does_not_wait() {
    let world = World::new(2, AN_HOUR, MUCH);
    let channel = open(&world.core, READER, 1 << 20).unwrap();
    let connection = Connection::new(&world.core, false);
    connection.ask(channel.id, 1, &all());
    let mut came = BTreeMap::new();
    let next = {
        let (outlet, core) = (Arc::clone(&connection.outlet), Arc::clone(&world.core));
        let id = channel.id;
        thread::spawn(move || {
            let again = Connection { outlet, ..Connection::new(&core, false) };
            again.ask(id, 2, &all());
            // Asked for twice while it waits or runs is asked for once; of an epoch that is over, not at all.
            again.ask(id, 1, &[0]);
        })
    };
    connection.read(|one| {
        *came.entry(one).or_insert(0) += 1;
        (0..BATCHES).any(|g| !came.contains_key(&Came::Batch { epoch: 2, g }))
    });
    next.join().unwrap();
    assert!(came.values().all(|&times| times == 1), "{came:?}");
    assert!(world.core.close(channel.id, &READER));
    drop(channel);
    world.end();
}

fn batches_for_which_there_is_no_memory_come_when_there_is() {
    // One batch at a time.
    let world = World::new(2, AN_HOUR, 8 << 10);
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let core = Arc::clone(&world.core);
            thread::spawn(move || {
                let channel = open_at_last(&core, READER, 1 << 20);
                let connection = Connection::new(&core, false);
                connection.ask(channel.id, 1, &[0, 1]);
                let mut left = 2;
                connection.read(|came| {
                    assert!(matches!(came, Came::Batch { epoch: 1, .. }));
                    left -= 1;
                    left > 0
                });
                assert!(core.close(channel.id, &READER));
            })
        })
        .collect();
    for reader in readers {
        reader.join().unwrap();
    }
    world.end();
}

fn a_channel_that_is_closed_under_way_leaves_nothing() {
    let world = World::new(2, AN_HOUR, MUCH);
    let channel = open(&world.core, READER, 1 << 20).unwrap();
    let connection = Connection::new(&world.core, false);
    let closer = {
        let (core, id) = (Arc::clone(&world.core), channel.id);
        thread::spawn(move || assert!(core.close(id, &READER)))
    };
    connection.ask(channel.id, 1, &all());
    // On a channel that its own client has closed, nothing is an error.
    world.core.work.scheduler(|scheduler| scheduler.start(channel.id, 2));
    connection.ask(channel.id, 2, &[0]);
    closer.join().unwrap();
    assert!(matches!(world.core.registry.find(channel.id), Found::Closed));
    connection.close();
    drop(channel);
    world.end();
}

fn a_client_that_comes_back_over_another_connection_gets_everything() {
    come_back(2, |first| Some(thread::spawn(|| first.close())));
}

fn a_client_that_was_cut_off_and_comes_back_gets_everything() {
    come_back(1, |first| {
        first.close();
        None
    });
}

/// Asks for batches over a connection that is cut, and for the same ones over another.
fn come_back(workers: usize, cut: fn(Connection) -> Option<JoinHandle<()>>) {
    let world = World::new(workers, AN_HOUR, MUCH);
    let channel = open(&world.core, READER, 1 << 20).unwrap();
    let first = Connection::new(&world.core, false);
    first.ask(channel.id, 1, &all());
    let cutting = cut(first);
    let second = Connection::new(&world.core, false);
    second.ask(channel.id, 1, &all());
    let mut missing = all();
    second.read(|came| {
        missing.retain(|&g| came != Came::Batch { epoch: 1, g });
        !missing.is_empty()
    });
    if let Some(cutting) = cutting {
        cutting.join().unwrap();
    }
    assert!(world.core.close(channel.id, &READER));
    drop(channel);
    world.end();
}

fn a_lease_that_ends_leaves_nothing_and_its_client_is_told() {
    let world = World::new(1, Duration::ZERO, MUCH);
    let sweeper = {
        let core = Arc::clone(&world.core);
        thread::spawn(move || core.sweep())
    };
    let channel = open_at_last(&world.core, READER, 1 << 20);
    let connection = Connection::new(&world.core, false);
    connection.ask(channel.id, 1, &all());
    sweeper.join().unwrap();
    let lost = matches!(world.core.registry.find(channel.id), Found::Lost);
    connection.ask(channel.id, 1, &all());
    let mut missing = all();
    connection.read(|came| {
        missing.retain(|&g| came != Came::Batch { epoch: 1, g });
        if came == Came::Lost {
            assert!(lost);
            return false;
        }
        lost || !missing.is_empty()
    });
    world.core.sweep();
    assert!(matches!(world.core.registry.find(channel.id), Found::Lost));
    assert!(world.core.work.scheduler(|scheduler| scheduler.seen(channel.id)).is_none(), "the scheduler knows it");
    drop(channel);
    world.end();
}

fn a_client_that_takes_leave_while_it_asks_leaves_nothing() {
    let world = World::new(1, Duration::ZERO, MUCH);
    let connection = Connection::new(&world.core, false);
    let asker = {
        let core = Arc::clone(&world.core);
        thread::spawn(move || {
            // It may have left already.
            let opened = open(&core, READER, 1 << 20).ok();
            if let Some(channel) = &opened {
                connection.ask(channel.id, 1, &all());
            }
            connection.close();
            opened.map(|channel| channel.id)
        })
    };
    let channels = world.core.registry.leave(READER);
    world.core.cancel(&channels);
    if let Some(id) = asker.join().unwrap() {
        assert!(world.core.work.scheduler(|scheduler| scheduler.seen(id)).is_none(), "the scheduler knows it");
    }
    drop(channels);
    assert_eq!(world.core.registry.clients(), 0);
    // A backend that was made for it and never used goes as leases do.
    world.core.sweep();
    world.end();
}
