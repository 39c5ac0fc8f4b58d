//! Which part of a list of ids is whose: shares that are resolved on the servers, never shipped as lists.

use graphmill_wire::proto;

use crate::{Error, Result};

/// A share of a list of any length: `[length * start / denominator, length * end / denominator)`, rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerSlice {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// How many parts there are.
    pub denominator: u64,
}

/// Which ids of a list are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shard {
    /// All.
    Whole,
    /// A share of the whole list.
    Slice(ServerSlice),
    /// What a rank owns of the ids of all servers, laid end to end: see [`rank_slices`]. A server stands here for a stretch of
    /// partitions, so the share does not depend on who runs where or who can be reached; there are never more servers than
    /// partitions.
    Rank {
        /// The rank.
        rank: u32,
        /// The number of ranks.
        world_size: u32,
        /// The number of servers.
        servers: u32,
    },
}

impl Shard {
    /// The shard of a rank, or the whole list where nobody says a rank.
    ///
    /// # Errors
    /// When only one of rank and world size is given.
    pub fn of_rank(rank: Option<u32>, world_size: Option<u32>, servers: u32) -> Result<Self> {
        match (rank, world_size) {
            (None, None) => Ok(Self::Whole),
            (Some(rank), Some(world_size)) => Ok(Self::Rank { rank, world_size, servers }),
            (Some(rank), None) => Err(Error::request(format!("rank {rank} of how many? give the world size too"))),
            (None, Some(world_size)) => Err(Error::request(format!("which of {world_size} ranks? give the rank too"))),
        }
    }

    /// The shares of lists that make it up, in order.
    pub(super) fn shares(self, parts: u32) -> Result<Vec<Share>> {
        match self {
            Self::Whole => Ok(vec![Share { partitions: Vec::new(), slice: None }]),
            Self::Slice(slice) => Ok(vec![Share { partitions: Vec::new(), slice: Some(slice.check()?) }]),
            Self::Rank { rank, world_size, servers } => {
                let servers = servers.min(parts);
                let bound = |server: u32| (u64::from(parts) * u64::from(server) / u64::from(servers)) as u32;
                let share = |(server, slice)| Share {
                    partitions: (bound(server)..bound(server + 1)).collect(),
                    slice: Some(slice),
                };
                Ok(rank_slices(rank, world_size, servers)?.into_iter().map(share).collect())
            }
        }
    }
}

/// A share of the list of some partitions, or of all where none is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) partitions: Vec<u32>,
    pub(super) slice: Option<ServerSlice>,
}

impl ServerSlice {
    /// Itself, if there can be such a slice.
    ///
    /// # Errors
    /// When its denominator is 0, or it ends before it begins or past the whole.
    pub fn check(self) -> Result<Self> {
        let Self { start, end, denominator } = self;
        if denominator > 0 && start <= end && end <= denominator {
            return Ok(self);
        }
        Err(Error::request(format!(
            "the slice from {start} to {end} of {denominator} is none: it must begin before it ends, and end within a \
             denominator above 0"
        )))
    }

    pub(super) fn proto(self) -> proto::Slice {
        proto::Slice { start: self.start, end: self.end, denominator: self.denominator }
    }
}

/// The contiguous share of a rank: with `S` servers and `C` ranks, rank `r` owns the stretch `[r * S, (r + 1) * S)` of a line on
/// which server `s` occupies `[s * C, (s + 1) * C)`. Gives the servers it touches, with the slice of each one's list.
///
/// # Errors
/// When there are no servers or no such rank.
pub fn rank_slices(rank: u32, world_size: u32, servers: u32) -> Result<Vec<(u32, ServerSlice)>> {
    if rank >= world_size {
        return Err(Error::request(format!("there is no rank {rank} of {world_size}; ranks count from 0")));
    }
    if servers == 0 {
        return Err(Error::request("ids cannot be shared out by no servers"));
    }
    let (length, size) = (u64::from(servers), u64::from(world_size));
    let (start, end) = (u64::from(rank) * length, (u64::from(rank) + 1) * length);
    let slice = |server: u64| {
        let (first, last) = (server * size, (server + 1) * size);
        let (start, end) = (start.max(first) - first, end.min(last) - first);
        (server as u32, ServerSlice { start, end, denominator: size })
    };
    Ok((start / size..end.div_ceil(size)).map(slice).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a server makes of a slice.
    fn cut(list: &[u32], slice: ServerSlice) -> &[u32] {
        let place = |part: u64| (list.len() as u128 * u128::from(part) / u128::from(slice.denominator)) as usize;
        &list[place(slice.start)..place(slice.end)]
    }

    proptest! {
        #[test]
        fn the_slices_of_all_ranks_make_the_whole_in_order(
            lengths in proptest::collection::vec(0usize..40, 1..7), world_size in 1u32..12,
        ) {
            let mut next = 0..;
            let lists: Vec<Vec<u32>> = lengths.iter().map(|&length| next.by_ref().take(length).collect()).collect();
            let mut met = Vec::new();
            for rank in 0..world_size {
                for (server, slice) in rank_slices(rank, world_size, lists.len() as u32).unwrap() {
                    prop_assert!(slice.check().is_ok() && slice.start < slice.end);
                    met.extend_from_slice(cut(&lists[server as usize], slice));
                }
            }
            prop_assert_eq!(met, lists.concat());
        }

        #[test]
        fn ranks_own_equal_stretches(world_size in 1u32..=u32::MAX, servers in 1u32..64, rank: u32) {
            let slices = rank_slices(rank % world_size, world_size, servers).unwrap();
            let owned: u64 = slices.iter().map(|(_, slice)| slice.end - slice.start).sum();
            prop_assert_eq!(owned, u64::from(servers));
            prop_assert!(slices.iter().all(|&(server, slice)| server < servers && slice.denominator == u64::from(world_size)));
        }

        #[test]
        fn every_partition_is_one_servers(parts in 1u32..40, servers in 1u32..60, world_size in 1u32..9) {
            let mut met = std::collections::BTreeMap::new();
            for rank in 0..world_size {
                for share in (Shard::Rank { rank, world_size, servers }).shares(parts).unwrap() {
                    // Empty would mean all.
                    prop_assert!(!share.partitions.is_empty());
                    let slice = share.slice.unwrap();
                    for partition in share.partitions {
                        let end = met.entry(partition).or_insert(0);
                        prop_assert_eq!(*end, slice.start);
                        *end = slice.end;
                    }
                }
            }
            prop_assert_eq!(met.len(), parts as usize);
            prop_assert!(met.values().all(|&end| end == u64::from(world_size)));
        }
    }

    #[test]
    fn boundaries_may_be_fractions_of_a_server() {
        let slice = |start, end| ServerSlice { start, end, denominator: 3 };
        assert_eq!(rank_slices(0, 3, 2).unwrap(), [(0, slice(0, 2))]);
        assert_eq!(rank_slices(1, 3, 2).unwrap(), [(0, slice(2, 3)), (1, slice(0, 1))]);
        assert_eq!(rank_slices(2, 3, 2).unwrap(), [(1, slice(1, 3))]);
        let whole = ServerSlice { start: 0, end: 1, denominator: 1 };
        assert_eq!(rank_slices(0, 1, 3).unwrap(), [(0, whole), (1, whole), (2, whole)]);
    }

    #[test]
    fn rank_and_world_size_are_given_both_or_neither() {
        assert_eq!(Shard::of_rank(None, None, 2).unwrap(), Shard::Whole);
        let shard = Shard::Rank { rank: 1, world_size: 4, servers: 2 };
        assert_eq!(Shard::of_rank(Some(1), Some(4), 2).unwrap(), shard);
        assert!(Shard::of_rank(Some(1), None, 2).unwrap_err().to_string().contains("world size"));
        assert!(Shard::of_rank(None, Some(4), 2).unwrap_err().to_string().contains("give the rank"));
    }

    #[test]
    fn what_cannot_be_shared_out_is_refused_in_words() {
        assert!(rank_slices(4, 4, 2).unwrap_err().to_string().contains("rank 4 of 4"));
        assert!(rank_slices(0, 0, 2).unwrap_err().to_string().contains("rank 0 of 0"));
        assert!(rank_slices(0, 1, 0).unwrap_err().to_string().contains("no servers"));
        for (start, end, denominator) in [(0, 0, 0), (2, 1, 4), (0, 5, 4)] {
            let shard = Shard::Slice(ServerSlice { start, end, denominator });
            let words = format!("from {start} to {end} of {denominator}");
            assert!(shard.shares(3).unwrap_err().to_string().contains(&words));
        }
        let nobody = Shard::Rank { rank: 0, world_size: 1, servers: 0 };
        assert!(nobody.shares(3).unwrap_err().to_string().contains("no servers"));
    }
}
