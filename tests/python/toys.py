"""Graphs made in memory, in the shape of `reader.Dataset`: what the law needs, and how to write it to files."""

import json
from pathlib import Path
from types import SimpleNamespace

import networkx
import numpy as np
from graphs import write_csv, write_npy

TO = ("node", "to", "node")


def toy(nodes: dict[str, int], edges: dict[tuple, list], labels=(), edge_weights=None, node_weights=None):
    """A dataset of node types with their counts and edge types with their (source, target) pairs.

    An edge's id is its place. `labels` names the edge types of role label; weights are given per edge type in the order
    of its pairs, per node type in the order of ids.
    """
    edge_weights, node_weights = edge_weights or {}, node_weights or {}
    made = SimpleNamespace(nodes={}, edges={})
    for type in sorted(nodes):
        weights = node_weights.get(type)
        made.nodes[type] = SimpleNamespace(count=nodes[type], features={}, label=None, weights=weights)
    for type in sorted(edges):
        pairs = np.array(edges[type], np.int64).reshape(-1, 2)
        weights = np.array(edge_weights[type], np.float32) if type in edge_weights else None
        made.edges[type] = SimpleNamespace(
            info={"role": "label" if type in labels else "message"},
            lists={
                "out": lists(nodes[type[0]], pairs[:, 0], pairs[:, 1], weights),
                "in": lists(nodes[type[2]], pairs[:, 1], pairs[:, 0], weights),
            },
            features={},
            pairs=pairs,
            weights=weights,
        )
    made.manifest = {"fingerprint": "toy", "edge_dir": "in", "node_types": [], "edge_types": []}
    return made


def toy_graph(count: int, pairs, weights=None, node_weights=None):
    """A toy of one node type and one edge type."""
    return toy(
        {"node": count},
        {TO: pairs},
        edge_weights=None if weights is None else {TO: weights},
        node_weights=None if node_weights is None else {"node": node_weights},
    )


def lists(count: int, owners: np.ndarray, others: np.ndarray, weights) -> SimpleNamespace:
    order = np.lexsort((np.arange(len(owners)), others, owners))
    return SimpleNamespace(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]),
        neighbors=others[order],
        edge_ids=order,
        weights=None if weights is None else weights[order],
    )


def describe(graph, folder: Path) -> str:
    """Writes a toy's files to a folder and gives the graph.toml of them."""
    lines, named = ['layout = "both"'], list(graph.edges) != [TO]
    for number, (type, nodes) in enumerate(graph.nodes.items()):
        lines += ["[[nodes]]", f"count = {nodes.count}"] + [f"type = {json.dumps(type)}"] * named
        if nodes.weights is not None:
            file = write_npy(folder / f"nodes-{number}.npy", np.array(nodes.weights, np.float32))
            lines.append(f'weights = {{ files = "{file}" }}')
    for number, (type, edges) in enumerate(graph.edges.items()):
        columns = {"src": edges.pairs[:, 0], "dst": edges.pairs[:, 1]}
        lines += ["[[edges]]", "edge_ids = true", f'role = "{edges.info["role"]}"', f'files = "edges-{number}.csv"']
        lines += [f"type = {json.dumps(type)}"] * named
        if edges.weights is not None:
            columns["weight"] = edges.weights
            lines.append('weight = "weight"')
        write_csv(folder / f"edges-{number}.csv", columns)
    return "\n".join(lines)


def karate_pairs() -> list[tuple[int, int]]:
    """Both directions of every friendship in Zachary's club."""
    friends = networkx.karate_club_graph().edges
    return [pair for a, b in friends for pair in ((a, b), (b, a))]
