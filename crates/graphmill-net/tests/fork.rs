//! What is called before a fork is called, in the parent. A process of its own, for there is one callback per process.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

static CALLS: AtomicU32 = AtomicU32::new(0);

fn called() {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn the_callback_runs_before_every_fork_and_there_is_one() {
    graphmill_net::before_fork(called).unwrap();
    assert!(graphmill_net::before_fork(called).is_err());
    for forks in 1..=2 {
        // SAFETY: the child does nothing but end, which is allowed after a fork of a process with threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child at once, with no handler run.
            unsafe { libc::_exit(CALLS.load(Ordering::Relaxed).cast_signed()) };
        }
        let mut status = 0;
        // SAFETY: the child is ours and nobody else waits for it.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), forks, "the child was made after the call");
        assert_eq!(CALLS.load(Ordering::Relaxed), forks.cast_unsigned());
    }
}
