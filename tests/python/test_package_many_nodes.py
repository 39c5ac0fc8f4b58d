"""Graphs with more nodes than there is memory for lists of: what needs none works, the rest is a MemoryError; ids have 64 bits."""

import json
import subprocess
import sys

import numpy as np
import packages
import pytest

import graphmill

BUYS = ("user", "buys", "item")

SHORT_OF_MEMORY = """
import json, resource, sys
import graphmill

data = graphmill.open(sys.argv[1])
users = int(sys.argv[2])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
# Half of what a list of all users takes.
resource.setrlimit(resource.RLIMIT_AS, (used + 4 * users,) * 2)

def load(**further):
    return graphmill.NeighborLoader(data, [2], "user", output="numpy", **further)

def some(loader):
    return [batch["user"].n_id.tolist() for batch, _ in zip(loader, range(3))]

calls = {
    "ids": lambda: data.node_ids(type="user"),
    "ids of a rank": lambda: data.node_ids(type="user", rank=1, world_size=1 << 20)[:2].tolist(),
    "lists": lambda: data.edge_index(type=("user", "buys", "item"), layout="csr"),
    "features": lambda: data.features(type="user").shape,
    "one at a time": lambda: some(load(batch_size=1)),
    "shuffled": lambda: len(some(load(batch_size=1, shuffle=True, num_threads=2))),
    "all at once": lambda: some(load(batch_size=users)),
}
for name, call in calls.items():
    try:
        found = call()
    except MemoryError as error:
        found = str(error)
    print(json.dumps([name, found]), flush=True)
"""


def test_more_nodes_than_there_is_memory_for_are_a_memory_error_only_where_all_are_listed(tmp_path):
    users = 1 << 27
    x = {"user": np.zeros((users, 1), dtype=np.int8), "item": np.zeros((10, 1), dtype=np.int8)}
    edges = {BUYS: ([users - 1, 5], [3, 4])}
    graphmill.from_edges(edges, out=tmp_path / "g", num_nodes={"user": users, "item": 10}, x=x).close()
    command = [sys.executable, "-c", SHORT_OF_MEMORY, tmp_path / "g", str(users)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    for name in ("ids", "lists", "all at once"):
        assert "fewer at a time" in found.pop(name), name
    assert found == {
        "ids of a rank": [128, 129], "features": [users, 1], "one at a time": [[0], [1], [2]], "shuffled": 3,
    }  # fmt: skip


@pytest.mark.parametrize("where", ["open", "connect"])
def test_ids_above_32_bits_come_back_as_they_are(tmp_path, binary, where):
    users, last = 6_000_000_000, 5_999_999_999
    src = np.array([last, last - 1, 4_294_967_296, 4_294_967_295, 3, last])
    dst = np.array([0, 0, 0, 1, 1, 9])
    graphmill.from_edges({BUYS: (src, dst)}, out=tmp_path / "g", num_nodes={"user": users, "item": 10}).close()
    with packages.serving(binary, tmp_path / "g") as (server,):
        data = graphmill.open(tmp_path / "g") if where == "open" else graphmill.connect(server.address, timeout=60)
        assert data.num_nodes_dict == {"user": users, "item": 10}
        assert sorted(data.edge_index(type=BUYS).T.tolist()) == sorted(np.stack([src, dst], axis=1).tolist())

        (batch,) = graphmill.NeighborLoader(data, [-1], ("item", [0, 9]), batch_size=2, output="numpy")
        assert sorted(batch["user"].n_id.tolist()) == sorted({last, last - 1, 4_294_967_296})
        assert batch["item"].n_id.tolist() == [0, 9]

        (batch,) = graphmill.PPRLoader(data, ("item", [0]), output="numpy")
        assert sorted(batch["user"].n_id.tolist()) == [4_294_967_296, last - 1, last]

        pairs = np.array([[last, 3, 4_294_967_296], [1, 0, 9]])
        (batch,) = graphmill.LinkNeighborLoader(
            data, [-1], (BUYS, pairs), neg_sampling_ratio=20, batch_size=3, output="numpy", seed=5
        )
        label_index = batch[BUYS].edge_label_index
        given = np.stack([batch["user"].n_id[label_index[0, :3]], batch["item"].n_id[label_index[1, :3]]])
        assert np.array_equal(given, pairs)
        drawn = batch["user"].n_id[label_index[0, 3:]]
        assert len(drawn) == 60 and drawn.max() > 1 << 32 and drawn.max() < users
        data.close()
