//! Waiting without falling asleep at once.
//!
//! A thread that sleeps is woken by the system, and a core that idles has to be woken, too: that can take many times as long as
//! the answer that is waited for, most of all in a virtual machine. Between a short question and its answer it is faster to look
//! again until it is there: as long as no other thread needs the core, and not where nothing comes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, Instant};

/// For how long to look. Longer than it takes to wake another thread: then it pays whether or not the other side does the same.
const PATIENCE: Duration = Duration::from_micros(150);
/// Where nothing comes it is done once in so many waits, a power of two.
const RARELY: u32 = 6;
/// After so many waits the machine is looked at again.
const LOOKS: u32 = 64;

/// Whether it helps to stay awake.
#[derive(Debug, Default)]
pub struct Eagerness {
    waits: u32,
    /// Whether more threads want to run than there are cores.
    is_crowded: bool,
    /// How often nothing came, one time after the other.
    in_vain: u32,
    /// How many waits are left before it is tried again.
    sleeps: u32,
}

impl Eagerness {
    /// Waits for something, awake at first if that helps.
    pub async fn wait<F: Future>(&mut self, what: F) -> F::Output {
        let mut what = pin!(what);
        if self.sleeps > 0 {
            self.sleeps -= 1;
            return what.await;
        }
        if self.waits.is_multiple_of(LOOKS) {
            self.is_crowded = is_crowded();
        }
        self.waits = self.waits.wrapping_add(1);
        if self.is_crowded {
            return what.await;
        }
        let mut until = None;
        loop {
            if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(what.as_mut().poll(context))).await {
                self.in_vain = 0;
                return done;
            }
            let now = Instant::now();
            if now >= *until.get_or_insert_with(|| now + PATIENCE) {
                break;
            }
            // The runtime looks for what has come.
            tokio::task::yield_now().await;
        }
        self.in_vain = (self.in_vain + 1).min(RARELY);
        self.sleeps = (1 << self.in_vain) - 1;
        what.await
    }
}

/// Whether more threads of the machine want to run than there are cores for this process; no where the system does not tell.
fn is_crowded() -> bool {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    running(&load).is_some_and(|running| running > cores)
}

/// How many threads run or want to, by what `/proc/loadavg` says: three averages, then those and all.
fn running(load: &str) -> Option<usize> {
    load.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn run<F: Future>(what: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
    }

    #[test]
    fn whatever_comes_soon_or_late_is_there_and_what_does_not_help_is_done_rarely() {
        let mut eagerness = Eagerness::default();
        for late in [0, 20, 20, 20, 20, 0] {
            let (sender, receiver) = oneshot::channel();
            let sending = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(late));
                sender.send(late).unwrap();
            });
            assert_eq!(run(eagerness.wait(receiver)), Ok(late));
            sending.join().unwrap();
        }
        assert!(eagerness.in_vain <= 3 && eagerness.sleeps <= 7, "{eagerness:?}");
        eagerness = Eagerness { waits: 1, in_vain: 3, ..Eagerness::default() };
        assert_eq!(run(eagerness.wait(async { 7 })), 7);
        assert_eq!(eagerness.in_vain, 0, "it helped");
    }

    #[test]
    fn the_machine_is_asked_how_many_want_to_run() {
        assert_eq!(running("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!((running(""), running("0.20 0.18 0.12 x/80 1")), (None, None));
        assert!(running(&std::fs::read_to_string("/proc/loadavg").unwrap()).unwrap() >= 1, "this thread runs");
    }

    #[test]
    fn others_of_the_same_thread_go_on() {
        let (sender, receiver) = oneshot::channel();
        let mut eagerness = Eagerness::default();
        let done = run(async {
            let other = async {
                tokio::task::yield_now().await;
                sender.send(7).unwrap();
            };
            tokio::join!(eagerness.wait(receiver), other).0
        });
        assert_eq!(done, Ok(7));
    }
}
