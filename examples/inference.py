"""Inference over all nodes: an embedding of each, from all of its neighbours, by all ranks into one npy file.

    python examples/inference.py
    torchrun --nproc-per-node 2 examples/inference.py --out embeddings.npy
    ... --data DIR, or --servers HOST:PORT,...

The first rank trains a small model for it; then all ranks go over their share of the nodes and write its rows.
"""

import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from common import arguments, dataset, dataset_flags, progress
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GraphSAGE

import graphmill


def main() -> None:
    parser = arguments(__doc__, epochs=1)
    dataset_flags(parser)
    parser.add_argument("--out", metavar="FILE", type=Path, default="embeddings.npy", help="where they go (%(default)s)")
    args = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    first = dist.get_rank() == 0
    torch.manual_seed(0)
    with dataset(args) as data:
        encoder = GraphSAGE(data.num_features, 64, num_layers=2)
        if first:
            print(f"{dist.get_world_size()} ranks, {data}", flush=True)
            fit(encoder, data, args.epochs)
        for parameter in encoder.parameters():
            dist.broadcast(parameter.data, src=0)

        writing = args.out.with_name(f"{args.out.name}.writing")
        if first:
            np.lib.format.open_memmap(writing, mode="w+", dtype=np.float32, shape=(data.num_nodes, 64))
        dist.barrier()
        rows, began = np.load(writing, mmap_mode="r+"), time.perf_counter()
        # Ranks need not keep step here, so none has to repeat a batch.
        loader = graphmill.NeighborLoader(data, [-1, -1], None, batch_size=512, labels=False, even=False)
        encoder.eval()
        with torch.no_grad():
            for batch in progress(loader, "inference", disable=not first):
                rows[batch.n_id[: batch.batch_size]] = encoder(batch.x.float(), batch.edge_index)[: batch.batch_size]
        rows.flush()
        dist.barrier()
        if first:
            rate = data.num_nodes / (time.perf_counter() - began)
            os.replace(writing, args.out)
            print(f"{data.num_nodes:,} embeddings in {args.out}, {rate:,.0f} nodes/s")
            print(f"test accuracy {nearest(np.load(args.out), data):.1%}, by the class with the nearest mean embedding")
    dist.destroy_process_group()


def fit(encoder: torch.nn.Module, data: graphmill.Dataset, epochs: int) -> None:
    """Trains on one rank, whatever the number of ranks."""
    loader = graphmill.NeighborLoader(data, [10, 5], "train", batch_size=128, shuffle=True, rank=0, world_size=1)
    head = torch.nn.Linear(64, data.num_classes)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.01)
    for epoch in range(epochs):
        for batch in progress(loader, f"epoch {epoch + 1}"):
            out = head(encoder(batch.x.float(), batch.edge_index)[: batch.batch_size])
            loss = cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def nearest(rows: np.ndarray, data: graphmill.Dataset) -> float:
    """How many test nodes have an embedding that is nearest to the mean of their class in training."""
    train, test, labels = data.node_ids("train"), data.node_ids("test"), data.labels()
    means = np.stack([rows[train[labels[train] == one]].mean(axis=0) for one in range(data.num_classes)])
    distances = np.linalg.norm(rows[test][:, None] - means, axis=2)
    return float((distances.argmin(axis=1) == labels[test]).mean())


if __name__ == "__main__":
    main()
