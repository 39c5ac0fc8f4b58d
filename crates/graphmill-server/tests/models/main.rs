//! What threads do to each other in a server, and at the two ends of shared memory, in many orders.
//!
//! The modules of the server are compiled once more here, and with them the client's end of shared memory, with [shuttle]'s
//! locks, atomics and threads in the place of the system's. So it is the server's own code that runs, and shuttle that
//! decides after each step who goes on. A thread that waits for ever is a failure, as is anything that is left behind.
//!
//! Each model runs in a number of orders that takes a second or two; `MODEL_ORDERS=n` tries `n` times as many. What each of
//! them finds was tried with deliberate faults, which `docs/reliability.md` lists.
//!
//! [shuttle]: https://docs.rs/shuttle

// Of what is compiled here models use a part, and see nothing of it from outside.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]

#[path = "../../src/asking.rs"]
mod asking;
#[path = "../../src/backlog.rs"]
mod backlog;
#[path = "../../src/budget.rs"]
mod budget;
#[path = "../../src/cluster/mod.rs"]
mod cluster;
#[path = "../../src/core.rs"]
mod core;
#[path = "../../src/credits.rs"]
mod credits;
#[path = "../../src/dataset/mod.rs"]
mod dataset;
#[path = "../../src/job.rs"]
mod job;
#[path = "../../src/life.rs"]
mod life;
#[path = "../../src/limits.rs"]
mod limits;
#[path = "../../src/machinery.rs"]
mod machinery;
#[path = "../../src/metrics.rs"]
mod metrics;
#[path = "../../src/outlet.rs"]
mod outlet;
#[path = "../../src/queue.rs"]
mod queue;
#[path = "../../../graphmill-net/src/received.rs"]
mod received;
#[path = "../../src/refusal.rs"]
mod refusal;
#[path = "../../src/registry/mod.rs"]
mod registry;
#[path = "../../src/rows.rs"]
mod rows;
#[path = "../../src/scheduler.rs"]
mod scheduler;
#[path = "../../src/work.rs"]
mod work;

mod channels;
mod scheduling;
mod slots;
mod support;

/// In the place of `src/sync.rs`.
mod sync {
    pub(crate) use shuttle::sync::*;
    pub(crate) use shuttle::thread;

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// What the modules expect at the root of their crates.
use graphmill_net::{MappedSlot, PageMap, forks};
pub use refusal::Refusal;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// The tests of the modules themselves need the system's primitives, so that this target has no harness that would run them.
fn main() -> ExitCode {
    let mut models = Vec::new();
    for (of, list) in [("scheduling", scheduling::MODELS), ("channels", channels::MODELS), ("slots", slots::MODELS)] {
        models.extend(list.iter().map(|model| {
            let (run, orders) = (model.run, model.orders);
            Trial::test(format!("{of}::{}", model.name), move || {
                support::check(run, orders);
                Ok(())
            })
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), models).exit_code()
}
