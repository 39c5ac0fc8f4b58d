//! What becomes of a thread that reads a page of a mapped file which cannot be read: the file was cut short, or its disk
//! fails. The system ends the whole process then (SIGBUS), without a word.
//!
//! Where [`install`] was called, that thread stands still instead, for good: nothing that it was making from the page ever
//! leaves it. [`lost_page`] tells the others, who end in good order what they are doing; if they do not within the time that
//! [`set_patience`] gave them, the process ends with a message and code 1 (`docs/decisions/0015`).
//!
//! A signal handler may do little: it reads atomics and a list that only grows, and calls what POSIX allows it to.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libc::{c_int, c_void, sigaction, siginfo_t};

/// A page that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostPage {
    /// The file.
    pub path: PathBuf,
    /// Where in it, to the byte that was wanted.
    pub offset: u64,
}

impl fmt::Display for LostPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, offset) = (self.path.display(), self.offset);
        write!(f, "cannot read {path} at byte {offset}: {ADVICE}")
    }
}

const ADVICE: &str = "the file was cut short, or its disk fails; see `graphmill inspect --verify`, and restore it";

/// The mapped files: a list that only grows. Entries of what was unmapped are used again.
static FIRST: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());
/// Held by whoever changes an entry.
static CHANGING: Mutex<()> = Mutex::new(());
/// What the process did about SIGBUS before.
static BEFORE: OnceLock<Before> = OnceLock::new();
/// The first entry with a page that could not be read, and where that was.
static LOST: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());
static LOST_AT: AtomicU64 = AtomicU64::new(0);
/// Milliseconds that others have to end what they do.
static PATIENCE: AtomicU64 = AtomicU64::new(0);

struct Before(sigaction);

// SAFETY: a plain value that is written once and then only read; the pointer in it is to code.
unsafe impl Send for Before {}
// SAFETY: as above.
unsafe impl Sync for Before {}

struct Entry {
    /// Where the mapping lies; nowhere, if `len` is 0.
    start: AtomicUsize,
    len: AtomicUsize,
    /// Changed only while `len` is 0, under the lock.
    path: UnsafeCell<PathBuf>,
    next: *mut Entry,
}

/// A file that is mapped, for as long as it is.
#[derive(Debug)]
pub(crate) struct Watched(AtomicPtr<Entry>);

/// Has threads stand still that read a lost page, from here on and for files that are mapped from here on. Once for a process; what
/// it did about SIGBUS elsewhere stays as it is.
///
/// # Errors
/// When the system refuses.
pub fn install() -> io::Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    // SAFETY: both are plain values for which all zeroes are valid; the handler is a function of the type that SA_SIGINFO
    // asks for, and does only what a handler may (see its own notes).
    unsafe {
        let mut before: sigaction = std::mem::zeroed();
        if sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        // Set first: the handler may be called at once.
        let _ = BEFORE.set(Before(before));
        let mut action: sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// How long others have, after a page was lost, before the process is ended; none at first.
pub fn set_patience(patience: Duration) {
    PATIENCE.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
}

/// The first page that could not be read, if there was one: the process is to end.
pub fn lost_page() -> Option<LostPage> {
    let entry = LOST.load(Ordering::Acquire);
    // SAFETY: entries are never freed. The thread that stands still holds the mapping, so its path does not change.
    let path = unsafe { entry.as_ref().map(|entry| (*entry.path.get()).clone())? };
    Some(LostPage { path, offset: LOST_AT.load(Ordering::Acquire) })
}

/// Notes that a file is mapped, if anybody wants to know.
pub(crate) fn watch(path: &Path, memory: &[u8]) -> Option<Watched> {
    BEFORE.get()?;
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut entry = FIRST.load(Ordering::Acquire);
    // SAFETY: entries are never freed; of one with length 0 nobody else uses the path, for that is under the lock, and the
    // handler reads the paths of mappings alone.
    unsafe {
        while let Some(known) = entry.as_ref()
            && known.len.load(Ordering::Acquire) != 0
        {
            entry = known.next;
        }
        if entry.is_null() {
            entry = Box::into_raw(Box::new(Entry {
                start: AtomicUsize::new(0),
                len: AtomicUsize::new(0),
                path: UnsafeCell::default(),
                next: FIRST.load(Ordering::Acquire),
            }));
            FIRST.store(entry, Ordering::Release);
        }
        path.clone_into(&mut *(*entry).path.get());
        (*entry).start.store(memory.as_ptr() as usize, Ordering::Release);
        (*entry).len.store(memory.len(), Ordering::Release);
    }
    Some(Watched(AtomicPtr::new(entry)))
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: entries are never freed.
        unsafe { (**self.0.get_mut()).len.store(0, Ordering::Release) };
    }
}

/// Called in the thread that read what cannot be read.
extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a valid one to handlers with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    let mut entry = FIRST.load(Ordering::Acquire);
    // SAFETY: entries are never freed, and of each only atomics and the link, which never changes, are read here.
    while let Some(known) = unsafe { entry.as_ref() } {
        let (start, len) = (known.start.load(Ordering::Acquire), known.len.load(Ordering::Acquire));
        if address.checked_sub(start).is_some_and(|offset| offset < len) {
            stand_still(entry, (address - start) as u64);
        }
        entry = known.next;
    }
    pass_on(signal, info, context);
}

/// Waits for the end, and brings it about if nobody else does.
fn stand_still(entry: *mut Entry, offset: u64) -> ! {
    const STEP: u64 = 10;
    if LOST.load(Ordering::Acquire).is_null() {
        LOST_AT.store(offset, Ordering::Release);
        // Another thread may be as fast; either's page will do.
        LOST.store(entry, Ordering::Release);
    }
    let mut waited = 0;
    while waited < PATIENCE.load(Ordering::Acquire) {
        let step = libc::timespec { tv_sec: 0, tv_nsec: STEP as i64 * 1_000_000 };
        // SAFETY: nanosleep is allowed in handlers, and is given a valid time and nothing to write to.
        unsafe { libc::nanosleep(&raw const step, std::ptr::null_mut()) };
        waited += STEP;
    }
    // SAFETY: this thread reads the mapping, so its path does not change; write and _exit are allowed in handlers.
    unsafe {
        let mut digits = [0; 20];
        let parts: [&[u8]; 7] = [
            b"error: cannot read ",
            (*(*entry).path.get()).as_os_str().as_bytes(),
            b" at byte ",
            decimal(offset, &mut digits),
            b": ",
            ADVICE.as_bytes(),
            b"\n",
        ];
        for part in parts {
            // Nobody can be told when stderr is gone.
            let _ = libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len());
        }
        libc::_exit(1)
    }
}

/// A number in digits, without an allocation.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[first..];
        }
    }
}

/// Does what the process did before: the memory is none of ours.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().map(|before| &before.0);
    match before {
        Some(before) if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN => {
            // SAFETY: it is the handler that was installed before, of the type that its flags say.
            unsafe {
                if before.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                        std::mem::transmute(before.sa_sigaction);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = std::mem::transmute(before.sa_sigaction);
                    handler(signal);
                }
            }
        }
        _ => {
            // SAFETY: signal is allowed in handlers. The read is tried again when this one returns, and ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are() {
        for number in [0, 7, 10, 4096, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
