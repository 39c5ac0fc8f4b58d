//! Oracles for the tests: a graph in plain collections, random ones with samplers of them, and the simplest possible code to
//! write one as a dataset, read it back and name its content; and a bad network, as a [`Proxy`]. Nothing here is fast;
//! everything is easy to believe.

mod child;
mod damage;
mod fingerprint;
mod integers;
mod model;
mod proxy;
mod read;
mod sample;
mod samplers;
mod strategy;
mod tempdir;
mod touch;
mod write;

pub use child::reset_signals;
pub use damage::{edit_manifest, files, reseal, seal};
pub use fingerprint::fingerprint;
pub use integers::{alias_table, running_sums};
pub use model::{ModelEdge, ModelEdges, ModelGraph, ModelLabel, ModelNodes, ModelOriginals, ModelTensor};
pub use proxy::{Fault, Proxy, Storm, Way};
pub use read::read;
pub use sample::sample;
pub use samplers::{Sampling, expansions, samplings};
pub use strategy::{assignments, graphs, layouts, placed_graphs};
pub use tempdir::tempdir;
pub use touch::touch_everything;
pub use write::{Assignment, write, write_with};
