"""GraphLearn-for-PyTorch's server-client mode: a server that samples in a process of its own, and a client that pulls.

    serving_graphlearn.py server DATASET ...    serving_graphlearn.py client DATASET ...

Both are started at once. The client reads every byte of each batch once, with its own clock, then checks the first
batches against the graph and prints one JSON line. Seeded: unseeded, the sampler asks the system for entropy at each
draw.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import dataset
import graphlearn_torch as glt
import numpy as np
import torch
import worker

HOST = "127.0.0.1"
# The best of one to three runs each on a busy machine, from 1 batch in flight and 64 MB to 8 and 256 MB; the
# differences were hardly above the noise.
CONCURRENCY = 8
PREFETCH = 8
BUFFER = "256MB"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("server", "client"))
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--fanouts", type=lambda text: [int(fanout) for fanout in text.split(",")], required=True)
    parser.add_argument("--features", action="store_true")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--launched", type=float, required=True, help="when both were started, by time.monotonic()")
    parser.add_argument("--port", type=int, required=True, help="where server and client meet")
    parser.add_argument("--sampler-port", type=int, required=True, help="where samplers would meet each other")
    arguments = parser.parse_args()
    serve(arguments) if arguments.role == "server" else pull(arguments)


def serve(arguments: argparse.Namespace):
    # It spawns its sampler, and a lock made for forking cannot follow there.
    torch.multiprocessing.set_start_method("spawn")
    graph = dataset.load(arguments.dataset)
    data = glt.distributed.DistDataset(edge_dir="in")
    data.node_pb = torch.zeros(graph.num_nodes, dtype=torch.uint8)
    # It knows 64-bit ids only.
    neighbors, indptr = (torch.from_numpy(ids.astype(np.int64)) for ids in (graph.neighbors, graph.indptr))
    data.init_graph((neighbors, indptr), layout="CSC", graph_mode="CPU", directed=True)
    if arguments.features:
        data.init_node_features(torch.from_numpy(graph.features), with_gpu=False)
    nobody = torch.empty(0, dtype=torch.int64)
    data.init_node_split((torch.arange(graph.num_nodes), nobody, nobody))
    glt.distributed.init_server(1, 0, data, HOST, arguments.port, num_clients=1)
    glt.distributed.wait_and_shutdown_server()


def pull(arguments: argparse.Namespace):
    # As our rank has one; the sampling worker takes two.
    torch.set_num_threads(1)
    glt.distributed.init_client(1, 1, 0, HOST, arguments.port)
    loader = glt.distributed.DistNeighborLoader(
        None,
        arguments.fanouts,
        glt.typing.Split.train,
        batch_size=arguments.batch_size,
        shuffle=True,
        edge_dir="in",
        collect_features=arguments.features,
        to_device=torch.device("cpu"),
        random_seed=worker.SEED,
        worker_options=glt.distributed.RemoteDistSamplingWorkerOptions(
            server_rank=0,
            num_workers=1,
            worker_devices=[torch.device("cpu")],
            worker_concurrency=CONCURRENCY,
            master_addr=HOST,
            master_port=arguments.sampler_port,
            buffer_size=BUFFER,
            prefetch_size=PREFETCH,
            worker_key="bench",
        ),
    )
    served = Served(len(arguments.fanouts))
    rates, first_batches = worker.pull(worker.endless(loader), arguments.seconds, count)
    loader.shutdown()
    glt.distributed.shutdown_client()
    pairs = [(batch, batch.x if arguments.features else None) for batch in first_batches]
    check = worker.Check(dataset.load(arguments.dataset))
    found = check.delivered(served, arguments.fanouts, pairs, arguments.batch_size)
    rates["start_to_first_batch_s"] = rates.pop("first") - arguments.launched
    told = {"peer": "GraphLearn", "version": version("graphlearn-torch"), "features": arguments.features}
    print(json.dumps({**told, **rates, "check": found}), flush=True)


def count(batch) -> tuple[int, int, int, int]:
    return len(batch.batch), len(batch.node), batch.edge_index.shape[1], worker.read(batch.to_dict().values())


class Served:
    """What the check asks of batches that came from the server."""

    # Its CPU sampler draws with replacement where a list is longer than the fanout.
    distinct = False

    def __init__(self, num_hops: int):
        self.num_hops = num_hops

    def nodes(self, batch):
        return batch.node.numpy()

    def num_edges(self, batch):
        return batch.edge_index.shape[1]

    def hops(self, batch, num_seeds):
        row, col = (ends.numpy() for ends in batch.edge_index)
        return worker.hops_of_new_nodes(batch.node.numpy(), row, col, num_seeds, self.num_hops)


if __name__ == "__main__":
    main()
