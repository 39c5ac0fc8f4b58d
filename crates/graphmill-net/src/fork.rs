//! A word before this process is copied.
#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;

static CALLBACK: OnceLock<fn()> = OnceLock::new();

/// Has a function called before every `fork` of this process, by the thread that forks. There is one for the whole process.
///
/// It runs at a moment when any other thread may hold any lock, the allocator's too, and the child goes on with all of them
/// as they are. So it must only touch atomics and locks that it merely tries, allocate nothing, and not panic.
///
/// # Errors
/// When there is one already, or the system has no memory for it.
pub fn before_fork(callback: fn()) -> io::Result<()> {
    if CALLBACK.set(callback).is_err() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something is called before forks already"));
    }
    // SAFETY: the handler is a function of this program, which is never unloaded while a thread of it can fork, and stays
    // valid for ever; it unwinds nowhere, for a panic in an `extern "C"` function ends the process.
    match unsafe { libc::pthread_atfork(Some(prepare), None, None) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

extern "C" fn prepare() {
    if let Some(callback) = CALLBACK.get() {
        callback();
    }
}
