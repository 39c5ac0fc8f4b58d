//! What a connection makes its server hold: frames that the other side has not taken yet, and its questions under way.
//!
//! The bytes of batches are bounded by their channels, those of all else here. While the other side has too much to take,
//! the connection is not read, and its questions are put aside instead of being answered. So whoever asks and does not
//! read costs [`UNTAKEN`] bytes, an answer for each worker that had begun, and the questions that were read.

use tokio::sync::Notify;

use crate::sync::{Arc, Mutex, lock};
use crate::work::Urgent;

/// Bytes that wait to be taken, batches left out; with more, nothing is read and nothing answered.
pub(crate) const UNTAKEN: usize = 64 << 20;
/// The most frames that wait, whatever their bytes.
const FRAMES: usize = 4096;
/// The most questions under way, and their bytes; a longer one is alone. Further ones wait in the socket.
const QUESTIONS: usize = 64;
const QUESTION_BYTES: usize = 64 << 20;

/// The bounds of one connection, and how far they are used.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    state: Mutex<State>,
    /// There may be room again. The reader of the connection alone waits for it.
    changed: Notify,
}

#[derive(Default)]
struct State {
    frames: usize,
    bytes: usize,
    questions: usize,
    question_bytes: usize,
    /// Questions to be answered when enough was taken. There are none unless frames wait.
    aside: Vec<Urgent>,
}

/// A question under way.
#[derive(Debug)]
pub(crate) struct UnderWay {
    backlog: Arc<Backlog>,
    bytes: usize,
}

impl Backlog {
    /// Waits until enough was taken.
    pub(crate) async fn room(&self) {
        self.until(|state| (state.frames <= FRAMES && state.bytes <= UNTAKEN).then_some(())).await;
    }

    /// Waits until a question of so many bytes may be read.
    pub(crate) async fn question(self: &Arc<Self>, bytes: usize) -> UnderWay {
        self.until(|state| {
            let fits = state.question_bytes == 0 || state.question_bytes + bytes <= QUESTION_BYTES;
            (fits && state.questions < QUESTIONS).then(|| {
                state.questions += 1;
                state.question_bytes += bytes;
            })
        })
        .await;
        UnderWay { backlog: Arc::clone(self), bytes }
    }

    async fn until<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = ready(&mut lock(&self.state)) {
                return found;
            }
            changed.await;
        }
    }

    /// The question, if it may be answered now; else it is put aside.
    pub(crate) fn answer_now(&self, question: Urgent) -> Option<Urgent> {
        let mut state = lock(&self.state);
        if state.bytes <= UNTAKEN {
            return Some(question);
        }
        state.aside.push(question);
        None
    }

    /// Counts a frame of so many bytes, unless it cannot be sent.
    pub(crate) fn sent(&self, bytes: usize, send: impl FnOnce() -> bool) -> bool {
        // One step, so that a frame is never taken before it counts.
        let mut state = lock(&self.state);
        let sent = send();
        if sent {
            state.frames += 1;
            state.bytes += bytes;
        }
        sent
    }

    /// A frame of so many bytes was taken, or never will be; the questions that may be answered now.
    pub(crate) fn taken(&self, bytes: usize) -> Vec<Urgent> {
        let mut state = lock(&self.state);
        state.frames -= 1;
        state.bytes -= bytes;
        let again = if state.bytes <= UNTAKEN { std::mem::take(&mut state.aside) } else { Vec::new() };
        drop(state);
        self.changed.notify_one();
        again
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = lock(&self.backlog.state);
        state.questions -= 1;
        state.question_bytes -= self.bytes;
        drop(state);
        self.backlog.changed.notify_one();
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("frames", &self.frames).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_ready(future: impl Future) -> bool {
        matches!(std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
    }

    #[test]
    fn what_is_not_taken_holds_up_reading_and_answering_until_it_is() {
        let backlog = Backlog::default();
        let question = || -> Urgent { Box::new(|_| ()) };
        assert!(backlog.sent(UNTAKEN, || true) && is_ready(backlog.room()));
        assert!(backlog.sent(1, || true) && !is_ready(backlog.room()));
        assert!(backlog.answer_now(question()).is_none() && backlog.answer_now(question()).is_none());
        assert_eq!(backlog.taken(1).len(), 2);
        assert!(is_ready(backlog.room()) && backlog.answer_now(question()).is_some());
        assert!(!backlog.sent(UNTAKEN, || false) && is_ready(backlog.room()), "what cannot be sent counts nothing");
    }

    #[test]
    fn questions_are_bounded_in_number_and_in_bytes_and_a_long_one_is_alone() {
        let backlog = Arc::new(Backlog::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let long = runtime.block_on(backlog.question(4 * QUESTION_BYTES));
        assert!(!is_ready(backlog.question(1)));
        drop(long);
        let many: Vec<UnderWay> = (0..QUESTIONS).map(|_| runtime.block_on(backlog.question(1))).collect();
        assert!(!is_ready(backlog.question(0)));
        drop(many);
        assert!(is_ready(backlog.question(QUESTION_BYTES)));
    }
}
