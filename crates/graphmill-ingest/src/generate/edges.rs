//! The edge of each index.

use graphmill_graph::random::{Permutation, Stream, mix};

use super::{Kind, Options, Purpose, stream};

/// Nodes of the karate club.
pub(super) const KARATE_NODES: u64 = 34;

/// Zachary (1977), "An information flow model for conflict and fission in small groups": who met whom outside the club.
#[rustfmt::skip]
pub(super) const KARATE: [(u8, u8); 78] = [
    (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (0, 7), (0, 8), (0, 10), (0, 11), (0, 12), (0, 13), (0, 17),
    (0, 19), (0, 21), (0, 31), (1, 2), (1, 3), (1, 7), (1, 13), (1, 17), (1, 19), (1, 21), (1, 30), (2, 3), (2, 7),
    (2, 8), (2, 9), (2, 13), (2, 27), (2, 28), (2, 32), (3, 7), (3, 12), (3, 13), (4, 6), (4, 10), (5, 6), (5, 10),
    (5, 16), (6, 16), (8, 30), (8, 32), (8, 33), (9, 33), (13, 33), (14, 32), (14, 33), (15, 32), (15, 33), (18, 32),
    (18, 33), (19, 33), (20, 32), (20, 33), (22, 32), (22, 33), (23, 25), (23, 27), (23, 29), (23, 32), (23, 33),
    (24, 25), (24, 27), (24, 31), (25, 31), (26, 29), (26, 33), (27, 33), (28, 31), (28, 33), (29, 32), (29, 33),
    (30, 32), (30, 33), (31, 32), (31, 33), (32, 33),
];

/// How likely an edge of the block model stays inside its block.
const HOMOPHILY: f64 = 0.7;

/// R-MAT's quadrants 0.57, 0.19, 0.19, 0.05 as bounds of 16-bit numbers.
const QUADRANTS: [u64; 3] = [37_356, 49_807, 62_259];

/// Makes the edge of an index.
pub(super) struct EdgeMaker {
    kind: Kind,
    nodes: u64,
    classes: u64,
    /// Bits of a node id.
    scale: u32,
    stream: Stream,
    scramble: Permutation,
}

impl EdgeMaker {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            kind: options.kind,
            nodes: options.nodes,
            classes: options.classes,
            scale: u64::BITS - options.nodes.saturating_sub(1).leading_zeros(),
            stream: stream(options.seed, Purpose::Edges),
            scramble: scramble(options),
        }
    }

    pub(super) fn edge(&self, id: u64) -> (u64, u64) {
        let mut words = Words(self.stream.at(id));
        match self.kind {
            Kind::Karate => {
                let (a, b) = KARATE[id as usize / 2];
                if id.is_multiple_of(2) { (a.into(), b.into()) } else { (b.into(), a.into()) }
            }
            Kind::Uniform => (words.below(self.nodes), words.below(self.nodes)),
            Kind::Rmat => {
                let (src, dst) = self.rmat(&mut words);
                (self.scramble.at(src), self.scramble.at(dst))
            }
            Kind::Sbm => {
                let (src, dst) = self.sbm(&mut words);
                (self.scramble.at(src), self.scramble.at(dst))
            }
        }
    }

    /// Descends into one quadrant of the adjacency matrix per bit; ids past the end are drawn again.
    fn rmat(&self, words: &mut Words) -> (u64, u64) {
        loop {
            let (mut src, mut dst) = (0, 0);
            let mut word = 0;
            for level in 0..self.scale {
                if level % 4 == 0 {
                    word = words.next();
                }
                let draw = word & 0xffff;
                word >>= 16;
                let quadrant = QUADRANTS.iter().map(|&bound| u64::from(draw >= bound)).sum::<u64>();
                src = src << 1 | quadrant >> 1;
                dst = dst << 1 | quadrant & 1;
            }
            if src < self.nodes && dst < self.nodes {
                return (src, dst);
            }
        }
    }

    /// Before scrambling, node `v` is of class `v % classes`.
    fn sbm(&self, words: &mut Words) -> (u64, u64) {
        let src = words.below(self.nodes);
        if words.unit() >= HOMOPHILY {
            return (src, words.below(self.nodes));
        }
        let class = src % self.classes;
        let members = (self.nodes - class).div_ceil(self.classes);
        (src, class + self.classes * words.below(members))
    }
}

/// Takes the ids that make an edge easily to ids without a pattern: neither hubs nor blocks are neighbours by number.
pub(super) fn scramble(options: &Options) -> Permutation {
    Permutation::new(options.nodes, stream(options.seed, Purpose::Scramble))
}

/// As many random words as one edge needs.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn unit(&mut self) -> f64 {
        graphmill_graph::random::unit(self.next())
    }
}
