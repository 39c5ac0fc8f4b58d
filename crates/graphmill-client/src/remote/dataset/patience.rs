//! How long a call may take: as long as any other, and longer only by what has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tonic::Status;

/// How long one of several servers may say nothing before the next is asked.
const SILENCE: Duration = Duration::from_secs(10);
/// Bytes that must come in a microsecond, at least: what is slower does not count as coming.
const SLOWEST: u64 = 1;

/// The time of one call, whichever servers are asked.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    began: Instant,
    deadline: Duration,
    /// How long one server may take to go on.
    step: Duration,
    received: Arc<AtomicU64>,
}

impl Patience {
    /// A call that begins now, to some of so many servers.
    pub(super) fn new(deadline: Duration, servers: usize) -> Self {
        let share = deadline / u32::try_from(servers.max(1)).unwrap_or(u32::MAX);
        let step = share.max(SILENCE.min(deadline / 2));
        Self { began: Instant::now(), deadline, step, received: Arc::default() }
    }

    /// What is left of it.
    pub(super) fn left(&self) -> Duration {
        let received = Duration::from_micros(self.received.load(Ordering::Relaxed) / SLOWEST);
        self.deadline.saturating_add(received).saturating_sub(self.began.elapsed())
    }

    /// Whether another attempt after a pause is too late.
    pub(super) fn ends_within(&self, pause: Duration) -> bool {
        self.began.elapsed() + pause >= self.deadline
    }

    /// So many bytes have come.
    pub(super) fn count(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Waits for the next thing that a server says.
    pub(super) async fn step<T>(&self, answer: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let within = self.step.min(self.left());
        timeout(within, answer).await.unwrap_or_else(|_| {
            let seconds = self.began.elapsed().as_secs_f64();
            Err(Status::deadline_exceeded(format!("no answer, or not all of it, within {seconds:.1} s")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_servers_has_a_share_of_the_time_and_none_is_hurried() {
        let step = |seconds, servers| Patience::new(Duration::from_secs(seconds), servers).step.as_secs();
        assert_eq!([step(60, 1), step(60, 2), step(60, 60), step(5, 3), step(60, 0)], [60, 30, 10, 2, 60]);
    }

    #[test]
    fn what_comes_adds_to_the_time_as_much_as_a_slow_link_needs_for_it() {
        let patience = Patience::new(Duration::ZERO, 1);
        assert!(patience.left().is_zero() && patience.ends_within(Duration::ZERO));
        patience.count(3600 * 1_000_000);
        let left = patience.left();
        assert!(left > Duration::from_secs(3000) && left <= Duration::from_secs(3600), "{left:?}");
    }
}
