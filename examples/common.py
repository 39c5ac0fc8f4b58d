"""What the examples share: graphs to run on, servers of them, a progress bar and a way to measure."""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import graphmill

try:
    from tqdm import tqdm as progress
except ImportError:

    def progress(batches, desc="", disable=False, **_):
        """What tqdm does, in its plainest form."""
        for number, batch in enumerate(batches, 1):
            if not disable:
                print(f"\r{desc} {number}/{len(batches)}", end="", file=sys.stderr, flush=True)
            yield batch
        if not disable:
            print(file=sys.stderr)


def arguments(description: str | None, *, epochs: int, nodes: int = 10_000) -> argparse.ArgumentParser:
    """The flags that all examples have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=epochs, help="epochs to train (%(default)s)")
    parser.add_argument("--nodes", type=int, default=nodes, help="nodes of the graph that is made (%(default)s)")
    return parser


def dataset_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of examples that run on any homogeneous graph with features, labels and splits."""
    parser.add_argument("--data", metavar="DIR", type=Path, help="a dataset, or a folder of arrays such as Cora's")
    parser.add_argument("--servers", metavar="HOST:PORT,...", help="storage servers of a dataset")


@contextlib.contextmanager
def dataset(args: argparse.Namespace) -> Iterator[graphmill.Dataset]:
    """The dataset that the flags ask for; without any, a block model that is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="graphmill-example-") as folder:
        if args.servers:
            yield graphmill.connect(args.servers)
        elif args.data is None:
            yield blocks(Path(folder, "blocks"), args.nodes)
        elif (args.data / "edges.csv").is_file():
            yield arrays(args.data, Path(folder, "graph"))
        else:
            yield graphmill.open(args.data)


def blocks(out: Path, nodes: int, *, parts: int = 1, classes: int = 8) -> graphmill.Dataset:
    """A block model: nodes of a class are linked mostly to their like, and features tell a little of the class."""
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=nodes)
    members = [np.flatnonzero(y == one) for one in range(classes)]
    src = rng.integers(nodes, size=10 * nodes)
    dst = rng.integers(nodes, size=10 * nodes)
    alike = rng.random(10 * nodes) < 0.7
    for one in range(classes):
        where = np.flatnonzero(alike & (y[src] == one))
        dst[where] = rng.choice(members[one], size=len(where))
    x = (np.eye(classes, 32)[y] + rng.standard_normal((nodes, 32))).astype(np.float32)
    where = rng.random(nodes)
    return graphmill.from_edges(
        src, dst, out=out, num_nodes=nodes, x=x, y=y, train=where < 0.5, val=(where >= 0.5) & (where < 0.7),
        test=where >= 0.7, parts=parts,
    )  # fmt: skip


def arrays(folder: Path, out: Path, *, parts: int = 1) -> graphmill.Dataset:
    """A dataset from `edges.csv`, `features.npy`, `labels.npy` and a file of ids for each split; rows sum to 1, as for Cora."""
    src, dst = np.loadtxt(folder / "edges.csv", delimiter=",", skiprows=1, dtype=np.int64).T
    x = np.load(folder / "features.npy").astype(np.float32)
    x /= np.maximum(x.sum(axis=1, keepdims=True), 1)
    splits = {split: np.load(folder / f"{split}.npy") for split in ("train", "val", "test")}
    return graphmill.from_edges(src, dst, out=out, x=x, y=np.load(folder / "labels.npy"), **splits, parts=parts)


@contextlib.contextmanager
def serving(path: Path, partitions: list[str]) -> Iterator[str]:
    """Servers of a dataset, each with some of its partitions (`"0,1"`); they end with this, or with this process."""
    with tempfile.TemporaryDirectory(prefix="graphmill-example-") as folder, contextlib.ExitStack() as stack:
        sockets = [f"unix:{folder}/{place}" for place in range(len(partitions))]
        started = []
        for place, owned in enumerate(partitions):
            command = [binary(), "serve", str(path), "--quiet", "--until-stdin-closes", "--partition", owned]
            command += ["--listen", "127.0.0.1:0", "--listen", sockets[place]]
            if peers := [socket for socket in sockets if socket != sockets[place]]:
                command += ["--peers", ",".join(peers)]
            server = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"GRAPHMILL_LOG": "error", **os.environ}
            )
            # Leaving closes its standard input, which ends it, and waits.
            started.append(stack.enter_context(server))
        addresses = []
        for server in started:
            for line in server.stdout:
                if line.startswith("listening on 127.0.0.1:"):
                    addresses.append(line.split()[-1])
                    break
            else:
                raise RuntimeError(f"`{' '.join(server.args)}` ended before it listened")
        yield ",".join(addresses)


def binary() -> str:
    """The graphmill binary: as `GRAPHMILL` says, on the path, or built in this checkout."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parents[1] / "target"))
    built = [str(path) for profile in ("release", "debug") if (path := target / profile / "graphmill").is_file()]
    found = [os.environ.get("GRAPHMILL"), shutil.which("graphmill"), *built]
    for path in filter(None, found):
        return path
    sys.exit("there is no graphmill binary: run `cargo build --release`, or set GRAPHMILL to one")


@torch.no_grad()
def hits(model: torch.nn.Module, batches) -> tuple[int, int]:
    """How many seeds a model has the class of right, and how many there are; batches that other ranks have too are left out."""
    model.eval()
    right = total = 0
    for batch in batches:
        if "repeated" in batch and batch.repeated:
            continue
        found = model(batch.x.float(), batch.edge_index)[: batch.batch_size].argmax(dim=1)
        right += int((found == batch.y[: batch.batch_size]).sum())
        total += batch.batch_size
    return right, total


def accuracy(model: torch.nn.Module, batches) -> float:
    """The share of seeds that a model has the class of right."""
    right, total = hits(model, batches)
    return right / total
