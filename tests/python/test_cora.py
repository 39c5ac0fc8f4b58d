"""The Cora citation graph, from the files of a neighbouring folder."""

import os
from pathlib import Path

import numpy as np
import pytest
from conftest import REPOSITORY
from graphs import sorted_pairs

CORA = Path(os.environ.get("GRAPHMILL_CORA", REPOSITORY.parent / "shared" / "data" / "cora"))

pytestmark = pytest.mark.skipif(
    not (CORA / "edges.csv").is_file(),
    reason=f"the Cora files are not at {CORA}; set GRAPHMILL_CORA to their folder to run this test",
)

CONFIG = f"""
[[nodes]]
features.x = {{ files = "{CORA}/features.npy" }}
labels = {{ files = "{CORA}/labels.npy" }}
splits = {{ by = "files", train = "{CORA}/train.npy", val = "{CORA}/val.npy", test = "{CORA}/test.npy" }}

[[edges]]
files = "{CORA}/edges.csv"
"""


def test_cora_arrives_whole(workshop):
    cora = workshop.ingest(CONFIG)
    nodes, edges = cora.only_nodes, cora.only_edges
    assert (nodes.count, len(edges.pairs)) == (2708, 10556)

    rows = np.loadtxt(CORA / "edges.csv", delimiter=",", skiprows=1, dtype=np.int64)
    assert np.array_equal(sorted_pairs(edges.pairs), sorted_pairs(rows))
    features = np.load(CORA / "features.npy")
    assert nodes.features["x"].dtype == features.dtype
    assert np.array_equal(nodes.features["x"], features)
    assert np.array_equal(nodes.label, np.load(CORA / "labels.npy"))
    for split in ("train", "val", "test"):
        assert np.array_equal(nodes.splits[split], np.sort(np.load(CORA / f"{split}.npy")))


def test_inspect_tells_coras_numbers(workshop):
    cora = workshop.ingest(CONFIG)
    told = workshop.inspect()
    assert (told["num_nodes"], told["num_edges"], told["num_partitions"]) == (2708, 10556, 1)
    assert told["fingerprint"] == cora.manifest["fingerprint"]
    assert told["feature_bytes"] == 2708 * 1433
    assert told["topology_bytes"] == 4 * (2708 + 1) + 4 * 10556
    workshop.run("inspect", "out", "--verify")
