//! The dataset service: the graph, read-only. Any server answers for the whole of it, by asking its peers for what it does
//! not have itself. Long answers come in parts, made as fast as they are read.

mod aside;
mod books;
pub(crate) mod check;
mod degrees;
mod describe;
mod edges;
mod ids;
mod labels;
mod lists;
mod originals;
mod parts;
mod read;
mod rows;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use graphmill_wire::proto::dataset_service_server::DatasetService;
use graphmill_wire::proto::{
    AnchorLabelsRequest, AnchorLabelsResponse, DegreesRequest, DegreesResponse, DescribeRequest, DescribeResponse,
    EdgeIndexRequest, EdgeIndexResponse, LookupRequest, LookupResponse, NodeIdsRequest, NodeIdsResponse,
    NodePartitionsRequest, NodePartitionsResponse, OriginalIdsRequest, OriginalIdsResponse, PartitionBookRequest,
    PartitionBookResponse, RowsRequest, RowsResponse,
};
use tonic::{Request, Response, Status};

use crate::cluster::Cluster;
use parts::Parts;

pub(crate) use aside::aside;
pub(crate) use edges::all_edges;
pub(crate) use parts::bound;
pub(crate) use read::{Readable, answer_read};

/// The service.
#[derive(Debug)]
pub(crate) struct DatasetApi {
    cluster: Arc<Cluster>,
}

impl DatasetApi {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }
}

#[tonic::async_trait]
impl DatasetService for DatasetApi {
    type PartitionBookStream = Parts<PartitionBookResponse>;
    type RowsStream = Parts<RowsResponse>;
    type EdgeIndexStream = Parts<EdgeIndexResponse>;
    type NodeIdsStream = Parts<NodeIdsResponse>;
    type AnchorLabelsStream = Parts<AnchorLabelsResponse>;
    type DegreesStream = Parts<DegreesResponse>;
    type OriginalIdsStream = Parts<OriginalIdsResponse>;

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(describe::describe(&self.cluster).await?))
    }

    async fn node_partitions(
        &self,
        request: Request<NodePartitionsRequest>,
    ) -> Result<Response<NodePartitionsResponse>, Status> {
        Ok(Response::new(books::node_partitions(&self.cluster, request.into_inner()).await?))
    }

    async fn partition_book(
        &self,
        request: Request<PartitionBookRequest>,
    ) -> Result<Response<Self::PartitionBookStream>, Status> {
        Ok(books::partition_book(&self.cluster, request.into_inner())?)
    }

    async fn rows(&self, request: Request<RowsRequest>) -> Result<Response<Self::RowsStream>, Status> {
        Ok(rows::rows(&self.cluster, request.into_inner()).await?)
    }

    async fn edge_index(&self, request: Request<EdgeIndexRequest>) -> Result<Response<Self::EdgeIndexStream>, Status> {
        Ok(edges::edge_index(&self.cluster, request.into_inner())?)
    }

    async fn node_ids(&self, request: Request<NodeIdsRequest>) -> Result<Response<Self::NodeIdsStream>, Status> {
        Ok(ids::node_ids(&self.cluster, request.into_inner())?)
    }

    async fn anchor_labels(
        &self,
        request: Request<AnchorLabelsRequest>,
    ) -> Result<Response<Self::AnchorLabelsStream>, Status> {
        Ok(labels::anchor_labels(&self.cluster, request.into_inner())?)
    }

    async fn degrees(&self, request: Request<DegreesRequest>) -> Result<Response<Self::DegreesStream>, Status> {
        Ok(degrees::degrees(&self.cluster, request.into_inner()).await?)
    }

    async fn original_ids(
        &self,
        request: Request<OriginalIdsRequest>,
    ) -> Result<Response<Self::OriginalIdsStream>, Status> {
        Ok(originals::original_ids(&self.cluster, request.into_inner()).await?)
    }

    async fn lookup(&self, request: Request<LookupRequest>) -> Result<Response<LookupResponse>, Status> {
        Ok(Response::new(originals::lookup(&self.cluster, request.into_inner()).await?))
    }
}
