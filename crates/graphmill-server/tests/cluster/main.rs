//! Servers and clients in one process, over real sockets.

mod authority;
mod backends;
mod channels;
mod equal;
mod fairness;
mod faults;
mod leases;
mod limits;
mod loaders;
mod memory;
mod order;
mod patience;
mod refusals;
mod replicas;
mod rows;
mod security;
mod streams;
mod support;
mod unread;
mod versions;
