"""Data-parallel training: ranks under torchrun, a model in DistributedDataParallel, batches from two storage servers.

    torchrun --nproc-per-node 2 examples/ddp.py                              # starts two servers of a block model
    torchrun --nproc-per-node 2 examples/ddp.py --servers HOST:PORT,...      # takes those that are there

Every loader takes its rank's share of the batches by itself, and gives all ranks equally many, so that none waits for ever.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from common import arguments, blocks, hits, progress, serving
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

import graphmill


def main() -> None:
    parser = arguments(__doc__, epochs=3)
    parser.add_argument("--servers", metavar="HOST:PORT,...", help="storage servers of a dataset")
    args = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start this with torchrun --nproc-per-node 2 examples/ddp.py")
    dist.init_process_group("gloo")
    with servers(args) as addresses, graphmill.connect(addresses) as data:
        train(data, args.epochs)
    dist.destroy_process_group()


def train(data: graphmill.Dataset, epochs: int) -> None:
    """Trains on this rank's batches of the train split, and measures on its batches of the test split."""
    first = dist.get_rank() == 0
    if first:
        print(f"{dist.get_world_size()} ranks, {data}", flush=True)
    torch.manual_seed(0)
    loader = graphmill.NeighborLoader(data, [10, 5], "train", batch_size=128, shuffle=True)
    model = GraphSAGE(data.num_features, 64, num_layers=2, out_channels=data.num_classes, dropout=0.5)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(epochs):
        parallel.train()
        for batch in progress(loader, f"epoch {epoch + 1}", disable=not first):
            out = parallel(batch.x.float(), batch.edge_index)[: batch.batch_size]
            loss = cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    test = graphmill.NeighborLoader(data, [-1, -1], "test", batch_size=512)
    counts = torch.tensor(hits(model, progress(test, "test", disable=not first)))
    dist.all_reduce(counts)
    if first:
        print(f"test accuracy {counts[0] / counts[1]:.1%} of {counts[1]} nodes", flush=True)


@contextlib.contextmanager
def servers(args) -> Iterator[str]:
    """The servers that were named, or two that the first rank starts and that end when all ranks are done."""
    if args.servers:
        yield args.servers
        return
    with contextlib.ExitStack() as stack:
        addresses = [None]
        if dist.get_rank() == 0:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="graphmill-example-")))
            blocks(folder / "blocks", args.nodes, parts=2)
            addresses = [stack.enter_context(serving(folder / "blocks", ["0", "1"]))]
        dist.broadcast_object_list(addresses)
        yield addresses[0]
        dist.barrier()


if __name__ == "__main__":
    main()
