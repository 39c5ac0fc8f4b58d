//! What nodes were called in the input.

use graphmill_graph::OriginalId;
use graphmill_wire::proto::original_id::Id;
use graphmill_wire::proto::{self, LookupRequest, OriginalIdsRequest, OriginalIdsResponse};

use super::ask::Service;
use super::grow::grow_names;
use super::{Original, RemoteDataset, expect, owned, pieces};
use crate::Result;

/// Keys in a request, and their bytes.
const KEYS: (usize, usize) = (1 << 18, 8 << 20);

impl RemoteDataset {
    /// What nodes were called in the input: their own numbers where the input had dense ids.
    pub fn original_ids(&self, node_type: Option<&str>, ids: &[u64]) -> Result<Vec<Original>> {
        const DOING: &str = "send original ids";
        let mut originals = Vec::with_capacity(ids.len());
        for ids in pieces(ids) {
            let request = OriginalIdsRequest { node_type: owned(node_type), ids: ids.to_vec() };
            let call = |mut service: Service, request| async move { service.original_ids(request).await };
            let count = ids.len() as u64;
            let add = move |all: &mut _, part: OriginalIdsResponse| grow_names(all, part.originals, count);
            let (found, _) = self.read(DOING, request, call, add)?;
            expect(DOING, "original ids", found.len() as u64, ids.len() as u64)?;
            originals.extend(found.into_iter().map(|original| match original.id {
                Some(Id::Number(number)) => Original::Int(number),
                Some(Id::Text(text)) => Original::String(text),
                None => Original::String(String::new()),
            }));
        }
        Ok(originals)
    }

    /// The ids of nodes by what they were called in the input; nothing for a name that is not there.
    pub fn lookup(&self, node_type: Option<&str>, keys: &[OriginalId<'_>]) -> Result<Vec<Option<u64>>> {
        const DOING: &str = "look up original ids";
        let mut ids = Vec::with_capacity(keys.len());
        let mut rest = keys;
        loop {
            let mut bytes = 0;
            let full = |key: &OriginalId<'_>| {
                bytes += if let OriginalId::String(text) = key { text.len() } else { 8 };
                bytes > KEYS.1
            };
            let count = rest.iter().take(KEYS.0).position(full).map_or(rest.len().min(KEYS.0), |place| place.max(1));
            let (keys, others) = rest.split_at(count);
            let request = LookupRequest { node_type: owned(node_type), originals: keys.iter().map(original).collect() };
            let call = |mut service: Service, request| async move { service.lookup(request).await };
            let found = self.ask(DOING, request, call)?.ids;
            expect(DOING, "ids", found.len() as u64, keys.len() as u64)?;
            ids.extend(found.into_iter().map(|id| u64::try_from(id).ok()));
            if others.is_empty() {
                return Ok(ids);
            }
            rest = others;
        }
    }
}

fn original(key: &OriginalId<'_>) -> proto::OriginalId {
    let id = match key {
        OriginalId::Int(number) => Id::Number(*number),
        OriginalId::String(text) => Id::Text((*text).to_owned()),
    };
    proto::OriginalId { id: Some(id) }
}
