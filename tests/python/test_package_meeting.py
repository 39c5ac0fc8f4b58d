"""Servers of a run, found through its coordinator: which are missing, which die, which come."""

import contextlib

import members
import numpy as np
import packages
import pytest
from authority import Authority

import graphmill


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
    (cert, key), shown = ours.issue("server"), dict(zip(("cert", "key"), ours.issue("rank"), strict=True))
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
        ):  # fmt: skip
            with pytest.raises(PermissionError, match=words):
                graphmill.connect(url, token=told, tls=tls, timeout=20)
