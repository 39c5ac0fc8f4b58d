"""Generated graphs: what they are, and that a seed settles every byte."""

import hashlib

import networkx
import numpy as np
import pytest

SMALL = ("--nodes", "300", "--edges", "2000", "--features", "8")


def digest(folder) -> str:
    whole = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()


def test_karate_is_zacharys_club(workshop):
    club = networkx.karate_club_graph()
    dataset = workshop.generate("karate")
    assert dataset.only_nodes.count == 34
    expected = {(a, b) for a, b in club.edges} | {(b, a) for a, b in club.edges}
    assert {tuple(pair) for pair in dataset.only_edges.pairs.tolist()} == expected
    assert len(dataset.only_edges.pairs) == len(expected)
    hall = [club.nodes[node]["club"] for node in club]
    sides = {tuple(hall[node] for node in np.flatnonzero(dataset.only_nodes.label == side)) for side in (0, 1)}
    assert all(len(set(side)) == 1 for side in sides), "labels follow the two clubs"


@pytest.mark.parametrize("kind", ["rmat", "uniform", "sbm"])
def test_the_same_seed_makes_the_same_bytes(workshop, kind):
    first = workshop.generate(kind, *SMALL, "--seed", "7", out="first")
    workshop.generate(kind, *SMALL, "--seed", "7", out="second")
    other = workshop.generate(kind, *SMALL, "--seed", "8", out="other")
    assert digest(workshop.path / "first") == digest(workshop.path / "second")
    assert digest(workshop.path / "first") != digest(workshop.path / "other")
    assert first.only_nodes.count == other.only_nodes.count == 300
    assert len(first.only_edges.pairs) == 2000
    assert first.only_nodes.features["x"].shape == (300, 8)


def test_the_number_of_threads_does_not_change_a_byte(workshop):
    for threads in ("1", "3"):
        workshop.run("generate", "sbm", *SMALL, "--out", threads, "--quiet", env={"RAYON_NUM_THREADS": threads})
    assert digest(workshop.path / "1") == digest(workshop.path / "3")


def test_rmat_degrees_are_skewed_and_uniform_ones_are_not(workshop):
    size = ("--nodes", "2000", "--edges", "40000", "--features", "0", "--seed", "1")
    share = {}
    for kind in ("rmat", "uniform"):
        degrees = np.diff(workshop.generate(kind, *size, out=kind).only_edges.primary.indptr)
        share[kind] = np.sort(degrees)[-20:].sum() / degrees.sum()
    assert share["rmat"] > 4 * share["uniform"]


def centroid_accuracy(x: np.ndarray, label: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    classes = np.unique(label)
    centroids = np.stack([x[train][label[train] == c].mean(axis=0) for c in classes])
    distance = ((x[test][:, None, :] - centroids[None]) ** 2).sum(axis=2)
    return float((classes[distance.argmin(axis=1)] == label[test]).mean())


def test_the_neighbours_of_an_sbm_node_help_to_tell_its_class(workshop):
    dataset = workshop.generate("sbm", "--nodes", "2000", "--edges", "30000", "--features", "16", "--seed", "3")
    nodes, edges = dataset.only_nodes, dataset.only_edges
    x = nodes.features["x"].astype(np.float64)
    total = np.zeros_like(x)
    np.add.at(total, edges.pairs[:, 1], x[edges.pairs[:, 0]])
    degree = np.bincount(edges.pairs[:, 1], minlength=nodes.count)
    mean = total / np.maximum(degree, 1)[:, None]
    train, test = nodes.splits["train"], nodes.splits["test"]
    raw = centroid_accuracy(x, nodes.label, train, test)
    smoothed = centroid_accuracy(mean, nodes.label, train, test)
    chance = np.bincount(nodes.label).max() / nodes.count
    assert smoothed > raw + 0.05
    assert smoothed > 2 * chance
