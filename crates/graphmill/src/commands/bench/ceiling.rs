//! What the memory of this machine allows: the bandwidths that a gather is measured against.

use std::time::Instant;

use graphmill_graph::random::Stream;
use graphmill_graph::{Dataset, Tensor};

/// Bandwidths in bytes per second.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Ceiling {
    /// Reading rows of the largest feature at random places, and doing nothing with them.
    pub(crate) random_read_bytes_per_s: f64,
    /// Copying a large stretch of memory to another.
    pub(crate) copy_bytes_per_s: f64,
}

/// Bytes read or copied in one measurement.
const BYTES: usize = 256 << 20;

/// Measures on one thread; nothing if no node type has features.
pub(crate) fn measure(dataset: &Dataset) -> Option<Ceiling> {
    let features = |place: usize| {
        dataset
            .partition(0)
            .ok()
            .into_iter()
            .flat_map(move |part| (0..).map_while(move |feature| part.nodes(place).feature(feature)))
    };
    let tensor = (0..dataset.node_types().len()).flat_map(features).max_by_key(|tensor| tensor.bytes().len())?;
    if tensor.row_bytes() == 0 || tensor.rows() == 0 {
        return None;
    }
    let best = |measure: &dyn Fn() -> f64| (0..3).map(|_| measure()).fold(0.0, f64::max);
    Some(Ceiling { random_read_bytes_per_s: best(&|| random_read(tensor)), copy_bytes_per_s: best(&copy) })
}

/// Four rows side by side keep as many loads under way as the processor can hold.
fn random_read(tensor: &Tensor) -> f64 {
    let rows = BYTES / tensor.row_bytes() / 4;
    let random = Stream::new(1, &[]);
    let places: Vec<usize> = (0..4 * rows as u64).map(|at| random.below(at, tensor.rows() as u64) as usize).collect();
    let began = Instant::now();
    let mut sum = 0u64;
    for four in places.chunks_exact(4) {
        let words = |place: usize| {
            let row = tensor.row(four[place]).unwrap_or_default();
            row.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        };
        let quads = words(0).zip(words(1)).zip(words(2)).zip(words(3));
        sum = quads.fold(sum, |sum, (((a, b), c), d)| sum.wrapping_add(a ^ b ^ c ^ d));
    }
    std::hint::black_box(sum);
    (places.len() * tensor.row_bytes()) as f64 / began.elapsed().as_secs_f64()
}

fn copy() -> f64 {
    let source = vec![1u8; BYTES];
    let mut target = vec![2u8; BYTES];
    let began = Instant::now();
    target.copy_from_slice(&source);
    std::hint::black_box(&target);
    BYTES as f64 / began.elapsed().as_secs_f64()
}
