//! Who can be a member.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A member of a run: a process on a host, and which of the process's members it is. Nodes are ordered as that tuple.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The host's name or address, as others reach it.
    pub address: String,
    /// The process.
    pub process: u32,
    /// Counts the members that the process has made.
    pub counter: u32,
}

impl Node {
    /// A node.
    pub fn new(address: impl Into<String>, process: u32, counter: u32) -> Self {
        Self { address: address.into(), process, counter }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}", self.address, self.process, self.counter)
    }
}
