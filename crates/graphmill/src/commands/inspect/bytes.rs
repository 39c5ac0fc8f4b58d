//! What the bytes of a dataset are spent on, told by the paths of its arrays.

use graphmill_graph::Manifest;

/// What an array is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Neighbour lists: offsets and neighbours.
    Topology,
    /// Edge ids, weights with their tables and timestamps beside the lists.
    EdgeData,
    /// Features of nodes and edges.
    Features,
    /// Labels.
    Labels,
    /// Splits, weights, timestamps and names of nodes, row ids.
    Other,
}

/// Bytes of all arrays for a purpose.
pub(super) fn bytes_for(manifest: &Manifest, purpose: Purpose) -> u64 {
    manifest.bytes_of(|path| purpose_of(path) == purpose)
}

fn purpose_of(path: &str) -> Purpose {
    let file = path.rsplit('/').next().unwrap_or(path);
    let mut words = file.split('.');
    match (words.next(), words.next()) {
        (Some("in" | "out"), Some("indptr" | "neighbors")) => Purpose::Topology,
        (Some("in" | "out"), _) => Purpose::EdgeData,
        (Some("feature"), _) => Purpose::Features,
        (Some("label"), _) => Purpose::Labels,
        _ => Purpose::Other,
    }
}

#[cfg(test)]
mod tests {
    use graphmill_graph::path::{self, EdgeArray, NodeArray};
    use graphmill_graph::{DType, Direction, EdgeTypeName, FeatureInfo, IdWidth};

    use super::*;

    #[test]
    fn a_path_tells_what_its_bytes_are_for() {
        let edge = EdgeTypeName::new("label", "in", "feature");
        let feature = FeatureInfo { name: "in.indptr".to_owned(), dtype: DType::F32, shape: vec![] };
        let edge = |array| purpose_of(&path::edge(&edge, array));
        let node = |array| purpose_of(&path::node("label", array));
        assert_eq!(edge(EdgeArray::Indptr(Direction::In, IdWidth::U32)), Purpose::Topology);
        assert_eq!(edge(EdgeArray::Neighbors(Direction::Out, IdWidth::U64)), Purpose::Topology);
        assert_eq!(edge(EdgeArray::Weights(Direction::Out)), Purpose::EdgeData);
        assert_eq!(edge(EdgeArray::Cumulative(Direction::In)), Purpose::EdgeData);
        assert_eq!(edge(EdgeArray::Alias(Direction::In)), Purpose::EdgeData);
        assert_eq!(edge(EdgeArray::Feature(&feature)), Purpose::Features);
        assert_eq!(node(NodeArray::Feature(&feature)), Purpose::Features);
        assert_eq!(node(NodeArray::Label(DType::I64)), Purpose::Labels);
        assert_eq!(node(NodeArray::Ids(IdWidth::U32)), Purpose::Other);
        assert_eq!(node(NodeArray::Weights), Purpose::Other);
    }
}
