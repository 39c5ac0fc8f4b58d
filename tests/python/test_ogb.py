"""The raw folders of the Open Graph Benchmark, small ones written here as the real ones lie on disk."""

import gzip

import numpy as np
import pytest
from graphs import sorted_pairs, write_rows
from reader import Dataset

RNG = np.random.default_rng(11)
EDGES = RNG.integers(0, 30, (100, 2))
FEATURES = RNG.standard_normal((30, 4), dtype=np.float32)
LABELS = RNG.integers(0, 5, 30)
SPLITS = {"train": np.arange(20), "valid": np.arange(20, 25), "test": np.arange(25, 30)}


def write_splits(folder, splits=None):
    for split, ids in (splits or SPLITS).items():
        write_rows(folder / f"{split}.csv.gz", ids)


def assert_splits(nodes):
    found = {split: ids.tolist() for split, ids in nodes.splits.items()}
    assert found == {split.replace("valid", "val"): ids.tolist() for split, ids in SPLITS.items()}


@pytest.fixture
def homogeneous(workshop):
    raw = workshop.path / "tiny" / "raw"
    write_rows(raw / "edge.csv.gz", EDGES)
    write_rows(raw / "num-node-list.csv.gz", [30])
    write_rows(raw / "num-edge-list.csv.gz", [100])
    write_rows(raw / "node-feat.csv.gz", FEATURES)
    write_rows(raw / "node-label.csv.gz", LABELS)
    write_splits(workshop.path / "tiny" / "split" / "time")
    return workshop


def test_a_homogeneous_folder_is_one_graph(homogeneous):
    raw = homogeneous.path / "tiny" / "raw"
    weights = RNG.random((100, 3), dtype=np.float32)
    write_rows(raw / "edge-feat.csv.gz", weights)
    years = RNG.integers(1990, 2020, 30)
    write_rows(raw / "node_year.csv.gz", years)
    dataset = homogeneous.ingest('[ogb]\npath = "tiny"\n')
    nodes, edges = dataset.only_nodes, dataset.only_edges
    assert dataset.manifest["homogeneous"]
    assert np.array_equal(sorted_pairs(edges.pairs), sorted_pairs(EDGES))
    assert [feature.tolist() for feature in nodes.features.values() if feature.dtype == np.float32] == [FEATURES.tolist()]
    assert np.array_equal(nodes.label.ravel(), LABELS)
    (edge_features,) = edges.features.values()
    assert np.array_equal(edge_features, weights)
    kept = [nodes.timestamps] + list(nodes.features.values())
    assert any(column is not None and np.array_equal(column.ravel(), years) for column in kept), "the years are kept"
    assert_splits(nodes)


def test_whole_numbers_as_features_and_several_labels(homogeneous):
    raw = homogeneous.path / "tiny" / "raw"
    labels = RNG.integers(0, 2, (30, 6))
    write_rows(raw / "node-label.csv.gz", labels)
    nodes = homogeneous.ingest('[ogb]\npath = "tiny"\n').only_nodes
    assert np.array_equal(nodes.label, labels)


def test_one_of_several_splits_must_be_named(homogeneous):
    write_splits(homogeneous.path / "tiny" / "split" / "random", {"train": [1], "valid": [2], "test": [3]})
    message = homogeneous.refuse('[ogb]\npath = "tiny"\n')
    assert "time" in message and "random" in message
    assert_splits(homogeneous.ingest('[ogb]\npath = "tiny"\nsplit = "time"\n').only_nodes)


def test_missing_labels_are_negative(homogeneous):
    with gzip.open(homogeneous.path / "tiny" / "raw" / "node-label.csv.gz", "wt") as file:
        file.writelines("nan\n" if node % 2 else f"{LABELS[node]}.0\n" for node in range(30))
    label = homogeneous.ingest('[ogb]\npath = "tiny"\n').only_nodes.label.ravel()
    assert np.array_equal(label[::2], LABELS[::2])
    assert (label[1::2] < 0).all() or np.isnan(label[1::2]).all()


def test_a_binary_folder_is_one_graph(workshop):
    raw = workshop.path / "papers" / "raw"
    raw.mkdir(parents=True)
    np.savez_compressed(
        raw / "data.npz",
        edge_index=np.ascontiguousarray(EDGES.T),
        node_feat=FEATURES,
        node_year=RNG.integers(1990, 2020, (30, 1)),
        num_nodes_list=np.array([30]),
        num_edges_list=np.array([100]),
    )
    label = LABELS.astype(np.float32).reshape(30, 1)
    label[3] = np.nan
    np.savez_compressed(raw / "node-label.npz", node_label=label)
    write_splits(workshop.path / "papers" / "split" / "time")
    dataset = workshop.ingest('[ogb]\npath = "papers"\n')
    nodes = dataset.only_nodes
    assert np.array_equal(sorted_pairs(dataset.only_edges.pairs), sorted_pairs(EDGES))
    assert any(np.array_equal(feature, FEATURES) for feature in nodes.features.values())
    found = nodes.label.ravel()
    assert np.array_equal(np.delete(found, 3), np.delete(LABELS, 3))
    assert np.isnan(found[3]) or found[3] < 0
    assert_splits(nodes)


def test_a_heterogeneous_folder_keeps_its_types(workshop):
    root = workshop.path / "mag"
    raw = root / "raw"
    counts = {"author": 12, "paper": 30}
    raw.mkdir(parents=True)
    with gzip.open(raw / "num-node-dict.csv.gz", "wt") as file:
        file.write(",".join(counts) + "\n" + ",".join(map(str, counts.values())) + "\n")
    relations = {
        ("author", "writes", "paper"): np.stack([RNG.integers(0, 12, 50), RNG.integers(0, 30, 50)], axis=1),
        ("paper", "cites", "paper"): EDGES,
    }
    with gzip.open(raw / "triplet-type-list.csv.gz", "wt") as file:
        file.writelines(",".join(triple) + "\n" for triple in relations)
    for place, (triple, edges) in enumerate(relations.items()):
        folder = raw / "relations" / "___".join(triple)
        write_rows(folder / "edge.csv.gz", edges)
        write_rows(folder / "num-edge-list.csv.gz", [len(edges)])
        write_rows(folder / "edge_reltype.csv.gz", np.full(len(edges), place))
    for name, present in (("feat", "has-feat"), ("label", "has-label")):
        with gzip.open(raw / f"nodetype-{present}.csv.gz", "wt") as file:
            file.write("author,paper\nFalse,True\n")
        content = FEATURES if name == "feat" else LABELS
        write_rows(raw / f"node-{name}" / "paper" / f"node-{name}.csv.gz", content)
    write_rows(raw / "node-feat" / "paper" / "node_year.csv.gz", RNG.integers(1990, 2020, 30))
    write_splits(root / "split" / "time" / "paper")
    with gzip.open(root / "split" / "time" / "nodetype-has-split.csv.gz", "wt") as file:
        file.write("author,paper\nFalse,True\n")

    dataset: Dataset = workshop.ingest('[ogb]\npath = "mag"\n')
    assert not dataset.manifest["homogeneous"]
    assert {name: nodes.count for name, nodes in dataset.nodes.items()} == counts
    assert set(dataset.edges) == set(relations)
    for triple, edges in relations.items():
        assert np.array_equal(sorted_pairs(dataset.edges[triple].pairs), sorted_pairs(edges))
    paper = dataset.nodes["paper"]
    assert any(np.array_equal(feature, FEATURES) for feature in paper.features.values())
    assert np.array_equal(paper.label.ravel(), LABELS)
    assert not dataset.nodes["author"].features and dataset.nodes["author"].label is None
    assert_splits(paper)
