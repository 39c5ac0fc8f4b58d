//! Work that takes longer than a thread which serves connections may be held.

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::Refusal;
use crate::job::panic_message;

/// Does something on another thread.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(match error.try_into_panic() {
            Ok(panic) => Refusal::internal(format!("answering panicked: {}", panic_message(panic.as_ref()))),
            Err(_) => Refusal::unavailable("the server stops"),
        })
    })
}

/// Does something on another thread that waits for peers in between. For one step of bounded length, since it holds the
/// thread.
pub(crate) async fn step_aside<T: Send + 'static>(
    step: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let runtime = Handle::current();
    aside(move || runtime.block_on(step)).await
}
