//! Degrees: how many lists have which length, exactly.

use std::collections::BTreeMap;

use serde::Serialize;

/// Most lists are short: counting those in an array keeps the map small and the loop fast.
const SHORT: usize = 1 << 12;

/// How long the lists of an edge type are in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Degrees {
    pub(super) min: u64,
    /// The smallest degree that at least half of the nodes do not exceed.
    pub(super) median: u64,
    /// The smallest degree that at least 99% of the nodes do not exceed.
    pub(super) p99: u64,
    pub(super) max: u64,
    /// Nodes whose list is empty.
    pub(super) zero: u64,
}

/// Counts degrees.
#[derive(Debug)]
pub(super) struct Histogram {
    short: Vec<u64>,
    long: BTreeMap<u64, u64>,
    total: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { short: vec![0; SHORT], long: BTreeMap::new(), total: 0 }
    }

    pub(super) fn add(&mut self, degree: u64) {
        self.total += 1;
        match self.short.get_mut(degree as usize) {
            Some(count) => *count += 1,
            None => *self.long.entry(degree).or_default() += 1,
        }
    }

    pub(super) fn degrees(&self) -> Degrees {
        Degrees {
            min: self.of_rank(1),
            median: self.of_rank(self.total.div_ceil(2)),
            p99: self.of_rank(self.total - self.total / 100),
            max: self.of_rank(self.total),
            zero: self.short[0],
        }
    }

    /// The degree of the node that stands at a rank, counted from 1, in ascending order; 0 when there are no nodes.
    fn of_rank(&self, rank: u64) -> u64 {
        let short = (0..).zip(self.short.iter().copied());
        let long = self.long.iter().map(|(&degree, &count)| (degree, count));
        let mut below = 0;
        let reached = short.chain(long).find(|(_, count)| {
            below += count;
            below >= rank.max(1)
        });
        reached.map_or(0, |(degree, _)| degree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_degrees() {
        let mut degrees: Vec<u64> = (0..1000).map(|node| node * node % 7919).collect();
        let mut histogram = Histogram::new();
        for &degree in &degrees {
            histogram.add(degree);
        }
        degrees.sort_unstable();
        let expected = Degrees { min: 0, median: degrees[499], p99: degrees[989], max: degrees[999], zero: 1 };
        assert_eq!(histogram.degrees(), expected);
    }

    #[test]
    fn no_nodes_have_no_degrees() {
        assert_eq!(Histogram::new().degrees(), Degrees { min: 0, median: 0, p99: 0, max: 0, zero: 0 });
    }
}
