"""Servers of a run, found through its coordinator: which are missing, which die, which come."""

import contextlib
import subprocess

import members
import numpy as np
import packages
import pytest
from authority import Authority

import graphmill
from graphmill.rendezvous import Rendezvous


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("meeting") / "g"
    packages.homogeneous(path, parts=2)
    return path


@pytest.fixture
def coordinator(binary):
    with members.coordinator(binary) as address:
        yield address


def load(data):
    return graphmill.NeighborLoader(data, [4, 3], "train", batch_size=8, shuffle=True, output="numpy")


def flat(batch) -> dict[str, bytes]:
    return {name: np.asarray(value).tobytes() for name, value in batch.__dict__.items() if name != "_stores"}


def test_a_run_is_found_by_its_url_and_outlives_a_server(binary, path, coordinator):
    meet = ["--listen", "127.0.0.1:0", "--rendezvous", coordinator, "--run", "train", "--server-lease", "1"]
    with contextlib.ExitStack() as stack:
        serve = [binary, "serve", path, "--mmap", *meet]
        first, *_ = [stack.enter_context(packages.Server(serve)).wait() for _ in range(3)]
        with graphmill.connect(f"graphmill://{coordinator}/train", timeout=60) as data:
            here = graphmill.open(path)
            loader = load(data)
            batches = iter(loader)
            found = [next(batches) for _ in range(3)]
            first.process.kill()
            found.extend(batches)
            assert [flat(batch) for batch in found] == [flat(batch) for batch in load(here)]
            assert np.array_equal(data.features([5, 250, 5]), here.features([5, 250, 5]))
            # Shares do not depend on how many servers there happen to be.
            shares = [data.node_ids("train", rank=rank, world_size=3) for rank in range(3)]
            assert np.array_equal(np.sort(np.concatenate(shares)), np.sort(here.node_ids("train")))
            assert "graphmill://" in repr(data)


def test_a_partition_that_nobody_serves_is_named(binary, path, coordinator):
    url = f"graphmill://{coordinator}/train"
    with pytest.raises(TimeoutError, match="run `train` has no server yet"):
        graphmill.connect(url, timeout=0.5)
    meet = ["--listen", "127.0.0.1:0", "--rendezvous", coordinator, "--run", "train", "--partition", "1"]
    with packages.Server([binary, "serve", path, *meet]) as server:
        server.wait()
        with pytest.raises(TimeoutError, match="misses 0; it has 1 server"):
            graphmill.connect(url, timeout=5)
    with pytest.raises(ValueError, match="which run"):
        graphmill.connect(f"graphmill://{coordinator}")
    with pytest.raises(ValueError, match="is not known"):
        graphmill.connect(f"http://{coordinator}/train")


def test_a_token_of_the_run_is_asked_for(binary, path, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret-of-the-run\n")
    token.chmod(0o600)
    with members.coordinator(binary, "--token-file", token) as coordinator:
        url = f"graphmill://{coordinator}/train"
        with pytest.raises(PermissionError, match="token"):
            graphmill.connect(url, timeout=20)
        meet = ["--listen", "127.0.0.1:0", "--rendezvous", url, "--servers", "1", "--token-file", token]
        with packages.Server([binary, "serve", path, *meet]) as server:
            server.wait()
            with graphmill.connect(url, token=token, timeout=60) as data:
                assert data.num_nodes == graphmill.open(path).num_nodes


def test_a_run_is_met_with_certificates_and_a_token_by_all_of_them(binary, path, tmp_path):
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "another")
    token = tmp_path / "token"
    token.write_text("secret-of-the-run\n")
    token.chmod(0o600)
    cert, key = ours.issue("server")
    shown, foreign = (dict(zip(("cert", "key"), authority.issue("rank"), strict=True)) for authority in (ours, theirs))
    guard = ["--token-file", token, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ours.ca]
    with members.coordinator(binary, *guard) as coordinator, contextlib.ExitStack() as stack:
        url = f"graphmill://{coordinator}/train"
        meet = ["--listen", "127.0.0.1:0", "--rendezvous", url, "--servers", "2", *guard, "--tls-ca", ours.ca]
        for _ in range(2):
            stack.enter_context(packages.Server([binary, "serve", path, "--mmap", *meet])).wait()
        with graphmill.connect(url, token=token, tls={"ca": ours.ca, **shown}, timeout=60) as data:
            expected = [flat(batch) for batch in load(graphmill.open(path))]
            assert [flat(batch) for batch in load(data)] == expected
        for tls, told, words in (
            ({"ca": ours.ca, **shown}, None, "token"), ({"ca": ours.ca}, token, "wants a certificate"),
            ({"ca": theirs.ca, **shown}, token, "is not trusted"), (None, token, "TLS"),
            ({"ca": ours.ca, **foreign}, token, "certificate"),
        ):  # fmt: skip
            with pytest.raises(PermissionError, match=words):
                graphmill.connect(url, token=told, tls=tls, timeout=20)


def test_servers_and_clients_find_the_coordinator_that_leads_through_etcd(binary, path, tmp_path):
    with members.etcd(tmp_path) as nodes, contextlib.ExitStack() as stack:

        def start(*words):
            return stack.enter_context(packages.Server([binary, *words])).wait()

        def coordinator():
            return start("rendezvous", "serve", "--listen", f"127.0.0.1:{members.free_port()}", "--state", f"etcd://{nodes}/runs")

        def server():
            return start("serve", path, "--listen", "127.0.0.1:0", "--rendezvous", url, "--server-lease", "1")

        leads, url = coordinator(), f"etcd://{nodes}/train?prefix=runs"
        first, _ = server(), server()
        with graphmill.connect(url, timeout=60) as data:
            loader, here = load(data), graphmill.open(path)
            batches = iter(loader)
            found = [next(batches)]
            # Another leads, whom nobody was told of; with it comes a spare, and takes over from a server that dies.
            coordinator()
            leads.process.kill()
            server()
            first.process.kill()
            found.extend(batches)
            assert [flat(batch) for batch in found] == [flat(batch) for batch in load(here)]


def test_a_server_may_be_the_coordinator_too(binary, path, tmp_path):
    address = f"127.0.0.1:{members.free_port()}"
    meet = ["--listen", address, "--coordinator", "--state", tmp_path / "state", "--rendezvous", f"{address}/train"]
    serve = [binary, "serve", path, "--servers", "1", *meet]
    both = {"run": "train", "min_nodes": 2, "max_nodes": 2}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(packages.Server(serve)).wait()
        made = stack.enter_context(members.members(address, 2, **both))
        before = [member.value() for member in [member.ask("join()") for member in made]]
        with graphmill.connect(f"graphmill://{address}/train", timeout=60) as data:
            batches = iter(load(data))
            found = [next(batches)]
            server.process.kill()
            server.process.wait()
            stack.enter_context(packages.Server(serve)).wait()
            found.extend(batches)
            assert [flat(batch) for batch in found] == [flat(batch) for batch in load(graphmill.open(path))]
        assert [member.ask("rendezvous.is_lost()").value() for member in made] == [False, False]
        assert made[0].ask("here.store.get('graphmill/master').decode()").value().startswith(f"{before[0][4]} ")
        shown = subprocess.run([binary, "rendezvous", "status", f"{address}/train"], capture_output=True, text=True).stdout
        assert "2 take part" in shown and "all served" in shown, shown
        after = [member.value() for member in [member.ask("join()") for member in made]]
        assert [(number, rank) for number, rank, *_ in after] == [(1, rank) for _, rank, *_ in before]


def test_servers_that_coordinate_stand_in_for_each_other(binary, path, tmp_path):
    with members.etcd(tmp_path) as nodes, contextlib.ExitStack() as stack:
        url = f"etcd://{nodes}/train?prefix=servers"

        def server():
            meet = ["--coordinator", "--state", f"etcd://{nodes}/servers", "--rendezvous", url, "--replicas", "2"]
            listen = ["--listen", f"127.0.0.1:{members.free_port()}"]
            return stack.enter_context(packages.Server([binary, "serve", path, "--servers", "2", *listen, *meet])).wait()

        first, _ = server(), server()
        with graphmill.connect(url, timeout=60) as data:
            assert data.num_nodes == graphmill.open(path).num_nodes
        first.process.terminate()
        assert first.process.wait(30) == 0
        with Rendezvous(url, min_nodes=1, max_nodes=1, join_timeout=60) as rendezvous:
            assert rendezvous.next_rendezvous().rank == 0
        with graphmill.connect(url, timeout=60) as data:
            assert [flat(batch) for batch in load(data)] == [flat(batch) for batch in load(graphmill.open(path))]
