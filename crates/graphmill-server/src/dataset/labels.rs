//! Anchors with their labels: the ends of supervision edges.

use std::sync::Arc;

use graphmill_graph::Direction;
use graphmill_wire::proto::{AnchorLabelsRequest, AnchorLabelsResponse};
use tonic::Response;

use super::aside;
use super::check::{self, Slice};
use super::lists::{Lists, Step};
use super::parts::{ELEMENTS, Parts, Sender, bound, parts, stretch, stretches};
use crate::Refusal;
use crate::cluster::{Cluster, Ids};

/// Anchors whose labels are collected in one pass over lists that do not begin at anchors, and the most labels then.
const ANCHORS: usize = bound(1 << 20, 40);
const LABELS: usize = 1 << 25;

pub(super) fn anchor_labels(
    cluster: &Arc<Cluster>,
    request: AnchorLabelsRequest,
) -> Result<Response<Parts<AnchorLabelsResponse>>, Refusal> {
    let cluster = Arc::clone(cluster);
    let dataset = &cluster.dataset;
    let positive = check::edge_type(dataset, request.positive)?;
    let negative = request.negative.map(|name| check::edge_type(dataset, Some(name))).transpose()?;
    let anchor_type = cluster.list_type(positive, Direction::Out)?;
    if let Some(negative) = negative
        && cluster.list_type(negative, Direction::Out)? != anchor_type
    {
        let [positive, negative] = [positive, negative].map(|place| &dataset.edge_types()[place].name);
        return Err(Refusal::invalid(format!(
            "`{negative}` does not begin at `{}`, as `{positive}` does",
            positive.src
        )));
    }
    let split = check::split(&dataset.node_types()[anchor_type], request.split.as_deref())?;
    let partitions = check::partitions(dataset, request.partitions)?;
    let slice = Slice::new(request.slice)?;
    let most = request.max_labels;
    Ok(parts(move |parts| async move {
        let anchors = cluster.ids_in(anchor_type, split, partitions).await?;
        let places = slice.of(anchors.len());
        let anchors = aside(move || Ok(anchors.keep(places))).await?;
        let part = AnchorLabelsResponse { has_negatives: negative.is_some(), ..AnchorLabelsResponse::default() };
        parts.send(part.clone()).await?;
        for places in stretches(anchors.len(), ELEMENTS) {
            parts.send(AnchorLabelsResponse { anchors: anchors.at(places), ..part.clone() }).await?;
        }
        let positives =
            |positive_counts, positives| AnchorLabelsResponse { positive_counts, positives, ..part.clone() };
        Labels { cluster: &cluster, edge_type: positive, most }.send(&anchors, &parts, positives).await?;
        if let Some(edge_type) = negative {
            let part = |negative_counts, negatives| AnchorLabelsResponse { negative_counts, negatives, ..part.clone() };
            Labels { cluster: &cluster, edge_type, most }.send(&anchors, &parts, part).await?;
        }
        Ok(())
    }))
}

/// The labels along one edge type, given outward: from anchors to labels.
struct Labels<'a> {
    cluster: &'a Arc<Cluster>,
    edge_type: usize,
    most: Option<u32>,
}

impl Labels<'_> {
    async fn send(
        &self,
        anchors: &Ids,
        parts: &Sender<AnchorLabelsResponse>,
        part: impl Fn(Vec<u32>, Vec<u64>) -> AnchorLabelsResponse,
    ) -> Result<(), Refusal> {
        let send = async |counts: &[u32], labels: &[u64]| {
            for places in stretches(counts.len().max(labels.len()), ELEMENTS) {
                parts.send(part(stretch(counts, &places), stretch(labels, &places))).await?;
            }
            Ok::<_, Refusal>(())
        };
        if self.cluster.dataset.edge_types()[self.edge_type].layouts.contains(&Direction::Out) {
            let mut lists = Lists::new(self.cluster, self.edge_type, Direction::Out, anchors.clone(), self.most);
            while let Some(step) = lists.next().await? {
                send(&step.counts, &step.neighbors).await?;
            }
            return Ok(());
        }
        for places in stretches(anchors.len(), ANCHORS) {
            let (counts, labels) = self.turn_round(anchors.at(places)).await?;
            send(&counts, &labels).await?;
        }
        Ok(())
    }

    /// From lists that belong to labels: the labels of each anchor, ascending.
    async fn turn_round(&self, anchors: Vec<u64>) -> Result<(Vec<u32>, Vec<u64>), Refusal> {
        let mut lists = Lists::all(self.cluster, self.edge_type, Direction::In)?;
        let mut turned = Turned { counts: vec![0; anchors.len()], anchors, pairs: Vec::new() };
        let most = self.most.unwrap_or(u32::MAX);
        while let Some(step) = lists.next().await? {
            turned = aside(move || turned.take(&step, most)).await?;
        }
        aside(move || Ok(turned.sorted())).await
    }
}

/// Labels on their way from the lists that they own to the anchors that they belong to.
struct Turned {
    /// Ascending.
    anchors: Vec<u64>,
    counts: Vec<u32>,
    /// An anchor's place, and a label of it.
    pairs: Vec<(u32, u64)>,
}

impl Turned {
    fn take(mut self, step: &Step, most: u32) -> Result<Self, Refusal> {
        for (label, anchor) in step.repeated_owners().zip(&step.neighbors) {
            let Ok(place) = self.anchors.binary_search(anchor) else { continue };
            if self.counts[place] < most {
                self.counts[place] += 1;
                self.pairs.push((place as u32, label));
            }
        }
        if self.pairs.len() > LABELS {
            let anchors = self.anchors.len();
            return Err(Refusal::invalid(format!(
                "{anchors} anchors have more than {LABELS} labels, too many to turn round at once; set max_labels, take \
                 smaller slices, or store the edge type's lists `out`"
            )));
        }
        Ok(self)
    }

    /// The labels, anchor by anchor, in the order in which they came.
    fn sorted(self) -> (Vec<u32>, Vec<u64>) {
        let mut next: Vec<usize> = Vec::with_capacity(self.counts.len());
        let mut total = 0;
        for &count in &self.counts {
            next.push(total);
            total += count as usize;
        }
        let mut labels = vec![0; total];
        for (place, label) in self.pairs {
            let next = &mut next[place as usize];
            labels[*next] = label;
            *next += 1;
        }
        (self.counts, labels)
    }
}
