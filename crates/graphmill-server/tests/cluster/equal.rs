//! A batch is the same from any number of servers, over any transport, as from this process.

use std::path::Path;
use std::sync::Arc;

use graphmill_client::{Batches, ConnectOptions, Loader, Options, Remote, Transport};
use graphmill_graph::{Dataset, Direction, Replace};
use graphmill_ingest::Job;
use graphmill_ingest::partition::{Method, partition};
use graphmill_sample::{Batch, SeedOrder};
use graphmill_testing::{Assignment, Sampling, assignments, samplings, tempdir, write};
use proptest::prelude::*;
use proptest::sample::select;

use crate::authority::Authority;
use crate::support::{Cluster, PATIENCE};

/// How batches come.
#[derive(Debug, Clone, Copy)]
enum Way {
    Tcp,
    Tls,
    UnixSocket,
    SharedMemory,
}

impl Way {
    const ALL: [Self; 4] = [Self::Tcp, Self::Tls, Self::UnixSocket, Self::SharedMemory];

    /// Servers that can be reached so, and a client that does.
    fn connect(self, dataset: &Path, servers: usize) -> (Cluster, Arc<Remote>) {
        let transport = match self {
            Self::Tcp | Self::Tls => Transport::Socket,
            Self::UnixSocket => Transport::UnixSocket,
            Self::SharedMemory => Transport::SharedMemory,
        };
        let Self::Tls = self else {
            let cluster = Cluster::start(dataset, servers);
            let remote = cluster.connect(transport);
            return (cluster, remote);
        };
        let authority = Authority::new("servers");
        let (tls, peer_tls) = (authority.server(None), authority.client(None));
        let client = peer_tls.clone();
        let cluster = Cluster::over_tcp(dataset, servers, move |options| graphmill_server::Options {
            tls: Some(tls.clone()),
            peer_tls: Some(peer_tls.clone()),
            shared_memory: false,
            ..options
        });
        let options = ConnectOptions { tls: Some(client), transport, deadline: PATIENCE, ..ConnectOptions::default() };
        let remote = Remote::connect(&cluster.addresses(), options).unwrap();
        (cluster, remote)
    }
}

/// How nodes are shared between partitions: as the partitioner does, or in any way at all.
#[derive(Debug, Clone)]
enum Cutting {
    Partitioner(Method, u32),
    Any(Assignment),
}

impl Cutting {
    /// Writes a dataset that is whole, and the same in partitions.
    fn write(&self, sampling: &Sampling, whole: &Path, cut: &Path) {
        let (graph, layouts) = (&sampling.graph, [sampling.config.direction.unwrap_or(Direction::In)]);
        write(graph, whole, &layouts, &Assignment::whole(graph)).unwrap();
        match self {
            Self::Any(assignment) => drop(write(graph, cut, &layouts, assignment).unwrap()),
            Self::Partitioner(method, parts) => {
                let whole = Dataset::open(whole).unwrap();
                partition(&whole, *parts, method, cut, Replace::No, &Job::silent()).unwrap();
            }
        }
    }
}

/// A sampler, servers, and partitions for them: as many, or more, or fewer.
fn clusters() -> impl Strategy<Value = (Sampling, usize, Cutting)> {
    (samplings(), select(vec![1, 2, 4])).prop_flat_map(|(sampling, servers)| {
        let methods = select(vec![Method::Hash, Method::Ldg, Method::Range]);
        let partitioner = (methods, servers as u32..=6).prop_map(|(method, parts)| Cutting::Partitioner(method, parts));
        let any = assignments(&sampling.graph).prop_map(Cutting::Any);
        (Just(sampling), Just(servers), prop_oneof![3 => partitioner, 1 => any])
    })
}

fn all(batches: Batches) -> Vec<Batch> {
    batches.map(Result::unwrap).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn servers_partitions_and_transports_change_nothing(
        (sampling, servers, cutting) in clusters(), way in select(&Way::ALL[..]), shuffle: bool, batch_size in 1usize..5,
        seed_order in select(&[SeedOrder::Global, SeedOrder::Partition][..]),
    ) {
        let folder = tempdir();
        let [whole, cut] = ["whole", "cut"].map(|name| folder.path().join(name));
        cutting.write(&sampling, &whole, &cut);
        let Sampling { config, seeds, .. } = sampling;
        let options = Options { batch_size, shuffle, seed_order, ..Options::default() };
        // Only partition order knows of partitions.
        let here = if seed_order == SeedOrder::Global { &whole } else { &cut };
        let embedded = Loader::new(&Dataset::open(here)?, config.clone(), seeds.clone(), options.clone()).unwrap();
        let (cluster, remote) = way.connect(&cut, servers);
        let loader = Loader::remote(&remote, config, seeds, options).unwrap();
        for epoch in 0..2 {
            let (found, expected) = (all(loader.epoch(epoch)), all(embedded.epoch(epoch)));
            prop_assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(found.id(), expected.id());
                prop_assert_eq!(found.batch_size(), expected.batch_size());
                prop_assert_eq!(found.layout().entries(), expected.layout().entries());
                prop_assert_eq!(found.bytes(), expected.bytes());
            }
        }
        drop((loader, remote));
        prop_assert!(cluster.stop());
    }
}
