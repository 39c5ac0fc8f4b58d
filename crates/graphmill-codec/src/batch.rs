//! The tensors of a batch as the head of its frame lists them.

use graphmill_graph::DType;
use graphmill_sample::{Entry, Field, Layout};
use graphmill_wire::proto::Tensor;

use crate::{Error, Result};

/// The list of a layout's tensors.
pub fn tensors(layout: &Layout) -> Vec<Tensor> {
    let tensor = |entry: &Entry| {
        let (field, first, second) = number(entry.field);
        Tensor {
            field,
            first: first as u32,
            second: second as u32,
            dtype: dtype_number(entry.dtype),
            shape: entry.shape.clone(),
            offset: entry.offset as u64,
            bytes: entry.bytes as u64,
        }
    };
    layout.entries().iter().map(tensor).collect()
}

/// The layout that a list of tensors describes, in a buffer of so many bytes.
///
/// # Errors
/// When a tensor is unknown, or does not lie in the buffer as it should.
pub fn layout(tensors: Vec<Tensor>, bytes: u64) -> Result<Layout> {
    let entry = |tensor: Tensor| {
        let (first, second) = (tensor.first as usize, tensor.second as usize);
        let field = field(tensor.field, first, second)
            .ok_or_else(|| Error::content(format!("there is no tensor {}", tensor.field)))?;
        let dtype = (tensor.dtype as usize).checked_sub(1).and_then(|place| DType::ALL.get(place)).copied();
        let dtype = dtype.ok_or_else(|| Error::content(format!("there is no element type {}", tensor.dtype)))?;
        let (offset, bytes) = (tensor.offset as usize, tensor.bytes as usize);
        Ok(Entry { field, dtype, shape: tensor.shape, offset, bytes })
    };
    let entries = tensors.into_iter().map(entry).collect::<Result<Vec<_>>>()?;
    Layout::from_entries(entries, bytes as usize).map_err(|error| Error::content(error.to_string()))
}

/// The number of an element type: its place among all, from one on.
fn dtype_number(dtype: DType) -> u32 {
    DType::ALL.iter().position(|one| *one == dtype).map_or(0, |place| place as u32 + 1)
}

/// The number of a field, and its places.
fn number(field: Field) -> (u32, usize, usize) {
    match field {
        Field::Seed => (1, 0, 0),
        Field::SeedIndex => (2, 0, 0),
        Field::Node(node_type) => (3, node_type, 0),
        Field::NumSampledNodes(node_type) => (4, node_type, 0),
        Field::Row(walk) => (5, walk, 0),
        Field::Col(walk) => (6, walk, 0),
        Field::Edge(walk) => (7, walk, 0),
        Field::NumSampledEdges(walk) => (8, walk, 0),
        Field::Feature(node_type, feature) => (9, node_type, feature),
        Field::Label(node_type) => (10, node_type, 0),
        Field::EdgeFeature(walk, feature) => (11, walk, feature),
        Field::EdgeLabelIndex => (12, 0, 0),
        Field::EdgeLabel => (13, 0, 0),
        Field::SrcIndex => (14, 0, 0),
        Field::DstPosIndex => (15, 0, 0),
        Field::DstNegIndex => (16, 0, 0),
        Field::NegativesMissing => (17, 0, 0),
        Field::LabelPairs(place) => (18, place, 0),
        Field::PprIndex(seeds, node_type) => (19, seeds, node_type),
        Field::PprScore(seeds, node_type) => (20, seeds, node_type),
        Field::PprHop(seeds, node_type) => (21, seeds, node_type),
    }
}

fn field(number: u32, first: usize, second: usize) -> Option<Field> {
    Some(match number {
        1 => Field::Seed,
        2 => Field::SeedIndex,
        3 => Field::Node(first),
        4 => Field::NumSampledNodes(first),
        5 => Field::Row(first),
        6 => Field::Col(first),
        7 => Field::Edge(first),
        8 => Field::NumSampledEdges(first),
        9 => Field::Feature(first, second),
        10 => Field::Label(first),
        11 => Field::EdgeFeature(first, second),
        12 => Field::EdgeLabelIndex,
        13 => Field::EdgeLabel,
        14 => Field::SrcIndex,
        15 => Field::DstPosIndex,
        16 => Field::DstNegIndex,
        17 => Field::NegativesMissing,
        18 => Field::LabelPairs(first),
        19 => Field::PprIndex(first, second),
        20 => Field::PprScore(first, second),
        21 => Field::PprHop(first, second),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_field_has_a_number_of_its_own() {
        let fields: Vec<Field> = (1..=21).filter_map(|number| field(number, 3, 5)).collect();
        assert_eq!(fields.len(), 21);
        for (place, &one) in fields.iter().enumerate() {
            let (found, first, second) = number(one);
            assert_eq!((found as usize, field(found, first, second)), (place + 1, Some(one)));
        }
        assert_eq!((field(0, 0, 0), field(22, 0, 0)), (None, None));
    }

    proptest! {
        #[test]
        fn no_list_of_tensors_reaches_outside_its_buffer(
            tensors in proptest::collection::vec(
                (0u32..24, 0u32..10, proptest::collection::vec(prop_oneof![0u64..9, any::<u64>()], 0..4),
                    prop_oneof![(0u64..9).prop_map(|line| line * 64), any::<u64>()], prop_oneof![0u64..500, any::<u64>()]), 0..5),
            bytes in 0u64..1000,
        ) {
            let tensors = tensors.into_iter().map(|(field, dtype, shape, offset, bytes)| {
                Tensor { field, dtype, shape, offset, bytes, ..Tensor::default() }
            });
            if let Ok(layout) = layout(tensors.collect(), bytes) {
                for entry in layout.entries() {
                    prop_assert!(entry.offset + entry.bytes <= bytes as usize);
                }
            }
        }
    }
}
