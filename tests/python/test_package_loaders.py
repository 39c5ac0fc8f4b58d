"""Loaders as a training script uses them: epochs, ranks, states, memory, mistakes."""

import copy
import gc
import io
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path

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


def test_of_loops_in_loops_the_state_is_that_of_the_newest_that_goes_on(data):
    loader = load(data)
    outer = iter(loader)
    next(outer)
    inner = iter(loader)
    next(inner), next(inner)
    assert (loader.state_dict()["epoch"], loader.state_dict()["rounds"]) == (1, 2)
    list(inner)
    assert (loader.state_dict()["epoch"], loader.state_dict()["rounds"]) == (0, 1)
    next(outer)
    for _ in loader:
        break
    gc.collect()
    assert (loader.state_dict()["epoch"], loader.state_dict()["rounds"]) == (0, 2)
    list(outer)
    assert (loader.state_dict()["epoch"], loader.state_dict()["rounds"]) == (3, 0)


def test_seeds_per_server_are_one_list(data):
    def load(seeds):
        loader = graphmill.NeighborLoader(data, [3], seeds, batch_size=4, shuffle=True, output="numpy")
        return [(batch.n_id.tolist(), batch.input_id.tolist()) for batch in loader]

    expected = load(np.array([7, 3, 9, 1, 4, 0, 2]))
    assert load([np.array([7, 3, 9]), torch.tensor([], dtype=torch.long), [1, 4, 0, 2]]) == expected
    assert load({2: [4, 0, 2], 0: torch.tensor([7, 3, 9]), np.int64(1): range(1, 2)}) == expected
    assert load({}) == load([[]]) == []
    with pytest.raises(ValueError, match="numbers of servers"):
        load({-1: [1]})
    with pytest.raises(ValueError, match="one dimension"):
        load([[[1, 2]], [[3, 4]]])


@pytest.mark.parametrize("world_size, drop_last, even", [(1, False, None), (3, False, True), (3, True, True), (2, False, False)])
def test_partition_order_meets_every_seed_once(tmp_path, world_size, drop_last, even):
    data = packages.homogeneous(tmp_path / "g", parts=3)
    train = data.node_ids("train")
    met = []
    for rank in range(world_size):
        loader = load(
            data, seed_order="partition", drop_last=drop_last, rank=rank, world_size=world_size, even=even, output="numpy"
        )
        batches = list(loader)
        assert len(batches) == len(loader)
        for batch in batches:
            assert len(set(data.partition_ids(batch.input_id))) == 1 and (not drop_last or len(batch.input_id) == 16)
        met += [seed for batch in batches if not getattr(batch, "repeated", False) for seed in batch.input_id]
    if drop_last:
        owned = np.bincount(data.partition_ids(train))
        assert len(set(met)) == len(met) == sum(owned // 16) // world_size * world_size * 16
    else:
        assert sorted(met) == train.tolist()


def test_a_state_in_partition_order_names_the_partitioning(tmp_path):
    two, three = (packages.homogeneous(tmp_path / str(parts), parts=parts) for parts in (2, 3))
    assert two.fingerprint == three.fingerprint
    loader = load(two, seed_order="partition")
    next(iter(loader))
    state = loader.state_dict()
    resumed = load(two, seed_order="partition")
    resumed.load_state_dict(state)
    assert len(ids(resumed)) == len(loader) - 1
    for other in (load(three, seed_order="partition"), load(two)):
        with pytest.raises(ValueError, match="partitioning"):
            other.load_state_dict(state)
    load(three).load_state_dict(load(two).state_dict())


def test_a_state_of_other_batches_is_refused(data):
    state = load(data).state_dict()
    with pytest.raises(ValueError, match="sampler configuration"):
        load(data, seed=3).load_state_dict(state)
    with pytest.raises(ValueError, match="batch size"):
        load(data, batch_size=8).load_state_dict(state)
    with pytest.raises(ValueError, match="epoch"):
        load(data).load_state_dict({**state, "epoch": 2**64 - 1})
    with pytest.raises(ValueError, match="not the state") as told:
        load(data).load_state_dict({"epoch": 1})
    assert "column" not in str(told.value) and "field" not in str(told.value)


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
    kept, clones = [], []
    for batch in load(data, num_threads=2, output="torch"):
        kept.append(batch)
        clones.append((batch.x.clone(), batch.edge_index.clone()))
    list(load(data, num_threads=2))
    assert ids(kept) == ids(load(data))
    for batch, (x, edge_index) in zip(kept, clones, strict=True):
        assert torch.equal(batch.x, x) and torch.equal(batch.edge_index, edge_index)


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
    with pytest.raises(ValueError, match="this loader is closed"):
        next(iterator)


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("failing", [{2}, {0, 3}, {9}])
def test_a_batch_that_a_transform_fails_on_is_not_counted(data, threads, failing):
    whole, number = ids(load(data)), iter(range(100))

    def transform(batch):
        if next(number) in failing:
            raise OSError("full")
        return batch

    loader, seen = load(data, transform=transform, num_threads=threads), []
    iterator = iter(loader)
    for place in range(10):
        if place in failing:
            with pytest.raises(OSError, match="full"):
                next(iterator)
        else:
            seen.append(next(iterator).n_id.tolist())
        resumed = load(data)
        resumed.load_state_dict(loader.state_dict())
        missed = [batch for at, batch in enumerate(whole) if at > place or (at in failing and at <= place)]
        assert ids(resumed) == missed
    assert list(iterator) == [] and seen == [batch for at, batch in enumerate(whole) if at not in failing]
    resumed.load_state_dict(loader.state_dict())
    assert ids(resumed) == [whole[at] for at in sorted(failing)]
    assert len(ids(loader)) == 10 and loader.state_dict()["epoch"] == 2


def test_a_transform_cannot_end_an_epoch(data):
    loader = load(data, transform=lambda batch: next(iter(())))
    with pytest.raises(RuntimeError, match="transform raised StopIteration"):
        next(iter(loader))
    assert loader.state_dict()["rounds"] == 0


def test_pinning_without_cuda_is_left_out_with_a_warning(data):
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="not pinned") as told:
            loader = load(data, pin_memory=True)
        assert told[0].filename == __file__ and len(ids(loader)) == 10


def test_loaders_can_be_pickled_and_copied(data):
    loader = graphmill.NeighborLoader(data, [3, 2], torch.arange(40), batch_size=16, shuffle=True, seed=3)
    assert ids(pickle.loads(pickle.dumps(loader))) == ids(copy.deepcopy(loader)) == ids(loader)
    ppr = graphmill.PPRLoader(data, "train", max_ppr_nodes=3, batch_size=50)
    assert ids(pickle.loads(pickle.dumps(ppr))) == ids(ppr)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(load(data, transform=lambda batch: batch))


class Wrapped(torch.utils.data.IterableDataset):
    """What a DataLoader makes its workers go over."""

    def __init__(self, data, ranked):
        self.data, self.ranked = data, ranked

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        ranks = {"rank": worker.id, "world_size": worker.num_workers, "even": False} if self.ranked else {}
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            batches = ids(load(self.data, output="numpy", **ranks))
        return iter([(len(batches), [str(one.message) for one in told])])


@pytest.mark.parametrize("ranked", [False, True])
def test_workers_of_a_dataloader_are_told_that_each_has_everything(data, ranked):
    found = list(torch.utils.data.DataLoader(Wrapped(data, ranked), batch_size=None, num_workers=2))
    assert [count for count, _ in found] == ([5, 5] if ranked else [10, 10])
    for _, told in found:
        assert told == [] if ranked else "each of the 2 workers" in told[0]


class Share(torch.utils.data.IterableDataset):
    """A loader as torchdata's StatefulDataLoader takes it: in this process, or in workers that have a share each."""

    def __init__(self, data):
        self.data, self.made = data, None

    @property
    def loader(self):
        if self.made is None:
            worker = torch.utils.data.get_worker_info()
            ranks = {} if worker is None else {"rank": worker.id, "world_size": worker.num_workers, "even": False}
            self.made = load(self.data, output="torch", **ranks)
        return self.made

    def __iter__(self):
        return iter(self.loader)

    def state_dict(self):
        return self.loader.state_dict()

    def load_state_dict(self, state):
        self.loader.load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [1, 4, 10])
def test_torchdatas_stateful_loader_goes_on_where_it_was(data, workers, taken):
    from torchdata.stateful_dataloader import StatefulDataLoader

    def stateful():
        return StatefulDataLoader(Share(data), batch_size=None, num_workers=workers)

    whole = ids(stateful())
    assert sorted(whole) == sorted(ids(load(data)))
    loader = stateful()
    iterator = iter(loader)
    before = ids(next(iterator) for _ in range(taken))
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    resumed = stateful()
    resumed.load_state_dict(state)
    after = ids(resumed)
    assert before + after == whole if taken < len(whole) else before == whole


def test_loaders_side_by_side_lists_and_progress_bars(data):
    from tqdm import tqdm

    expected = {seed: ids(load(data, seed=seed)) for seed in (1, 2)}
    both = list(zip(load(data, seed=1), load(data, seed=2), strict=True))
    assert [ids(side) for side in zip(*both, strict=True)] == [expected[1], expected[2]]
    loader = load(data, seed=1)
    bar = tqdm(loader, disable=False, file=io.StringIO())
    assert bar.total == len(loader) == 10 and ids(bar) == expected[1]
    iterator = iter(loader)
    assert len(iterator) == 10 and next(iterator) is not None and len(iterator) == 9


def test_threads_that_share_a_loader_have_an_epoch_each(data):
    loader, found = load(data, output="numpy"), []
    threads = [threading.Thread(target=lambda: found.append({batch.epoch for batch in loader})) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(tuple, found)) == [(epoch,) for epoch in range(8)]


def test_what_is_closed_still_says_what_it_was(data, tmp_path):
    opened = packages.homogeneous(tmp_path / "g")
    loader = load(opened)
    loader.close()
    opened.close()
    assert "batches=10, closed" in repr(loader) and "num_nodes=300" in repr(opened)


def test_datasets_and_loaders_are_found_again_from_another_folder(tmp_path, monkeypatch):
    packages.homogeneous(tmp_path / "g")
    monkeypatch.chdir(tmp_path)
    loader = load(graphmill.open("g"))
    expected = ids(loader)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert ids(pickle.loads(pickle.dumps(loader))) == expected


def test_a_batch_is_as_torch_geometrics_constructor_makes_it(data):
    from torch_geometric.data import Data

    batch = next(iter(load(data)))
    made = Data(**batch.to_dict())
    assert type(batch) is Data and vars(batch).keys() == vars(made).keys()
    assert vars(batch._store).keys() == vars(made._store).keys() and batch._store._parent() is batch
    assert batch.to_dict().keys() == made.to_dict().keys() and batch.validate() and batch.num_nodes == made.num_nodes
    again = pickle.loads(pickle.dumps(batch))
    assert again.n_id.tolist() == batch.n_id.tolist() and again.clone().num_edges == batch.num_edges


def test_the_arguments_of_all_loaders_are_told_of(data):
    from graphmill import _arguments

    assert list(_arguments.MEANINGS) == list(_arguments.DEFAULTS)
    page = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text()
    for name in _arguments.DEFAULTS:
        assert f"`{name}`" in page
        for loader in graphmill.Loader.__subclasses__():
            assert f"\n        {name}: " in loader.__doc__, loader


def test_features_named_in_a_set_come_in_an_order_of_their_own(data):
    from graphmill import _arguments

    names = {"x", "age", "edge_attr", "edge_weight"}
    assert _arguments.features(data, names) == (["age", "x"], ["edge_attr", "edge_weight"])


@pytest.mark.parametrize("timeout", [None, "soon", 0, -1, float("nan"), float("inf"), True])
def test_a_timeout_is_a_number_of_seconds(timeout):
    with pytest.raises(ValueError, match="timeout is .*, expected"):
        graphmill.connect("127.0.0.1:1", timeout=timeout)


def test_classes_are_counted_also_where_labels_are_values(tmp_path):
    y = np.array([0.5, np.nan, 0.5, np.inf])
    assert graphmill.from_edges([0], [1], out=tmp_path / "values", num_nodes=4, y=y).num_classes == 3
    halves = torch.tensor([0.0, 2.0, 2.0, 0.0], dtype=torch.bfloat16)
    assert graphmill.from_edges([0], [1], out=tmp_path / "halves", num_nodes=4, y=halves).num_classes == 2


def test_shares_of_ranks_are_checked(data):
    shares = [data.node_ids("train", rank=rank, world_size=3) for rank in range(3)]
    assert np.concatenate(shares).tolist() == data.node_ids("train").tolist()
    for rank, world_size in ((2**40, 2**41), (-1, 2), (2, 2), (-1, None), (None, 2), (0, 2**33), (0.5, 2)):
        with pytest.raises(ValueError, match="rank|world_size"):
            data.node_ids("train", rank=rank, world_size=world_size)
        with pytest.raises(ValueError, match="rank|world_size"):
            data.anchor_labels("train", rank=rank, world_size=world_size)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"input_nodes": "trian"}, ValueError, "there is no split 'trian'; there are: .*train"),
        ({"input_nodes": ("paper", [1, 2])}, ValueError, "node type 'paper', but the dataset is homogeneous"),
        ({"weight_attr": False}, ValueError, "weight_attr is False"),
        ({"weight_attr": "edge_attr"}, ValueError, "weight_attr is 'edge_attr', which is a feature"),
        ({"input_nodes": [1, 300]}, IndexError, "node id 300 is out of range"),
        ({"input_nodes": [-1]}, ValueError, "-1 is not an id"),
        ({"input_nodes": [0.5]}, ValueError, "whole numbers"),
        ({"input_nodes": np.ones(7, bool)}, ValueError, "mask"),
        ({"input_nodes": {"paper": [1]}}, ValueError, "the key 'paper', expected the numbers of servers"),
        ({"seed_order": "random"}, ValueError, "seed_order is 'random', expected \"global\" or \"partition\""),
        ({"num_neighbors": [3, -2]}, ValueError, "-1 for all"),
        ({"num_neighbors": "many"}, ValueError, "list of whole numbers"),
        ({"num_neighbors": [1.5]}, ValueError, "list of whole numbers"),
        ({"num_neighbors": [True]}, ValueError, "list of whole numbers"),
        ({"num_neighbors": [[1, 2], [3, 4]]}, ValueError, "list of whole numbers"),
        ({"num_neighbors": [[1, 2], [3]]}, ValueError, "list of whole numbers"),
        ({"num_neighbors": 3}, ValueError, "list of whole numbers"),
        ({"num_neighbors": [2**40]}, ValueError, "num_neighbors has 1099511627776"),
        ({"num_neighbors": [2**70]}, ValueError, "num_neighbors has 1180591620717411303424"),
        ({"num_neighbors": {}}, ValueError, "homogeneous"),
        ({"input_nodes": [2**70]}, ValueError, "largest id"),
        ({"batch_size": 2**70}, ValueError, "batch_size is 1180591620717411303424"),
        ({"prefetch": 2**70}, ValueError, "prefetch"),
        ({"num_threads": 5000}, ValueError, "num_threads"),
        ({"seed": 2**64}, ValueError, "seed"),
        ({"rank": 0.5, "world_size": 2}, ValueError, "rank is 0.5"),
        ({"rank": 0, "world_size": 2**70}, ValueError, "world_size"),
        ({"rank": True, "world_size": 2}, ValueError, "rank is True"),
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"alpha": float("nan")}, "alpha is nan, expected a number, 0.001 or more and below 1"),
        ({"alpha": 1}, "alpha is 1"),
        ({"alpha": "half"}, "alpha is 'half'"),
        ({"eps": 0}, "eps is 0"),
        ({"eps": float("inf")}, "eps is inf"),
        ({"max_ppr_nodes": -1}, "max_ppr_nodes is -1"),
        ({"max_ppr_nodes": 2.5}, "max_ppr_nodes is 2.5"),
        ({"max_ppr_nodes": 2**70}, "max_ppr_nodes"),
        ({"max_ppr_nodes": {"paper": 1}}, "homogeneous"),
        ({"num_neighbors_per_hop": 0}, "num_neighbors_per_hop is 0"),
        ({"num_neighbors_per_hop": 2**40}, "num_neighbors_per_hop"),
        ({"replace": True}, "replace means nothing"),
        ({"weight_attr": "w"}, "weight_attr means nothing"),
    ],
    ids=str,
)
def test_mistakes_of_ppr_are_told_in_words(data, arguments, words):
    with pytest.raises(ValueError, match=words):
        graphmill.PPRLoader(data, **arguments)


@pytest.mark.parametrize("amount", [0, -1, float("nan"), float("inf"), 2**40, "one"])
@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_amounts_of_negatives_are_checked(mode, amount):
    with pytest.raises(ValueError, match="the amount of neg_sampling is"):
        graphmill.NegativeSampling(mode, amount)


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
