//! The ids of splits, shared out as asked.

use std::sync::Arc;

use graphmill_wire::proto::{NodeIdsRequest, NodeIdsResponse};
use tonic::Response;

use super::aside;
use super::check::{self, Slice};
use super::parts::{ELEMENTS, Parts, parts, stretches};
use crate::Refusal;
use crate::cluster::Cluster;

pub(super) fn node_ids(
    cluster: &Arc<Cluster>,
    request: NodeIdsRequest,
) -> Result<Response<Parts<NodeIdsResponse>>, Refusal> {
    let cluster = Arc::clone(cluster);
    let node_type = check::node_type(&cluster.dataset, request.node_type.as_deref())?;
    let split = check::split(&cluster.dataset.node_types()[node_type], request.split.as_deref())?;
    let partitions = check::partitions(&cluster.dataset, request.partitions)?;
    let slice = Slice::new(request.slice)?;
    Ok(parts(|parts| async move {
        let ids = cluster.ids_in(node_type, split, partitions).await?;
        let places = slice.of(ids.len());
        let ids = aside(move || Ok(ids.keep(places))).await?;
        for places in stretches(ids.len(), ELEMENTS) {
            parts.send(NodeIdsResponse { ids: ids.at(places) }).await?;
        }
        Ok(())
    }))
}
