//! The binary as a user runs it: what it prints where, what it leaves on disk, and how it ends.

mod damage;
mod disk;
mod fetching;
mod ingest;
mod inspect;
mod making;
mod meeting;
mod rendezvous;
mod sample;
mod secrets;
mod servers;
mod serving;
mod stopping;
mod support;
mod topologies;
