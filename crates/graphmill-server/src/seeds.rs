//! The seeds of a channel, resolved where the graph is: a split is never shipped as a list of ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use graphmill_graph::random::Stream;
use graphmill_graph::{Direction, Split};
use graphmill_sample::{Ask, BatchId, Need, Plan, SeedList, Take};
use graphmill_wire::proto::{SeedChunk, open_channel};

use crate::Refusal;
use crate::cluster::{Cluster, lock};

/// Nodes whose lists are asked for at once.
const CHUNK: u64 = 65_536;
/// The most seeds a client may list: 16 bytes each are held for every channel.
const MOST: u64 = 1 << 28;

/// Lists that several channels share while one of them is open.
#[derive(Debug, Default)]
pub(crate) struct SeedCache(Mutex<Known>);

/// By node type and split.
type Known = HashMap<(usize, Split), Weak<SeedList>>;

/// Which seeds a client wants, and what it listed.
pub(crate) async fn resolve(
    cluster: &Cluster,
    cache: &SeedCache,
    plan: &Plan,
    wanted: &open_channel::Seeds,
    listed: Listed,
) -> Result<Arc<SeedList>, Refusal> {
    use open_channel::Seeds;
    let (node_type, other) = plan.seed_types();
    if other.is_some() != matches!(wanted, Seeds::Pairs(_) | Seeds::Edges(_)) {
        return Err(Refusal::invalid("links are sampled from pairs, everything else from nodes"));
    }
    match wanted {
        Seeds::All(_) => Ok(Arc::new(SeedList::All(cluster.dataset.node_types()[node_type].count))),
        Seeds::Split(name) => {
            let split = name.parse::<Split>().map_err(|error| Refusal::invalid(error.to_string()))?;
            let key = (node_type, split);
            if let Some(list) = lock(&cache.0).get(&key).and_then(Weak::upgrade) {
                return Ok(list);
            }
            let list = Arc::new(SeedList::Nodes(cluster.node_ids(node_type, Some(split)).await?));
            let mut known = lock(&cache.0);
            known.retain(|_, list| list.strong_count() > 0);
            known.insert(key, Arc::downgrade(&list));
            Ok(list)
        }
        Seeds::Nodes(nodes) => {
            listed.expect(nodes.count, 0, 0)?;
            Ok(Arc::new(SeedList::Nodes(listed.ids)))
        }
        Seeds::Pairs(pairs) => {
            listed.expect(pairs.count, pairs.count, if pairs.classes { pairs.count } else { 0 })?;
            let classes = pairs.classes.then_some(listed.classes);
            Ok(Arc::new(SeedList::Pairs { src: listed.ids, dst: listed.others, classes }))
        }
        Seeds::Edges(_) => edges(cluster, plan).await.map(Arc::new),
    }
}

/// Every edge of the task's type as a pair, in the order of the nodes that its lists belong to.
async fn edges(cluster: &Cluster, plan: &Plan) -> Result<SeedList, Refusal> {
    let Some(edge_type) = plan.link_type() else { return Err(Refusal::invalid("only links are made of edges")) };
    let info = &cluster.dataset.edge_types()[edge_type];
    if info.count > MOST {
        return Err(Refusal::invalid(format!("{} edges are too many for seeds, at most {MOST}", info.count)));
    }
    let direction = info.primary();
    let owners_type = cluster.list_type(edge_type, direction)?;
    let count = cluster.dataset.node_types()[owners_type].count;
    let (mut owners, mut others) = (Vec::new(), Vec::new());
    for start in (0..count).step_by(CHUNK as usize) {
        let ids: Vec<u64> = (start..(start + CHUNK).min(count)).collect();
        let ask = Ask::Neighbors { take: Take::All, stream: Stream::from_word(0), edge_ids: false };
        let limit = MOST;
        let answer = cluster
            .ask(&Need { batch: BatchId::default(), edge_type, direction, ask, ids: &ids, others: &[], limit })
            .await?;
        for (&id, &count) in ids.iter().zip(&answer.counts) {
            owners.extend(std::iter::repeat_n(id, count as usize));
        }
        others.extend((0..answer.neighbors.len()).filter_map(|place| answer.neighbors.get(place)));
        tokio::task::yield_now().await;
    }
    let (src, dst) = match direction {
        Direction::In => (others, owners),
        Direction::Out => (owners, others),
    };
    Ok(SeedList::Pairs { src, dst, classes: None })
}

/// Seeds as a client lists them, chunk by chunk.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    ids: Vec<u64>,
    others: Vec<u64>,
    classes: Vec<i64>,
}

impl Listed {
    pub(crate) fn add(&mut self, chunk: &SeedChunk) -> Result<(), Refusal> {
        extend(&mut self.ids, &chunk.ids, u64::from_le_bytes)?;
        extend(&mut self.others, &chunk.others, u64::from_le_bytes)?;
        extend(&mut self.classes, &chunk.classes, i64::from_le_bytes)?;
        if self.ids.len().max(self.others.len()).max(self.classes.len()) as u64 > MOST {
            return Err(Refusal::invalid(format!("more than {MOST} seeds were listed; name a split instead")));
        }
        Ok(())
    }

    fn expect(&self, ids: u64, others: u64, classes: u64) -> Result<(), Refusal> {
        let found = [self.ids.len() as u64, self.others.len() as u64, self.classes.len() as u64];
        if found == [ids, others, classes] {
            return Ok(());
        }
        Err(Refusal::invalid(format!(
            "{} seeds, {} targets and {} classes arrived, announced were {ids}, {others} and {classes}",
            found[0], found[1], found[2]
        )))
    }
}

fn extend<T>(to: &mut Vec<T>, bytes: &[u8], from: impl Fn([u8; 8]) -> T) -> Result<(), Refusal> {
    let (words, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(Refusal::invalid(format!("a chunk of seeds has {} bytes, expected a multiple of 8", bytes.len())));
    }
    to.extend(words.iter().map(|&word| from(word)));
    Ok(())
}
