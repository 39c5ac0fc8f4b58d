//! What a server answers its peers, from the partitions that it has itself and from nothing else.

use graphmill_graph::{Dataset, Error, Partition};
use graphmill_wire::proto::original_id::Id;
use graphmill_wire::proto::{
    LookupRequest, LookupResponse, NodeIdsRequest, NodeIdsResponse, OriginalId, OriginalIdsRequest,
    OriginalIdsResponse, Read, ReadMethod,
};
use graphmill_wire::{Limits, read};

use super::check;
use crate::Refusal;

/// The most ids of a split in one answer.
const MOST_IDS: u64 = 1 << 22;

/// A request that servers pass on to each other.
pub(crate) trait Readable: read::Request<Response: 'static> + 'static {
    /// Answers for the partitions that a head names.
    fn answer(self, dataset: &Dataset, head: &Read) -> Result<Self::Response, Refusal>;
}

/// Answers a peer; gives the body of the answer.
///
/// # Errors
/// When the question is wrong, asks for what is not here, or has too long an answer.
pub(crate) fn answer_read(dataset: &Dataset, head: &Read, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let method = ReadMethod::try_from(head.method)
        .map_err(|_| Refusal::invalid(format!("there is no method {}; upgrade the older server", head.method)))?;
    let answer = match method {
        ReadMethod::NodeIds => answer::<NodeIdsRequest>(dataset, head, body),
        ReadMethod::OriginalIds => answer::<OriginalIdsRequest>(dataset, head, body),
        ReadMethod::Lookup => answer::<LookupRequest>(dataset, head, body),
    }?;
    if answer.len() as u64 > Limits::SERVER.body {
        return Err(Refusal::invalid(format!("an answer of {} bytes is too long; ask for less at once", answer.len())));
    }
    Ok(answer)
}

fn answer<R: Readable>(dataset: &Dataset, head: &Read, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let request: R = read::decode(body).map_err(|error| Refusal::invalid(error.to_string()))?;
    Ok(read::body(&request.answer(dataset, head)?))
}

impl Readable for NodeIdsRequest {
    fn answer(self, dataset: &Dataset, head: &Read) -> Result<NodeIdsResponse, Refusal> {
        let node_type = check::node_type(dataset, self.node_type.as_deref())?;
        let Some(split) = check::split(&dataset.node_types()[node_type], self.split.as_deref())? else {
            return Err(Refusal::invalid("all nodes of a partition are in the book, which every server has"));
        };
        let (mut skipped, mut left) = (head.start, head.count.min(MOST_IDS));
        let mut ids = Vec::new();
        for &partition in &head.partitions {
            let Some(part) = opened(dataset, partition)?.nodes(node_type).split(split) else { continue };
            let length = part.len() as u64;
            let start = skipped.min(length);
            let end = length.min(start + left);
            skipped -= start;
            left -= end - start;
            let stretch = part.as_slice().slice(start as usize..end as usize);
            ids.extend(stretch.into_iter().flat_map(graphmill_graph::IdSlice::iter));
        }
        Ok(NodeIdsResponse { ids })
    }
}

impl Readable for OriginalIdsRequest {
    fn answer(self, dataset: &Dataset, _: &Read) -> Result<OriginalIdsResponse, Refusal> {
        let node_type = check::node_type(dataset, self.node_type.as_deref())?;
        let originals = dataset.original_ids(node_type, &self.ids).map_err(elsewhere)?;
        let original = |original: graphmill_graph::OriginalId<'_>| {
            let id = match original {
                graphmill_graph::OriginalId::Int(number) => Id::Number(number),
                graphmill_graph::OriginalId::String(text) => Id::Text(text.to_owned()),
            };
            OriginalId { id: Some(id) }
        };
        Ok(OriginalIdsResponse { originals: originals.into_iter().map(original).collect() })
    }
}

impl Readable for LookupRequest {
    fn answer(self, dataset: &Dataset, head: &Read) -> Result<LookupResponse, Refusal> {
        let node_type = check::node_type(dataset, self.node_type.as_deref())?;
        let partitions =
            head.partitions.iter().map(|&partition| opened(dataset, partition)).collect::<Result<Vec<_>, _>>()?;
        let id = |original: &OriginalId| {
            let key = match &original.id {
                Some(Id::Number(number)) => graphmill_graph::OriginalId::Int(*number),
                Some(Id::Text(text)) => graphmill_graph::OriginalId::String(text),
                None => return Err(Refusal::invalid("an original id is empty; it must be a number or a text")),
            };
            let found = if dataset.node_types()[node_type].original_ids.is_some() {
                find(&partitions, node_type, key)?
            } else {
                dataset.lookup(node_type, &[key])?.into_iter().flatten().next()
            };
            Ok(found.map_or(-1, |id| id as i64))
        };
        Ok(LookupResponse { ids: self.originals.iter().map(id).collect::<Result<_, Refusal>>()? })
    }
}

/// The node of a name, if one of the partitions has it.
fn find(
    partitions: &[&Partition],
    node_type: usize,
    key: graphmill_graph::OriginalId<'_>,
) -> Result<Option<u64>, Refusal> {
    for nodes in partitions.iter().map(|partition| partition.nodes(node_type)) {
        let Some(originals) = nodes.originals() else { continue };
        if let Some(row) = originals.find(key)? {
            return Ok(nodes.id(row));
        }
    }
    Ok(None)
}

fn opened(dataset: &Dataset, partition: u32) -> Result<&Partition, Refusal> {
    dataset.partition(partition).map_err(elsewhere)
}

/// What is not here may be elsewhere by now.
fn elsewhere(error: Error) -> Refusal {
    match error {
        Error::PartitionAbsent { .. } => Refusal::unavailable(error.to_string()),
        other => other.into(),
    }
}
