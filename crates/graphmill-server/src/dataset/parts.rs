//! Answers that come in parts: made only as fast as they are read.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};

use crate::Refusal;
use crate::job::panic_message;

/// Elements of an array in one part: some hundred kilobytes on the wire, encoded in a fraction of a millisecond.
pub(super) const ELEMENTS: usize = bound(1 << 16, 7);
/// Bytes of rows in one part.
pub(super) const BYTES: usize = bound(1 << 20, 50);
/// Parts that wait to be read.
const WAITING: usize = 4;

/// A bound, and how it is in unit tests: so low that small graphs pass it.
pub(crate) const fn bound(usual: usize, in_tests: usize) -> usize {
    if cfg!(test) { in_tests } else { usual }
}

/// The stream of an answer.
pub(crate) type Parts<T> = ReceiverStream<Result<T, Status>>;

/// Where an answer's parts go.
#[derive(Debug)]
pub(super) struct Sender<T>(mpsc::Sender<Result<T, Status>>);

impl<T> Sender<T> {
    /// Sends a part, when there is room for it.
    ///
    /// # Errors
    /// When nobody reads any more.
    pub(super) async fn send(&self, part: T) -> Result<(), Refusal> {
        self.0.send(Ok(part)).await.map_err(|_| Refusal::unavailable("the reader left"))
    }
}

/// An answer whose parts are made by a task. If that fails, even by a panic, its reader is told; an answer never just ends.
pub(super) fn parts<T, F>(make: impl FnOnce(Sender<T>) -> F) -> Response<Parts<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<(), Refusal>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(WAITING);
    let making = tokio::spawn(make(Sender(sender.clone())));
    tokio::spawn(async move {
        let made = making.await.unwrap_or_else(|error| {
            Err(match error.try_into_panic() {
                Ok(panic) => Refusal::internal(format!("answering panicked: {}", panic_message(panic.as_ref()))),
                Err(_) => Refusal::unavailable("the server stops"),
            })
        });
        if let Err(refusal) = made {
            // Whoever read may have left.
            let _ = sender.send(Err(refusal.into())).await;
        }
    });
    Response::new(ReceiverStream::new(receiver))
}

/// The first and the last place of each stretch of so many elements, up to a length.
pub(super) fn stretches(length: usize, size: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..length).step_by(size).map(move |start| start..(start + size).min(length))
}

/// A stretch of a slice, empty past its end.
pub(super) fn stretch<T: Clone>(all: &[T], places: &std::ops::Range<usize>) -> Vec<T> {
    let end = places.end.min(all.len());
    all[places.start.min(end)..end].to_vec()
}
