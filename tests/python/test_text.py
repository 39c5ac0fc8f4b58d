"""Delimited text and Parquet as people really write them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from graphs import sorted_pairs, write_csv, write_npy


@pytest.mark.parametrize(
    "name, text",
    [
        ("unix.csv", "src,dst\n0,1\n1,2\n"),
        ("no-newline-at-the-end.csv", "src,dst\n0,1\n1,2"),
        ("windows.csv", "src,dst\r\n0,1\r\n1,2\r\n"),
        ("byte-order-mark.csv", "\ufeffsrc,dst\n0,1\n1,2\n"),
        ("quoted.csv", '"src","dst"\n"0","1"\n"1","2"\n'),
        ("blank-lines.csv", "src,dst\n0,1\n\n1,2\n\n"),
        ("spaces.csv", "src, dst\n0, 1\n1, 2\n"),
        ("tabs.tsv", "src\tdst\n0\t1\n1\t2\n"),
        ("spaces.txt", "src dst\n0 1\n1 2\n"),
        ("tabs.txt", "src\tdst\n0\t1\n1\t2\n"),
    ],
)
def test_text_comes_in_many_dialects(workshop, name, text):
    (workshop.path / name).write_bytes(text.encode())
    dataset = workshop.ingest(f'[[edges]]\nfiles = "{name}"\n')
    assert sorted_pairs(dataset.only_edges.pairs).tolist() == [[0, 1], [1, 2]]


def test_names_may_hold_commas_quotes_and_line_breaks(workshop):
    names = ['a,b', 'say "hi"', "two\nlines", " padded", "emoji 🦀"]
    write_csv(workshop.path / "e.csv", {"src": names, "dst": names[1:] + names[:1]})
    dataset = workshop.ingest('[[nodes]]\nid_type = "string"\n[[edges]]\nfiles = "e.csv"\n')
    assert set(map(str.strip, dataset.only_nodes.originals)) == set(map(str.strip, names))
    assert len(dataset.only_edges.pairs) == 5


def test_numbers_survive_text_exactly(workshop):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(200), 10.0 ** rng.integers(-300, 300, 200)])
    single = rng.standard_normal(400).astype(np.float32)
    big = rng.integers(-(2**63), 2**63 - 1, 400)
    write_csv(workshop.path / "n.csv", {"x": x, "single": single, "big": big})
    write_csv(workshop.path / "e.csv", {"src": [0], "dst": [399]})
    nodes = workshop.ingest("""
[[nodes]]
features.x = { files = "n.csv", columns = ["x"], dtype = "f64" }
features.single = { files = "n.csv", columns = ["single"], dtype = "f32" }
features.big = { files = "n.csv", columns = ["big"], dtype = "i64" }
timestamps = { files = "n.csv", columns = ["big"] }
[[edges]]
files = "e.csv"
""").only_nodes
    assert np.array_equal(nodes.features["x"].ravel(), x)
    assert np.array_equal(nodes.features["single"].ravel(), single)
    assert np.array_equal(nodes.features["big"].ravel(), big)
    assert np.array_equal(nodes.timestamps, big)


def test_parquet_has_many_column_types(workshop):
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((50, 4), dtype=np.float32)
    names = [f"n{number}" for number in range(50)]
    table = pa.table(
        {
            "name": pa.array(names).dictionary_encode(),
            "large": pa.array(names, pa.large_string()),
            "fixed": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4),
            "list": pa.array(vectors.tolist(), pa.list_(pa.float32())),
            "u8": pa.array(rng.integers(0, 255, 50), pa.uint8()),
            "when": pa.array(np.arange(50), pa.timestamp("ms")),
        }
    )
    pq.write_table(table, workshop.path / "n.parquet")
    pq.write_table(pa.table({"src": pa.array(names), "dst": pa.array(names[::-1], pa.large_string())}), workshop.path / "e.parquet")
    dataset = workshop.ingest("""
[[nodes]]
id_type = "string"
ids = { files = "n.parquet", column = "name" }
features.fixed = { files = "n.parquet", columns = ["fixed"] }
features.list = { files = "n.parquet", columns = ["list"], key = "large" }
features.u8 = { files = "n.parquet", columns = ["u8"] }
timestamps = { files = "n.parquet", columns = ["when"] }
[[edges]]
files = "e.parquet"
""")
    nodes = dataset.only_nodes
    order = [names.index(name) for name in nodes.originals]
    assert np.array_equal(nodes.features["fixed"], vectors[order])
    assert np.array_equal(nodes.features["list"], vectors[order])
    assert nodes.features["u8"].dtype == np.uint8
    assert np.array_equal(nodes.timestamps, np.arange(50)[order])


@pytest.mark.parametrize("edges", [[], [[0, 0]]])
def test_tiny_graphs_are_graphs(workshop, edges):
    write_npy(workshop.path / "e.npy", np.array(edges, np.int64).reshape(-1, 2))
    dataset = workshop.ingest('[[nodes]]\ncount = 3\n[[edges]]\nfiles = "e.npy"\n')
    assert dataset.only_nodes.count == 3 and len(dataset.only_edges.pairs) == len(edges)
    workshop.run("inspect", "out")
    workshop.run("inspect", "out", "--verify")
    workshop.run("partition", "out", "--parts", "4", "--method", "ldg", "--out", "cut")
    workshop.run("inspect", "cut", "--verify")


def test_nodes_may_have_no_edges_at_all(workshop):
    write_npy(workshop.path / "x.npy", np.ones((4, 2), np.float32))
    dataset = workshop.ingest('[[nodes]]\nfeatures.x = { files = "x.npy" }\n')
    assert dataset.only_nodes.count == 4 and not dataset.edges
    assert workshop.inspect()["isolated_nodes"] == 4


def test_skipped_edges_keep_the_rows_of_their_features(workshop):
    (workshop.path / "e.csv").write_text("src,dst,a\n0,1,10\nbad,1,20\n1,2,30\n2,0,oops\n2,1,50\n")
    write_npy(workshop.path / "b.npy", np.array([[1.0], [2.0], [3.0], [4.0], [5.0]]))
    dataset = workshop.ingest(
        """
[[nodes]]
count = 3
[[edges]]
files = "e.csv"
features.a = { columns = ["a"], dtype = "f32" }
features.b = { files = "b.npy" }
""",
        "out",
        "--on-error",
        "skip",
    )
    edges = dataset.only_edges
    found = {
        tuple(pair): (edges.features["a"].ravel()[row], edges.features["b"].ravel()[row])
        for pair, row in zip(edges.pairs.tolist(), edges.primary.edge_ids)
    }
    assert found == {(0, 1): (10, 1), (1, 2): (30, 3), (2, 1): (50, 5)}
    assert edges.info["id_count"] == 5
