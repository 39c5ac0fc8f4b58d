"""Whatever a public call is given, it answers or says what is wrong in Python's own terms; nothing native shows."""

import math

import numpy as np
import packages
import pytest
import torch

import graphmill

# What a wrong argument may raise.
SENSIBLE = (TypeError, ValueError, IndexError, KeyError, OSError, MemoryError)

GARBAGE = [
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**63) - 1, 1e308, math.nan, math.inf, 0.5, 1j, "", "train", "nope", "é\0\ud800",
    b"bytes", [], [[]], [-1], [2**63], [1.5], [math.nan], ["a"], [None], [[0, 1], [1]], (), ("a", "b"), ("a", "b", "c"), (1, 2, 3),
    {}, {"a": 1}, {("a", "b", "c"): [1]}, {1: 2}, object(), int, print, range(0), range(5, 0, -1), np.array([]), np.zeros((2, 0)),
    np.zeros((0, 2), dtype=np.int64), np.array(3), np.array([[1, 2], [3, 4]]), np.array(["x"]), np.array([None]),
    np.array([1, 2], dtype=">i8"), np.arange(10)[::2], np.array([2**64 - 1], dtype=np.uint64), np.array([np.nan, 1]),
    np.zeros(3, dtype=bool), np.array([1 + 1j]), np.array(["2020-01-01"], dtype="datetime64[D]"), torch.tensor([1.5]),
    torch.zeros(0), torch.tensor([-1]), torch.zeros(2, 2, 2), torch.tensor([1], dtype=torch.bfloat16),
    torch.zeros(3, 3).to_sparse(),
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return packages.homogeneous(tmp_path_factory.mktemp("garbage") / "g", nodes=20, edges=60)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return packages.heterogeneous(tmp_path_factory.mktemp("garbage") / "h")


def some(loader) -> None:
    """Makes a few batches."""
    with loader:
        len(loader), repr(loader), loader.state_dict()
        for batch, _ in zip(loader, range(2), strict=False):
            repr(batch)


def neighbors(data, **arguments):
    return some(graphmill.NeighborLoader(data, **{"num_neighbors": [2], "input_nodes": range(5), **arguments}))


COMMON = [
    "batch_size", "shuffle", "drop_last", "replace", "weight_attr", "direction", "features", "labels", "transform", "seed",
    "prefetch", "ordered", "num_threads", "even", "pin_memory", "output",
]  # fmt: skip

CALLS = {
    "open": lambda g, h, value: graphmill.open(value),
    "open storage": lambda g, h, value: graphmill.open(g._arguments["path"], storage=value),
    "connect": lambda g, h, value: graphmill.connect(value, timeout=0.01),
    "connect token": lambda g, h, value: graphmill.connect("127.0.0.1:1", token=value, timeout=0.01),
    "connect tls": lambda g, h, value: graphmill.connect("127.0.0.1:1", tls=value, timeout=0.01),
    "connect transport": lambda g, h, value: graphmill.connect("127.0.0.1:1", transport=value, timeout=0.01),
    "connect run": lambda g, h, value: graphmill.connect("127.0.0.1:1", run=value, worker=value, timeout=0.01),
    "node_ids": lambda g, h, value: g.node_ids(value),
    "node_ids type": lambda g, h, value: h.node_ids(type=value),
    "node_ids rank": lambda g, h, value: g.node_ids(rank=value, world_size=3),
    "node_ids world_size": lambda g, h, value: g.node_ids(rank=0, world_size=value),
    "features": lambda g, h, value: g.features(value),
    "features name": lambda g, h, value: g.features([1], name=value),
    "features type": lambda g, h, value: h.features([1], type=value),
    "edge features": lambda g, h, value: g.features(value, name="edge_attr"),
    "labels": lambda g, h, value: g.labels(value),
    "labels type": lambda g, h, value: h.labels(type=value),
    "edge_index type": lambda g, h, value: h.edge_index(type=value),
    "edge_index layout": lambda g, h, value: g.edge_index(layout=value),
    "original_ids": lambda g, h, value: g.original_ids(value),
    "lookup": lambda g, h, value: g.lookup(value),
    "lookup type": lambda g, h, value: h.lookup([1], type=value),
    "partition_ids": lambda g, h, value: g.partition_ids(value),
    "loader data": lambda g, h, value: graphmill.NeighborLoader(value, [2]),
    "num_neighbors": lambda g, h, value: neighbors(g, num_neighbors=value),
    "num_neighbors of types": lambda g, h, value: neighbors(h, input_nodes="paper", num_neighbors={packages.CITES: value}),
    "num_neighbors types": lambda g, h, value: neighbors(h, input_nodes="paper", num_neighbors=value),
    "input_nodes": lambda g, h, value: neighbors(g, input_nodes=value),
    "input_nodes of types": lambda g, h, value: neighbors(h, input_nodes=value),
    "input_nodes of a type": lambda g, h, value: neighbors(h, input_nodes=("paper", value)),
    "rank": lambda g, h, value: neighbors(g, rank=value, world_size=2),
    "world_size": lambda g, h, value: neighbors(g, rank=0, world_size=value),
    "edge_label_index": lambda g, h, value: some(graphmill.LinkNeighborLoader(g, [2], value)),
    "edge_label_index of types": lambda g, h, value: some(graphmill.LinkNeighborLoader(h, [2], value)),
    "edge_label_index of a type": lambda g, h, value: some(graphmill.LinkNeighborLoader(h, [2], (packages.CITES, value))),
    "edge_label": lambda g, h, value: some(graphmill.LinkNeighborLoader(g, [2], [[1, 2, 3], [3, 4, 5]], value)),
    "neg_sampling": lambda g, h, value: some(graphmill.LinkNeighborLoader(g, [2], neg_sampling=value)),
    "neg_sampling_ratio": lambda g, h, value: some(graphmill.LinkNeighborLoader(g, [2], neg_sampling_ratio=value)),
    "NegativeSampling": lambda g, h, value: graphmill.NegativeSampling(value),
    "NegativeSampling amount": lambda g, h, value: graphmill.NegativeSampling("triplet", value),
    "positive": lambda g, h, value: some(graphmill.AnchorLinkLoader(h, [2], positive=value)),
    "negative": lambda g, h, value: some(graphmill.AnchorLinkLoader(h, [2], positive=packages.LIKES, negative=value)),
    "max_labels": lambda g, h, value: some(graphmill.AnchorLinkLoader(h, [2], positive=packages.LIKES, max_labels=value)),
    "alpha": lambda g, h, value: some(graphmill.PPRLoader(g, alpha=value)),
    "eps": lambda g, h, value: some(graphmill.PPRLoader(g, range(2), eps=value)),
    "max_ppr_nodes": lambda g, h, value: some(graphmill.PPRLoader(h, "paper", max_ppr_nodes=value)),
    "num_neighbors_per_hop": lambda g, h, value: some(graphmill.PPRLoader(g, num_neighbors_per_hop=value)),
    "top_up": lambda g, h, value: some(graphmill.PPRLoader(g, top_up=value)),
    "induced": lambda g, h, value: some(graphmill.SubgraphLoader(g, value)),
    "load_state_dict": lambda g, h, value: graphmill.NeighborLoader(g, [2]).load_state_dict(value),
    "pyg_sampler": lambda g, h, value: g.pyg_sampler(value),
    **{f"loader {name}": lambda g, h, value, name=name: neighbors(g, **{name: value}) for name in COMMON},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_garbage_is_refused_in_pythons_terms(graph, library, call):
    for value in GARBAGE:
        try:
            CALLS[call](graph, library, value)
        except SENSIBLE as error:
            assert str(error) and "panicked" not in str(error), f"{call}({value!r}): {error!r}"
        except BaseException as error:
            raise AssertionError(f"{call}({value!r}) raised {error!r}") from error


MAKING = {
    "src": lambda value: {"src": value, "dst": [1, 2]},
    "dst": lambda value: {"src": [0, 1], "dst": value},
    # 2**31 nodes can be, but take their time.
    "num_nodes": lambda value: {"num_nodes": 2**41 if value is GARBAGE[4] else value},
    "x": lambda value: {"x": value},
    "x by name": lambda value: {"x": {"x": value}},
    "y": lambda value: {"y": value},
    "edge_attr": lambda value: {"edge_attr": value},
    "edge_weight": lambda value: {"edge_weight": value},
    "train": lambda value: {"train": value},
    "label_edges": lambda value: {"label_edges": value},
    "parts": lambda value: {"parts": value},
    "ends of types": lambda value: {"src": {("a", "to", "b"): value}, "dst": None},
    "types": lambda value: {"src": value, "dst": None},
    "x of types": lambda value: {"src": {("a", "to", "b"): ([0], [1])}, "dst": None, "x": value},
    "num_nodes of types": lambda value: {"src": {("a", "to", "b"): ([0], [1])}, "dst": None, "num_nodes": value},
    "label_edges of types": lambda value: {"src": {("a", "to", "b"): ([0], [1])}, "dst": None, "label_edges": value},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", MAKING)
def test_garbage_makes_no_dataset(tmp_path, what):
    for place, value in enumerate(GARBAGE):
        out = tmp_path / str(place)
        try:
            graphmill.from_edges(**{"src": [0, 1], "dst": [1, 2], "out": out, **MAKING[what](value)}).close()
        except SENSIBLE as error:
            assert str(error) and "panicked" not in str(error), f"{what}={value!r}: {error!r}"
            assert not out.exists(), f"{what}={value!r} left something behind"
        except BaseException as error:
            raise AssertionError(f"{what}={value!r} raised {error!r}") from error
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_more_rows_than_there_is_memory_for_is_a_memory_error(tmp_path):
    data = graphmill.from_edges([0], [1], out=tmp_path / "wide", x=np.zeros((2, 1 << 22), dtype=np.float32))
    # 16 MB a row: more than the address space of a process has, by one mapped page of ids.
    ids = np.broadcast_to(np.int64(0), 1 << 24)
    with pytest.raises(MemoryError, match="fewer at a time"):
        data.features(ids)
