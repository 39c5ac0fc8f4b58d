//! What the rendezvous that this one follows checks of itself, on a clock that the test turns, for every keeper: memory, a
//! file, etcd.
//!
//! | of the reference | here |
//! | --- | --- |
//! | time-outs, defaults, nodes | `rules.rs`: settings and nodes; `members.rs`: what a member may wait |
//! | state size | `size.rs` |
//! | state holder: empty, nothing there, clean, stale, fresh, corrupt | `holder.rs`; `standby.rs` for one that is not alone |
//! | state holder: at and past the limit, everybody dead | `scenes.rs`; `rules.rs` |
//! | state holder: cache | there is none: the coordinator holds the state, and pushes it |
//! | executor | `rules.rs`: steps; `scenes.rs`, where every change is one write and nothing else is any |
//! | join | `rules.rs`, row by row; `scenes.rs` |
//! | exit, close, keep-alive | `scenes.rs`; `members.rs` for how long they may take |
//! | handler | `members.rs`; `heartbeat.rs` for how long a sign of life may take; `tests/python/test_rendezvous_torchrun.py` |
//! | construction, parsing | `rules.rs`, `target.rs`, `etcd/url.rs`, `members.rs`; `tests/python/test_rendezvous.py` |
//! | integration | `scenes.rs`, `members.rs`; `tests/python/test_rendezvous*.py` |
//! | backend contract | `keepers.rs` |
//! | key-value store | `values.rs`, `coordinator.rs`, `members.rs` |

#[path = "../etcd/mod.rs"]
mod etcd;
mod heartbeat;
mod holder;
mod scenes;
#[path = "../serving/mod.rs"]
mod serving;
mod size;
mod stage;
