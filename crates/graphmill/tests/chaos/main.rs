//! Bad days: servers as processes, a bad network between them and their readers, kills and restarts; and still every batch
//! of a good day, each of them once.
//!
//! What happens, to whom and when is drawn from one seed, `CHAOS_SEED`, which a failure names. The tests that are ignored
//! here are those of `make soak`.

mod cluster;
mod dice;
mod failover;
mod good_day;
mod leases;
mod matrix;
mod overload;
mod process;
mod rank;
mod readers;
mod reading;
mod resuming;
mod soak;
mod strike;

// Shared with the tests of the command line, which need more of it.
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../cli/servers.rs"]
mod servers;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../cli/support.rs"]
mod support;
