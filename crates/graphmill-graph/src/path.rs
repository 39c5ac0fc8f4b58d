//! Where each array of a dataset lies: its path follows from what it holds.

use std::fmt::Write as _;

use crate::{DType, Direction, EdgeTypeName, FeatureInfo, IdWidth, Split};

/// An array that belongs to a node type.
#[derive(Debug, Clone, Copy)]
pub enum NodeArray<'a> {
    /// Row to node id.
    Ids(IdWidth),
    /// One named feature.
    Feature(&'a FeatureInfo),
    /// The label.
    Label(DType),
    /// Weights.
    Weights,
    /// Timestamps.
    Timestamps,
    /// The ids of a split.
    Split(Split, IdWidth),
    /// Original ids that are numbers.
    OriginalInts,
    /// Where each original string begins.
    OriginalOffsets,
    /// The original strings' bytes.
    OriginalText,
}

/// An array that belongs to an edge type.
#[derive(Debug, Clone, Copy)]
pub enum EdgeArray<'a> {
    /// Where each list begins.
    Indptr(Direction, IdWidth),
    /// The lists.
    Neighbors(Direction, IdWidth),
    /// Edge ids beside the lists.
    EdgeIds(Direction, IdWidth),
    /// Weights beside the lists.
    Weights(Direction),
    /// Running sums of the lists' integer weights.
    Cumulative(Direction),
    /// Alias tables of the lists' integer weights.
    Alias(Direction),
    /// Timestamps beside the lists.
    Timestamps(Direction),
    /// Feature row to edge id.
    Ids(IdWidth),
    /// One named edge feature.
    Feature(&'a FeatureInfo),
}

/// An array of a partition book.
#[derive(Debug, Clone, Copy)]
pub enum BookArray {
    /// The owner of each id; `true` for two bytes each.
    Owner(bool),
    /// How many ids below each block belong to each partition.
    Rank(IdWidth),
}

/// The path of a node type's array inside a partition.
pub fn node(name: &str, array: NodeArray<'_>) -> String {
    let file = match array {
        NodeArray::Ids(width) => format!("ids.{}", width.name()),
        NodeArray::Feature(info) => feature(info),
        NodeArray::Label(dtype) => format!("label.{dtype}"),
        NodeArray::Weights => "weights.f32".to_owned(),
        NodeArray::Timestamps => "timestamp.i64".to_owned(),
        NodeArray::Split(split, width) => format!("split.{split}.{}", width.name()),
        NodeArray::OriginalInts => "original.i64".to_owned(),
        NodeArray::OriginalOffsets => "original.offsets.u64".to_owned(),
        NodeArray::OriginalText => "original.utf8.u8".to_owned(),
    };
    format!("nodes/{}/{file}", escape(name))
}

/// The path of an edge type's array inside a partition.
pub fn edge(name: &EdgeTypeName, array: EdgeArray<'_>) -> String {
    let file = match array {
        EdgeArray::Indptr(direction, width) => format!("{direction}.indptr.{}", width.name()),
        EdgeArray::Neighbors(direction, width) => format!("{direction}.neighbors.{}", width.name()),
        EdgeArray::EdgeIds(direction, width) => format!("{direction}.edge_ids.{}", width.name()),
        EdgeArray::Weights(direction) => format!("{direction}.weights.f32"),
        EdgeArray::Cumulative(direction) => format!("{direction}.cumulative.u64"),
        EdgeArray::Alias(direction) => format!("{direction}.alias.u64"),
        EdgeArray::Timestamps(direction) => format!("{direction}.timestamps.i64"),
        EdgeArray::Ids(width) => format!("ids.{}", width.name()),
        EdgeArray::Feature(info) => feature(info),
    };
    format!("{}/{file}", edge_folder(name))
}

/// The path of a node book's array inside `book/`.
pub fn node_book(name: &str, array: BookArray) -> String {
    format!("nodes/{}/{}", escape(name), book(array))
}

/// The path inside `book/` of the running sums of a node type's integer weights.
pub fn node_cumulative(name: &str) -> String {
    format!("nodes/{}/cumulative.u64", escape(name))
}

/// The path of an edge book's array inside `book/`.
pub fn edge_book(name: &EdgeTypeName, array: BookArray) -> String {
    format!("{}/{}", edge_folder(name), book(array))
}

/// The folder of a partition.
pub fn part(partition: u32) -> String {
    format!("part-{partition:05}")
}

fn edge_folder(name: &EdgeTypeName) -> String {
    format!("edges/{}/{}/{}", escape(&name.src), escape(&name.relation), escape(&name.dst))
}

fn feature(info: &FeatureInfo) -> String {
    format!("feature.{}.{}", escape(&info.name), info.dtype)
}

fn book(array: BookArray) -> String {
    match array {
        BookArray::Owner(wide) => format!("owner.{}", if wide { "u16" } else { "u8" }),
        BookArray::Rank(width) => format!("rank.{}", width.name()),
    }
}

fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leaves_its_folder() {
        let path = node("../../etc/a.b c", NodeArray::Timestamps);
        assert_eq!(path, "nodes/%2E%2E%2F%2E%2E%2Fetc%2Fa%2Eb%20c/timestamp.i64");
    }
}
