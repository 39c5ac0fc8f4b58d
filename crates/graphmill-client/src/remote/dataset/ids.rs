//! Ids of splits, and anchors with their labels.

use graphmill_graph::{EdgeTypeName, Split};
use graphmill_sample::room;
use graphmill_wire::proto::{AnchorLabelsRequest, AnchorLabelsResponse, NodeIdsRequest, NodeIdsResponse};

use super::ask::Service;
use super::{AnchorLabels, Padded, RemoteDataset, expect, named, owned};
use crate::Result;
use crate::remote::sharding::{ServerSlice, Shard, Share};

impl RemoteDataset {
    /// The ids of a split, or of all nodes of a type: all of them, or a shard. Those of each server ascend.
    pub fn node_ids(&self, node_type: Option<&str>, split: Option<Split>, shard: Shard) -> Result<Vec<u64>> {
        if shard == Shard::Whole {
            let info = &self.manifest().node_types[self.manifest().resolve_node_type(node_type)?];
            let count = split.map_or(Some(info.count), |split| info.splits.get(split));
            // Tried first: what comes in parts ends the process where it grows beyond all memory.
            drop(room::<u64>("ids", count.unwrap_or(0))?);
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
            let add = |ids: &mut Vec<u64>, part: NodeIdsResponse| ids.extend(part.ids);
            ids.extend(self.read("send the ids of nodes", request, call, add)?);
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
            append(&mut all, self.read(DOING, request, call, append)?);
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

fn append(all: &mut AnchorLabelsResponse, part: AnchorLabelsResponse) {
    all.anchors.extend(part.anchors);
    all.positive_counts.extend(part.positive_counts);
    all.positives.extend(part.positives);
    all.negative_counts.extend(part.negative_counts);
    all.negatives.extend(part.negatives);
}
