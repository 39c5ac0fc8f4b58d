//! What requests name, checked: types, splits, slices, features, ids. Refusals say what there is.

use std::ops::Range;

use graphmill_graph::{Dataset, Direction, EdgeTypeName, Error, FeatureInfo, NodeTypeInfo, Split};
use graphmill_wire::proto;

use crate::Refusal;

/// The place of a node type; an empty name is none.
pub(super) fn node_type(dataset: &Dataset, name: Option<&str>) -> Result<usize, Refusal> {
    Ok(dataset.resolve_node_type(name.filter(|name| !name.is_empty()))?)
}

/// The name of a node type as requests have it.
pub(crate) fn node_type_name(dataset: &Dataset, node_type: usize) -> Option<String> {
    (!dataset.manifest().homogeneous).then(|| dataset.node_types()[node_type].name.clone())
}

/// The place of an edge type; one without parts is none.
pub(super) fn edge_type(dataset: &Dataset, name: Option<proto::EdgeType>) -> Result<usize, Refusal> {
    let name = name.map(|proto::EdgeType { src, relation, dst }| EdgeTypeName { src, relation, dst });
    let name = name.filter(|name| *name != EdgeTypeName::new("", "", ""));
    Ok(dataset.resolve_edge_type(name.as_ref())?)
}

/// A split of a node type, if one is named; the type must have it.
pub(super) fn split(info: &NodeTypeInfo, name: Option<&str>) -> Result<Option<Split>, Refusal> {
    let Some(name) = name else { return Ok(None) };
    let split = name.parse()?;
    split_size(info, split).map(|_| Some(split))
}

/// How many nodes a split has.
pub(crate) fn split_size(info: &NodeTypeInfo, split: Split) -> Result<u64, Refusal> {
    info.splits.get(split).ok_or_else(|| unknown("split", &split, info.splits.iter().map(|(split, _)| split)))
}

/// A direction by its name.
pub(super) fn direction(name: &str) -> Result<Direction, Refusal> {
    let all = [Direction::In, Direction::Out];
    all.into_iter().find(|direction| direction.to_string() == name).ok_or_else(|| unknown("direction", &name, all))
}

/// The partitions that are meant: those named, once each and in order, or all.
pub(super) fn partitions(dataset: &Dataset, mut named: Vec<u32>) -> Result<Vec<u32>, Refusal> {
    if named.is_empty() {
        return Ok((0..dataset.parts()).collect());
    }
    named.sort_unstable();
    named.dedup();
    match named.last() {
        Some(&last) if last >= dataset.parts() => {
            Err(unknown("partition", &last, [format!("0 to {}", dataset.parts() - 1)]))
        }
        _ => Ok(named),
    }
}

/// The place of a feature by its name.
pub(super) fn feature(features: &[FeatureInfo], name: &str) -> Result<usize, Refusal> {
    let place = features.iter().position(|info| info.name == name);
    place.ok_or_else(|| unknown("feature", &name, features.iter().map(|info| &info.name)))
}

/// Fails with the first id that is not below a count.
pub(super) fn ids(kind: &'static str, name: &str, count: u64, ids: &[u64]) -> Result<(), Refusal> {
    match ids.iter().find(|&&id| id >= count) {
        None => Ok(()),
        Some(&id) => Err(Error::OutOfRange { kind, name: name.to_string(), id, count }.into()),
    }
}

/// A share of a list of any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    start: u64,
    end: u64,
    denominator: u64,
}

impl Slice {
    /// The share that is asked for; the whole if none is.
    pub(super) fn new(slice: Option<proto::Slice>) -> Result<Self, Refusal> {
        let Some(proto::Slice { start, end, denominator }) = slice else {
            return Ok(Self { start: 0, end: 1, denominator: 1 });
        };
        if denominator == 0 || start > end || end > denominator {
            return Err(Refusal::invalid(format!(
                "the slice from {start} to {end} of {denominator} is none: it must begin before it ends, and end within a \
                 denominator above 0"
            )));
        }
        Ok(Self { start, end, denominator })
    }

    /// Its places in a list of some length.
    pub(super) fn of(self, length: usize) -> Range<usize> {
        let place = |part: u64| (length as u128 * u128::from(part) / u128::from(self.denominator)) as usize;
        place(self.start)..place(self.end)
    }
}

fn unknown(kind: &'static str, name: &impl ToString, there_are: impl IntoIterator<Item: ToString>) -> Refusal {
    let there_are: Vec<String> = there_are.into_iter().map(|name| name.to_string()).collect();
    let available = if there_are.is_empty() { "none".to_owned() } else { there_are.join(", ") };
    Error::Unknown { kind, name: name.to_string(), available }.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slice(start: u64, end: u64, denominator: u64) -> Result<Slice, Refusal> {
        Slice::new(Some(proto::Slice { start, end, denominator }))
    }

    proptest! {
        #[test]
        fn slices_that_follow_each_other_make_the_whole(
            length in prop_oneof![0usize..1000, any::<usize>()],
            denominator in prop_oneof![1u64..50, 1..u64::MAX],
            cuts in proptest::collection::vec(any::<u64>(), 0..5),
        ) {
            let mut bounds: Vec<u64> = cuts.iter().map(|cut| cut % denominator).collect();
            bounds.extend([0, denominator]);
            bounds.sort_unstable();
            let mut next = 0;
            for pair in bounds.windows(2) {
                let places = slice(pair[0], pair[1], denominator).unwrap().of(length);
                prop_assert_eq!(places.start, next);
                prop_assert!(places.end >= next);
                next = places.end;
            }
            prop_assert_eq!(next, length);
        }
    }

    #[test]
    fn fractions_are_rounded_down() {
        assert_eq!(slice(1, 3, 4).unwrap().of(10), 2..7);
        assert_eq!(slice(2, 2, 4).unwrap().of(10), 5..5);
        assert_eq!(Slice::new(None).unwrap().of(7), 0..7);
        assert_eq!(slice(u64::MAX - 1, u64::MAX, u64::MAX).unwrap().of(usize::MAX), usize::MAX - 1..usize::MAX);
    }

    #[test]
    fn slices_that_cannot_be_are_refused_in_words() {
        for (start, end, denominator) in [(0, 0, 0), (0, 1, 0), (2, 1, 4), (0, 5, 4)] {
            let refusal = slice(start, end, denominator).unwrap_err();
            assert!(refusal.reason.contains(&format!("from {start} to {end} of {denominator}")), "{refusal}");
            assert_eq!(refusal.code, proto::Code::Invalid);
        }
    }
}
