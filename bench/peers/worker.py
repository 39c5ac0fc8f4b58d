"""What the workers of all peers share: the arguments, the clock, and the proof that a sampler samples.

A worker runs in the environment of its peer and prints JSON lines. Without `--workers` one for each fanouts: first of
sampling alone, then with the features of all sampled nodes gathered, call by call. With it one for each number of
workers that the peer's own loader is to have, always with features. A number is printed only if the batches that it is
of were checked against the graph.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import dataset
import numpy as np

CHECKED_BATCHES = 3
SEED = 7
# As `graphmill bench loader` does it: what comes in the first second is not counted.
WARM_UP = 1.0


@dataclass
class Hop:
    """The edges of one hop by global ids, and the nodes whose lists they were drawn from."""

    expanded: np.ndarray
    source: np.ndarray
    target: np.ndarray


class Peer(Protocol):
    """One sampler on one graph. `sample` and `gather` are timed, `nodes` and `hops` are not."""

    name: str
    version: str
    # False when the sampler draws an edge more than once.
    distinct: bool

    def start(self, fanouts: list[int]): ...

    def seeds(self, ids: np.ndarray) -> Any: ...

    def sample(self, seeds: Any) -> Any: ...

    def gather(self, seeds: Any) -> tuple[Any, Any]:
        """Samples, and returns the batch with the features of its nodes in the order of `nodes`."""

    def nodes(self, batch: Any) -> np.ndarray: ...

    def num_edges(self, batch: Any) -> int: ...

    def hops(self, batch: Any, num_seeds: int) -> list[Hop]: ...

    def loader(self, batch_size: int, workers: int) -> Iterable:
        """The peer's own loader: full batches of all nodes in random order. Iterating again gives the next epoch."""

    def loaded(self, item: Any) -> tuple[Any, Any]:
        """What `gather` returns, of what the loader gave; timed too."""


def main(*open_peers: Callable[[dataset.Graph], Peer]):
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--fanouts", action="append", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--batches", type=int)
    parser.add_argument("--warm-up", type=int)
    parser.add_argument("--workers", type=int, action="append")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(SEED)
    graph = dataset.load(arguments.dataset)
    check = Check(graph)
    measured = of_loader if arguments.workers else of_calls
    for open_peer in open_peers:
        peer = open_peer(graph)
        for text in arguments.fanouts:
            fanouts = [int(fanout) for fanout in text.split(",")]
            peer.start(fanouts)
            for told in measured(peer, fanouts, graph, check, arguments):
                who = {"peer": peer.name, "version": peer.version, "fanouts": fanouts}
                print(json.dumps({**who, **told}), flush=True)


def of_calls(peer: Peer, fanouts: list[int], graph: dataset.Graph, check: "Check", arguments) -> Iterator[dict]:
    for features in (False, True):
        batches = random_seeds(graph.num_nodes, arguments.batch_size, arguments.warm_up + arguments.batches)
        found = check.run(peer, fanouts, features, batches[:CHECKED_BATCHES])
        rates = measure(peer, features, batches, arguments.warm_up)
        yield {"features": features, **rates, "check": found}


def of_loader(peer: Peer, fanouts: list[int], graph: dataset.Graph, check: "Check", arguments) -> Iterator[dict]:
    def count(pair: tuple[Any, Any]) -> tuple[int, int, int, int]:
        batch, rows = pair
        return arguments.batch_size, len(peer.nodes(batch)), peer.num_edges(batch), rows.nbytes

    for workers in arguments.workers:
        batches = map(peer.loaded, endless(peer.loader(arguments.batch_size, workers)))
        rates, first = pull(batches, arguments.seconds, count)
        found = check.delivered(peer, fanouts, first, arguments.batch_size)
        yield {"features": True, "workers": workers, "threads": arguments.threads, **rates, "check": found}


def pull(batches: Iterator, seconds: float, count, keep=lambda batch: batch) -> tuple[dict, list]:
    """The rates at which batches come after the warm-up, and the first batches.

    `count` looks at a batch as far as it is to be looked at, and tells how many seeds, nodes, edges and bytes it has.
    """
    kept, first, begin = [], None, None
    counted = np.zeros(5, np.int64)
    for batch in batches:
        counts = count(batch)
        now = time.monotonic()
        if first is None:
            first = now
        if begin is not None:
            counted += (1, *counts)
            if now - begin > seconds:
                break
        elif now - first > WARM_UP:
            begin = now
        if len(kept) < CHECKED_BATCHES:
            kept.append(keep(batch))
    pulled, seeds, nodes, edges, size = (int(number) for number in counted)
    seconds = now - begin
    rates = {
        "seeds_per_s": seeds / seconds,
        "edges_per_s": edges / seconds,
        "bytes_per_s": size / seconds,
        "batches_per_s": pulled / seconds,
        "nodes_per_batch": nodes / pulled,
        "edges_per_batch": edges / pulled,
        "bytes_per_batch": size / pulled,
        "first": first,
        "seconds": seconds,
    }
    return rates, kept


def endless(loader: Iterable) -> Iterator:
    while True:
        yield from loader


def read(tensors: Iterable) -> int:
    """Reads every byte of torch tensors once, as 64-bit words; how many bytes there were.

    Not byte by byte: torch takes some 50 times as long to add up bytes, and would be most of what is measured.
    """
    import torch

    size = 0
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
            continue
        # The rows of what is not contiguous are: a copy would be read too, and written.
        for part in [tensor] if tensor.is_contiguous() else tensor:
            flat = part.reshape(-1)
            words = flat.view(torch.int64) if flat.nbytes % 8 == 0 else flat.view(torch.uint8)
            int(words.sum())
            size += flat.nbytes
    return size


def random_seeds(num_nodes: int, batch_size: int, count: int) -> list[np.ndarray]:
    """Batches of distinct random nodes, the same for every peer."""
    rng = np.random.default_rng(SEED)
    return [rng.choice(num_nodes, batch_size, replace=False) for _ in range(count)]


def measure(peer: Peer, features: bool, batches: list[np.ndarray], warm_up: int) -> dict:
    """Medians over the batches after the warm-up."""
    work = peer.gather if features else peer.sample
    seconds, nodes, edges = [], [], []
    used = 0.0
    for number, ids in enumerate(batches):
        seeds = peer.seeds(ids)
        cpu, wall = time.process_time(), time.perf_counter()
        result = work(seeds)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        batch = result[0] if features else result
        if number >= warm_up:
            seconds.append(wall)
            nodes.append(len(peer.nodes(batch)))
            edges.append(peer.num_edges(batch))
            used += cpu
    seconds = np.array(seconds)
    return {
        "seeds_per_s": float(np.median(len(batches[0]) / seconds)),
        "edges_per_s": float(np.median(np.array(edges) / seconds)),
        "nodes_per_batch": float(np.median(nodes)),
        "edges_per_batch": float(np.median(edges)),
        # Above 1 the sampler used more than the one thread that it was given.
        "cores_used": round(used / float(seconds.sum()), 2),
    }


class Check:
    """Holds batches against the graph: every edge is there, every expanded node has as many as it should."""

    def __init__(self, graph: dataset.Graph):
        self.graph = graph
        self.degrees = np.diff(graph.indptr.astype(np.int64))
        # Lists stand in the order of their targets and each is ascending, so these keys are sorted as they are.
        targets = np.repeat(np.arange(graph.num_nodes, dtype=np.int64), self.degrees)
        self.keys = targets * graph.num_nodes + graph.neighbors

    def run(self, peer: Peer, fanouts: list[int], features: bool, batches: list[np.ndarray]) -> dict:
        edges = repeated = 0
        for ids in batches:
            seeds = peer.seeds(ids)
            batch, rows = peer.gather(seeds) if features else (peer.sample(seeds), None)
            nodes = np.asarray(peer.nodes(batch), np.int64)
            hops = peer.hops(batch, len(ids))
            expect(np.array_equal(nodes[: len(ids)], ids), "the seeds do not stand first")
            expect(len(np.unique(nodes)) == len(nodes), "a node stands twice")
            expect(len(hops) == len(fanouts), f"{len(hops)} hops for {len(fanouts)} fanouts")
            expect(sum(len(hop.source) for hop in hops) == peer.num_edges(batch), "the edges are miscounted")
            for hop, fanout in zip(hops, fanouts):
                repeated += self._hop(peer, hop, fanout)
                expect(np.isin(hop.source, nodes).all(), "an edge leaves the sampled nodes")
                edges += len(hop.source)
            if features:
                expect(np.array_equal(np.asarray(rows), self.graph.features[nodes]), "features of other nodes")
        return {"batches": len(batches), "edges": edges, "repeated_edges": repeated}

    def delivered(self, peer: Peer, fanouts: list[int], pairs: list[tuple[Any, Any]], num_seeds: int) -> dict:
        """The same of batches that were made already, with or without features; which seeds they have is not known."""
        seeds = [np.asarray(peer.nodes(batch), np.int64)[:num_seeds] for batch, _ in pairs]
        expect(len(np.unique(np.concatenate(seeds))) == num_seeds * len(pairs), "a seed stands in two batches")
        features = all(rows is not None for _, rows in pairs)
        return self.run(Delivered(peer, pairs), fanouts, features, seeds)

    def _hop(self, peer: Peer, hop: Hop, fanout: int) -> int:
        """Returns how many edges were drawn more than once."""
        keys, drawn = np.unique(hop.target * self.graph.num_nodes + hop.source, return_counts=True)
        present = np.searchsorted(self.keys, keys, "right") - np.searchsorted(self.keys, keys, "left")
        expect((present > 0).all(), "a sampled edge is not in the graph")
        repeated = int(np.maximum(drawn - present, 0).sum())
        expect(repeated == 0 or not peer.distinct, "an edge was drawn twice")
        taken = np.bincount(hop.target, minlength=self.graph.num_nodes)
        wanted = np.zeros_like(taken)
        wanted[hop.expanded] = np.minimum(self.degrees[hop.expanded], fanout)
        expect(np.array_equal(taken, wanted), "a node has too few or too many sampled edges")
        return repeated


class Delivered:
    """Batches that were made already, as a peer whose calls give one after the other."""

    def __init__(self, peer: Peer, pairs: Iterable[tuple[Any, Any]]):
        self.distinct, self.nodes, self.num_edges, self.hops = peer.distinct, peer.nodes, peer.num_edges, peer.hops
        self._pairs = iter(pairs)

    def seeds(self, ids):
        return next(self._pairs)

    def sample(self, pair):
        return pair[0]

    def gather(self, pair):
        return pair


def expect(condition: bool, otherwise: str):
    if not condition:
        raise AssertionError(f"a wrong batch: {otherwise}")


def hops_of_new_nodes(nodes, row, col, num_seeds: int, num_hops: int) -> list[Hop]:
    """Hops of a sampler that expands each node once, in the order in which it found them."""
    hops, begin, end, edge = [], 0, num_seeds, 0
    for _ in range(num_hops):
        last = edge + int(np.searchsorted(col[edge:], end))
        hops.append(Hop(nodes[begin:end], nodes[row[edge:last]], nodes[col[edge:last]]))
        found = int(row[edge:last].max()) + 1 if last > edge else 0
        begin, end, edge = end, max(end, found), last
    expect(edge == len(row) and end == len(nodes), "nodes or edges are left over after the last hop")
    return hops
