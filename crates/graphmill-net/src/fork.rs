//! How often this process was copied.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How often this process was about to fork since this was first asked; nothing where that cannot be noticed.
///
/// A child sees what its parent has mapped, for as long as it likes: what was mapped at a fork may be read for ever.
pub fn forks() -> Option<u64> {
    static NOTICED: OnceLock<bool> = OnceLock::new();
    // SAFETY: the handler is a function of this program, which is never unloaded while a thread of it can fork, and stays
    // valid for ever. It runs when other threads may hold any lock, and touches an atomic alone.
    let notice = || unsafe { libc::pthread_atfork(Some(count), None, None) } == 0;
    NOTICED.get_or_init(notice).then(|| FORKS.load(Ordering::SeqCst))
}

extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}
