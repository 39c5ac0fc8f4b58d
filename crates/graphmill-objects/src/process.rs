//! Something that each process has for itself: a forked child makes its own, and leaves its parent's alone.

use std::sync::OnceLock;

/// A value per process. The ones of parents are kept, never touched and never dropped: their locks may be held by threads that
/// the child does not have, and dropping a connection in the child would disturb the parent's.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    first: OnceLock<Box<Node<T>>>,
}

#[derive(Debug)]
struct Node<T> {
    process: u32,
    /// Taken only when it is dropped.
    value: Option<T>,
    /// That of a child.
    next: PerProcess<T>,
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self { first: OnceLock::new() }
    }
}

impl<T> PerProcess<T> {
    /// The value of this process, made if there is none yet.
    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &T {
        let process = std::process::id();
        let mut here = self;
        let node = loop {
            match here.first.get() {
                Some(node) if node.process != process => here = &node.next,
                Some(node) => break node,
                None => {
                    let new = || Box::new(Node { process, value: Some(make()), next: Self::default() });
                    break here.first.get_or_init(new);
                }
            }
        };
        node.value.as_ref().expect("it is there until the node is dropped")
    }
}

impl<T> Drop for Node<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
