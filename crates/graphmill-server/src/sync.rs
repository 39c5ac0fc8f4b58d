//! What threads meet at. `tests/models` compiles the modules that use it once more, with [shuttle]'s in the place of the
//! system's: it decides who goes on after each step, and tries one order after the other.
//!
//! [shuttle]: https://docs.rs/shuttle

pub(crate) use std::sync::*;
pub(crate) use std::thread;

/// A mutex whose holder panicked still holds sound data here: every change is a single step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
