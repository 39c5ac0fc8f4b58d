//! Servers and clients in one process, over real sockets.

mod equal;
mod support;
