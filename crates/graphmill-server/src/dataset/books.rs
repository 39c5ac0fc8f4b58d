//! Who owns what. Every server has all books, so nobody is asked.

use std::sync::Arc;

use graphmill_graph::{Book, BookInfo, Dataset};
use graphmill_wire::proto::partition_book_request::Of;
use graphmill_wire::proto::{
    NodePartitionsRequest, NodePartitionsResponse, PartitionBookRequest, PartitionBookResponse,
};
use tonic::Response;

use super::parts::{ELEMENTS, Parts, parts, stretches};
use super::{aside, check};
use crate::Refusal;
use crate::cluster::Cluster;

pub(super) async fn node_partitions(
    cluster: &Cluster,
    request: NodePartitionsRequest,
) -> Result<NodePartitionsResponse, Refusal> {
    let dataset = Arc::clone(&cluster.dataset);
    aside(move || {
        let node_type = check::node_type(&dataset, request.node_type.as_deref())?;
        let book = dataset.node_book(node_type);
        check::ids("node", &dataset.node_types()[node_type].name, book.count(), &request.ids)?;
        Ok(NodePartitionsResponse { partitions: request.ids.iter().filter_map(|&id| book.owner(id)).collect() })
    })
    .await
}

pub(super) fn partition_book(
    cluster: &Cluster,
    request: PartitionBookRequest,
) -> Result<Response<Parts<PartitionBookResponse>>, Refusal> {
    let (info, book) = book(&cluster.dataset, request)?;
    Ok(parts(|parts| async move {
        if let BookInfo::Range { bounds } = info {
            let lengths = bounds.windows(2).map(|pair| pair[1] - pair[0]);
            let runs = (0..).zip(lengths).filter(|&(_, length)| length > 0);
            let (partitions, lengths) = runs.unzip();
            return parts.send(PartitionBookResponse { partitions, lengths }).await;
        }
        for places in stretches(book.count() as usize, ELEMENTS) {
            let book = book.clone();
            let runs = aside(move || Ok(runs(places.filter_map(|id| book.owner(id as u64))))).await?;
            parts.send(runs).await?;
        }
        Ok(())
    }))
}

/// The book that is asked for.
fn book(dataset: &Dataset, request: PartitionBookRequest) -> Result<(BookInfo, Book), Refusal> {
    match request.of {
        Some(Of::EdgeType(name)) => {
            let edge_type = check::edge_type(dataset, Some(name))?;
            let info = &dataset.edge_types()[edge_type];
            match (&info.book, dataset.edge_book(edge_type)) {
                (Some(book), Some(opened)) => Ok((book.clone(), opened.clone())),
                _ => Err(Refusal::invalid(format!("`{}` has no book: its edges have no features", info.name))),
            }
        }
        of => {
            let name = of.map(|of| if let Of::NodeType(name) = of { name } else { String::new() });
            let node_type = check::node_type(dataset, name.as_deref())?;
            Ok((dataset.node_types()[node_type].book.clone(), dataset.node_book(node_type).clone()))
        }
    }
}

fn runs(owners: impl Iterator<Item = u32>) -> PartitionBookResponse {
    let mut runs = PartitionBookResponse::default();
    for owner in owners {
        match (runs.partitions.last(), runs.lengths.last_mut()) {
            (Some(&last), Some(length)) if last == owner => *length += 1,
            _ => {
                runs.partitions.push(owner);
                runs.lengths.push(1);
            }
        }
    }
    runs
}
