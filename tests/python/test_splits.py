"""Splits by fraction, by hash and by anchor."""

import numpy as np
from graphs import random_graph, write_csv, write_npy

GRAPH = random_graph(nodes=1000, edges=3000)


def split_ids(nodes) -> dict[str, set]:
    found = {split: set(ids.tolist()) for split, ids in nodes.splits.items()}
    assert sum(map(len, found.values())) == len(set().union(*found.values())), "splits overlap"
    return found


def config(splits: str, count: int = 1000) -> str:
    return f'[[nodes]]\ncount = {count}\nsplits = {{ {splits} }}\n[[edges]]\nfiles = "e.csv"\n'


def test_fractions_are_exact_and_a_seed_decides(workshop):
    write_csv(workshop.path / "e.csv", {"src": GRAPH.src, "dst": GRAPH.dst})
    fractions = 'by = "fraction", train = 0.8, val = 0.1, test = 0.1, seed = '
    first, again, other = (
        split_ids(workshop.ingest(config(fractions + seed), name).only_nodes)
        for seed, name in (("0", "first"), ("0", "again"), ("1", "other"))
    )
    assert {split: len(ids) for split, ids in first.items()} == {"train": 800, "val": 100, "test": 100}
    assert first == again != other


def test_hash_splits_stay_when_nodes_are_added(workshop):
    write_csv(workshop.path / "e.csv", {"src": GRAPH.src, "dst": GRAPH.dst})
    fractions = 'by = "hash", train = 0.8, val = 0.1, test = 0.1'
    small = split_ids(workshop.ingest(config(fractions), "small").only_nodes)
    large = split_ids(workshop.ingest(config(fractions, 5000), "large").only_nodes)
    assert sum(map(len, small.values())) == 1000 and sum(map(len, large.values())) == 5000
    assert abs(len(large["train"]) / 5000 - 0.8) < 0.03
    for split, ids in small.items():
        assert ids == {node for node in large[split] if node < 1000}


def test_hash_splits_follow_the_original_id(workshop):
    fractions = 'by = "hash", train = 0.5, val = 0.25, test = 0.25'
    found = []
    for name, extra in (("small", []), ("large", ["aaa", "mmm", "zzz"])):
        names = [f"user {number}" for number in range(200)] + extra
        write_csv(workshop.path / "e.csv", {"src": names, "dst": names[::-1]})
        text = f'[[nodes]]\nid_type = "string"\nsplits = {{ {fractions} }}\n[[edges]]\nfiles = "e.csv"\n'
        nodes = workshop.ingest(text, name).only_nodes
        found.append({split: {nodes.originals[node] for node in ids} for split, ids in split_ids(nodes).items()})
    for split, ids in found[0].items():
        assert ids == found[1][split] - {"aaa", "mmm", "zzz"}


def test_anchor_splits_are_sources_of_the_label_edges(workshop):
    rng = np.random.default_rng(0)
    users, items = rng.choice(500, 300), rng.integers(0, 80, 300)
    write_csv(workshop.path / "views.csv", {"src": rng.integers(0, 500, 900), "dst": rng.integers(0, 80, 900)})
    write_csv(workshop.path / "buys.csv", {"src": users, "dst": items})
    dataset = workshop.ingest("""
[[nodes]]
type = "user"
count = 500
splits = { by = "anchor", edges = "user:buys:item", train = 0.8, val = 0.1, test = 0.1 }
[[nodes]]
type = "item"
count = 80
[[edges]]
type = "user:views:item"
files = "views.csv"
[[edges]]
type = "user:buys:item"
files = "buys.csv"
""")
    splits = split_ids(dataset.nodes["user"])
    anchors = set(users.tolist())
    assert set().union(*splits.values()) == anchors
    assert 0.7 * len(anchors) < len(splits["train"]) < 0.9 * len(anchors)
    assert dataset.edges["user", "buys", "item"].info["role"] == "label"
    assert dataset.edges["user", "views", "item"].info["role"] == "message"


def test_splits_from_files_may_leave_nodes_out(workshop):
    write_csv(workshop.path / "e.csv", {"src": GRAPH.src, "dst": GRAPH.dst})
    write_npy(workshop.path / "train.npy", np.array([9, 3, 7]))
    nodes = workshop.ingest(config('by = "files", train = "train.npy"')).only_nodes
    assert {split: ids.tolist() for split, ids in nodes.splits.items()} == {"train": [3, 7, 9]}
