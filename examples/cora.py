"""Cora: the same two-layer GraphSAGE trained on the full graph, and on sampled batches from files and from servers.

    python examples/cora.py --data DIR    # the folder of edges.csv, features.npy, labels.npy, train.npy, val.npy, test.npy

Test accuracy of the model as training leaves it, with all neighbours: mean and deviation over seeds.
"""

import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from common import accuracy, arguments, arrays, progress, serving
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import graphmill


def main() -> None:
    parser = arguments(__doc__, epochs=40)
    parser.add_argument("--data", metavar="DIR", type=Path, required=True, help="the folder of Cora's arrays")
    parser.add_argument("--seeds", type=int, default=5, help="runs, each from another random seed (%(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="graphmill-example-") as folder:
        data = arrays(args.data, Path(folder, "cora"), parts=2)
        with serving(Path(folder, "cora"), ["0", "1"]) as addresses, graphmill.connect(addresses) as remote:
            ways = {
                "torch_geometric, full graph": lambda _: full_graph(data),
                "graphmill, embedded": lambda seed: sampled(data, seed),
                "graphmill, two servers": lambda seed: sampled(remote, seed),
            }
            print(f"{'':28} test accuracy       time of a run")
            for name, way in ways.items():
                began = time.perf_counter()
                found = [trained(way(seed), data, seed, args.epochs) for seed in progress(range(args.seeds), name, leave=False)]
                mean, deviation = statistics.mean(found), statistics.pstdev(found)
                spent = (time.perf_counter() - began) / args.seeds
                print(f"{name:28} {mean:13.1%} +- {deviation:.1%} {spent:12.1f} s", flush=True)


def full_graph(data: graphmill.Dataset) -> tuple[list[Data], list[Data]]:
    """One batch to train on and one to measure with, each the whole graph with its seeds first."""
    x, y, edges = (torch.from_numpy(array) for array in (data.features(), data.labels(), data.edge_index()))

    def whole(split: str) -> Data:
        seeds = torch.from_numpy(data.node_ids(split))
        others = torch.ones(len(y), dtype=torch.bool).index_fill(0, seeds, False).nonzero().squeeze(1)
        order = torch.cat([seeds, others])
        place = torch.empty_like(order).index_copy(0, order, torch.arange(len(order)))
        return Data(x=x[order], y=y[order], edge_index=place[edges], batch_size=len(seeds))

    return [whole("train")], [whole("test")]


def sampled(data: graphmill.Dataset, seed: int) -> tuple[Iterable[Any], Iterable[Any]]:
    """Sampled neighbours to train on, all neighbours to measure with."""
    train = graphmill.NeighborLoader(data, [10, 10], "train", batch_size=70, shuffle=True, seed=seed)
    return train, graphmill.NeighborLoader(data, [-1, -1], "test", batch_size=500)


def trained(batches: tuple[Iterable[Any], Iterable[Any]], data: graphmill.Dataset, seed: int, epochs: int) -> float:
    """Trains from a seed; the test accuracy at the end."""
    torch.manual_seed(seed)
    train, test = batches
    model = GraphSAGE(data.num_features, 64, num_layers=2, out_channels=data.num_classes, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        model.train()
        for batch in train:
            loss = cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return accuracy(model, test)


if __name__ == "__main__":
    main()
