"""What the workers of all peers share: the arguments, the clock, and the proof that a sampler samples.

A worker runs in the environment of its peer and prints one JSON line for each fanouts, first sampling alone, then with
the features of all sampled nodes gathered. A number is printed only after the batches were checked against the graph.
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import dataset
import numpy as np

CHECKED_BATCHES = 3
SEED = 7


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


def main(open_peer):
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--fanouts", action="append", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    graph = dataset.load(arguments.dataset)
    peer: Peer = open_peer(graph)
    check = Check(graph)
    for text in arguments.fanouts:
        fanouts = [int(fanout) for fanout in text.split(",")]
        peer.start(fanouts)
        for features in (False, True):
            batches = random_seeds(graph.num_nodes, arguments.batch_size, arguments.warm_up + arguments.batches)
            found = check.run(peer, fanouts, features, batches[:CHECKED_BATCHES])
            rates = measure(peer, features, batches, arguments.warm_up)
            told = {"peer": peer.name, "version": peer.version, "fanouts": fanouts, "features": features}
            print(json.dumps({**told, **rates, "check": found}), flush=True)


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
