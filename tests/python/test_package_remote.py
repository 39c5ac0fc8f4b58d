"""Datasets on storage servers: the same batches, and what a user meets when servers or processes end."""

import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import packages
import pytest

import graphmill


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("remote") / "g"
    packages.homogeneous(path, parts=2)
    return path


@pytest.fixture(scope="module")
def servers(binary, path):
    with packages.serving(binary, path, partitions=["0", "1"]) as servers:
        yield ",".join(server.address for server in servers)


@pytest.fixture(params=["shm", "tcp"])
def remote(request, servers):
    with graphmill.connect(servers, transport=request.param, timeout=20) as data:
        yield data


def load(data, **further):
    return graphmill.NeighborLoader(data, [4, 3], "train", **{"batch_size": 16, "shuffle": True, **further})


def flat(batch) -> dict[str, bytes]:
    return {name: np.asarray(value).tobytes() for name, value in batch.__dict__.items() if name != "_stores"}


def test_batches_and_reads_are_those_of_the_files(remote, path):
    here = graphmill.open(path)
    for further in ({}, {"weight_attr": "w"}, {"ordered": False}):
        theirs, ours = (list(load(data, output="numpy", **further)) for data in (remote, here))
        assert [flat(batch) for batch in sorted(theirs, key=lambda batch: batch.g)] == [flat(batch) for batch in ours]
    pairs = here.edge_index()[:, :40]
    for mode in (None, "binary", "triplet"):
        links = [
            list(graphmill.LinkNeighborLoader(data, [3], pairs, neg_sampling=mode, batch_size=16, output="numpy"))
            for data in (remote, here)
        ]
        assert [flat(batch) for batch in links[0]] == [flat(batch) for batch in links[1]]
    assert remote.fingerprint == here.fingerprint and remote.splits == here.splits
    for ask in (
        lambda data: data.features([5, 250, 5]), lambda data: data.labels(), lambda data: data.node_ids("val"),
        lambda data: data.features([7, 3], name="edge_attr"), lambda data: data.partition_ids(range(300)),
        lambda data: data.original_ids([9]), lambda data: data.lookup([9, 1000]),
        lambda data: np.sort(data.edge_index().T, axis=0),
    ):  # fmt: skip
        assert np.array_equal(ask(remote), ask(here))


def test_ids_out_of_range_are_index_errors_as_of_files(remote, path):
    here = graphmill.open(path)
    for ask in (
        lambda data: data.features([5, 99999]), lambda data: data.labels([300]), lambda data: data.original_ids([300]),
        lambda data: data.features([2400], name="edge_attr"), lambda data: data.partition_ids([300]),
    ):  # fmt: skip
        with pytest.raises(IndexError, match="is out of range: there are") as there:
            ask(remote)
        with pytest.raises(IndexError) as ours:
            ask(here)
        assert str(there.value) == str(ours.value)


def test_edited_batches_do_not_show_in_later_ones(remote, path):
    expected = [flat(batch) for batch in load(graphmill.open(path), output="numpy")]
    for _ in range(2):
        loader = load(remote, output="numpy")
        found = []
        for batch in loader:
            found.append(flat(batch))
            batch.x[:] = -1
            batch.edge_index[:] = 0
        assert found == expected


def test_all_batches_may_be_kept(remote, path):
    kept = list(load(remote, output="numpy"))
    assert [flat(batch) for batch in kept] == [flat(batch) for batch in load(graphmill.open(path), output="numpy")]


def test_a_state_goes_on_elsewhere(remote, path):
    here = load(graphmill.open(path), output="numpy")
    iterator = iter(here)
    next(iterator), next(iterator)
    there = load(remote, output="numpy")
    there.load_state_dict(here.state_dict())
    assert [flat(batch) for batch in there] == [flat(batch) for batch in iterator]


def test_mistakes_are_the_same_as_embedded(remote):
    with pytest.raises(ValueError, match="there is no split 'nope'"):
        graphmill.NeighborLoader(remote, [2], "nope")
    with pytest.raises(IndexError, match="out of range"):
        graphmill.NeighborLoader(remote, [2], [300])
    with pytest.raises(IndexError, match="out of range"):
        remote.partition_ids([300])
    with pytest.raises(ValueError, match="there is no feature"):
        remote.features(name="z")


def test_a_pickled_dataset_connects_anew(remote):
    again = pickle.loads(pickle.dumps(remote))
    assert again.num_nodes == 300 and np.array_equal(again.labels([3]), remote.labels([3]))


def test_children_open_and_connect_anew_and_never_hang(servers, path):
    script = """
import os, sys, graphmill
def load(data):
    return graphmill.NeighborLoader(data, [4, 3], "train", batch_size=16, output="numpy", num_threads=2)
data = graphmill.open(sys.argv[2]) if sys.argv[1] == "open" else graphmill.connect(sys.argv[1], timeout=20)
loader = load(data)
expected = [batch.n_id.tolist() for batch in loader]
iterator = iter(load(data))
held = next(iterator)
child = os.fork()
if child == 0:
    code = 1
    try:
        next(iterator)
    except RuntimeError as error:
        code = 2 if "fork" in str(error) else 1
    if code == 2 and data.labels([1]).tolist() == [1] and held.n_id.tolist() == expected[0]:
        if [batch.n_id.tolist() for batch in load(data)] == expected and len(list(loader)) == len(expected):
            del iterator, held, loader, data
            code = 0
    os._exit(code)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert [batch.n_id.tolist() for batch in iterator] == expected[1:]
"""
    for where in ("open", servers):
        subprocess.run([sys.executable, "-c", script, where, path], check=True, timeout=60)


def test_workers_of_a_data_loader_load_on_their_own(servers):
    import torch

    class Batches(torch.utils.data.IterableDataset):
        def __init__(self, data):
            self.data = data

        def __iter__(self):
            worker = torch.utils.data.get_worker_info()
            rank, world_size = (0, 1) if worker is None else (worker.id, worker.num_workers)
            return (batch.n_id for batch in load(self.data, rank=rank, world_size=world_size, even=False))

    with graphmill.connect(servers, timeout=20) as data:
        found = [list(torch.utils.data.DataLoader(Batches(data), batch_size=None, num_workers=n)) for n in (0, 2)]
    assert sorted(map(tuple, map(torch.Tensor.tolist, found[0]))) == sorted(map(tuple, map(torch.Tensor.tolist, found[1])))


def interrupt(script: str, *arguments: str) -> float:
    """Seconds from Ctrl-C until a script, which prints a line when it waits, has ended by it."""
    command = [sys.executable, "-u", "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n", process.stderr.read()
        time.sleep(0.3)
        assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, errors = process.communicate(timeout=30)
        assert "KeyboardInterrupt" in errors and "panicked" not in errors, errors
        return time.monotonic() - began


def test_ctrl_c_ends_every_wait_at_once(binary, path):
    with packages.serving(binary, path) as (server,):
        script = """
import graphmill, os, signal, sys
data = graphmill.connect(sys.argv[1], timeout=60)
loader = graphmill.NeighborLoader(data, [4, 3], "train", batch_size=16, output="numpy")
iterator = iter(loader)
next(iterator)
os.kill(int(sys.argv[2]), signal.SIGSTOP)
print("waiting")
if sys.argv[3] == "batch":
    list(iterator), list(loader)
else:
    data.labels()
"""
        for what in ("batch", "read"):
            try:
                assert interrupt(script, server.address, server.process.pid, what) < 2
            finally:
                server.process.send_signal(signal.SIGCONT)
    script = """
import graphmill, sys
print("waiting")
graphmill.connect(sys.argv[1], timeout=60)
"""
    assert interrupt(script, "127.0.0.1:1") < 2


def test_a_batch_that_was_waited_for_comes_after_ctrl_c(binary, path):
    with packages.serving(binary, path) as (server,), graphmill.connect(server.address, timeout=30) as data:
        loader = load(data)
        expected = [batch.n_id.tolist() for batch in load(graphmill.open(path))]
        found = []
        iterator = iter(loader)
        found.append(next(iterator).n_id.tolist())
        server.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.5)
                before = signal.signal(signal.SIGALRM, signal.default_int_handler)
                while True:
                    found.append(next(iterator).n_id.tolist())
        finally:
            signal.signal(signal.SIGALRM, before)
            server.process.send_signal(signal.SIGCONT)
        found.extend(batch.n_id.tolist() for batch in iterator)
        assert found == expected


def test_a_server_that_is_gone_is_told_of(binary, path):
    with packages.serving(binary, path) as (server,):
        data = graphmill.connect(server.address, timeout=2)
        iterator = iter(load(data, prefetch=1))
        next(iterator)
        server.process.kill()
        with pytest.raises((TimeoutError, ConnectionError), match=server.address):
            list(iterator)
        with pytest.raises(ConnectionError, match=server.address):
            data.labels()
    with pytest.raises(ConnectionError, match="127.0.0.1:1"):
        graphmill.connect("127.0.0.1:1", timeout=0.5)
    with pytest.raises(ValueError, match="no port"):
        graphmill.connect("localhost")
    with pytest.raises(ValueError, match="no server was named"):
        graphmill.connect("")


def test_a_token_opens_the_door(binary, path, tmp_path):
    file = tmp_path / "token"
    file.write_text("open-sesame\n")
    with packages.serving(binary, path, "--token-file", str(file)) as (server,):
        assert graphmill.connect(server.address, token="open-sesame").num_nodes == 300
        assert len(load(graphmill.connect(server.address, token=file))) == 10
        for token in (None, "close-sesame"):
            with pytest.raises(PermissionError, match="token"):
                graphmill.connect(server.address, token=token, timeout=5)
    with pytest.raises(OSError, match="nowhere"):
        graphmill.connect("127.0.0.1:1", token=tmp_path / "nowhere")


def test_other_threads_run_while_one_waits(binary, path):
    import threading

    with packages.serving(binary, path) as (server,), graphmill.connect(server.address, timeout=20) as data:
        iterator = iter(load(data, prefetch=1))
        next(iterator)
        server.process.send_signal(signal.SIGSTOP)
        thread = threading.Thread(target=lambda: list(iterator))
        thread.start()
        try:
            began, ticks = time.monotonic(), 0
            while time.monotonic() - began < 0.5:
                time.sleep(0.001)
                ticks += 1
            assert thread.is_alive() and ticks > 50
            with pytest.raises(RuntimeError, match="another thread"):
                next(iterator)
        finally:
            server.process.send_signal(signal.SIGCONT)
            thread.join()
    assert os.getpid()
