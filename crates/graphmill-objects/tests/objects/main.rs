//! The object store from outside: one suite over every transport, and what servers promise when processes die.

mod again;
mod bounds;
mod deaths;
mod hostile;
mod lives;
mod operations;
mod support;
mod tasks;

/// Not a test: what a connector of these tests starts as its server.
#[test]
#[ignore = "the server that the tests start"]
fn spawned_server() {
    graphmill_objects::serve_spawned().unwrap();
}

/// Not a test: another process that uses the store.
#[test]
#[ignore = "a process that the tests start"]
fn other_process() {
    support::other_process();
}
