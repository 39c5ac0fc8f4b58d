"""Datasets made from arrays and torch_geometric's objects, and what is read from them."""

import json

import numpy as np
import packages
import pytest
import torch
from packages import CITES, HATES, LIKES, WRITES

import graphmill


def test_what_went_in_is_what_is_read(tmp_path):
    rng = np.random.default_rng(1)
    src, dst = rng.integers(20, size=50), rng.integers(20, size=50)
    x, weight = rng.random((20, 3), dtype=np.float32), rng.random(50, dtype=np.float32)
    data = graphmill.from_edges(
        torch.from_numpy(src), dst.tolist(), out=tmp_path / "g", x=torch.from_numpy(x), y=range(20), edge_weight=weight,
        train=[3, 1], test=np.arange(20) > 15,
    )  # fmt: skip
    assert (data.num_nodes, data.num_edges, data.num_features, data.num_classes) == (20, 50, 3, 20)
    assert data.splits == {"train": 2, "test": 4} and data.node_types is None and data.homogeneous
    assert np.array_equal(data.features(), x) and np.array_equal(data.features([4, 4, 2]), x[[4, 4, 2]])
    assert np.array_equal(data.labels([7]), [7])
    assert np.array_equal(data.features([0, 49], name="edge_weight"), weight[[0, 49]])
    assert data.node_ids("train").tolist() == [1, 3] and len(data.node_ids()) == 20
    assert sorted(map(tuple, data.edge_index().T)) == sorted(zip(src, dst, strict=True))
    indptr, indices = data.edge_index(layout="csr")
    assert [sorted(indices[indptr[node] : indptr[node + 1]]) for node in range(20)] == [
        sorted(dst[src == node]) for node in range(20)
    ]
    assert data.degrees().tolist() == np.bincount(dst, minlength=20).tolist()
    assert data.degrees([4, 0, 4], direction="out").tolist() == np.bincount(src, minlength=20)[[4, 0, 4]].tolist()
    assert data.original_ids([5, 3]).tolist() == [5, 3] and data.lookup([3, 99]).tolist() == [3, -1]
    assert data.partition_ids([0, 19]).tolist() == [0, 0] and len(data.fingerprint) == 32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_element_types_stay(tmp_path, dtype):
    x = torch.arange(12).reshape(4, 3).to(getattr(torch, dtype))
    data = graphmill.from_edges([0, 1], [2, 3], out=tmp_path / "g", x=x)
    (batch,) = graphmill.NeighborLoader(data, [1], [3, 0], batch_size=2, output="torch")
    assert batch.x.dtype == x.dtype and torch.equal(batch.x[:2], x[[3, 0]])


def test_shares_of_ranks_are_the_whole_in_order(tmp_path):
    data = packages.homogeneous(tmp_path / "g", parts=3)
    for split in (None, "train"):
        shares = [data.node_ids(split, rank=rank, world_size=4) for rank in range(4)]
        assert np.array_equal(np.concatenate(shares), data.node_ids(split))
    assert data.num_partitions == 3 and set(data.partition_ids(range(300))) == {0, 1, 2}
    with pytest.raises(ValueError, match="world_size"):
        data.node_ids(rank=1)
    with pytest.raises(ValueError, match="rank is 0.5"):
        data.node_ids(rank=0.5, world_size=2)
    with pytest.raises(ValueError, match="world_size is 1180591620717411303424"):
        data.node_ids(rank=0, world_size=2**70)


def test_labels_of_several_values_and_of_fractions(tmp_path):
    data = graphmill.from_edges([0], [1], out=tmp_path / "m", y=np.eye(2, dtype=np.float32))
    assert data.num_classes == 2 and np.array_equal(data.labels(), np.eye(2))
    data = graphmill.from_edges([0], [1], out=tmp_path / "f", y=np.array([[0.5], [1.5]], dtype=np.float32))
    assert data.labels().tolist() == [[0.5], [1.5]]
    data = graphmill.from_edges([0], [1], out=tmp_path / "c", y=np.array([[4], [1]]))
    assert data.num_classes == 5 and next(iter(graphmill.NeighborLoader(data, [1], batch_size=2))).y.shape == (2, 1)


def test_several_types(tmp_path):
    data = packages.heterogeneous(tmp_path / "h", parts=2)
    assert data.node_types == ["author", "paper"] and WRITES in data.edge_types
    assert data.num_features == {"author": 8, "paper": 4} and data.num_classes == {"author": 0, "paper": 3}
    assert data.num_nodes_dict == {"author": 80, "paper": 120} and data.splits["author"] == {"train": 40}
    with pytest.raises(ValueError, match="name a node type; there are: 'author', 'paper'"):
        data.features()
    with pytest.raises(ValueError, match="there is no node type 'book'"):
        data.node_ids(type="book")
    with pytest.raises(ValueError, match="needs a node type"):
        graphmill.NeighborLoader(data, [2], "train" and [1, 2])
    with pytest.raises(ValueError, match="make a loader for each"):
        graphmill.NeighborLoader(data, [2], {"author": [1], "paper": [2]})
    with pytest.raises(ValueError, match="never"):
        graphmill.NeighborLoader(data, {LIKES: [2]}, "author")
    with pytest.raises(ValueError, match="anchors are of type 'author'"):
        graphmill.AnchorLinkLoader(data, [2], "paper", positive=LIKES)


def test_labels_of_anchors_are_rows_of_equal_length(tmp_path):
    data = packages.heterogeneous(tmp_path / "h", parts=2)
    linked = {
        name: [sorted(targets[sources == author].tolist()) for author in range(0, 80, 2)]
        for name in (LIKES, HATES)
        for sources, targets in [data.edge_index(type=name)]
    }
    for most in (None, 2):
        anchors, positives, negatives = data.anchor_labels("train", positive=LIKES, negative=HATES, max_labels=most)
        assert anchors.tolist() == list(range(0, 80, 2))
        for rows, lists in ((positives, linked[LIKES]), (negatives, linked[HATES])):
            lists = [labels[:most] for labels in lists]
            width = max(map(len, lists))
            assert rows.tolist() == [labels + [-1] * (width - len(labels)) for labels in lists]
    assert data.anchor_labels(positive=LIKES).anchors.tolist() == list(range(80))
    assert data.anchor_labels(positive=LIKES).negatives is None
    for ask, words in (
        (lambda: data.anchor_labels("train"), "name an edge type"), (lambda: data.degrees([1]), "name an edge type"),
        (lambda: data.degrees(type=LIKES, direction="up"), "direction is 'up'"),
        (lambda: data.anchor_labels(positive=LIKES, max_labels=-1), "max_labels is -1"),
        (lambda: data.anchor_labels(positive=LIKES, rank=1), "world_size"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            ask()


def test_walked_outward_messages_still_flow_to_the_seeds(workshop):
    (workshop.path / "writes.csv").write_text("src,dst\n0,0\n0,1\n1,1\n2,0\n")
    workshop.ingest('layout = "both"\n[[edges]]\ntype = "author:writes:paper"\nfiles = "writes.csv"\n')
    data = graphmill.open(workshop.path / "out")
    (batch,) = graphmill.NeighborLoader(data, [-1], ("author", [0, 1]), batch_size=2, direction="out", output="torch")
    (edge_type,) = batch.edge_types
    assert edge_type == ("paper", "rev_writes", "author")
    papers, authors = batch[edge_type].edge_index
    pairs = zip(batch["author"].n_id[authors].tolist(), batch["paper"].n_id[papers].tolist(), strict=True)
    assert sorted(pairs) == [(0, 0), (0, 1), (1, 1)]
    (batch,) = graphmill.NeighborLoader(data, [-1], ("paper", [0]), batch_size=1, output="torch")
    assert batch.edge_types == [("author", "writes", "paper")]


def test_original_ids_of_strings(workshop):
    (workshop.path / "knows.csv").write_text("src,dst\nbob,alice\ncarol,bob\n")
    workshop.ingest('[[nodes]]\nid_type = "string"\n[[edges]]\nfiles = "knows.csv"\n')
    data = graphmill.open(workshop.path / "out")
    assert data.original_ids([2, 0]).tolist() == ["carol", "alice"]
    assert data.lookup(["bob", "dave"]).tolist() == [1, -1] and data.lookup([7]).tolist() == [-1]
    for keys in ("bob", 7):
        with pytest.raises(TypeError, match="expected a list"):
            data.lookup(keys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"src": [0, 1], "dst": [1]}, "2 sources and 1 targets"),
        ({"src": [0], "dst": None}, "dst is missing"),
        ({"src": [0], "dst": [1], "x": np.zeros((3, 2)), "y": [1, 2]}, "equally many"),
        ({"src": [0], "dst": [-1]}, "row 1"),
        ({"src": [0], "dst": [5], "num_nodes": 3}, "5"),
        ({"src": [0], "dst": [1], "edge_attr": np.zeros((4, 2))}, "4 rows for 1 edges"),
        ({"src": [0], "dst": [1], "x": np.array(["a", "b"])}, "cannot hold"),
        ({"src": [0], "dst": [1], "train": np.zeros((2, 2), bool)}, "choose a column"),
        ({"src": {CITES: ([0], [1])}, "x": np.zeros((2, 2))}, "dict by type"),
        ({"src": {"cites": ([0], [1])}}, "not an edge type"),
        ({"src": [0], "dst": [1], "parts": 0}, "parts"),
        ({"src": [0], "dst": [1], "parts": 2**40}, "parts"),
        ({"src": [0], "dst": [1], "parts": True}, "parts"),
        ({"src": [0], "dst": [1], "num_nodes": 2.5}, "num_nodes is 2.5"),
        ({"src": [0], "dst": [1], "num_nodes": 2**70}, "num_nodes"),
        ({"src": [0, 1], "dst": [2, 3], "train": np.array([1, 0, 0, 1])}, "a mask or ids"),
        ({"src": [0, 1], "dst": [2, 3], "train": torch.tensor([1, 1, 1, 1], dtype=torch.uint8)}, "a mask or ids"),
        ({"src": [0, 1], "dst": [2, 3], "train": np.ones(3, bool)}, r"mask of shape \(3,\), expected \(4,\)"),
        ({"src": [0, 1], "dst": [2, 3], "x": np.ones((5, 1)), "train": np.ones(4, bool)}, r"expected \(5,\)"),
        ({"src": {CITES: ([0], [5])}, "train": {"paper": np.ones(4, bool)}}, r"expected \(6,\)"),
        ({"src": [0], "dst": [1], "train": [7]}, "train of nodes has the id 7, but there are 2 nodes"),
        ({"src": np.array([2**63], np.uint64), "dst": [1]}, "above 9223372036854775807"),
        ({"src": [0], "dst": [1], "x": np.full((2, 1), 2**64 - 1, np.uint64)}, "x of nodes has numbers above"),
        ({"src": [0], "dst": [1], "y": np.zeros((2, 2, 2))}, r"y of nodes has the shape \(2, 2, 2\)"),
        ({"src": [0], "dst": [1], "y": 3}, "expected rows"),
        ({"src": [0], "dst": [1], "x": np.zeros((2, 0))}, "expected rows"),
        ({"src": [0], "dst": [1], "x": {"n_id": np.zeros(2)}}, "'n_id', as a part of batches is"),
        ({"src": [0], "dst": [1], "edge_attr": {"y": np.zeros(1)}}, "'y', as a part of batches is"),
        ({"src": [0], "dst": [1], "x": {"a": [1, 2]}, "edge_attr": {"a": [1]}}, "both have a feature 'a'"),
        ({"src": [0], "dst": [1], "edge_weight": [float("nan")]}, "edge_weight of edges has nan in row 1"),
        ({"src": [0], "dst": [1], "edge_weight": [1, 2]}, "2 values for 1 edges"),
    ],
    ids=str,
)
def test_mistakes_leave_nothing_behind(tmp_path, arguments, words):
    dst = arguments.pop("dst", None)
    with pytest.raises(ValueError, match=words):
        graphmill.from_edges(arguments.pop("src"), dst, out=tmp_path / "g", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_ids_that_are_as_many_as_nodes_are_ids(tmp_path):
    data = graphmill.from_edges([0], [1], out=tmp_path / "g", train=[0, 1], test=range(2))
    assert data.splits == {"train": 2, "test": 2}


def test_the_binary_reads_what_was_made(workshop):
    packages.homogeneous(workshop.path / "out")
    told = json.loads(workshop.run("inspect", "out", "--json", "--verify").stdout)
    assert told["fingerprint"] == graphmill.open(workshop.path / "out").fingerprint
