//! Ids of splits, and anchors with their labels.

use graphmill_graph::{EdgeTypeName, Split};
use graphmill_sample::room;
use graphmill_wire::proto::{AnchorLabelsRequest, AnchorLabelsResponse, NodeIdsRequest, NodeIdsResponse};

use super::ask::Service;
use super::grow::grow;
use super::{AnchorLabels, Padded, RemoteDataset, expect, named, owned};
use crate::Result;
use crate::remote::sharding::{ServerSlice, Shard, Share};

impl RemoteDataset {
    /// The ids of a split, or of all nodes of a type: all of them, or a shard. Those of each server ascend.
    pub fn node_ids(&self, node_type: Option<&str>, split: Option<Split>, shard: Shard) -> Result<Vec<u64>> {
        let info = &self.manifest().node_types[self.manifest().resolve_node_type(node_type)?];
        // Of a split that there is not, a server says so.
        let count = split.map_or(Some(info.count), |split| info.splits.get(split)).unwrap_or(0);
        if shard == Shard::Whole {
            // Tried first, so that nothing is sent that there is no memory for.
            drop(room::<u64>("ids", count)?);
        }
        let mut ids = Vec::new();
        for Share { partitions, slice } in shard.shares(self.manifest().parts)? {
            let request = NodeIdsRequest {
                node_type: owned(node_type),
                split: split.map(|split| split.to_string()),
                slice: slice.map(ServerSlice::proto),
                partitions,
            };
            let call = |mut service: Service, request| async move { service.node_ids(request).await };
            let add = move |ids: &mut Vec<u64>, part: NodeIdsResponse| grow(ids, part.ids, "ids", count);
            grow(&mut ids, self.read("send the ids of nodes", request, call, add)?, "ids", count)?;
        }
        Ok(ids)
    }

    /// Anchors, which are the nodes of a split or all nodes that a supervision edge type begins at, with their labels: at
    /// most so many of each anchor, the first of its list. The edge type is given outward, from anchors to labels, whichever
    /// way its lists are stored.
    pub fn anchor_labels(
        &self,
        split: Option<Split>,
        positive: Option<&EdgeTypeName>,
        negative: Option<&EdgeTypeName>,
        max_labels: Option<u32>,
        shard: Shard,
    ) -> Result<AnchorLabels> {
        const DOING: &str = "send anchors and labels";
        let manifest = self.manifest();
        let anchors = manifest.node_types.iter().map(|info| info.count).max().unwrap_or(0);
        let labels = manifest.edge_types.iter().map(|info| info.count).max().unwrap_or(0);
        let append = move |all: &mut AnchorLabelsResponse, part| append(all, part, anchors, labels);
        let mut all = AnchorLabelsResponse::default();
        for Share { partitions, slice } in shard.shares(self.manifest().parts)? {
            let request = AnchorLabelsRequest {
                split: split.map(|split| split.to_string()),
                positive: named(positive),
                negative: named(negative),
                max_labels,
                slice: slice.map(ServerSlice::proto),
                partitions,
            };
            let call = |mut service: Service, request| async move { service.anchor_labels(request).await };
            append(&mut all, self.read(DOING, request, call, append)?)?;
        }
        let padded = |counts: &[u32], ids: &[u64]| {
            expect(DOING, "counts", counts.len() as u64, all.anchors.len() as u64)?;
            expect(DOING, "labels", ids.len() as u64, counts.iter().map(|&count| u64::from(count)).sum())?;
            Padded::new(counts, ids)
        };
        let positives = padded(&all.positive_counts, &all.positives)?;
        let negatives = negative.map(|_| padded(&all.negative_counts, &all.negatives)).transpose()?;
        Ok(AnchorLabels { anchors: all.anchors, positives, negatives })
    }
}

/// Adds anchors, of which there are at most so many, with their labels.
fn append(all: &mut AnchorLabelsResponse, part: AnchorLabelsResponse, anchors: u64, labels: u64) -> Result<u64> {
    Ok(grow(&mut all.anchors, part.anchors, "anchors", anchors)?
        + grow(&mut all.positive_counts, part.positive_counts, "counts", anchors)?
        + grow(&mut all.positives, part.positives, "labels", labels)?
        + grow(&mut all.negative_counts, part.negative_counts, "counts", anchors)?
        + grow(&mut all.negatives, part.negatives, "labels", labels)?)
}
