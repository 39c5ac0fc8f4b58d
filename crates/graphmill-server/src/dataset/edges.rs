//! The edges of a type, all of them.

use std::sync::Arc;

use graphmill_graph::Direction;
use graphmill_sample::room;
use graphmill_wire::proto::{EdgeIndexRequest, EdgeIndexResponse};
use tonic::Response;

use super::lists::{Lists, Step};
use super::parts::{ELEMENTS, Parts, parts, stretch, stretches};
use super::{aside, check};
use crate::Refusal;
use crate::cluster::Cluster;

pub(super) fn edge_index(
    cluster: &Arc<Cluster>,
    request: EdgeIndexRequest,
) -> Result<Response<Parts<EdgeIndexResponse>>, Refusal> {
    let cluster = Arc::clone(cluster);
    let edge_type = check::edge_type(&cluster.dataset, request.edge_type)?;
    let info = &cluster.dataset.edge_types()[edge_type];
    let (direction, compressed) = match request.layout.as_str() {
        "coo" => (info.primary(), false),
        "csr" => (Direction::Out, true),
        "csc" => (Direction::In, true),
        other => return Err(Refusal::invalid(format!("there is no layout `{other}`; there are: coo, csr, csc"))),
    };
    if !info.layouts.contains(&direction) {
        return Err(Refusal::invalid(format!(
            "`{}` has no lists `{direction}`, which {} is made of; ask for coo and sort it",
            info.name, request.layout
        )));
    }
    let edges = info.count;
    let node_type = cluster.list_type(edge_type, direction)?;
    let lists = if compressed { cluster.dataset.node_types()[node_type].count } else { 0 };
    Ok(parts(move |parts| async move {
        let first = if compressed { vec![0] } else { Vec::new() };
        parts.send(EdgeIndexResponse { edges, lists, first, second: Vec::new() }).await?;
        let mut reader = Lists::all(&cluster, edge_type, direction)?;
        let mut offset = 0;
        while let Some(step) = reader.next().await? {
            let read = step.neighbors.len() as u64;
            let arranged = move || Ok(if compressed { compress(step, offset) } else { pairs(step, direction) });
            let (first, second) = aside(arranged).await?;
            offset += read;
            for places in stretches(first.len().max(second.len()), ELEMENTS) {
                let (first, second) = (stretch(&first, &places), stretch(&second, &places));
                parts.send(EdgeIndexResponse { first, second, ..EdgeIndexResponse::default() }).await?;
            }
        }
        Ok(())
    }))
}

/// Sources and targets of all edges of a type, in the order of the nodes that its lists belong to.
pub(crate) async fn all_edges(cluster: &Arc<Cluster>, edge_type: usize) -> Result<(Vec<u64>, Vec<u64>), Refusal> {
    let info = &cluster.dataset.edge_types()[edge_type];
    let direction = info.primary();
    let mut reader = Lists::all(cluster, edge_type, direction)?;
    let mut all = (room("edges", info.count)?, room("edges", info.count)?);
    while let Some(step) = reader.next().await? {
        all = aside(move || {
            let (sources, targets) = pairs(step, direction);
            all.0.extend(sources);
            all.1.extend(targets);
            Ok(all)
        })
        .await?;
    }
    Ok(all)
}

/// Where each list ends, and the lists.
fn compress(step: Step, offset: u64) -> (Vec<u64>, Vec<u64>) {
    let ends = step.counts.iter().scan(offset, |end, &count| {
        *end += u64::from(count);
        Some(*end)
    });
    (ends.collect(), step.neighbors)
}

/// Sources and targets.
fn pairs(step: Step, direction: Direction) -> (Vec<u64>, Vec<u64>) {
    let owners = step.repeated_owners().collect();
    match direction {
        Direction::In => (step.neighbors, owners),
        Direction::Out => (owners, step.neighbors),
    }
}
