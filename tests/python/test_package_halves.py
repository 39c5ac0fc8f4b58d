"""Features in half precision: every loader's batch is the stored one with float32 features rounded, here and on servers."""

import numpy as np
import packages
import pytest
import torch
from packages import CITES, HATES, LIKES

import graphmill


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("halves") / "graph"
    packages.homogeneous(path, parts=2)
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("halves") / "library"
    packages.heterogeneous(path, parts=2)
    return path


def loaders(data: graphmill.Dataset, **further) -> list:
    """Every loader of the homogeneous graph."""
    pairs = np.array([range(40), range(1, 41)])
    common = {"batch_size": 16, "output": "numpy", "seed": 3, **further}
    return [
        graphmill.NeighborLoader(data, [4, 3], "train", shuffle=True, **common),
        graphmill.NeighborLoader(data, [4, 3], "train", weight_attr="edge_weight", **common),
        graphmill.SubgraphLoader(data, "val", [2], **common),
        graphmill.LinkNeighborLoader(data, [3], pairs, neg_sampling="binary", **common),
        graphmill.LinkNeighborLoader(data, [3], pairs, neg_sampling="triplet", **common),
        graphmill.PPRLoader(data, "val", eps=0.01, **common),
    ]


def tensors(batch) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in batch.__dict__.items() if name != "_stores"}


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    return values.astype(np.float16) if name in ("x", "edge_attr", "edge_weight") else values


def same(found, expected) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


def check(halves, stored) -> int:
    batches = 0
    for batch, expected in zip(halves, stored, strict=True):
        found, wanted = tensors(batch), tensors(expected)
        assert found.keys() == wanted.keys() and found["x"].dtype == np.float16 and wanted["x"].dtype == np.float32
        for name, values in wanted.items():
            same(found[name], rounded(values, name))
        batches += 1
    return batches


def test_every_loader_rounds_as_numpy_does(graph):
    data = graphmill.open(graph)
    for halves, stored in zip(loaders(data, feature_dtype="float16"), loaders(data), strict=True):
        assert check(halves, stored) > 1


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_servers_send_the_same_halves(binary, graph, transport):
    here = graphmill.open(graph)
    with packages.serving(binary, graph, partitions=["0", "1"]) as servers:
        addresses = ",".join(server.address for server in servers)
        with graphmill.connect(addresses, transport=transport, timeout=20) as remote:
            for theirs, stored in zip(loaders(remote, feature_dtype="float16"), loaders(here), strict=True):
                assert check(theirs, stored) > 1


def test_heterogeneous_batches_and_anchors_too(library):
    data = graphmill.open(library)

    def load(**further) -> list:
        fanouts = {CITES: [3], ("author", "writes", "paper"): [3]}
        common = {"batch_size": 20, "output": "numpy", **further}
        return [
            graphmill.NeighborLoader(data, fanouts, ("paper", "train"), **common),
            graphmill.AnchorLinkLoader(data, [3], ("author", "train"), positive=LIKES, negative=HATES, **common),
        ]

    for halves, stored in zip(load(feature_dtype=np.float16), load(), strict=True):
        for batch, expected in zip(halves, stored, strict=True):
            for type_ in ("author", "paper"):
                found, wanted = batch[type_], expected[type_]
                same(np.asarray(found.n_id), np.asarray(wanted.n_id))
                if len(wanted.n_id):
                    same(np.asarray(found.x), np.asarray(wanted.x).astype(np.float16))


def test_tensors_are_torchs_halves_and_the_name_may_be_anyones(graph):
    data = graphmill.open(graph)
    for name in ("float16", "half", np.float16, np.dtype("float16"), torch.float16, torch.half):
        batch = next(iter(graphmill.NeighborLoader(data, [2], "train", batch_size=8, feature_dtype=name)))
        assert batch.x.dtype == torch.float16 and batch.edge_attr.dtype == torch.float16
        assert batch.age.dtype == torch.int64 and batch.y.dtype == torch.int64
    for name in ("float32", "bfloat16", torch.bfloat16, np.int64, "f61", 16, True):
        with pytest.raises(ValueError, match="feature_dtype is .*, expected \"float16\""):
            graphmill.NeighborLoader(data, [2], "train", feature_dtype=name)


def test_a_state_of_stored_features_is_not_one_of_halves(graph):
    data = graphmill.open(graph)
    stored = graphmill.NeighborLoader(data, [2], "train", batch_size=8)
    next(iter(stored))
    halves = graphmill.NeighborLoader(data, [2], "train", batch_size=8, feature_dtype="float16")
    with pytest.raises(ValueError, match="does not fit this loader"):
        halves.load_state_dict(stored.state_dict())
