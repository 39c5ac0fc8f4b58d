//! Connections as their two ends see them, over real sockets.

mod descriptors;
mod dialling;
mod frames;
mod garbage;
mod listening;
mod slots;
mod support;
mod tls;
