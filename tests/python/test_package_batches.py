"""The Python package's batches beside those that the binary samples: the same numbers, to the last bit."""

import json

import numpy as np
import packages
import pytest
from packages import CITES, HATES, LIKES, WRITES

import graphmill


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("batches") / "graph"
    return packages.homogeneous(path), path


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("batches") / "library"
    return packages.heterogeneous(path, parts=2), path


def sampled(workshop, path, loader, seeds: list, epoch: int) -> list[dict]:
    """The batches of a loader's configuration, as the binary has them."""
    config = workshop.describe(loader._config, "config.json")
    options = loader._options
    flags = ["--batch-size", options["batch_size"], "--epoch", epoch, "--config", config, "--json"]
    flags += ["--shuffle"] if options["shuffle"] else []
    return [json.loads(line) for line in workshop.run("sample", path, *seeds, *flags).stdout.splitlines()]


def same(found, expected) -> None:
    expected = np.asarray(expected)
    assert np.array_equal(np.asarray(found).reshape(expected.shape), expected.astype(np.asarray(found).dtype))


def compare_types(stores, told: dict) -> None:
    for name, nodes in told["nodes"].items():
        store = stores(name)
        same(store.n_id, nodes["node"])
        assert store.num_sampled_nodes == nodes["num_sampled_nodes"]
        for feature, rows in nodes["features"].items():
            same(getattr(store, feature), np.array(rows, dtype=np.float32) if feature != "age" else rows)
        if "label" in nodes:
            same(store.y, nodes["label"])
    for edges in told["edges"]:
        store = stores(tuple(edges["type"]))
        same(store.edge_index, [edges["row"], edges["col"]])
        same(store.e_id, edges["edge"])
        assert store.num_sampled_edges == edges["num_sampled_edges"]
        for feature, rows in edges["features"].items():
            same(getattr(store, feature), np.array(rows, dtype=np.float32))


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("further", [{}, {"replace": True}, {"weight_attr": "edge_weight"}], ids=str)
def test_neighbours_are_the_binarys(workshop, graph, threads, further):
    data, path = graph
    loader = graphmill.NeighborLoader(
        data, [4, 3], "train", batch_size=32, shuffle=True, seed=5, num_threads=threads, output="numpy", **further
    )
    for epoch in range(2):
        told = sampled(workshop, path, loader, ["--split", "train"], epoch)
        batches = list(loader)
        assert len(batches) == len(told) == len(loader) == 5
        for batch, expected in zip(batches, told, strict=True):
            assert (batch.epoch, batch.g, batch.batch_size) == (epoch, expected["g"], expected["batch_size"])
            same(batch.input_id, expected["seed"])
            compare_types(lambda _, batch=batch: batch, expected)


def test_induced_subgraphs_are_the_binarys(workshop, graph):
    data, path = graph
    loader = graphmill.SubgraphLoader(data, "val", [2], batch_size=40, output="numpy")
    for batch, expected in zip(loader, sampled(workshop, path, loader, ["--split", "val"], 0), strict=True):
        compare_types(lambda _, batch=batch: batch, expected)


def test_several_types_are_the_binarys(workshop, library):
    data, path = library
    for fanouts in ([3, 2], {WRITES: [3, 2], CITES: [-1, 0]}):
        loader = graphmill.NeighborLoader(data, fanouts, ("paper", "train"), batch_size=25, output="numpy")
        for batch, expected in zip(loader, sampled(workshop, path, loader, ["--split", "train"], 0), strict=True):
            compare_types(batch.__getitem__, expected)
            same(batch["paper"].input_id, expected["seed"])


@pytest.mark.parametrize("negatives", [None, ("binary", 1.5), ("triplet", 2), ("triplet", 1)], ids=str)
def test_links_are_the_binarys(workshop, graph, negatives):
    data, path = graph
    pairs = data.edge_index()[:, :50]
    negatives = negatives and graphmill.NegativeSampling(*negatives, strict=True)
    loader = graphmill.LinkNeighborLoader(data, [3, 2], pairs, neg_sampling=negatives, batch_size=20, output="numpy")
    seeds = ["--pairs", ",".join(f"{source}:{target}" for source, target in pairs.T)]
    for batch, expected in zip(loader, sampled(workshop, path, loader, seeds, 0), strict=True):
        compare_types(lambda _, batch=batch: batch, expected)
        same(batch.input_id, expected["seed"])
        for name in ("edge_label_index", "src_index", "dst_pos_index", "dst_neg_index"):
            assert (name in expected["metadata"]) == (name in batch)
            if name in batch:
                same(getattr(batch, name).reshape(-1), np.array(expected["metadata"][name]).reshape(-1))
        if negatives is not None and negatives.mode == "binary":
            same(batch.edge_label, expected["metadata"]["edge_label"])


def test_anchors_are_the_binarys(workshop, library):
    data, path = library
    loader = graphmill.AnchorLinkLoader(
        data, [3, 2], "train", positive=LIKES, negative=HATES, max_labels=2, batch_size=15, output="numpy"
    )
    for batch, expected in zip(loader, sampled(workshop, path, loader, ["--split", "train"], 0), strict=True):
        compare_types(batch.__getitem__, expected)
        (labels,) = expected["metadata"]["labels"]
        same(batch.y_positive, labels["y_positive"])
        same(batch.y_negative, labels["y_negative"])


def test_seeds_of_a_type_are_given_in_any_way(library):
    data, _ = library

    def loaded(loader):
        return [(batch.g, batch["author"].n_id.tolist(), batch["author"].input_id.tolist()) for batch in loader]

    ids, common = [5, 2, 71, 40, 8], {"batch_size": 2, "seed_order": "partition", "output": "numpy"}
    ways = (("author", ids), {"author": ids}, ("author", [[5, 2], [71, 40, 8]]), {"author": {7: [71, 40, 8], 3: [5, 2]}})
    ways += ({7: ("author", [71, 40, 8]), 3: ("author", [5, 2])},)
    made = [loaded(graphmill.NeighborLoader(data, [3], way, **common)) for way in ways]
    assert made[0] and all(one == made[0] for one in made)
    anchors = [loaded(graphmill.AnchorLinkLoader(data, [3], way, positive=LIKES, **common)) for way in (*ways, ids)]
    assert anchors[0] and all(one == anchors[0] for one in anchors)
    with pytest.raises(ValueError, match="anchors are of type 'author'"):
        graphmill.AnchorLinkLoader(data, [3], {"paper": ids}, positive=LIKES)
    with pytest.raises(ValueError, match="the node types 'author', 'paper'; .* make a loader for each"):
        graphmill.NeighborLoader(data, [3], {0: ("author", ids), 1: ("paper", ids)})


def test_ranked_nodes_are_the_binarys(workshop, graph, library):
    data, path = graph
    loader = graphmill.PPRLoader(data, "test", max_ppr_nodes=7, batch_size=30, output="numpy")
    for batch, expected in zip(loader, sampled(workshop, path, loader, ["--split", "test"], 0), strict=True):
        told = expected["metadata"]["ppr"]["node"]["node"]
        same(batch.ppr_index, told["index"])
        same(batch.ppr_score, told["score"])
        same(batch.ppr_hop, told["hop"])
        compare_types(lambda _, batch=batch: batch, expected)
    data, path = library
    loader = graphmill.PPRLoader(data, ("paper", "train"), max_ppr_nodes=5, batch_size=30, output="numpy")
    for batch, expected in zip(loader, sampled(workshop, path, loader, ["--split", "train"], 0), strict=True):
        for name, told in expected["metadata"]["ppr"]["paper"].items():
            same(batch["paper", "ppr", name].ppr_index, told["index"])


def test_places_of_listed_seeds_are_told(graph):
    data, _ = graph
    ids = np.array([9, 4, 7, 200, 31, 5])
    for shuffle in (False, True):
        loader = graphmill.NeighborLoader(data, [2], ids, batch_size=4, shuffle=shuffle, output="numpy")
        batches = list(loader)
        assert sorted(np.concatenate([batch.input_id for batch in batches])) == list(range(6))
        for batch in batches:
            assert np.array_equal(batch.n_id[: batch.batch_size], ids[batch.input_id])


def test_a_seed_asked_for_twice_is_one_node_that_both_find(graph):
    data, _ = graph
    (batch,) = graphmill.NeighborLoader(data, [2], [5, 8, 5], batch_size=3, output="numpy")
    assert batch.batch_size == 2 and list(batch.n_id[batch.seed_index]) == [5, 8, 5]
