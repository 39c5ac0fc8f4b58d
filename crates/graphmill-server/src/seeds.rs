//! The seeds of a channel, resolved where the graph is: a split is never shipped as a list of ids.

use std::collections::HashMap;
use std::hash::Hash;

use graphmill_graph::Split;
use graphmill_sample::{Cutting, PartitionLists, Plan, SeedCuts, SeedList};
use graphmill_wire::proto::{OpenChannel, SeedChunk, SeedOrder, open_channel};

use crate::Refusal;
use crate::budget::{Budget, Charge, Share};
use crate::cluster::Cluster;
use crate::dataset::{all_edges, aside};
use crate::sync::{Arc, Mutex, Weak, lock};

/// The most seeds a client may list, and the most edges that are seeds: 16 bytes each are held.
const MOST: u64 = 1 << 28;
/// A list of so few bytes takes nothing from anybody, and without it who reads would be kept out by those who do not.
const SHORT: u64 = 256 << 10;

/// Lists that several channels share while one of them is open.
#[derive(Debug, Default)]
pub(crate) struct SeedCache {
    splits: Known<(usize, Split), SeedList>,
    /// By partition; all nodes of a type where no split is named.
    partitioned: Known<(usize, Option<Split>), PartitionLists>,
    edges: Known<usize, SeedList>,
    /// Edges are listed for one at a time: whoever asks meanwhile shares them.
    listing: tokio::sync::Mutex<()>,
}

/// Lists by what they are of.
#[derive(Debug)]
struct Known<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for Known<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Known<K, V> {
    fn get(&self, key: &K) -> Option<Arc<V>> {
        lock(&self.0).get(key).and_then(Weak::upgrade)
    }

    fn set(&self, key: K, list: &Arc<V>) {
        let mut known = lock(&self.0);
        known.retain(|_, list| list.strong_count() > 0);
        known.insert(key, Arc::downgrade(list));
    }
}

/// Which seeds a client wants, and what it listed.
pub(crate) async fn resolve(
    cluster: &Arc<Cluster>,
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
            if let Some(list) = cache.splits.get(&key) {
                return Ok(list);
            }
            let list = Arc::new(SeedList::Nodes(cluster.node_ids(node_type, Some(split)).await?));
            cache.splits.set(key, &list);
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
        Seeds::Edges(_) => edges(cluster, cache, plan).await,
    }
}

/// How the seeds that a client wants are cut into batches.
pub(crate) async fn cuts(
    cluster: &Cluster,
    cache: &SeedCache,
    plan: &Plan,
    open: &OpenChannel,
    seeds: &Arc<SeedList>,
) -> Result<SeedCuts, Refusal> {
    let OpenChannel { batch_size, shuffle, drop_last, .. } = *open;
    let cutting = Cutting { batch_size, shuffle, drop_last };
    match SeedOrder::try_from(open.seed_order) {
        Ok(SeedOrder::Global) => Ok(SeedCuts::global(cutting, seeds.len() as u64)),
        Ok(SeedOrder::Partition) => {
            let lists = partitioned(cluster, cache, plan, open.seeds.as_ref(), seeds).await?;
            Ok(SeedCuts::by_partition(cutting, lists)?)
        }
        Err(_) => Err(Refusal::invalid(format!("there is no seed order {}; is the client newer?", open.seed_order))),
    }
}

/// The seeds by partition: books are everywhere, so nobody is asked.
async fn partitioned(
    cluster: &Cluster,
    cache: &SeedCache,
    plan: &Plan,
    wanted: Option<&open_channel::Seeds>,
    seeds: &Arc<SeedList>,
) -> Result<Arc<PartitionLists>, Refusal> {
    use open_channel::Seeds;
    let node_type = plan.seed_types().0;
    let key = match wanted {
        Some(Seeds::All(_)) => Some((node_type, None)),
        Some(Seeds::Split(name)) => name.parse::<Split>().ok().map(|split| (node_type, Some(split))),
        _ => None,
    };
    if let Some(lists) = key.and_then(|key| cache.partitioned.get(&key)) {
        return Ok(lists);
    }
    let (dataset, seeds) = (Arc::clone(&cluster.dataset), Arc::clone(seeds));
    let lists = aside(move || {
        let name = &dataset.node_types()[node_type].name;
        Ok(Arc::new(PartitionLists::new(&seeds, dataset.node_book(node_type), name)?))
    })
    .await?;
    if let Some(key) = key {
        cache.partitioned.set(key, &lists);
    }
    Ok(lists)
}

/// Every edge of the task's type as a pair, in the order of the nodes that its lists belong to.
async fn edges(cluster: &Arc<Cluster>, cache: &SeedCache, plan: &Plan) -> Result<Arc<SeedList>, Refusal> {
    let Some(edge_type) = plan.link_type() else { return Err(Refusal::invalid("only links are made of edges")) };
    let info = &cluster.dataset.edge_types()[edge_type];
    if info.count > MOST {
        return Err(Refusal::invalid(format!("{} edges are too many for seeds, at most {MOST}", info.count)));
    }
    let _turn = cache.listing.lock().await;
    if let Some(list) = cache.edges.get(&edge_type) {
        return Ok(list);
    }
    let (src, dst) = all_edges(cluster, edge_type).await?;
    let list = Arc::new(SeedList::Pairs { src, dst, classes: None });
    cache.edges.set(edge_type, &list);
    Ok(list)
}

/// Seeds as a client lists them, chunk by chunk.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    ids: Vec<u64>,
    others: Vec<u64>,
    classes: Vec<i64>,
    charge: Option<Charge>,
}

impl Listed {
    /// Takes a chunk, if there is memory for it.
    pub(crate) fn add(&mut self, chunk: &SeedChunk, budget: &Arc<Budget>) -> Result<(), Refusal> {
        extend(&mut self.ids, &chunk.ids, u64::from_le_bytes)?;
        extend(&mut self.others, &chunk.others, u64::from_le_bytes)?;
        extend(&mut self.classes, &chunk.classes, i64::from_le_bytes)?;
        if self.ids.len().max(self.others.len()).max(self.classes.len()) as u64 > MOST {
            return Err(Refusal::invalid(format!("more than {MOST} seeds were listed; name a split instead")));
        }
        let bytes = 8 * (self.ids.capacity() + self.others.capacity() + self.classes.capacity()) as u64;
        let share = if bytes <= SHORT { Share::Whole } else { Share::Most };
        if self.charge.get_or_insert_with(|| budget.nothing()).grow(bytes, share) {
            return Ok(());
        }
        Err(budget.refusal(bytes, share).while_doing("cannot take a list of seeds"))
    }

    /// What its memory is charged to.
    pub(crate) fn take_charge(&mut self) -> Option<Charge> {
        self.charge.take()
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

#[cfg(test)]
mod tests {
    use graphmill_graph::{Dataset, Direction};
    use graphmill_sample::{Config, Task};
    use graphmill_testing::{Assignment, sample, tempdir, write};
    use graphmill_wire::proto::AllEdges;

    use super::*;

    #[tokio::test]
    async fn channels_over_all_edges_share_one_list_while_one_of_them_is_open() {
        let (graph, folder) = (sample(), tempdir());
        let path = folder.path().join("graph");
        write(&graph, &path, &[Direction::In], &Assignment::assigned(&graph, 2, |_, id| (id % 2) as u16)).unwrap();
        let cluster = Cluster::new(Arc::new(Dataset::open(&path).unwrap()), Vec::new(), 0).unwrap();
        for name in graph.edges.keys() {
            let task = Task::Links { edge_type: Some(name.clone()), negatives: None };
            let plan = Plan::new(Config { task, ..Config::neighbors(&[2]) }, &cluster.dataset).unwrap();
            let (cache, wanted) = (SeedCache::default(), open_channel::Seeds::Edges(AllEdges {}));
            let resolve = || resolve(&cluster, &cache, &plan, &wanted, Listed::default());
            let (first, second) = tokio::join!(resolve(), resolve());
            let (first, second) = (first.unwrap(), second.unwrap());
            let edges = SeedList::edges(&cluster.dataset, Some(name)).unwrap();
            assert_eq!(*first, edges);
            assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &resolve().await.unwrap()));
            let held = Arc::downgrade(&first);
            drop((first, second));
            assert!(held.upgrade().is_none(), "nobody holds it when no channel is open");
            assert_eq!(*resolve().await.unwrap(), edges);
        }
    }
}
