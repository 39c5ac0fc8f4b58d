//! A fork with batches outstanding: the child's keep their bytes, whatever the parent loads. A process of its own, for what
//! happens before a fork concerns everything in it.
#![allow(unsafe_code)]

#[allow(dead_code, reason = "the other tests need the rest")]
#[path = "cluster/support.rs"]
mod support;

use graphmill_client::{Loader, SeedList, Transport};
use graphmill_sample::Batch;
use support::{Cluster, NODES, Store, bytes, config, expected, loading};

#[test]
fn a_child_keeps_the_bytes_of_batches_that_the_parent_gave_back() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let remote = cluster.connect(Transport::SharedMemory);
    let seeds = SeedList::Nodes((0..NODES).collect());
    let loader = Loader::remote(&remote, config(), seeds.clone(), loading(8)).unwrap();
    let mut batches = loader.epoch(0);
    // No more, or what is on its way would be copied.
    let held: Vec<(Batch, Vec<u8>)> = (0..2)
        .map(|_| {
            let batch = batches.next().unwrap().unwrap();
            let bytes = batch.bytes().to_vec();
            (batch, bytes)
        })
        .collect();
    assert_eq!(remote.traffic().copied_bytes, 0, "the batches lie in slots");
    drop(batches);

    let mut pipe = [0; 2];
    // SAFETY: `pipe` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: the child reads memory, waits on a pipe and ends; it takes no lock and no memory.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut word = 0u8;
        // SAFETY: `word` is one byte, and the descriptor is open. The read ends when the parent has closed or written.
        let told = unsafe { libc::read(pipe[0], (&raw mut word).cast(), 1) };
        let same = held.iter().all(|(batch, bytes)| batch.bytes() == &bytes[..]);
        // SAFETY: ends the child at once, with no handler and no destructor run.
        unsafe { libc::_exit(i32::from(!(told == 1 && same))) };
    }
    // The parent lets go of everything, and has every slot written again and again.
    drop(held);
    for epoch in 1..4 {
        assert!(bytes(loader.epoch(epoch)) == expected(&store, &config(), seeds.clone(), &loading(8), epoch));
    }
    let mut status = 0;
    // SAFETY: one byte of `status` is read; the child is ours and nobody else waits for it.
    unsafe {
        assert_eq!(libc::write(pipe[1], (&raw const status).cast(), 1), 1);
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child saw other bytes");
    // And the slots that were not given back are replaced.
    let shared = remote.traffic().shared_bytes;
    assert!(bytes(loader.epoch(4)) == expected(&store, &config(), seeds, &loading(8), 4));
    assert!(remote.traffic().shared_bytes > shared);
}

#[test]
fn a_child_that_drops_its_loader_harms_nobody() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let seeds = SeedList::Nodes((0..NODES).collect());
    for transport in [Transport::SharedMemory, Transport::Socket] {
        let remote = cluster.connect(transport);
        let loader = Loader::remote(&remote, config(), seeds.clone(), loading(8)).unwrap();
        let mut batches = loader.epoch(0);
        let held = batches.next().unwrap().unwrap();
        let channels = cluster.status(0).channels.len();
        // SAFETY: the child drops what it was given and ends. If that never ended, the alarm would end it.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no handler is set, so the alarm ends the process.
            unsafe { libc::alarm(10) };
            drop((held, batches, loader, remote));
            // SAFETY: ends the child at once, with no handler and no destructor run.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: the child is ours and nobody else waits for it.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child ended with {status}");
        // The parent has what it had: its channels, its batch, the rest of the epoch, and the next.
        assert_eq!(cluster.status(0).channels.len(), channels, "{transport:?}");
        let wanted = expected(&store, &config(), seeds.clone(), &loading(8), 0);
        assert!(held.bytes() == wanted[0].1);
        assert!(bytes(batches) == wanted[1..]);
        assert!(bytes(loader.epoch(1)) == expected(&store, &config(), seeds.clone(), &loading(8), 1));
    }
}
