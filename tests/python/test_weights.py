"""Weights of edges and nodes, and the tables that draws by weight are made from.

The reader checks every table against its weights; here is what else must hold of them.
"""

import numpy as np
import pytest
from graphs import write_csv, write_npy
from reader import Dataset, integer_weights

TINY = np.float32(1e-45)
HUGE = np.finfo(np.float32).max


@pytest.mark.parametrize(
    "weights, integers",
    [
        ([], []),
        ([0, -0.0], [0, 0]),
        ([1], [2**60]),
        ([TINY], [2**60]),
        ([HUGE], [2**61 - 2**37]),
        ([5, 5, 5, 5], [5 * 2**56] * 4),
        ([TINY, 1, 0], [1, 2**59, 0]),
    ],
)
def test_the_rule_for_integers(weights, integers):
    assert integer_weights(np.array(weights, np.float32)).tolist() == integers


def ingest_weighted(workshop, weight: np.ndarray, nodes: int = 30, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    ends = {"src": rng.integers(0, nodes, len(weight)), "dst": rng.integers(0, 4, len(weight))}
    write_csv(workshop.path / "e.csv", ends | {"w": weight})
    return workshop.ingest(f'layout = "both"\n[[nodes]]\ncount = {nodes}\n[[edges]]\nfiles = "e.csv"\nweight = "w"\n')


@pytest.mark.parametrize("kind", ["any magnitude", "subnormal", "equal", "zero"])
def test_extreme_weights_have_tables_too(workshop, kind):
    rng = np.random.default_rng(1)
    bits = rng.integers(0, HUGE.view(np.uint32), 500).astype(np.uint32)
    weight = {
        "any magnitude": bits.view(np.float32),
        "subnormal": (bits >> 9).view(np.float32),
        "equal": np.full(500, TINY),
        "zero": np.zeros(500, np.float32),
    }[kind]
    lists = ingest_weighted(workshop, weight).only_edges.primary
    assert np.array_equal(lists.weights, weight[lists.edge_ids])
    drawn = np.diff(lists.cumulative.astype(object), prepend=0)
    first = lists.indptr[:-1][np.diff(lists.indptr) > 0]
    drawn[first] = lists.cumulative[first]
    assert ((drawn > 0) == (lists.weights > 0)).all(), "what has a weight can be drawn, and nothing else"
    assert (lists.cumulative < 2**62).all()
    assert ((lists.alias >> np.uint64(32) > 0) == (lists.weights > 0)).all()
    workshop.run("inspect", "out", "--verify")


def by_sums(lists, start: int, end: int, rng) -> np.ndarray:
    table = lists.cumulative[start:end]
    return np.searchsorted(table, rng.integers(0, table[-1], 200_000, dtype=np.uint64), side="right")


def by_alias(lists, start: int, end: int, rng) -> np.ndarray:
    cell = rng.integers(0, end - start, 200_000)
    entry = lists.alias[start:end][cell]
    own = rng.integers(0, 2**32, 200_000, dtype=np.uint64) < entry >> np.uint64(32)
    return np.where(own, cell, (entry & np.uint64(2**32 - 1)).astype(np.int64))


@pytest.mark.parametrize("draw", [by_sums, by_alias])
def test_draws_follow_the_weights(workshop, draw):
    rng = np.random.default_rng(2)
    weight = np.where(rng.random(2000) < 0.1, 0, rng.random(2000)).astype(np.float32)
    lists = ingest_weighted(workshop, weight).only_edges.primary
    start, end = lists.indptr[2], lists.indptr[3]
    found = np.bincount(draw(lists, start, end, rng), minlength=end - start) / 200_000
    weights = lists.weights[start:end].astype(np.float64)
    expected = weights / weights.sum()
    assert (found[weights == 0] == 0).all()
    assert np.abs(found - expected).max() < 5 * np.sqrt(expected.max() / 200_000)


def test_nodes_are_drawn_from_one_table_however_they_are_cut(workshop):
    whole = workshop.generate("uniform", "--nodes", "700", "--edges", "900", "--node-weights", out="whole")
    for method, parts in (("range", 3), ("hash", 5), ("hash", 1)):
        name = f"{method}-{parts}"
        workshop.run("partition", "whole", "--parts", parts, "--method", method, "--out", name, "--quiet")
        cut = Dataset(workshop.path / name)
        assert np.array_equal(cut.only_nodes.weights, whole.only_nodes.weights)
        assert np.array_equal(cut.only_nodes.cumulative, whole.only_nodes.cumulative)
        workshop.run("inspect", name, "--verify")


def test_node_weights_follow_their_nodes(workshop):
    rng = np.random.default_rng(3)
    names = [f"n{number}" for number in rng.permutation(50)]
    weight = rng.random(50, dtype=np.float32)
    write_csv(workshop.path / "n.csv", {"name": names, "w": weight})
    write_csv(workshop.path / "e.csv", {"src": names[:25], "dst": names[25:]})
    write_npy(workshop.path / "w.npy", weight)
    head = '[[nodes]]\nid_type = "string"\n'
    listed = 'ids = { files = "n.csv", column = "name" }\n'
    edges = '[[edges]]\nfiles = "e.csv"\n'
    found = [
        workshop.ingest(head + listed + 'weights = { files = "w.npy" }\n' + edges, "by-row"),
        workshop.ingest(head + 'weights = { files = "n.csv", columns = ["w"], key = "name" }\n' + edges, "by-key"),
    ]
    for dataset in found:
        nodes = dataset.only_nodes
        assert np.array_equal(nodes.weights, weight[[names.index(name) for name in nodes.originals]])
    assert found[0].manifest["fingerprint"] == found[1].manifest["fingerprint"]
    assert workshop.inspect("by-key")["node_types"][0]["weights"] is True


@pytest.mark.parametrize("weight", ["-0.5", "nan", "inf"])
def test_node_weights_are_finite_and_not_negative(workshop, weight):
    (workshop.path / "n.csv").write_text(f"w\n0.5\n{weight}\n1\n")
    write_csv(workshop.path / "e.csv", {"src": [0], "dst": [1]})
    config = '[[nodes]]\nweights = { files = "n.csv" }\n[[edges]]\nfiles = "e.csv"\n'
    message = workshop.refuse(config)
    assert "n.csv" in message and "row 2" in message and "not a finite number of at least 0" in message, message
    skipped = workshop.ingest(config, "out", "--on-error", "skip")
    assert skipped.only_nodes.weights.tolist() == [0.5, 0, 1]


def test_generated_node_weights_depend_on_the_seed_alone(workshop):
    size = ("--nodes", "500", "--edges", "1000", "--features", "0")
    first, again, other = (
        workshop.generate("rmat", *size, "--node-weights", "--seed", seed, *more, out=out).only_nodes.weights
        for out, seed, more in (("a", "1", ()), ("b", "1", ("--weights",)), ("c", "2", ()))
    )
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert (first > 0).all() and (first <= 1).all() and abs(first.mean() - 0.5) < 0.05
