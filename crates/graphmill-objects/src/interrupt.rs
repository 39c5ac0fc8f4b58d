//! Calls that end before their time because somebody says so.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

/// How long it may take until it is noticed.
const SLICE: Duration = Duration::from_millis(20);

/// Asked now and then by a thread that waits for an answer, whether it is to give up. An interpreter looks for signals with it.
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Fn() -> bool + Send + Sync>);

impl Interrupt {
    /// It may make calls itself, also to the same connector.
    pub fn new(asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(asked))
    }

    /// Asks whether to give up.
    pub(crate) fn asks(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

/// Waits for something; nothing comes of it if it was interrupted.
pub(crate) fn block_on<F: Future>(runtime: &Runtime, interrupt: Option<&Interrupt>, awaited: F) -> Option<F::Output> {
    let Some(interrupt) = interrupt else { return Some(runtime.block_on(awaited)) };
    let mut awaited = pin!(awaited);
    loop {
        let slice = async {
            tokio::select! {
                biased;
                done = &mut awaited => Some(done),
                () = tokio::time::sleep(SLICE) => None,
            }
        };
        if let Some(done) = runtime.block_on(slice) {
            return Some(done);
        }
        // Outside of the runtime, where everything is allowed.
        if interrupt.asks() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn a_wait_ends_when_it_is_told_to_and_not_before() {
        let counted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&counted);
        let third = Interrupt::new(move || count.fetch_add(1, Ordering::Relaxed) == 2);
        assert_eq!(block_on(&runtime(), Some(&third), std::future::pending::<()>()), None);
        assert_eq!(counted.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn what_takes_longer_than_a_slice_is_not_begun_anew() {
        let mut begun = 0;
        let long = async {
            begun += 1;
            tokio::time::sleep(3 * SLICE).await;
            7
        };
        assert_eq!(block_on(&runtime(), Some(&Interrupt::new(|| false)), long), Some(7));
        assert_eq!(begun, 1);
    }

    #[test]
    fn who_is_asked_may_wait_itself() {
        let nested = Interrupt::new(|| block_on(&runtime(), None, async { true }).unwrap());
        assert_eq!(block_on(&runtime(), Some(&nested), std::future::pending::<()>()), None);
    }
}
