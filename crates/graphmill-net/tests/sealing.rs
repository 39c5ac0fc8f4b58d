//! Memory is sealed while others fork. A process of its own: what is held at a fork goes back otherwise, in all other tests too.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use graphmill_net::SealedMemory;

#[test]
fn memory_can_be_sealed_while_children_are_forked() {
    let (bytes, done) = (vec![7; 64 << 20], AtomicBool::new(false));
    let written: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut child = Command::new("true");
            // Until the file is sealed: what it has mapped goes with what it is then replaced by.
            let linger = || {
                std::thread::sleep(std::time::Duration::from_millis(50));
                Ok(())
            };
            // SAFETY: it only sleeps. Without it the child would not be forked, and have no copy of any mapping.
            unsafe { child.pre_exec(linger) };
            while !done.load(Ordering::Relaxed) {
                child.status().unwrap();
            }
        });
        let written = (0..40).map(|_| SealedMemory::write(&[&bytes]).map(drop)).collect();
        done.store(true, Ordering::Relaxed);
        written
    });
    assert!(written.iter().all(Result::is_ok), "{written:?}");
}
