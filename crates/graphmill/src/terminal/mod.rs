//! What a person sees: numbers, tables, progress, and the two streams they go to.

pub(crate) mod logs;
pub(crate) mod numbers;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod table;
