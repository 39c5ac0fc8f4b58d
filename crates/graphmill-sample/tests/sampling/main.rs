//! Samplers against plain collections: whatever graph, layout and configuration, a batch is what the rules say.

mod damage;
mod drivers;
mod edge_cases;
mod expected;
mod neighbors;
mod support;
mod tasks;
