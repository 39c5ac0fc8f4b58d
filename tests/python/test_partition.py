"""Partitioning changes where things lie and nothing else."""

import numpy as np
import pytest
from graphs import random_graph, write_csv, write_npy
from reader import Dataset

GRAPH = random_graph(nodes=700, edges=6000)


@pytest.fixture
def shop(workshop):
    """A workshop with a rich dataset `whole`: both layouts, weights, timestamps, edge and node features, splits."""
    write_npy(workshop.path / "weight.npy", GRAPH.weight[:700])
    write_csv(workshop.path / "e.csv", GRAPH.edges)
    write_npy(workshop.path / "x.npy", GRAPH.x)
    write_npy(workshop.path / "label.npy", GRAPH.label)
    workshop.ingest(
        """
layout = "both"

[[nodes]]
count = 700
features.x = { files = "x.npy" }
labels = { files = "label.npy" }
weights = { files = "weight.npy" }
splits = { by = "fraction", train = 0.5, val = 0.2, test = 0.3, seed = 1 }

[[edges]]
files = "e.csv"
weight = "w"
timestamp = "t"
features.attr = { columns = ["a", "b"], dtype = "f32" }
""",
        "whole",
    )
    return workshop


def partition(shop, method: str, parts: int, source: str = "whole", out: str = "parts") -> Dataset:
    flags = []
    if method == "file":
        write_npy(shop.path / "assignment.npy", np.random.default_rng(2).integers(0, parts, 700))
        flags = ["--assignment", "assignment.npy"]
    shop.run("partition", source, "--parts", parts, "--method", method, *flags, "--out", out, "--quiet")
    return Dataset(shop.path / out)


def assert_same_graph(a: Dataset, b: Dataset):
    assert a.manifest["fingerprint"] == b.manifest["fingerprint"]
    for name, nodes in a.nodes.items():
        other = b.nodes[name]
        assert np.array_equal(nodes.label, other.label) and nodes.originals == other.originals
        assert np.array_equal(nodes.weights, other.weights) and np.array_equal(nodes.cumulative, other.cumulative)
        for feature in nodes.features:
            assert np.array_equal(nodes.features[feature], other.features[feature])
        for split in nodes.splits:
            assert np.array_equal(nodes.splits[split], other.splits[split])
    for name, edges in a.edges.items():
        other = b.edges[name]
        for feature in edges.features:
            assert np.array_equal(edges.features[feature], other.features[feature])
        for direction, lists in edges.lists.items():
            for column in ("indptr", "neighbors", "edge_ids", "weights", "cumulative", "alias", "timestamps"):
                assert np.array_equal(getattr(lists, column), getattr(other.lists[direction], column)), column


@pytest.mark.parametrize(
    "method, parts", [("range", 1), ("range", 4), ("hash", 1), ("hash", 4), ("hash", 70), ("ldg", 4), ("file", 4)]
)
def test_the_graph_is_the_same_however_it_is_cut(shop, method, parts):
    whole, cut = Dataset(shop.path / "whole"), partition(shop, method, parts)
    assert_same_graph(whole, cut)
    assert cut.parts == parts and cut.manifest["method"] == method

    owner, pairs = cut.only_nodes.owner, cut.only_edges.pairs
    crossing = int(np.count_nonzero(owner[pairs[:, 0]] != owner[pairs[:, 1]]))
    told = shop.inspect("parts")
    assert told["edge_cut"] == crossing
    assert told["num_partitions"] == parts and told["num_edges"] == 6000
    shop.run("inspect", "parts", "--verify")


def test_a_file_decides_who_owns_what(shop):
    cut = partition(shop, "file", 5)
    assert np.array_equal(cut.only_nodes.owner, np.load(shop.path / "assignment.npy"))


def test_a_cut_dataset_can_be_cut_again_and_put_together(shop):
    partition(shop, "hash", 3, out="three")
    partition(shop, "ldg", 5, source="three", out="five")
    assert_same_graph(Dataset(shop.path / "whole"), partition(shop, "range", 1, source="five", out="one"))


def test_more_partitions_than_a_byte_can_name(workshop):
    whole = workshop.generate("uniform", "--nodes", "1200", "--edges", "3000", "--features", "0", out="whole")
    workshop.run("partition", "whole", "--parts", "300", "--method", "hash", "--out", "cut", "--quiet")
    cut = Dataset(workshop.path / "cut")
    assert_same_graph(whole, cut)
    assert "nodes/node/owner.u16" in cut.manifest["book_arrays"]


def test_ldg_cuts_fewer_edges_than_hash_where_there_are_blocks(workshop):
    workshop.generate("sbm", "--nodes", "2000", "--edges", "20000", "--features", "2", "--seed", "1", out="sbm")
    cuts = {}
    for method in ("hash", "ldg"):
        workshop.run("partition", "sbm", "--parts", "4", "--method", method, "--out", method, "--quiet")
        told = workshop.inspect(method)
        cuts[method] = told["edge_cut"]
        rows = np.bincount(Dataset(workshop.path / method).only_nodes.owner, minlength=4)
        assert rows.max() < 1.2 * rows.mean(), f"{method} is out of balance: {rows}"
    assert cuts["ldg"] < 0.9 * cuts["hash"], cuts


def test_a_wrong_assignment_is_explained(shop):
    write_npy(shop.path / "short.npy", np.zeros(10, np.int64))
    write_npy(shop.path / "wild.npy", np.full(700, 9))
    for file, word in (("short.npy", "700"), ("wild.npy", "9")):
        arguments = ("whole", "--parts", "2", "--method", "file", "--assignment", file, "--out", "bad")
        done = shop.run("partition", *arguments, expect=None)
        assert done.returncode != 0 and file in done.stderr and word in done.stderr, done.stderr
        assert not (shop.path / "bad").exists()


def test_a_flipped_byte_is_found_and_named(shop):
    partition(shop, "hash", 3)
    rng = np.random.default_rng(0)
    files = sorted(path for path in (shop.path / "parts").rglob("*") if path.is_file() and path.stat().st_size)
    for file in files:
        content = bytearray(file.read_bytes())
        place = int(rng.integers(len(content)))
        content[place] ^= 1 << int(rng.integers(8))
        sound = file.read_bytes()
        file.write_bytes(content)
        done = shop.run("inspect", "parts", "--verify", expect=None)
        assert done.returncode != 0 and file.name in done.stdout + done.stderr, f"{file}: {done.stdout}{done.stderr}"
        file.write_bytes(sound)
    shop.run("inspect", "parts", "--verify")
