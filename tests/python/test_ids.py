"""Original ids: what nodes were called in the input."""

import json

import numpy as np
from graphs import write_csv, write_npy, write_parquet, write_rows

NAMES = ["zoë", "ada", "Bob", "x y", "ada lovelace", "ädel", "10", "9"]


def bytewise(names) -> list[str]:
    return sorted(set(names), key=str.encode)


def test_strings_become_dense_ids_in_bytewise_order(workshop):
    rng = np.random.default_rng(0)
    src, dst = ([NAMES[place] for place in rng.integers(0, len(NAMES), 60)] for _ in range(2))
    config = '[[nodes]]\nid_type = "string"\n[[edges]]\nfiles = "{}"\n'
    from_csv = workshop.ingest(config.format(write_csv(workshop.path / "e.csv", {"src": src, "dst": dst})), "csv")
    from_parquet = workshop.ingest(config.format(write_parquet(workshop.path / "e.parquet", {"src": src, "dst": dst})), "parquet")
    assert from_csv.manifest["fingerprint"] == from_parquet.manifest["fingerprint"]

    names = from_csv.only_nodes.originals
    assert names == bytewise(src + dst)
    assert sorted((names[a], names[b]) for a, b in from_csv.only_edges.pairs) == sorted(zip(src, dst))


def test_sparse_integers_become_dense_ids_in_order(workshop):
    ids = [-(2**40), -7, 0, 3, 2**31, 2**62, 2**63 - 1]
    rng = np.random.default_rng(1)
    src, dst = (np.array(ids)[rng.integers(0, len(ids), 50)] for _ in range(2))
    file = write_csv(workshop.path / "e.csv", {"src": src, "dst": dst})
    dataset = workshop.ingest(f'[[nodes]]\nid_type = "int"\n[[edges]]\nfiles = "{file}"\n')
    originals = dataset.only_nodes.originals
    assert originals == sorted(set(src.tolist()) | set(dst.tolist()))
    assert sorted((originals[a], originals[b]) for a, b in dataset.only_edges.pairs) == sorted(zip(src.tolist(), dst.tolist()))


def test_ids_may_be_listed_so_that_isolated_nodes_count(workshop):
    people = {"name": ["eve", "ada", "bob", "dan"], "age": [1, 2, 3, 4], "class": [0, 1, 0, 1]}
    write_csv(workshop.path / "people.csv", people)
    write_csv(workshop.path / "e.csv", {"src": ["bob"], "dst": ["ada"]})
    dataset = workshop.ingest("""
[[nodes]]
id_type = "string"
ids = { files = "people.csv", column = "name" }
features.age = { files = "people.csv", columns = ["age"], dtype = "i32" }
labels = { files = "people.csv", columns = ["class"], dtype = "i64" }

[[edges]]
files = "e.csv"
""")
    nodes = dataset.only_nodes
    assert nodes.originals == ["ada", "bob", "dan", "eve"]
    assert nodes.features["age"].ravel().tolist() == [2, 3, 4, 1]
    assert nodes.label.tolist() == [1, 0, 1, 0]
    assert dataset.only_edges.pairs.tolist() == [[1, 0]]


def test_a_key_column_places_rows_by_id(workshop):
    write_csv(workshop.path / "ids.csv", {"id": [30, 10, 20]})
    write_csv(workshop.path / "x.csv", {"who": [20, 30, 10], "a": [2.5, 3.5, 1.5]})
    write_csv(workshop.path / "e.csv", {"src": [10, 20], "dst": [30, 30]})
    dataset = workshop.ingest("""
[[nodes]]
id_type = "int"
ids = { files = "ids.csv", column = "id" }
features.x = { files = "x.csv", key = "who", columns = ["a"], dtype = "f32" }

[[edges]]
files = "e.csv"
""")
    assert dataset.only_nodes.originals == [10, 20, 30]
    assert dataset.only_nodes.features["x"].ravel().tolist() == [1.5, 2.5, 3.5]
    assert dataset.only_edges.pairs.tolist() == [[0, 2], [1, 2]]


def test_types_with_ids_of_different_kinds_meet_in_edges(workshop):
    write_csv(workshop.path / "buys.csv", {"user": ["u9", "u1", "u9"], "item": [900, 5, 5]})
    dataset = workshop.ingest("""
[[nodes]]
type = "user"
id_type = "string"

[[nodes]]
type = "item"
id_type = "int"

[[edges]]
type = "user:buys:item"
files = "buys.csv"
src = "user"
dst = "item"
""")
    assert dataset.nodes["user"].originals == ["u1", "u9"]
    assert dataset.nodes["item"].originals == [5, 900]
    assert sorted(dataset.edges["user", "buys", "item"].pairs.tolist()) == [[0, 0], [1, 0], [1, 1]]


def test_splits_name_nodes_by_their_original_ids(workshop):
    write_csv(workshop.path / "e.csv", {"src": ["a", "b", "c"], "dst": ["d", "d", "d"]})
    write_csv(workshop.path / "train.csv", {"id": ["d", "b"]})
    write_rows(workshop.path / "test.csv", ["a"])
    dataset = workshop.ingest("""
[[nodes]]
id_type = "string"
splits = { by = "files", train = "train.csv", test = { files = "test.csv", header = false } }

[[edges]]
files = "e.csv"
""")
    splits = dataset.only_nodes.splits
    assert {split: ids.tolist() for split, ids in splits.items()} == {"train": [1, 3], "test": [0]}


def test_a_count_keeps_nodes_that_no_edge_names(workshop):
    write_npy(workshop.path / "e.npy", np.array([[0, 1], [1, 2]]))
    assert workshop.ingest('[[nodes]]\ncount = 9\n[[edges]]\nfiles = "e.npy"\n', "counted").only_nodes.count == 9
    assert workshop.ingest('[[edges]]\nfiles = "e.npy"\n', "seen").only_nodes.count == 3


def test_the_map_can_be_asked_both_ways(workshop):
    write_csv(workshop.path / "e.csv", {"src": ["a", "b", "zoë"], "dst": ["c", "c", "-1"]})
    dataset = workshop.ingest('[[nodes]]\nid_type = "string"\n[[edges]]\nfiles = "e.csv"\n')
    names = dataset.only_nodes.originals
    workshop.run("partition", "out", "--parts", "3", "--method", "hash", "--out", "cut", "--quiet")
    for folder in ("out", "cut"):
        told = json.loads(workshop.run("inspect", folder, "--lookup", ",".join(names), "--json").stdout)
        assert told["lookup"] == [{"key": name, "id": node} for node, name in enumerate(names)]
        ids = ",".join(map(str, range(len(names))))
        told = json.loads(workshop.run("inspect", folder, "--original-ids", ids, "--json").stdout)
        assert told["original_ids"] == [{"id": node, "original": name} for node, name in enumerate(names)]
    absent = workshop.run("inspect", "out", "--lookup", "nobody", expect=1)
    assert "not found" in absent.stdout
