"""What is done to edges on the way in: doubling, dropping, numbering."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import random_graph, sorted_pairs, write_csv

# Rows 0 and 3 are equal, 1 is their reverse, 2 and 4 are self loops.
SRC = [0, 1, 1, 0, 2, 2]
DST = [1, 0, 1, 1, 2, 3]


def config(**options) -> str:
    lines = "\n".join(f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in options.items())
    return f'[[edges]]\nfiles = "e.csv"\nedge_ids = true\n{lines}\n'


def rows(dataset) -> list[list[int]]:
    """Edge id, source and target of every stored edge."""
    edges = dataset.only_edges
    return sorted([int(row), *pair] for row, pair in zip(edges.primary.edge_ids, edges.pairs.tolist()))


@pytest.fixture
def shop(workshop):
    write_csv(workshop.path / "e.csv", {"src": SRC, "dst": DST})
    return workshop


def test_all_rows_stay_unless_asked(shop):
    assert rows(shop.ingest(config())) == [[row, s, d] for row, (s, d) in enumerate(zip(SRC, DST))]


def test_self_loops_are_dropped_when_asked(shop):
    dataset = shop.ingest(config(self_loops="drop"))
    assert rows(dataset) == [[0, 0, 1], [1, 1, 0], [3, 0, 1], [5, 2, 3]]
    assert dataset.only_edges.info["id_count"] == 6, "dropped rows leave gaps in the edge ids"


def test_the_first_of_equal_edges_stays(shop):
    assert rows(shop.ingest(config(duplicates="drop"))) == [[0, 0, 1], [1, 1, 0], [2, 1, 1], [4, 2, 2], [5, 2, 3]]


def test_edges_at_different_times_are_no_duplicates(workshop):
    write_csv(workshop.path / "e.csv", {"src": [0, 0, 0], "dst": [1, 1, 1], "t": [5, 6, 5]})
    assert rows(workshop.ingest(config(duplicates="drop", timestamp="t"))) == [[0, 0, 1], [1, 0, 1]]


def test_both_directions_of_an_undirected_row_share_its_id(shop):
    dataset = shop.ingest(config(undirected=True))
    expected = []
    for row, (s, d) in enumerate(zip(SRC, DST)):
        expected += [[row, s, d]] if s == d else [[row, s, d], [row, d, s]]
    assert rows(dataset) == sorted(expected)


def test_doubling_comes_before_dropping_duplicates(shop):
    dataset = shop.ingest(config(undirected=True, duplicates="drop", self_loops="drop"))
    assert sorted_pairs(dataset.only_edges.pairs).tolist() == [[0, 1], [1, 0], [2, 3], [3, 2]]


def test_undirected_needs_the_same_type_at_both_ends(workshop):
    write_csv(workshop.path / "e.csv", {"src": [0], "dst": [0]})
    message = workshop.refuse("""
[[nodes]]
type = "a"
[[nodes]]
type = "b"
[[edges]]
type = ["a", "to", "b"]
files = "e.csv"
undirected = true
""")
    assert "undirected" in message


def test_edge_ids_are_kept_only_where_needed(workshop):
    graph = random_graph()
    write_csv(workshop.path / "e.csv", graph.edges)
    plain = workshop.ingest('[[edges]]\nfiles = "e.csv"\n', "plain").only_edges
    assert plain.primary.edge_ids is None
    weighted = workshop.ingest('[[edges]]\nfiles = "e.csv"\nweight = "w"\n', "weighted").only_edges
    assert np.array_equal(np.sort(weighted.primary.edge_ids), np.arange(len(graph.src)))


def test_label_edges_are_marked_and_lie_outward(workshop):
    write_csv(workshop.path / "e.csv", {"src": [0, 1], "dst": [1, 2]})
    dataset = workshop.ingest("""
[[nodes]]
type = "user"
[[edges]]
type = "user:likes:user"
files = "e.csv"
[[edges]]
type = "user:will_like:user"
files = "e.csv"
role = "label"
""")
    roles = {relation: edges.info["role"] for (_, relation, _), edges in dataset.edges.items()}
    assert roles == {"likes": "message", "will_like": "label"}
    assert "out" in dataset.edges["user", "will_like", "user"].info["layouts"]


def test_a_small_memory_bound_changes_nothing_but_the_memory(workshop):
    np.save(workshop.path / "e.npy", np.random.default_rng(5).integers(0, 100_000, (2_000_000, 2)))
    config = workshop.describe('[[nodes]]\ncount = 100000\n[[edges]]\nfiles = "e.npy"\n')
    found, peaks = set(), {}
    for bound in ("2MiB", "16MiB", "1GiB"):
        peaks[bound] = peak_bytes(workshop, "ingest", config, "--out", bound, "--memory", bound, "--quiet")
        found.add(workshop.inspect(bound)["fingerprint"])
    assert len(found) == 1
    # Resident memory counts the mapped output (8 MB) and the program itself as well.
    assert peaks["2MiB"] < 40 << 20, peaks
    assert peaks["16MiB"] < 56 << 20, peaks


def test_ids_are_mapped_within_the_same_bound(workshop):
    rng = np.random.default_rng(6)
    np.savez(
        workshop.path / "e.npz",
        src=rng.integers(-(2**60), 2**60, 200_000),
        dst=rng.integers(0, 1000, 200_000),
        w=rng.random(200_000, dtype=np.float32),
        t=rng.integers(0, 9, 200_000),
    )
    config = workshop.describe("""
[[nodes]]
id_type = "int"
[[edges]]
files = "e.npz"
undirected = true
duplicates = "drop"
weight = "w"
timestamp = "t"
""")
    found = set()
    for bound in ("1MiB", "1GiB"):
        workshop.run("ingest", config, "--out", bound, "--memory", bound, "--quiet")
        found.add(workshop.inspect(bound)["fingerprint"])
    assert len(found) == 1


def peak_bytes(workshop, *arguments) -> int:
    """Runs the binary and returns its peak resident memory."""
    report = workshop.path / "peak.json"
    command = [sys.executable, "-S", Path(__file__).with_name("peak.py"), report, workshop.binary, *arguments]
    subprocess.run(list(map(str, command)), cwd=workshop.path, check=True, stdout=subprocess.DEVNULL)
    return json.loads(report.read_text())["peak_bytes"]
