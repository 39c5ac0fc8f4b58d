//! What nodes were called in the input, and the way back.

use std::sync::Arc;

use futures_util::future::try_join_all;
use graphmill_sample::RowSplit;
use graphmill_wire::proto::original_id::Id;
use graphmill_wire::proto::{LookupRequest, LookupResponse, OriginalId, OriginalIdsRequest, OriginalIdsResponse};
use graphmill_wire::read::Request as _;
use tonic::Response;

use super::parts::{BYTES, Parts, bound, parts, stretches};
use super::{aside, check};
use crate::Refusal;
use crate::cluster::Cluster;

/// Ids, and keys, that an owner is asked for at once.
const AT_ONCE: usize = bound(1 << 14, 3);

pub(super) async fn original_ids(
    cluster: &Arc<Cluster>,
    request: OriginalIdsRequest,
) -> Result<Response<Parts<OriginalIdsResponse>>, Refusal> {
    let cluster = Arc::clone(cluster);
    let node_type = check::node_type(&cluster.dataset, request.node_type.as_deref())?;
    let info = &cluster.dataset.node_types()[node_type];
    let (name, count, ids) = (info.name.clone(), info.count, request.ids);
    let ids = aside(move || check::ids("node", &name, count, &ids).map(|()| ids)).await?;
    Ok(parts(move |parts| async move {
        for places in stretches(ids.len(), AT_ONCE) {
            let originals = originals_of(&cluster, node_type, &ids[places]).await?;
            for originals in cut(originals) {
                parts.send(OriginalIdsResponse { originals }).await?;
            }
        }
        Ok(())
    }))
}

/// The original ids of some nodes, from those who have them.
async fn originals_of(cluster: &Cluster, node_type: usize, ids: &[u64]) -> Result<Vec<OriginalId>, Refusal> {
    if cluster.dataset.node_types()[node_type].original_ids.is_none() {
        return Ok(ids.iter().map(|&id| OriginalId { id: Some(Id::Number(id as i64)) }).collect());
    }
    let (lineup, book) = (cluster.lineup(), cluster.dataset.node_book(node_type));
    let owners = lineup.owners(cluster.pick());
    let mut split = RowSplit::default();
    let book = book.open();
    split
        .split(ids, lineup.owner_count(), book, |partition| owners.of(partition))
        .map_err(|error| lineup.explain(error))?;
    let shares = split.shares.iter().enumerate().filter(|(_, (ids, _))| !ids.is_empty());
    let asked = shares.map(async |(owner, (ids, places))| {
        let node_type = check::node_type_name(&cluster.dataset, node_type);
        let request = OriginalIdsRequest { node_type, ids: ids.clone() };
        let found = cluster.read(&lineup, owner, OriginalIdsRequest::head(Vec::new()), request).await?.originals;
        same_length(found.len(), ids.len())?;
        Ok::<_, Refusal>(places.iter().zip(found))
    });
    let mut originals = vec![OriginalId::default(); ids.len()];
    for (&place, original) in try_join_all(asked).await?.into_iter().flatten() {
        originals[place as usize] = original;
    }
    Ok(originals)
}

/// Cuts a list where a part is full.
fn cut(originals: Vec<OriginalId>) -> Vec<Vec<OriginalId>> {
    let mut lists = vec![Vec::new()];
    let mut bytes = 0;
    for original in originals {
        bytes += if let Some(Id::Text(text)) = &original.id { text.len() + 8 } else { 16 };
        if bytes > BYTES && lists.last().is_some_and(|list| !list.is_empty()) {
            lists.push(Vec::new());
            bytes = 0;
        }
        if let Some(list) = lists.last_mut() {
            list.push(original);
        }
    }
    lists
}

pub(super) async fn lookup(cluster: &Arc<Cluster>, request: LookupRequest) -> Result<LookupResponse, Refusal> {
    let node_type = check::node_type(&cluster.dataset, request.node_type.as_deref())?;
    let lineup = cluster.lineup();
    let shares = if cluster.dataset.node_types()[node_type].original_ids.is_some() {
        cluster.shares(&lineup, (0..cluster.dataset.parts()).collect())?
    } else {
        vec![(0, Vec::new())]
    };
    let mut ids = Vec::with_capacity(request.originals.len());
    for originals in request.originals.chunks(AT_ONCE) {
        // Only the one that has a node knows its name, and who that is nobody else knows.
        let asked = shares.iter().map(async |(owner, partitions)| {
            let node_type = check::node_type_name(&cluster.dataset, node_type);
            let request = LookupRequest { node_type, originals: originals.to_vec() };
            let found = cluster.read(&lineup, *owner, LookupRequest::head(partitions.clone()), request).await?.ids;
            same_length(found.len(), originals.len())?;
            Ok::<_, Refusal>(found)
        });
        let found = try_join_all(asked).await?;
        ids.extend((0..originals.len()).map(|place| found.iter().map(|ids| ids[place]).max().unwrap_or(-1)));
    }
    Ok(LookupResponse { ids })
}

fn same_length(found: usize, expected: usize) -> Result<(), Refusal> {
    if found == expected {
        return Ok(());
    }
    Err(Refusal::internal(format!("an owner answered {found} of {expected} questions about original ids")))
}
