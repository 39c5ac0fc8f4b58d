//! Forks are counted, by the parent, before they happen. A process of its own, for it counts all of them.
#![allow(unsafe_code)]

use graphmill_net::forks;

#[test]
fn every_fork_is_counted_before_it_happens() {
    assert_eq!(forks(), Some(0));
    for expected in 1..=2 {
        // SAFETY: the child does nothing but end, which is allowed after a fork of a process with threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child at once, with no handler run.
            unsafe { libc::_exit(forks().map_or(-1, |forks| forks as i32)) };
        }
        let mut status = 0;
        // SAFETY: the child is ours and nobody else waits for it.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), expected, "the child was made after it was counted");
        assert_eq!(forks(), Some(expected as u64));
    }
}
