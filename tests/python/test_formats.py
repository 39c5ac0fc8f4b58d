"""The same graph in every file format is the same dataset."""

import numpy as np
import pytest
from graphs import random_graph, sorted_pairs, write_csv, write_npy, write_parquet, write_rows

GRAPH = random_graph()


def plain_config(path, edges: str) -> str:
    write_npy(path / "x.npy", GRAPH.x)
    write_npy(path / "label.npy", GRAPH.label)
    return f"""
[[nodes]]
count = 200
features.x = {{ files = "x.npy" }}
labels = {{ files = "label.npy" }}

[[edges]]
{edges}
"""


def topology(path) -> dict[str, str]:
    """The plain edges in each format: the file is written, the lines that describe it are returned."""
    pair = {"src": GRAPH.src, "dst": GRAPH.dst}
    matrix = np.stack([GRAPH.src, GRAPH.dst], axis=1)
    np.savez(path / "columns.npz", src=GRAPH.src, dst=GRAPH.dst)
    np.savez_compressed(path / "index.npz", edge_index=np.ascontiguousarray(matrix.T))
    half = len(GRAPH.src) // 2
    for place, rows in enumerate((slice(None, half), slice(half, None))):
        write_csv(path / f"piece-{place}.csv", {name: column[rows] for name, column in pair.items()})
    narrow = {"from": GRAPH.src.astype(np.int32), "to": GRAPH.dst.astype(np.uint16)}
    return {
        "csv": f'files = "{write_csv(path / "e.csv", pair)}"',
        "csv.gz": f'files = "{write_csv(path / "e.csv.gz", pair)}"',
        "csv without header": f'files = "{write_rows(path / "bare.csv", matrix)}"\nheader = false',
        "csv with other columns": f'files = "{write_csv(path / "named.csv", {"note": GRAPH.time, "to": GRAPH.dst, "from": GRAPH.src})}"'
        '\nsrc = "from"\ndst = "to"',
        "several csv": 'files = ["piece-0.csv", "piece-1.csv"]',
        "csv by pattern": 'files = "piece-*.csv"',
        "parquet": f'files = "{write_parquet(path / "e.parquet", pair)}"',
        "parquet in row groups": f'files = "{write_parquet(path / "g.parquet", pair, row_group_size=100, compression="zstd")}"',
        "parquet of narrow numbers": f'files = "{write_parquet(path / "n.parquet", narrow)}"\nsrc = "from"\ndst = "to"',
        "npy": f'files = "{write_npy(path / "e.npy", matrix)}"',
        "npz of columns": 'files = "columns.npz"\nsrc = "src"\ndst = "dst"',
        "npz of one matrix": 'files = "index.npz"\nsrc = "edge_index[0]"\ndst = "edge_index[1]"',
    }


def test_plain_edges_do_not_depend_on_their_format(workshop):
    found = {}
    for name, lines in topology(workshop.path).items():
        dataset = workshop.ingest(plain_config(workshop.path, lines), out=name.replace(" ", "-").replace(".", "-"))
        found[name] = dataset.manifest["fingerprint"]
        assert np.array_equal(sorted_pairs(dataset.only_edges.pairs), sorted_pairs(np.stack([GRAPH.src, GRAPH.dst], 1)))
    assert len(set(found.values())) == 1, found


def rich_config(edges: str, attr: str) -> str:
    return f"""
layout = "both"

[[nodes]]
count = 200

[[edges]]
{edges}
weight = "w"
timestamp = "t"
features.attr = {attr}
"""


def test_weights_timestamps_and_features_do_not_depend_on_their_format(workshop):
    path = workshop.path
    np.savez(path / "e.npz", **GRAPH.edges)
    write_npy(path / "attr.npy", GRAPH.attr)
    columns = '{ columns = ["a", "b"], dtype = "f32" }'
    csv = f'files = "{write_csv(path / "e.csv", GRAPH.edges)}"'
    datasets = [
        workshop.ingest(rich_config(csv, columns), "csv"),
        workshop.ingest(rich_config(csv, '{ files = "attr.npy" }'), "csv-and-npy"),
        workshop.ingest(rich_config(f'files = "{write_csv(path / "e.csv.gz", GRAPH.edges)}"', columns), "gz"),
        workshop.ingest(rich_config(f'files = "{write_parquet(path / "e.parquet", GRAPH.edges)}"', columns), "parquet"),
        workshop.ingest(rich_config('files = "e.npz"\nsrc = "src"\ndst = "dst"', columns), "npz"),
    ]
    assert len({dataset.manifest["fingerprint"] for dataset in datasets}) == 1

    edges = datasets[0].only_edges
    lists = edges.primary
    row = lists.edge_ids
    assert np.array_equal(edges.pairs, np.stack([GRAPH.src[row], GRAPH.dst[row]], axis=1))
    assert np.array_equal(lists.weights, GRAPH.weight[row])
    assert np.array_equal(lists.timestamps, GRAPH.time[row])
    assert np.array_equal(edges.features["attr"], GRAPH.attr)


def test_node_columns_do_not_depend_on_their_format(workshop):
    path = workshop.path
    columns = {f"x{place}": GRAPH.x[:, place] for place in range(5)} | {"y": GRAPH.label, "when": GRAPH.time[:200]}
    columns["share"] = GRAPH.weight[:200]
    np.savez(path / "nodes.npz", **columns)
    names = '["x0", "x1", "x2", "x3", "x4"]'
    write_npy(path / "e.npy", np.stack([GRAPH.src, GRAPH.dst], axis=1))
    fingerprints = set()
    for kind, file in {
        "csv": write_csv(path / "nodes.csv", columns),
        "gz": write_csv(path / "nodes.csv.gz", columns),
        "parquet": write_parquet(path / "nodes.parquet", columns),
        "npz": "nodes.npz",
    }.items():
        dataset = workshop.ingest(
            f"""
[[nodes]]
features.x = {{ files = "{file}", columns = {names}, dtype = "f32" }}
labels = {{ files = "{file}", columns = ["y"], dtype = "i64" }}
weights = {{ files = "{file}", columns = ["share"] }}
timestamps = {{ files = "{file}", columns = ["when"] }}
[[edges]]
files = "e.npy"
""",
            kind,
        )
        nodes = dataset.only_nodes
        assert np.array_equal(nodes.features["x"], GRAPH.x)
        assert np.array_equal(nodes.label, GRAPH.label)
        assert np.array_equal(nodes.weights, GRAPH.weight[:200])
        assert np.array_equal(nodes.timestamps, GRAPH.time[:200])
        fingerprints.add(dataset.manifest["fingerprint"])
    assert len(fingerprints) == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_features_keep_their_type_and_shape(workshop, dtype):
    x = np.random.default_rng(3).integers(0, 100, (20, 2, 3)).astype(dtype)
    write_npy(workshop.path / "x.npy", x)
    write_rows(workshop.path / "e.csv", [[0, 19], [5, 6]])
    dataset = workshop.ingest('[[nodes]]\nfeatures.x = { files = "x.npy" }\n[[edges]]\nfiles = "e.csv"\nheader = false')
    assert dataset.only_nodes.features["x"].dtype == np.dtype(dtype)
    assert np.array_equal(dataset.only_nodes.features["x"], x)


@pytest.mark.parametrize("layout", ["in", "out", "both"])
def test_the_order_of_rows_does_not_change_the_topology(workshop, layout):
    datasets = []
    for place, graph in enumerate((GRAPH, GRAPH.shuffled(1), GRAPH.shuffled(2))):
        file = write_csv(workshop.path / f"{place}.csv", {"src": graph.src, "dst": graph.dst})
        config = f'layout = "{layout}"\n[[nodes]]\ncount = 200\n[[edges]]\nfiles = "{file}"\n'
        datasets.append(workshop.ingest(config, f"out-{place}"))
    assert len({dataset.manifest["fingerprint"] for dataset in datasets}) == 1
    assert len({str(dataset.manifest["partitions"]) for dataset in datasets}) == 1


def test_the_layout_does_not_change_the_fingerprint(workshop):
    file = write_csv(workshop.path / "e.csv", GRAPH.edges)
    edges = f'[[edges]]\nfiles = "{file}"\nweight = "w"\ntimestamp = "t"\n'
    found = {layout: workshop.ingest(f'layout = "{layout}"\n{edges}', layout) for layout in ("in", "out", "both")}
    assert len({dataset.manifest["fingerprint"] for dataset in found.values()}) == 1
