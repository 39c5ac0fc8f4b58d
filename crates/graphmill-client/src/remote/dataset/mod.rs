//! The dataset of storage servers, read from afar: what it is, its ids, rows, edges and labels.

mod ask;
mod edges;
mod grow;
mod ids;
mod originals;
mod patience;
mod values;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use graphmill_graph::{EdgeTypeInfo, EdgeTypeName, FeatureInfo, Manifest, NodeTypeInfo};
use graphmill_wire::proto::{
    EdgeFeature, EdgeType, NodeFeature, NodeLabel, NodePartitionsRequest, PartitionBookRequest, PartitionBookResponse,
    RowsRequest, RowsResponse, partition_book_request, rows_request,
};

use super::Remote;
use crate::{Error, Result};
use ask::Service;
use graphmill_sample::room;
use grow::{grow, too_many};

pub use values::{AnchorLabels, EdgeIndex, EdgeLayout, Meta, Original, Padded, PartitionBook, Rows, compress};

/// Ids in a request.
const IDS: usize = 1 << 20;
/// A dataset on storage servers. Any of them answers for the whole of it, so calls go to one after the other.
///
/// A homogeneous graph's types need no name; a heterogeneous one's do.
#[derive(Debug)]
pub struct RemoteDataset {
    remote: Arc<Remote>,
    /// Whose turn it is; begins anywhere, so that not everyone begins with the same server.
    next: AtomicUsize,
}

impl RemoteDataset {
    /// The dataset of the servers of a connection.
    pub fn new(remote: Arc<Remote>) -> Self {
        let anywhere = graphmill_net::random() as usize;
        Self { remote, next: AtomicUsize::new(anywhere) }
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        &self.remote.manifest
    }

    /// What it is.
    pub fn meta(&self) -> Meta {
        let manifest = self.manifest();
        let named = !manifest.homogeneous;
        Meta {
            parts: manifest.parts,
            node_types: named.then(|| manifest.node_types.iter().map(|info| info.name.clone()).collect()),
            edge_types: named.then(|| manifest.edge_types.iter().map(|info| info.name.clone()).collect()),
            edge_dir: manifest.edge_dir,
            fingerprint: manifest.fingerprint,
        }
    }

    /// Among how many servers ids are shared out. Where servers come and go it is the number of partitions, so that it is the
    /// same for all ranks.
    pub fn servers(&self) -> u32 {
        self.remote.server_count()
    }

    /// The partitions of nodes.
    pub fn node_partition_id(&self, node_type: Option<&str>, ids: &[u64]) -> Result<Vec<u32>> {
        const DOING: &str = "tell the partitions of nodes";
        let mut partitions = Vec::with_capacity(ids.len());
        for ids in pieces(ids) {
            let request = NodePartitionsRequest { node_type: owned(node_type), ids: ids.to_vec() };
            let call = |mut service: Service, request| async move { service.node_partitions(request).await };
            let found = self.ask(DOING, request, call)?.partitions;
            expect(DOING, "partitions", found.len() as u64, ids.len() as u64)?;
            partitions.extend(found);
        }
        Ok(partitions)
    }

    /// The partition of every node of a type.
    pub fn node_partition_book(&self, node_type: Option<&str>) -> Result<PartitionBook> {
        let info = self.node_type(node_type)?;
        let of = partition_book_request::Of::NodeType(node_type.unwrap_or_default().to_owned());
        self.partition_book(of, info.count)
    }

    /// The partition that has the features of every edge of a type.
    pub fn edge_partition_book(&self, edge_type: Option<&EdgeTypeName>) -> Result<PartitionBook> {
        let info = self.edge_type(edge_type)?;
        let of = partition_book_request::Of::EdgeType(named(edge_type).unwrap_or_default());
        self.partition_book(of, info.id_count)
    }

    fn partition_book(&self, of: partition_book_request::Of, count: u64) -> Result<PartitionBook> {
        const DOING: &str = "send a partition book";
        let call = |mut service: Service, request| async move { service.partition_book(request).await };
        let add = move |book: &mut PartitionBook, part: PartitionBookResponse| {
            let mut bytes = 0;
            // A run has an id at least, so there are no more runs than ids.
            for (partition, length) in part.partitions.into_iter().zip(part.lengths).filter(|(_, length)| *length > 0) {
                if book.count().saturating_add(length) > count {
                    return Err(too_many("ids", count));
                }
                book.push(partition, length)?;
                bytes += 12;
            }
            Ok(bytes)
        };
        let book = self.read(DOING, PartitionBookRequest { of: Some(of) }, call, add)?;
        expect(DOING, "ids", book.count(), count)?;
        Ok(book)
    }

    /// The shape and element type of a node feature's rows.
    pub fn node_feature_info(&self, node_type: Option<&str>, name: &str) -> Result<&FeatureInfo> {
        feature(&self.node_type(node_type)?.features, name)
    }

    /// The shape and element type of an edge feature's rows.
    pub fn edge_feature_info(&self, edge_type: Option<&EdgeTypeName>, name: &str) -> Result<&FeatureInfo> {
        feature(&self.edge_type(edge_type)?.features, name)
    }

    /// The extents of a node feature of all nodes.
    pub fn tensor_size(&self, node_type: Option<&str>, name: &str) -> Result<Vec<u64>> {
        let info = self.node_feature_info(node_type, name)?;
        Ok(shape(self.node_type(node_type)?.count, info))
    }

    /// Rows of a node feature.
    pub fn node_feature(&self, node_type: Option<&str>, name: &str, ids: &[u64]) -> Result<Rows> {
        let info = self.node_feature_info(node_type, name)?;
        let of = NodeFeature { node_type: owned(node_type), name: name.to_owned() };
        self.rows(&rows_request::Of::NodeFeature(of), info, ids)
    }

    /// Labels of nodes.
    pub fn node_label(&self, node_type: Option<&str>, ids: &[u64]) -> Result<Rows> {
        let info = self.node_type(node_type)?;
        let label = info.label.ok_or_else(|| Error::request(format!("nodes of `{}` have no label", info.name)))?;
        let of = NodeLabel { node_type: owned(node_type) };
        self.rows(&rows_request::Of::NodeLabel(of), &label.as_feature(), ids)
    }

    /// Rows of an edge feature, by edge id.
    pub fn edge_feature(&self, edge_type: Option<&EdgeTypeName>, name: &str, ids: &[u64]) -> Result<Rows> {
        let info = self.edge_feature_info(edge_type, name)?;
        let of = EdgeFeature { edge_type: named(edge_type), name: name.to_owned() };
        self.rows(&rows_request::Of::EdgeFeature(of), info, ids)
    }

    fn rows(&self, of: &rows_request::Of, info: &FeatureInfo, ids: &[u64]) -> Result<Rows> {
        const DOING: &str = "send rows";
        let row_bytes = info.row_bytes().unwrap_or(0);
        let mut bytes = room("bytes of rows", (ids.len() as u64).saturating_mul(row_bytes))?;
        for ids in pieces(ids) {
            let request = RowsRequest { of: Some(of.clone()), ids: ids.to_vec() };
            let call = |mut service: Service, request| async move { service.rows(request).await };
            let count = ids.len() as u64 * row_bytes;
            let add = move |rows: &mut Vec<u8>, part: RowsResponse| grow(rows, part.rows, "bytes", count);
            let rows = self.read(DOING, request, call, add)?;
            expect(DOING, "bytes", rows.len() as u64, count)?;
            bytes.extend(rows);
        }
        Ok(Rows { dtype: info.dtype, shape: shape(ids.len() as u64, info), bytes })
    }

    fn node_type(&self, name: Option<&str>) -> Result<&NodeTypeInfo> {
        let manifest = self.manifest();
        Ok(&manifest.node_types[manifest.resolve_node_type(name)?])
    }

    fn edge_type(&self, name: Option<&EdgeTypeName>) -> Result<&EdgeTypeInfo> {
        let manifest = self.manifest();
        Ok(&manifest.edge_types[manifest.resolve_edge_type(name)?])
    }
}

/// Stretches of ids that fit a request; one, though empty, where there are none, so that the rest of it is checked.
fn pieces(ids: &[u64]) -> impl Iterator<Item = &[u64]> {
    let none: Option<&[u64]> = ids.is_empty().then_some(&[]);
    none.into_iter().chain(ids.chunks(IDS))
}

fn feature<'a>(features: &'a [FeatureInfo], name: &str) -> Result<&'a FeatureInfo> {
    features.iter().find(|info| info.name == name).ok_or_else(|| {
        let there_are: Vec<&str> = features.iter().map(|info| info.name.as_str()).collect();
        let available = if there_are.is_empty() { "none".to_owned() } else { there_are.join(", ") };
        graphmill_graph::Error::Unknown { kind: "feature", name: name.to_owned(), available }.into()
    })
}

fn shape(rows: u64, info: &FeatureInfo) -> Vec<u64> {
    std::iter::once(rows).chain(info.shape.iter().copied()).collect()
}

fn owned(name: Option<&str>) -> Option<String> {
    name.map(str::to_owned)
}

fn named(name: Option<&EdgeTypeName>) -> Option<EdgeType> {
    name.cloned().map(|EdgeTypeName { src, relation, dst }| EdgeType { src, relation, dst })
}

/// Fails when an answer is not as long as it must be.
fn expect(doing: &str, what: &str, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::request(format!("to {doing}, a server answered {found} {what}, expected {expected}")))
}
