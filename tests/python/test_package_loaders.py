"""Loaders as a training script uses them: epochs, ranks, states, memory, mistakes."""

import gc
import subprocess
import sys
import threading

import numpy as np
import packages
import pytest
import torch

import graphmill


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return packages.homogeneous(tmp_path_factory.mktemp("loaders") / "graph")


def load(data, **further):
    return graphmill.NeighborLoader(data, [3, 2], "train", **{"batch_size": 16, "shuffle": True, **further})


def ids(batches) -> list[list[int]]:
    return [batch.n_id.tolist() for batch in batches]


def test_each_iteration_is_the_next_epoch(data):
    loader, again = load(data), load(data)
    first, second = ids(loader), ids(loader)
    assert first != second and len(first) == len(second) == len(loader)
    assert [ids(again), ids(again)] == [first, second]
    assert ids(load(data, seed=1)) != first


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_leaving_early_and_loops_in_loops_work(data, threads):
    loader = load(data, num_threads=threads)
    for batch in loader:
        break
    assert len(ids(loader)) == len(loader)
    pairs = [(outer.n_id[0], inner.n_id[0]) for outer, _ in zip(loader, range(3), strict=False) for inner in loader]
    assert len(pairs) == 3 * len(loader)


def test_a_state_goes_on_where_it_was_taken(data):
    whole = load(data)
    epochs = [ids(whole) for _ in range(3)]
    for taken in (0, 1, 4, len(whole)):
        loader = load(data)
        list(loader)
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        state = loader.state_dict()
        resumed = load(data, num_threads=2)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert [ids(resumed), ids(resumed)] == [epochs[1][taken:], epochs[2]]


def test_a_state_survives_leaving_the_loop_and_the_end_of_an_epoch(data):
    loader, whole = load(data), load(data)
    epochs = [ids(whole) for _ in range(2)]
    for place, _ in enumerate(loader):
        if place == 2:
            break
    gc.collect()
    state = loader.state_dict()
    assert (state["epoch"], state["rounds"]) == (0, 3)
    loader.load_state_dict(state)
    assert ids(loader) == epochs[0][3:]
    assert (loader.state_dict()["epoch"], loader.state_dict()["rounds"]) == (1, 0)
    assert ids(loader) == epochs[1]


def test_a_state_of_other_batches_is_refused(data):
    state = load(data).state_dict()
    with pytest.raises(ValueError, match="sampler configuration"):
        load(data, seed=3).load_state_dict(state)
    with pytest.raises(ValueError, match="batch size"):
        load(data, batch_size=8).load_state_dict(state)
    with pytest.raises(ValueError, match="not the state"):
        load(data).load_state_dict({"epoch": 1})


def test_ranks_share_an_epoch_and_repeats_are_marked(data, monkeypatch):
    whole = ids(load(data))
    per_rank = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        loader = load(data)
        batches = list(loader)
        assert len(batches) == len(loader) == 4
        per_rank.append(batches)
    kept = [batch.n_id.tolist() for batches in zip(*per_rank, strict=True) for batch in batches if not batch.repeated]
    assert kept == whole and len(whole) == 10
    assert sum(batch.repeated for batches in per_rank for batch in batches) == 2
    assert "repeated" not in next(iter(load(data, rank=0, world_size=1)))
    assert len(load(data, rank=2, world_size=3, even=False)) == 3


def test_a_state_loads_on_other_numbers_of_ranks(data):
    whole = ids(load(data))
    loader = load(data, rank=0, world_size=2)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    resumed = load(data)
    resumed.load_state_dict(state)
    assert ids(resumed) == whole[4:]


def test_tensors_lie_in_the_batchs_memory_and_may_be_edited(data):
    loader = load(data, output="torch")
    before = ids(loader)
    loader = load(data, output="torch")
    iterator = iter(loader)
    batch = next(iterator)
    tensors = [batch.x, batch.edge_index, batch.n_id, batch.y, batch.edge_attr]
    begin = min(tensor.data_ptr() for tensor in tensors)
    assert all(tensor.data_ptr() - begin < 1 << 20 and tensor.data_ptr() % 64 == 0 for tensor in tensors)
    for tensor in tensors:
        tensor.zero_()
    x, kept = batch.x, batch.x.clone()
    del batch, tensors
    assert ids(iterator) == before[1:]
    assert torch.equal(x, kept), "memory that is looked at is not lent again"


def test_batches_that_are_kept_stay_as_they_were(data):
    kept = list(load(data, num_threads=2))
    assert ids(kept) == ids(load(data)) and all(torch.equal(batch.x, batch.x + 0) for batch in kept)


def test_pinning_and_transforming(data):
    seen = []
    loader = load(data, transform=lambda batch: seen.append(batch) or batch.n_id)
    assert all(torch.equal(n_id, batch.n_id) for n_id, batch in zip(loader, seen, strict=False)) and len(seen) == 10
    if torch.cuda.is_available():
        assert next(iter(load(data, pin_memory=True))).x.is_pinned()


def test_features_are_chosen_by_name(data):
    assert "x" not in next(iter(load(data, features=False)))
    batch = next(iter(load(data, features=["age", "edge_attr"], labels=False)))
    assert "age" in batch and "edge_attr" in batch and "x" not in batch and "y" not in batch
    assert torch.equal(batch.age, batch.n_id)
    assert batch.num_nodes == len(batch.n_id)


def test_a_closed_loader_says_so(data):
    with load(data) as loader:
        iterator = iter(loader)
        next(iterator)
    with pytest.raises(ValueError, match="closed"):
        iter(loader)
    assert list(iterator) == []


def test_two_threads_do_not_share_an_iterator_but_a_loader(data):
    found = []
    threads = [threading.Thread(target=lambda: found.append(len(ids(loader)))) for loader in [load(data)] for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [10] * 4


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"input_nodes": "trian"}, ValueError, "there is no split 'trian'; there are: .*train"),
        ({"input_nodes": ("paper", None)}, ValueError, "whole numbers|expected"),
        ({"input_nodes": [1, 300]}, IndexError, "node id 300 is out of range"),
        ({"input_nodes": [-1]}, ValueError, "-1 is not an id"),
        ({"input_nodes": [0.5]}, ValueError, "whole numbers"),
        ({"input_nodes": np.ones(7, bool)}, ValueError, "mask"),
        ({"num_neighbors": [3, -2]}, ValueError, "-1 for all"),
        ({"num_neighbors": "many"}, ValueError, "list of numbers"),
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"features": ["xx"]}, ValueError, "there is no feature 'xx'; there are: age, x"),
        ({"num_workers": 4}, TypeError, "num_threads"),
        ({"batchsize": 4}, TypeError, "there is no argument batchsize"),
        ({"rank": 3}, ValueError, "give both"),
        ({"rank": 3, "world_size": 2}, ValueError, "below world_size"),
        ({"direction": "up"}, ValueError, "direction"),
        ({"direction": "out"}, ValueError, "no `out` lists"),
        ({"output": "jax"}, ValueError, "output"),
    ],
    ids=str,
)
def test_mistakes_are_told_in_words(data, arguments, error, words):
    with pytest.raises(error, match=words):
        graphmill.NeighborLoader(data, **{"num_neighbors": [2], **arguments})


def test_a_loader_wants_a_dataset():
    from torch_geometric.data import Data

    with pytest.raises(TypeError, match="from_pyg"):
        graphmill.NeighborLoader(Data(edge_index=torch.zeros((2, 0), dtype=torch.long)), [2])


def test_files_that_are_not_datasets(tmp_path, data):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        graphmill.open(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="not a dataset"):
        graphmill.open(tmp_path)
    with pytest.raises(FileExistsError, match="exists already"):
        graphmill.from_edges([0], [0], out=tmp_path)
    with pytest.raises(ValueError, match="homogeneous"):
        data.features(type="paper")
    with pytest.raises(IndexError, match="out of range"):
        data.features([300])
    with pytest.raises(ValueError, match="there is no feature `z`; there are: age, x"):
        data.features(name="z")


def test_without_torch_batches_are_numpys_and_tensors_an_error(data, tmp_path):
    script = """
import sys
sys.modules["torch"] = sys.modules["torch_geometric"] = None
import numpy, graphmill
data = graphmill.open(sys.argv[1])
batch = next(iter(graphmill.NeighborLoader(data, [2], "train", batch_size=8)))
assert type(batch).__name__ == "Batch" and isinstance(batch.x, numpy.ndarray) and batch.x.flags.writeable
for further in ({"output": "torch"}, {"pin_memory": True}):
    try:
        graphmill.NeighborLoader(data, [2], "train", **further)
    except ImportError as error:
        assert "pip install torch" in str(error), error
    else:
        raise AssertionError(further)
"""
    subprocess.run([sys.executable, "-c", script, data._arguments["path"]], check=True, timeout=60)
