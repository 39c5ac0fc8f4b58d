//! How many edges nodes have.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use graphmill_graph::Direction;
use graphmill_sample::{Ask, BatchId, Need};
use graphmill_wire::proto::{DegreesRequest, DegreesResponse};
use tonic::Response;

use super::aside::step_aside;
use super::lists::Lists;
use super::parts::{ELEMENTS, Parts, Sender, bound, parts, stretches};
use super::{aside, check};
use crate::Refusal;
use crate::cluster::{Cluster, Ids};

/// Nodes whose edges are counted in one pass over lists of the other direction.
const WINDOW: u64 = bound(1 << 23, 40) as u64;

pub(super) async fn degrees(
    cluster: &Arc<Cluster>,
    request: DegreesRequest,
) -> Result<Response<Parts<DegreesResponse>>, Refusal> {
    let cluster = Arc::clone(cluster);
    let edge_type = check::edge_type(&cluster.dataset, request.edge_type)?;
    let direction = check::direction(&request.direction)?;
    let node_type = cluster.list_type(edge_type, direction)?;
    let nodes = &cluster.dataset.node_types()[node_type];
    let ids = if request.all {
        if !request.ids.is_empty() {
            return Err(Refusal::invalid("degrees of all nodes or of some? name ids or ask for all, not both"));
        }
        Ids::Stretch(0..nodes.count)
    } else {
        let (name, count, ids) = (nodes.name.clone(), nodes.count, request.ids);
        aside(move || check::ids("node", &name, count, &ids).map(|()| Ids::Listed(ids))).await?
    };
    let wanted = Wanted { cluster, edge_type, direction, ids };
    Ok(parts(|parts| async move {
        let info = &wanted.cluster.dataset.edge_types()[edge_type];
        if info.layouts.contains(&direction) { wanted.look_up(&parts).await } else { wanted.count(&parts).await }
    }))
}

/// Whose degrees, in which direction.
struct Wanted {
    cluster: Arc<Cluster>,
    edge_type: usize,
    direction: Direction,
    ids: Ids,
}

impl Wanted {
    /// From the lengths of lists.
    async fn look_up(&self, parts: &Sender<DegreesResponse>) -> Result<(), Refusal> {
        for places in stretches(self.ids.len(), ELEMENTS) {
            let (cluster, edge_type, direction) = (Arc::clone(&self.cluster), self.edge_type, self.direction);
            let ids = self.ids.at(places);
            let lengths = step_aside(async move {
                let (batch, ask) = (BatchId::default(), Ask::Degrees);
                let need = Need { batch, edge_type, direction, ask, ids: &ids, others: &[], limit: 0 };
                Ok(cluster.ask(&need).await?.degrees)
            });
            parts.send(DegreesResponse { degrees: lengths.await? }).await?;
        }
        Ok(())
    }

    /// By counting in the lists of the other direction, window by window of the nodes in question.
    async fn count(mut self, parts: &Sender<DegreesResponse>) -> Result<(), Refusal> {
        let nodes = self.cluster.dataset.node_book(self.cluster.list_type(self.edge_type, self.direction)?).count();
        let window = |start: u64| start..(start + WINDOW).min(nodes);
        let ids = match &mut self.ids {
            Ids::Listed(ids) => Arc::new(std::mem::take(ids)),
            Ids::Stretch(_) => {
                for start in (0..nodes).step_by(WINDOW as usize) {
                    send(parts, &self.counts(window(start)).await?).await?;
                }
                return Ok(());
            }
        };
        let asked = Arc::clone(&ids);
        let starts = aside(move || Ok(asked.iter().map(|id| id - id % WINDOW).collect::<BTreeSet<u64>>())).await?;
        let mut degrees = vec![0; ids.len()];
        for start in starts {
            let (counts, ids, window) = (self.counts(window(start)).await?, Arc::clone(&ids), window(start));
            degrees = aside(move || {
                for (degree, id) in degrees.iter_mut().zip(&*ids).filter(|(_, id)| window.contains(id)) {
                    *degree = counts[(id - window.start) as usize];
                }
                Ok(degrees)
            })
            .await?;
        }
        send(parts, &degrees).await
    }

    async fn counts(&self, window: Range<u64>) -> Result<Vec<u64>, Refusal> {
        let stored = self.cluster.dataset.edge_types()[self.edge_type].primary();
        let mut lists = Lists::all(&self.cluster, self.edge_type, stored)?;
        let mut counts = vec![0; (window.end - window.start) as usize];
        while let Some(step) = lists.next().await? {
            let window = window.clone();
            counts = aside(move || {
                for neighbor in step.neighbors.iter().filter(|neighbor| window.contains(neighbor)) {
                    counts[(neighbor - window.start) as usize] += 1;
                }
                Ok(counts)
            })
            .await?;
        }
        Ok(counts)
    }
}

async fn send(parts: &Sender<DegreesResponse>, degrees: &[u64]) -> Result<(), Refusal> {
    for degrees in degrees.chunks(ELEMENTS) {
        parts.send(DegreesResponse { degrees: degrees.to_vec() }).await?;
    }
    Ok(())
}
