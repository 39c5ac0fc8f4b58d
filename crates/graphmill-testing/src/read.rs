//! Puts a dataset back together from its partitions.

use std::collections::{BTreeMap, BTreeSet};

use graphmill_graph::{
    Dataset, Direction, EdgeStore, EdgeTypeInfo, FeatureInfo, Location, NodeStore, NodeTypeInfo, OriginalId,
    OriginalKind, Result, Split, Tensor,
};

use crate::{ModelEdge, ModelEdges, ModelGraph, ModelLabel, ModelNodes, ModelOriginals, ModelTensor};
use crate::{alias_table, running_sums};

/// Reads everything a dataset holds; all partitions must be opened.
///
/// # Panics
/// When the parts contradict each other: an id in no partition or in two, layouts with different edges, a book that
/// does not say where a row is, a table to draw from that is not the weights'.
pub fn read(dataset: &Dataset) -> Result<ModelGraph> {
    let mut nodes = BTreeMap::new();
    for (place, info) in dataset.node_types().iter().enumerate() {
        nodes.insert(info.name.clone(), read_nodes(dataset, place, info)?);
    }
    let mut edges = BTreeMap::new();
    for (place, info) in dataset.edge_types().iter().enumerate() {
        edges.insert(info.name.clone(), read_edges(dataset, place, info)?);
    }
    let manifest = dataset.manifest();
    Ok(ModelGraph { homogeneous: manifest.homogeneous, edge_dir: manifest.edge_dir, nodes, edges })
}

fn read_nodes(dataset: &Dataset, place: usize, info: &NodeTypeInfo) -> Result<ModelNodes> {
    let mut stores = Vec::new();
    for partition in 0..dataset.parts() {
        let store = dataset.partition(partition)?.nodes(place);
        for row in 0..store.rows() {
            let location = dataset.locate_node(place, store.id(row).unwrap())?;
            assert_eq!(location, Location { partition, row }, "node type {}", info.name);
        }
        stores.push(store);
    }
    let count = info.count;
    let tensor = |select: &dyn Fn(&NodeStore) -> Tensor| {
        gather(count, stores.iter().flat_map(|store| id_rows(|row| store.id(row), &select(store))))
    };
    let mut features = BTreeMap::new();
    for (place, feature) in info.features.iter().enumerate() {
        let rows = tensor(&|store| store.feature(place).unwrap().clone());
        features.insert(feature.name.clone(), model_tensor(feature, rows));
    }
    let label = info.label.map(|label| ModelLabel {
        kind: label.kind,
        dtype: label.dtype,
        width: label.width,
        rows: tensor(&|store| store.label().unwrap().clone()),
    });
    let weights = info.weights.then(|| {
        let at = |store: &NodeStore, row: usize| (store.id(row).unwrap(), store.weights().unwrap()[row].to_bits());
        gather(count, stores.iter().flat_map(|store| (0..store.rows()).map(|row| at(store, row))))
    });
    let sums = weights.as_deref().map(running_sums);
    assert_eq!(
        dataset.node_cumulative(place).map(|sums| &sums[..]),
        sums.as_deref(),
        "the table of node type {}",
        info.name
    );
    let timestamps = info.timestamps.then(|| {
        let at = |store: &NodeStore, row: usize| (store.id(row).unwrap(), store.timestamps().unwrap()[row]);
        gather(count, stores.iter().flat_map(|store| (0..store.rows()).map(|row| at(store, row))))
    });
    let mut splits = [const { None }; 3];
    for (split, size) in info.splits.iter() {
        splits[split as usize] = Some(read_split(dataset, place, split, size)?);
    }
    let originals = info.original_ids.map(|kind| read_originals(dataset, place, count, kind)).transpose()?;
    Ok(ModelNodes { count, features, label, weights, timestamps, splits, originals })
}

fn read_split(dataset: &Dataset, place: usize, split: Split, size: u64) -> Result<BTreeSet<u64>> {
    let ids = dataset.split_ids(place, split)?;
    let members: BTreeSet<u64> = ids.iter().copied().collect();
    assert!(ids.iter().eq(&members), "split {split} is not ascending: {ids:?}");
    assert_eq!(members.len() as u64, size, "split {split}");
    Ok(members)
}

fn read_originals(dataset: &Dataset, place: usize, count: u64, kind: OriginalKind) -> Result<ModelOriginals> {
    let ids: Vec<u64> = (0..count).collect();
    let originals = dataset.original_ids(place, &ids)?;
    let found = dataset.lookup(place, &originals)?;
    assert!(found.iter().copied().eq(ids.into_iter().map(Some)), "look-ups go elsewhere: {found:?}");
    Ok(match kind {
        OriginalKind::Int => ModelOriginals::Ints(
            originals
                .iter()
                .map(|id| if let OriginalId::Int(id) = id { *id } else { panic!("{id} is text") })
                .collect(),
        ),
        OriginalKind::String => ModelOriginals::Strings(originals.iter().map(ToString::to_string).collect()),
    })
}

fn read_edges(dataset: &Dataset, place: usize, info: &EdgeTypeInfo) -> Result<ModelEdges> {
    let mut edges = read_lists(dataset, place, info, info.primary())?;
    edges.sort_unstable();
    for &direction in &info.layouts[1..] {
        let mut others = read_lists(dataset, place, info, direction)?;
        others.sort_unstable();
        assert_eq!(edges, others, "edge type {} in its layouts", info.name);
    }
    assert_eq!(edges.len() as u64, info.count, "edge type {}", info.name);
    Ok(ModelEdges {
        role: info.role,
        edges,
        edge_ids: info.edge_ids,
        id_count: info.id_count,
        weights: info.weights,
        timestamps: info.timestamps,
        features: read_edge_features(dataset, place, info)?,
    })
}

fn read_lists(dataset: &Dataset, place: usize, info: &EdgeTypeInfo, direction: Direction) -> Result<Vec<ModelEdge>> {
    let owner_place = dataset.manifest().node_type(info.name.list_owner(direction))?;
    let mut edges = Vec::new();
    for (_, partition) in dataset.partitions() {
        let lists = partition.edges(place).lists(direction).unwrap();
        let owners = partition.nodes(owner_place);
        assert_eq!(lists.rows(), owners.rows(), "lists of edge type {}", info.name);
        for row in 0..lists.rows() {
            let owner = owners.id(row).unwrap();
            let list = lists.list(row)?;
            let weights = lists.weights().map(|weights| weights[list.clone()].iter().map(|weight| weight.to_bits()));
            let weights: Option<Vec<u32>> = weights.map(Iterator::collect);
            let tables = weights.map(|weights| [running_sums(&weights), alias_table(&weights)]);
            let stored = [lists.cumulative(), lists.alias()].map(|table| Some(table?[list.clone()].to_vec()));
            let stored = match stored {
                [Some(sums), Some(aliases)] => Some([sums, aliases]),
                _ => None,
            };
            assert_eq!(stored, tables, "the tables of edge type {}, {direction} row {row}", info.name);
            for at in list {
                let neighbor = lists.neighbors().as_slice().get(at).unwrap();
                let (src, dst) = match direction {
                    Direction::In => (neighbor, owner),
                    Direction::Out => (owner, neighbor),
                };
                edges.push(ModelEdge {
                    src,
                    dst,
                    id: lists.edge_ids().map(|ids| ids.as_slice().get(at).unwrap()),
                    weight: lists.weights().map(|weights| weights[at].to_bits()),
                    timestamp: lists.timestamps().map(|timestamps| timestamps[at]),
                });
            }
        }
    }
    Ok(edges)
}

fn read_edge_features(dataset: &Dataset, place: usize, info: &EdgeTypeInfo) -> Result<BTreeMap<String, ModelTensor>> {
    let stores: Vec<&EdgeStore> = dataset.partitions().map(|(_, partition)| partition.edges(place)).collect();
    let mut features = BTreeMap::new();
    for (number, feature) in info.features.iter().enumerate() {
        let rows = stores.iter().flat_map(|store| id_rows(|row| store.id(row), store.feature(number).unwrap()));
        features.insert(feature.name.clone(), model_tensor(feature, gather(info.id_count, rows)));
    }
    let Some(book) = dataset.edge_book(place) else { return Ok(features) };
    for (partition, store) in (0..).zip(stores) {
        let rows = store.feature(0).unwrap().rows();
        assert_eq!(store.id(rows), None, "edge type {} has an id past its rows", info.name);
        for row in 0..rows {
            let (id, location) = (store.id(row).unwrap(), Some(Location { partition, row }));
            assert_eq!(book.locate(id)?, location, "edge type {}", info.name);
            assert_eq!(book.open().locate(id), location, "edge type {}, opened", info.name);
        }
    }
    Ok(features)
}

fn model_tensor(info: &FeatureInfo, rows: Vec<Vec<u8>>) -> ModelTensor {
    ModelTensor { dtype: info.dtype, shape: info.shape.clone(), rows }
}

fn id_rows(id: impl Fn(usize) -> Option<u64>, tensor: &Tensor) -> Vec<(u64, Vec<u8>)> {
    (0..tensor.rows()).map(|row| (id(row).unwrap(), tensor.row(row).unwrap().to_vec())).collect()
}

/// Items in order of id, each id exactly once.
fn gather<T>(count: u64, items: impl IntoIterator<Item = (u64, T)>) -> Vec<T> {
    let mut gathered = BTreeMap::new();
    for (id, item) in items {
        assert!(gathered.insert(id, item).is_none(), "id {id} is in two rows");
    }
    assert!(gathered.keys().copied().eq(0..count), "expected ids 0 to {count}, found {:?}", gathered.keys());
    gathered.into_values().collect()
}
