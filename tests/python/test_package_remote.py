"""Datasets on storage servers: the same batches, and what a user meets when servers or processes end."""

import datetime
import ipaddress
import pickle
import subprocess
import sys

import numpy as np
import packages
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from packages import CITES, HATES, LIKES

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


def flat(batch) -> dict:
    """All that a batch has as bytes, by name and, where there are several, by type."""
    stores = batch.__dict__.get("_stores", {})
    plain = {name: np.asarray(value).tobytes() for name, value in batch.__dict__.items() if name != "_stores"}
    return {**plain, **{key: flat(store) for key, store in stores.items()}}


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
        lambda data: data.edge_index(), lambda data: np.concatenate(data.edge_index(layout="csr")),
        lambda data: data.degrees(), lambda data: data.degrees([7, 250, 7], direction="out"),
        lambda data: data.edge_partition_ids(range(2400)),
        lambda data: data.anchor_labels("train", max_labels=2).positives,
    ):  # fmt: skip
        assert np.array_equal(ask(remote), ask(here))


def test_graphs_of_several_types_are_read_like_files(binary, tmp_path):
    here = packages.heterogeneous(tmp_path / "h", parts=3)
    with packages.serving(binary, tmp_path / "h", partitions=["0", "1,2"]) as servers:
        with graphmill.connect([server.address for server in servers], timeout=20) as there:
            for edge_type in here.edge_types:
                for direction in ("in", "out"):
                    found, expected = (data.degrees(type=edge_type, direction=direction) for data in (there, here))
                    assert np.array_equal(found, expected) and found.dtype == np.int64
                source, _, target = edge_type
                both = {"positive": edge_type, "negative": HATES if source == "author" else None}
                found, expected = (data.anchor_labels(**both, max_labels=3) for data in (there, here))
                assert all(np.array_equal(*pair) for pair in zip(found[:2], expected[:2], strict=True))
                assert (found.negatives is None) == (expected.negatives is None) == (source != "author")
            shares = [there.anchor_labels("train", positive=LIKES, rank=rank, world_size=3) for rank in range(3)]
            whole = here.anchor_labels("train", positive=LIKES)
            assert sum(len(part.anchors) for part in shares) == len(whole.anchors)
            rows = {anchor: row[row >= 0].tolist() for part in shares for anchor, row in zip(*part[:2], strict=True)}
            assert rows == {anchor: row[row >= 0].tolist() for anchor, row in zip(*whole[:2], strict=True)}
            loaders = (
                lambda data: graphmill.NeighborLoader(data, [4, 3], ("paper", "train"), batch_size=16, output="numpy"),
                lambda data: graphmill.PPRLoader(data, ("paper", "train"), max_ppr_nodes=5, batch_size=16, output="numpy"),
                lambda data: graphmill.AnchorLinkLoader(
                    data, [3], "train", positive=LIKES, negative=HATES, batch_size=16, output="numpy"
                ),
            )
            for loader in loaders:
                theirs, ours = ([flat(batch) for batch in loader(data)] for data in (there, here))
                assert theirs == ours and len(ours) > 1 and "paper" in ours[0]
            for data in (there, here):
                with pytest.raises(ValueError, match="does not begin at `author`"):
                    data.anchor_labels(positive=LIKES, negative=CITES)
                with pytest.raises(ValueError, match="there is no split"):
                    data.anchor_labels("val", positive=LIKES)
                with pytest.raises(ValueError, match="have no features"):
                    data.edge_partition_ids([0], type=CITES)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_shares_of_ranks_make_up_the_whole(remote, path, world_size):
    shares = [remote.node_ids("train", rank=rank, world_size=world_size) for rank in range(world_size)]
    assert sorted(np.concatenate(shares)) == sorted(graphmill.open(path).node_ids("train"))
    assert max(map(len, shares)) < len(graphmill.open(path).node_ids("train")) or world_size == 1


def test_batches_in_partition_order_are_those_of_the_files(remote, path):
    here = graphmill.open(path)
    lists = {1: np.arange(90, 10, -1), 0: [299, 3, 3, 150]}
    for seeds in ("train", None, lists):
        loaders = [
            graphmill.NeighborLoader(
                data, [4, 3], seeds, batch_size=16, shuffle=True, seed_order="partition", output="numpy"
            )
            for data in (remote, here)
        ]
        theirs, ours = map(list, loaders)
        assert [flat(batch) for batch in theirs] == [flat(batch) for batch in ours] and len(ours) == len(loaders[0])
        for batch in ours:
            assert len(set(here.partition_ids(batch.n_id[: batch.batch_size]))) == 1
        if seeds is lists:
            whole = np.concatenate([lists[0], lists[1]])
            assert sorted(place for batch in theirs for place in batch.input_id) == list(range(len(whole)))
            rows = [batch.n_id[getattr(batch, "seed_index", np.arange(batch.batch_size))] for batch in theirs]
            assert all((whole[batch.input_id] == row).all() for batch, row in zip(theirs, rows, strict=True))


def test_a_state_in_partition_order_goes_on_elsewhere_but_not_in_another_order(remote, path):
    here = graphmill.open(path)
    iterator = iter(load(here, seed_order="partition"))
    next(iterator)
    state = iterator._loader.state_dict()
    resumed = load(remote, seed_order="partition")
    resumed.load_state_dict(state)
    assert [batch.n_id.tolist() for batch in resumed] == [batch.n_id.tolist() for batch in iterator]
    with pytest.raises(ValueError, match="partitioning"):
        load(remote).load_state_dict(state)


def test_ids_out_of_range_are_index_errors_as_of_files(remote, path):
    here = graphmill.open(path)
    for ask in (
        lambda data: data.features([5, 99999]), lambda data: data.labels([300]), lambda data: data.original_ids([300]),
        lambda data: data.features([2400], name="edge_attr"), lambda data: data.partition_ids([300]),
        lambda data: data.degrees([300]), lambda data: data.edge_partition_ids([2400]),
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


def test_a_batch_that_is_too_large_is_the_same_mistake_as_embedded(remote, path):
    for data in (remote, graphmill.open(path)):
        with pytest.raises(ValueError, match="has more than [0-9]+ edges"):
            next(iter(graphmill.NeighborLoader(data, [200_000_000], "train", replace=True)))


def test_tensors_lie_in_memory_that_is_shared_with_the_server(servers):
    with graphmill.connect(servers, transport="shm", timeout=20) as data:
        loader = load(data, output="torch", batch_size=64)
        # A server that has no slot to spare for a moment sends through the socket.
        shared = [batch for batch in loader if packages.mapping(batch.x.data_ptr()) is not None]
        assert shared
        for batch in shared:
            files = {packages.mapping(tensor.data_ptr()) for tensor in (batch.x, batch.n_id, batch.edge_index)}
            assert len(files) == 1 and None not in files, "all of a batch lies in one slot"
    with graphmill.connect(servers, transport="tcp", timeout=20) as data:
        assert all(packages.mapping(batch.x.data_ptr()) is None for batch in load(data, output="torch"))


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


def test_a_child_goes_on_where_its_parent_resumed(servers, path):
    script = """
import os, sys, graphmill
def load():
    return graphmill.NeighborLoader(data, [4, 3], "train", batch_size=16, output="numpy")
data = graphmill.open(sys.argv[2]) if sys.argv[1] == "open" else graphmill.connect(sys.argv[1], timeout=20)
expected = [batch.n_id.tolist() for batch in load()]
first, loader = load(), load()
iterator = iter(first)
next(iterator), next(iterator)
state = first.state_dict()
loader.load_state_dict(state)
child = os.fork()
if child == 0:
    code = 1
    if [batch.n_id.tolist() for batch in loader] == expected[2:] and loader.state_dict()["epoch"] == 1:
        # An iteration of the parent says nothing about the child's loader.
        code = 0 if first.state_dict()["epoch"] == 1 else 2
    os._exit(code)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert [batch.n_id.tolist() for batch in loader] == expected[2:]
assert first.state_dict() == state
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
    with pytest.raises(ValueError, match="servers cannot be asked.*no port"):
        graphmill.connect("localhost")
    with pytest.raises(ValueError, match="no server was named"):
        graphmill.connect("")


def test_a_token_opens_the_door(binary, path, tmp_path):
    file = tmp_path / "token"
    file.write_text("open-sesame\n")
    with pytest.raises(OSError, match=r"mode 0644\); run chmod 600"):
        file.chmod(0o644)
        graphmill.connect("127.0.0.1:1", token=file)
    file.chmod(0o600)
    with packages.serving(binary, path, "--token-file", str(file)) as (server,):
        assert graphmill.connect(server.address, token="open-sesame").num_nodes == 300
        assert len(load(graphmill.connect(server.address, token=file))) == 10
        for token in (None, "close-sesame"):
            with pytest.raises(PermissionError, match="token"):
                graphmill.connect(server.address, token=token, timeout=5)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        graphmill.connect("127.0.0.1:1", token=tmp_path / "nowhere")


def certificate(folder, name: str, signer=None):
    """A certificate for this host and its key, in files; signed by another, or an authority of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer, signing = (signer[0].subject, signer[1]) if signer else (named, key)
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    pem, pkcs8, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.pem").write_bytes(made.public_bytes(pem))
    (folder / f"{name}.key").write_bytes(key.private_bytes(pem, pkcs8, plain))
    (folder / f"{name}.key").chmod(0o600)
    return made, key


def test_certificates_open_the_door(binary, path, tmp_path):
    ours, theirs = certificate(tmp_path, "ours"), certificate(tmp_path, "theirs")
    certificate(tmp_path, "server", ours), certificate(tmp_path, "friend", ours), certificate(tmp_path, "stranger", theirs)
    flags = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "ours.pem", "--tls-ca", "ours.pem"]
    flags = [str(tmp_path / flag) if not flag.startswith("--") else flag for flag in flags]

    def shown(authority, who=None):
        own = {"cert": tmp_path / f"{who}.pem", "key": tmp_path / f"{who}.key"} if who else {}
        return {"ca": tmp_path / f"{authority}.pem", **own}

    with packages.serving(binary, path, *flags) as (server,):
        with graphmill.connect(server.address, tls=shown("ours", "friend")) as data:
            assert len(list(load(data))) == 10
        for tls, words in (
            (None, "TLS"), (shown("theirs", "friend"), "is not trusted"), (shown("ours"), "wants a certificate"),
            (shown("ours", "stranger"), "does not accept the certificate"),
        ):  # fmt: skip
            with pytest.raises(PermissionError, match=words):
                graphmill.connect(server.address, tls=tls, timeout=20)
