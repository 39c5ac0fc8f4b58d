//! What readers of the dataset want that is neither lists nor rows: ids of splits and original ids, from whoever has them.

use std::sync::Arc;

use futures_util::future::try_join_all;
use graphmill_graph::{BookInfo, Split};
use graphmill_wire::proto::{self, NodeIdsRequest};
use graphmill_wire::read::{self, Request as _};
use graphmill_wire::{Limits, Message};

use super::{Cluster, Ids, Lineup, Question, received, send};
use crate::Refusal;
use crate::dataset::{Readable, aside, bound, check};

/// How many ids of a split an owner is asked for at once.
const PAGE: u64 = bound(1 << 18, 5) as u64;

impl Cluster {
    /// The ids of a split, or of all nodes of a type, ascending.
    pub(crate) async fn node_ids(&self, node_type: usize, split: Option<Split>) -> Result<Vec<u64>, Refusal> {
        let ids = self.ids_in(node_type, split, (0..self.dataset.parts()).collect()).await?;
        aside(move || Ok(ids.into_vec())).await
    }

    /// The same of some partitions, each named once and in order.
    pub(crate) async fn ids_in(
        &self,
        node_type: usize,
        split: Option<Split>,
        partitions: Vec<u32>,
    ) -> Result<Ids, Refusal> {
        match split {
            Some(split) => self.split_ids(node_type, split, partitions).await,
            None if partitions.len() == self.dataset.parts() as usize => {
                Ok(Ids::Stretch(0..self.dataset.node_types()[node_type].count))
            }
            None => self.owned_ids(node_type, partitions).await,
        }
    }

    /// All ids of some partitions. Books are everywhere, so nobody is asked.
    async fn owned_ids(&self, node_type: usize, partitions: Vec<u32>) -> Result<Ids, Refusal> {
        let consecutive = partitions.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        if let BookInfo::Range { bounds } = &self.dataset.node_types()[node_type].book
            && let (true, Some(&first), Some(&last)) = (consecutive, partitions.first(), partitions.last())
        {
            return Ok(Ids::Stretch(bounds[first as usize]..bounds[last as usize + 1]));
        }
        let dataset = Arc::clone(&self.dataset);
        aside(move || {
            let book = dataset.node_book(node_type);
            let mut wanted = vec![false; dataset.parts() as usize];
            for partition in partitions {
                wanted[partition as usize] = true;
            }
            let is_wanted = |&id: &u64| book.owner(id).and_then(|owner| wanted.get(owner as usize)) == Some(&true);
            Ok(Ids::Listed((0..book.count()).filter(is_wanted).collect()))
        })
        .await
    }

    async fn split_ids(&self, node_type: usize, split: Split, partitions: Vec<u32>) -> Result<Ids, Refusal> {
        let info = &self.dataset.node_types()[node_type];
        let size = check::split_size(info, split)?;
        let whole = partitions.len() == self.dataset.parts() as usize;
        let (mut lineup, mut attempts) = (self.lineup(), 0);
        let shares = loop {
            let shares = self.shares(&lineup, partitions.clone())?;
            let ask = |(owner, partitions)| self.split_share(&lineup, owner, partitions, node_type, split);
            let refusal = match try_join_all(shares.into_iter().map(ask)).await {
                Ok(shares) => break shares,
                Err(refusal) => refusal,
            };
            let now = self.lineup();
            if !Self::again(&lineup, &now, &refusal, &mut attempts) {
                return Err(refusal);
            }
            lineup = now;
        };
        let found: u64 = shares.iter().map(|ids| ids.len() as u64).sum();
        if if whole { found != size } else { found > size } {
            let name = &info.name;
            return Err(Refusal::internal(format!("{found} ids of split {split} of `{name}`, expected {size}")));
        }
        aside(move || {
            let mut ids = shares.concat();
            if !ids.is_sorted() {
                ids.sort_unstable();
            }
            Ok(Ids::Listed(ids))
        })
        .await
    }

    /// What an owner has of a split, page by page.
    async fn split_share(
        &self,
        lineup: &Lineup,
        owner: usize,
        partitions: Vec<u32>,
        node_type: usize,
        split: Split,
    ) -> Result<Vec<u64>, Refusal> {
        let request = NodeIdsRequest {
            node_type: check::node_type_name(&self.dataset, node_type),
            split: Some(split.to_string()),
            ..NodeIdsRequest::default()
        };
        let mut ids = Vec::new();
        loop {
            let head = proto::Read { start: ids.len() as u64, count: PAGE, ..NodeIdsRequest::head(partitions.clone()) };
            let page = self.read(lineup, owner, head, request.clone()).await?.ids;
            ids.extend_from_slice(&page);
            if (page.len() as u64) < PAGE {
                return Ok(ids);
            }
        }
    }

    /// The owners of some partitions, each with those that it has.
    pub(crate) fn shares(&self, lineup: &Lineup, partitions: Vec<u32>) -> Result<Vec<(usize, Vec<u32>)>, Refusal> {
        let owners = lineup.owners(self.pick());
        let mut shares: Vec<(usize, Vec<u32>)> = Vec::new();
        for partition in partitions {
            let owner = owners.of(partition).map_err(|_| lineup.without_owner(partition))?;
            match shares.iter_mut().find(|(known, _)| *known == owner) {
                Some((_, partitions)) => partitions.push(partition),
                None => shares.push((owner, vec![partition])),
            }
        }
        Ok(shares)
    }

    /// Asks an owner, which may be this server, about partitions that it has.
    pub(crate) async fn read<R: Readable>(
        &self,
        lineup: &Lineup,
        owner: usize,
        head: proto::Read,
        request: R,
    ) -> Result<R::Response, Refusal> {
        if owner == 0 {
            let dataset = Arc::clone(&lineup.dataset);
            return aside(move || request.answer(&dataset, &head)).await;
        }
        let body = read::body(&request);
        if body.len() as u64 > Limits::SERVER.body {
            return Err(Refusal::invalid(format!("a question of {} bytes is too long for a peer", body.len())));
        }
        let answered = received(send(lineup, owner, Question::read(head, body))).await?;
        let Message::Reading(_) = &answered.message else { return Err(answered.unexpected()) };
        aside(move || read::decode(answered.body()).map_err(|error| Refusal::internal(error.to_string()))).await
    }
}
