//! Servers and clients in one process, over real sockets.

mod backends;
mod channels;
mod equal;
mod faults;
mod leases;
mod loaders;
mod memory;
mod refusals;
mod support;
