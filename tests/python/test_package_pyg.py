"""Attribute by attribute the same as torch_geometric's own loaders, which a small sampler in plain Python drives.

Its compiled samplers have no wheels; `NodeLoader` and `LinkLoader`, which make batches of what a sampler finds, are its own.
All neighbours are taken, so that nothing is left to chance; what fixtures/pyg recorded of its samplers is compared in
test_pyg.py.
"""

import packages
import pytest
import torch
import torch_geometric.typing
from packages import CITES, REV, WRITES
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, LinkNeighborLoader, NeighborLoader, NodeLoader
from torch_geometric.sampler import (
    BaseSampler,
    HeteroSamplerOutput,
    NegativeSampling,
    NeighborSampler,
    NumNeighbors,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample
from torch_geometric.transforms import RandomLinkSplit

import graphmill


class AllNeighbors(BaseSampler):
    """Takes all neighbours hop by hop: nodes in order of discovery, edges in order of target, source, id."""

    def __init__(self, edges: dict, hops: int, num_nodes: dict, homogeneous: bool):
        self.edges, self.hops, self.num_nodes, self.homogeneous = edges, hops, num_nodes, homogeneous
        self.lists = {}
        for edge_type, (sources, targets) in edges.items():
            lists = self.lists[edge_type] = {}
            for source, target, edge in sorted(zip(sources.tolist(), targets.tolist(), range(len(sources)))):
                lists.setdefault(target, []).append((source, edge))

    def sample_from_nodes(self, index, **_):
        output = self.sample({index.input_type or "node": index.node.tolist()})
        output.metadata = (index.input_id, None)
        return output

    def sample_from_edges(self, index, neg_sampling=None):
        def sample(seeds, _):
            seeds = seeds if isinstance(seeds, dict) else {"node": seeds}
            return self.sample({name: nodes.tolist() for name, nodes in seeds.items()})

        num_nodes = self.num_nodes["node"] if self.homogeneous else self.num_nodes
        return edge_sample(index, sample, num_nodes, disjoint=False, neg_sampling=neg_sampling)

    def sample(self, seeds: dict):
        node = {name: list(seeds.get(name, [])) for name in self.num_nodes}
        place = {name: {id: row for row, id in enumerate(ids)} for name, ids in node.items()}
        begin = dict.fromkeys(node, 0)
        found = {name: ([], [], []) for name in self.edges}
        num_nodes = {name: [len(ids)] for name, ids in node.items()}
        num_edges = {name: [] for name in self.edges}
        for _ in range(self.hops):
            frontier = {name: range(begin[name], len(ids)) for name, ids in node.items()}
            begin = {name: len(ids) for name, ids in node.items()}
            for edge_type in sorted(self.edges):
                source_type, _, target_type = edge_type
                row, col, edge = found[edge_type]
                before = len(row)
                for target in frontier[target_type]:
                    for source, id in self.lists[edge_type].get(node[target_type][target], []):
                        if source not in place[source_type]:
                            place[source_type][source] = len(node[source_type])
                            node[source_type].append(source)
                        row.append(place[source_type][source]), col.append(target), edge.append(id)
                num_edges[edge_type].append(len(row) - before)
            for name, ids in node.items():
                num_nodes[name].append(len(ids) - begin[name])
        tensors = lambda part: {name: torch.tensor(lists[part], dtype=torch.long) for name, lists in found.items()}  # noqa: E731
        parts = [{name: torch.tensor(ids, dtype=torch.long) for name, ids in node.items()}, *map(tensors, range(3))]
        parts += [None, num_nodes, num_edges]
        if not self.homogeneous:
            return HeteroSamplerOutput(*parts)
        return SamplerOutput(*(part and next(iter(part.values())) for part in parts))


def assert_same(ours, theirs) -> None:
    """The same class, attributes, types, shapes and values."""
    assert type(ours) is type(theirs)
    ours, theirs = ours.to_dict(), theirs.to_dict()
    stores = [(name, ours[name], theirs[name]) for name in theirs if name != "_global_store"]
    if not any(isinstance(store, dict) for _, store, _ in stores):
        stores = [("data", ours, theirs)]
    assert {name for name in ours if ours[name] != {}} == {name for name in theirs if theirs[name] != {}}
    for name, mine, other in stores:
        assert set(mine) == set(other), name
        for key, value in other.items():
            assert type(mine[key]) is type(value), (name, key)
            if isinstance(value, torch.Tensor):
                assert mine[key].dtype == value.dtype and mine[key].shape == value.shape, (name, key)
                assert torch.equal(mine[key], value), (name, key)
            else:
                assert mine[key] == value, (name, key)


@pytest.fixture(scope="module")
def cites():
    generator = torch.Generator().manual_seed(3)
    edges = torch.randint(60, (2, 200), generator=generator)
    data = Data(edge_index=edges, x=torch.rand(60, 5, generator=generator), y=torch.arange(60) % 3)
    data.edge_attr = torch.rand(200, 2, generator=generator)
    data.train_mask = torch.arange(60) % 2 == 0
    return data


@pytest.fixture(scope="module")
def stored(cites, tmp_path_factory):
    return graphmill.from_pyg(cites, out=tmp_path_factory.mktemp("pyg") / "cites")


def without_masks(batch):
    del batch.train_mask
    return batch


def reference(data, hops: int = 2) -> AllNeighbors:
    return AllNeighbors({("node", "to", "node"): tuple(data.edge_index)}, hops, {"node": data.num_nodes}, True)


@pytest.mark.parametrize("nodes", [None, torch.tensor([5, 3, 44, 8, 21, 30, 2]), "mask"], ids=["all", "ids", "mask"])
def test_nodes_of_one_type(cites, stored, nodes):
    theirs = NodeLoader(cites, reference(cites), cites.train_mask if nodes == "mask" else nodes, batch_size=4)
    ours = graphmill.NeighborLoader(stored, [-1, -1], "train" if nodes == "mask" else nodes, batch_size=4)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert_same(mine, without_masks(other))


def test_links_of_one_type(cites, stored):
    pairs = torch.tensor([[1, 3, 5, 9, 11], [2, 4, 6, 10, 12]])
    for label in (None, torch.tensor([0, 1, 2, 1, 0]), torch.tensor([1, 1, 2, 1, 3])):
        theirs = LinkLoader(cites, reference(cites), pairs, edge_label=label, batch_size=2)
        ours = graphmill.LinkNeighborLoader(stored, [-1, -1], pairs, edge_label=label, batch_size=2)
        for mine, other in zip(ours, theirs, strict=True):
            compare_links(mine, without_masks(other))


def compare_links(mine, other, drawn: bool = False) -> None:
    """Theirs has the ends of links in order of id, and its own negatives: the structure is compared, and the ends' ids."""
    assert set(mine.keys()) == set(other.keys())
    for key, value in other.to_dict().items():
        assert type(mine[key]) is type(value), key
        if isinstance(value, torch.Tensor):
            assert mine[key].dtype == value.dtype and mine[key].dim() == value.dim(), key
    for key in ("edge_label_index", "src_index", "dst_pos_index", "dst_neg_index"):
        if key in other:
            assert mine[key].shape == other[key].shape, key
            count = len(other.input_id)
            if key in ("src_index", "dst_pos_index") or not drawn:
                assert torch.equal(mine.n_id[mine[key]], other.n_id[other[key]]), key
            elif key == "edge_label_index":
                assert torch.equal(mine.n_id[mine[key]][:, :count], other.n_id[other[key]][:, :count]), key
    assert torch.equal(mine.input_id, other.input_id)
    if "edge_label" in other:
        assert torch.equal(mine.edge_label, other.edge_label)


@pytest.mark.parametrize(("mode", "labelled"), [
    ("binary", None), ("binary", torch.long), ("binary", torch.float), ("binary", torch.bool), ("triplet", None),
])  # fmt: skip
@pytest.mark.parametrize("amount", [1, 2])
def test_links_with_negatives(cites, stored, mode, amount, labelled):
    pairs, negatives = torch.tensor([[1, 3, 5, 9], [2, 4, 6, 10]]), NegativeSampling(mode, amount)
    label = torch.tensor([0, 3, 1, 0], dtype=labelled) if labelled else None
    theirs = LinkLoader(cites, reference(cites), pairs, edge_label=label, neg_sampling=negatives, batch_size=3)
    ours = graphmill.LinkNeighborLoader(stored, [-1, -1], pairs, edge_label=label, neg_sampling=negatives, batch_size=3)
    for mine, other in zip(ours, theirs, strict=True):
        compare_links(mine, without_masks(other), drawn=True)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    stored = packages.heterogeneous(tmp_path_factory.mktemp("pyg") / "library")
    data = HeteroData()
    for name in stored.node_types:
        data[name].x = torch.from_numpy(stored.features(type=name))
    data["paper"].y = torch.from_numpy(stored.labels(type="paper"))
    edges = {name: torch.from_numpy(stored.edge_index(type=name)) for name in (WRITES, CITES, REV)}
    again = {}
    for name, edge_index in edges.items():
        data[name].edge_index = again[name] = edge_index
    out = tmp_path_factory.mktemp("pyg") / "again"
    return data, graphmill.from_pyg(data, out=out)


def hetero_reference(data) -> AllNeighbors:
    num_nodes = {name: data[name].num_nodes for name in data.node_types}
    return AllNeighbors({name: tuple(data[name].edge_index) for name in data.edge_types}, 2, num_nodes, False)


@pytest.mark.parametrize("nodes", ["paper", ("author", torch.tensor([4, 9, 1]))], ids=str)
def test_nodes_of_several_types(library, nodes):
    data, stored = library
    theirs = NodeLoader(data, hetero_reference(data), nodes, batch_size=7)
    ours = graphmill.NeighborLoader(stored, [-1, -1], nodes, batch_size=7)
    for mine, other in zip(ours, theirs, strict=True):
        assert_same(mine, other)


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_links_of_several_types(library, mode):
    data, stored = library
    negatives = mode and NegativeSampling(mode, 1)
    pairs = (WRITES, torch.tensor([[0, 2, 4], [9, 8, 7]]))
    (other,) = LinkLoader(data, hetero_reference(data), pairs, neg_sampling=negatives, batch_size=3)
    (mine,) = graphmill.LinkNeighborLoader(stored, [-1, -1], pairs, neg_sampling=negatives, batch_size=3)
    ours, theirs = mine.to_dict(), other.to_dict()
    assert set(ours) == set(theirs)
    for name, store in theirs.items():
        assert set(ours[name]) == set(store), name
        for key, value in store.items():
            assert type(ours[name][key]) is type(value), (name, key)
            if isinstance(value, torch.Tensor):
                assert ours[name][key].dtype == value.dtype and ours[name][key].dim() == value.dim(), (name, key)


def test_their_loaders_run_against_a_dataset(cites, stored):
    feature_store, graph_store = stored.pyg_stores()
    assert torch.equal(feature_store.get_tensor(None, "x", index=None), cites.x)
    assert torch.equal(feature_store.get_tensor(None, "y", index=torch.tensor([4, 2])), cites.y[[4, 2]])
    assert feature_store.get_tensor_size(None, "x") == (60, 5)
    row, colptr = graph_store.get_edge_index(edge_type=None, layout="csc")
    assert len(colptr) == 61 and len(row) == 200
    loader = NodeLoader(stored.pyg_stores(), stored.pyg_sampler([-1, -1]), torch.arange(30), batch_size=8)
    theirs = NodeLoader(cites, reference(cites), torch.arange(30), batch_size=8)
    for mine, other in zip(loader, theirs, strict=True):
        for key in ("x", "y", "edge_index", "n_id", "e_id", "input_id", "num_sampled_nodes", "num_sampled_edges"):
            assert torch.equal(torch.as_tensor(mine[key]), torch.as_tensor(other[key])), key
    torch.manual_seed(5)
    drawn = [batch.n_id.tolist() for batch in NodeLoader(stored.pyg_stores(), stored.pyg_sampler([1]), torch.arange(9))]
    torch.manual_seed(5)
    again = [batch.n_id.tolist() for batch in NodeLoader(stored.pyg_stores(), stored.pyg_sampler([1]), torch.arange(9))]
    assert drawn == again


@pytest.mark.filterwarnings("ignore:.*without a 'pyg-lib' installation")
def test_their_neighbor_sampler_reads_the_same_graph_from_the_stores(stored, library):
    """Drawing takes their compiled extras; what they draw from does not."""
    edges = torch.from_numpy(stored.edge_index())
    ours = NeighborSampler(stored.pyg_stores(), [2])
    theirs = NeighborSampler(Data(edge_index=edges, num_nodes=stored.num_nodes), [2])
    assert ours.num_nodes == theirs.num_nodes
    for name in ("colptr", "row", "perm"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    _, again = library
    data = HeteroData({name: {"num_nodes": count} for name, count in again.num_nodes_dict.items()})
    for name in again.edge_types:
        data[name].edge_index = torch.from_numpy(again.edge_index(type=name))
    ours, theirs = NeighborSampler(again.pyg_stores(), [2]), NeighborSampler(data, [2])
    for name in ("colptr_dict", "row_dict", "perm"):
        found, expected = getattr(ours, name), getattr(theirs, name)
        assert set(found) == set(expected), name
        assert all(torch.equal(found[key], expected[key]) for key in expected), name


class StandIn:
    """pyg-lib's operators, which draw from lists of sources by target, in plain Python: all neighbours are taken."""

    @staticmethod
    def neighbor_sample(colptr, row, seed, num_neighbors, *_):
        lists = {("node", "to", "node"): StandIn.pairs(colptr, row)}
        sampler = AllNeighbors(lists, len(num_neighbors), {"node": len(colptr) - 1}, True)
        found = sampler.sample({"node": seed.tolist()})
        return found.row, found.col, found.node, found.edge, found.num_sampled_nodes, found.num_sampled_edges

    @staticmethod
    def hetero_neighbor_sample(node_types, edge_types, colptr_dict, row_dict, seed_dict, num_neighbors, *_):
        names = {"__".join(name): name for name in edge_types}
        lists = {names[key]: StandIn.pairs(colptr, row_dict[key]) for key, colptr in colptr_dict.items()}
        hops = max(map(len, num_neighbors.values()))
        seeds = {name: ids.tolist() for name, ids in seed_dict.items()}
        found = AllNeighbors(lists, hops, dict.fromkeys(node_types, 0), False).sample(seeds)
        edges = [found.row, found.col, found.edge, found.num_sampled_edges]
        row, col, edge, num_edges = ({"__".join(name): value for name, value in part.items()} for part in edges)
        return row, col, found.node, edge, found.num_sampled_nodes, num_edges

    @staticmethod
    def pairs(colptr, row):
        return row, torch.arange(len(colptr) - 1).repeat_interleave(colptr.diff())


def test_their_neighbor_loader_runs_against_the_stores(stored, library, monkeypatch):
    """As it does where their compiled extras are; here something stands in for these."""
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", True)
    monkeypatch.setattr(torch.ops, "pyg", StandIn, raising=False)
    x, y, edges = map(torch.from_numpy, (stored.features(), stored.labels(), stored.edge_index()))
    seeds = torch.tensor([5, 3, 44, 8, 21, 30, 2])
    theirs = NeighborLoader(Data(x=x, y=y, edge_index=edges), [2, 2], seeds, batch_size=3)
    for mine, other in zip(NeighborLoader(stored.pyg_stores(), [2, 2], seeds, batch_size=3), theirs, strict=True):
        assert mine.num_nodes == other.num_nodes
        del mine.num_nodes
        assert_same(mine, other)
        assert torch.equal(mine.n_id[mine.edge_index], edges[:, mine.e_id])
    _, again = library
    data = HeteroData()
    for name in again.node_types:
        data[name].x = torch.from_numpy(again.features(type=name))
    for name in again.edge_types:
        data[name].edge_index = torch.from_numpy(again.edge_index(type=name))
    data["paper"].y = torch.from_numpy(again.labels(type="paper"))
    seeds = ("paper", torch.tensor([9, 4, 77]))
    (mine,) = NeighborLoader(again.pyg_stores(), [2, 2], seeds, batch_size=3)
    (other,) = NeighborLoader(data, [2, 2], seeds, batch_size=3)
    for name in again.node_types:
        del mine[name].num_nodes
    assert_same(mine, other)
    links = torch.tensor([[1, 3, 5], [2, 4, 6]])
    for batch in LinkNeighborLoader(stored.pyg_stores(), [2], (None, links), neg_sampling="binary", batch_size=3):
        assert torch.equal(batch.n_id[batch.edge_label_index][:, :3], links) and torch.equal(batch.x, x[batch.n_id])


def test_their_loaders_run_in_workers_too(library):
    _, stored = library
    seeds = ("paper", torch.arange(20))
    loader = NodeLoader(stored.pyg_stores(), stored.pyg_sampler([2, 2]), seeds, batch_size=8, num_workers=2)
    assert [batch["paper"].batch_size for batch in loader] == [8, 8, 4]
    links = (CITES, torch.tensor([[1, 2, 3], [4, 5, 6]]))
    sampler = stored.pyg_sampler([2, 2])
    for batch in LinkLoader(stored.pyg_stores(), sampler, links, neg_sampling="triplet", batch_size=3):
        assert batch["paper"].dst_neg_index.shape == (3,)


def test_their_loaders_keep_edges_that_are_walked_outward(workshop):
    (workshop.path / "writes.csv").write_text("src,dst\n0,0\n0,1\n1,1\n2,0\n")
    workshop.ingest('layout = "both"\n[[edges]]\ntype = "author:writes:paper"\nfiles = "writes.csv"\n')
    data = graphmill.open(workshop.path / "out")
    seeds = ("author", torch.tensor([1, 0]))
    (batch,) = NodeLoader(data.pyg_stores(), data.pyg_sampler([-1], direction="out"), seeds, batch_size=2)
    assert batch.edge_types == [WRITES]
    authors, papers = batch[WRITES].edge_index
    pairs = zip(batch["author"].n_id[authors].tolist(), batch["paper"].n_id[papers].tolist(), strict=True)
    assert list(pairs) == [(1, 1), (0, 0), (0, 1)]
    (workshop.path / "cites.csv").write_text("src,dst\n0,1\n0,2\n1,2\n")
    workshop.ingest('layout = "both"\n[[edges]]\nfiles = "cites.csv"\n', "cites")
    data = graphmill.open(workshop.path / "cites")
    (batch,) = NodeLoader(data.pyg_stores(), data.pyg_sampler([-1], direction="out"), torch.tensor([0]), batch_size=1)
    assert batch.n_id[batch.edge_index].T.tolist() == [[0, 1], [0, 2]]


def test_their_loaders_run_against_servers(binary, tmp_path):
    here = packages.heterogeneous(tmp_path / "h", parts=2)
    seeds = ("paper", torch.arange(30))
    with packages.serving(binary, tmp_path / "h", partitions=["0", "1"]) as servers:
        with graphmill.connect([server.address for server in servers], timeout=20) as there:
            found = []
            for data in (there, here):
                torch.manual_seed(3)
                found.append(list(NodeLoader(data.pyg_stores(), data.pyg_sampler([3, 2]), seeds, batch_size=8)))
    for mine, other in zip(*found, strict=True):
        assert_same(mine, other)


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("negatives", [True, False])
def test_what_a_link_split_adds_is_for_the_loader(cites, tmp_path, undirected, negatives):
    both = torch.cat([cites.edge_index, cites.edge_index.flip(0)], 1).unique(dim=1)
    graph = Data(edge_index=both, x=cites.x)
    torch.manual_seed(1)
    split = RandomLinkSplit(is_undirected=undirected, add_negative_train_samples=negatives)
    for place, part in enumerate(split(graph)):
        stored = graphmill.from_pyg(part, out=tmp_path / str(place))
        assert set(stored.node_features) == {"x"} and stored.edge_features == {}
        pairs, label = part.edge_label_index, part.edge_label
        for given in (label, label.bool(), label.long(), label.double(), label.bfloat16()):
            (batch,) = graphmill.LinkNeighborLoader(stored, [2], pairs, given, batch_size=pairs.size(1))
            assert batch.edge_label.dtype == given.dtype and torch.equal(batch.edge_label, given)
            assert torch.equal(batch.n_id[batch.edge_label_index], pairs)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (torch.tensor([0.5, 1.0]), "edge_label has 0.5, expected a class for each pair, a whole number"),
        (torch.ones(2, 3), r"edge_label has the shape \(2, 3\), expected one class for each pair"),
        (torch.ones(3), "3 values for 2 pairs"),
        ([float("nan"), 1], "edge_label has nan"),
    ],
    ids=str,
)
def test_labels_of_pairs_are_classes(stored, label, words):
    with pytest.raises(ValueError, match=words):
        graphmill.LinkNeighborLoader(stored, [2], [[0, 1], [2, 3]], label)


def test_masks_of_numbers_are_masks(cites, tmp_path):
    data = Data(edge_index=cites.edge_index, x=cites.x, train_mask=cites.train_mask.to(torch.uint8))
    data.val_mask = (~cites.train_mask).long()
    stored = graphmill.from_pyg(data, out=tmp_path / "g")
    assert stored.splits == {"train": 30, "val": 30} and stored.node_ids("train").tolist() == list(range(0, 60, 2))
    data.test_mask = torch.arange(60)
    with pytest.raises(ValueError, match="test_mask has other values than 0 and 1"):
        graphmill.from_pyg(data, out=tmp_path / "h")
    data.test_mask = torch.ones(59, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"test_mask is a mask of shape \(59,\), but there are 60 nodes"):
        graphmill.from_pyg(data, out=tmp_path / "h")


def test_what_is_left_out_is_named(cites, tmp_path, recwarn):
    graphmill.from_pyg(cites, out=tmp_path / "quiet")
    assert not [warning for warning in recwarn if "from_pyg" in str(warning.message)]
    data = Data(edge_index=cites.edge_index, x=cites.x, y=torch.tensor([3]), name="cora", parts=["a"] * 60)
    with pytest.warns(UserWarning, match="leaves out .*: y, name, parts"):
        stored = graphmill.from_pyg(data, out=tmp_path / "g")
    assert set(stored.node_features) == {"x"} and stored.num_classes == 0
    data = Data(edge_index=cites.edge_index, x=cites.x, face=torch.zeros((3, 60), dtype=torch.long), edge_labels=torch.ones(200))
    data.link_index, data.link = cites.edge_index, torch.ones(200)
    with pytest.warns(UserWarning, match=r": face, link_index$"):
        stored = graphmill.from_pyg(data, out=tmp_path / "columns")
    assert set(stored.node_features) == {"x"} and set(stored.edge_features) == {"edge_labels"}
    hetero = HeteroData(about="us")
    hetero["paper"].x, hetero["paper"].title = cites.x, "papers"
    hetero["paper", "cites", "paper"].edge_index = cites.edge_index
    hetero["paper", "cites", "paper"].edge_label_index = cites.edge_index
    with pytest.warns(UserWarning, match=r": about, paper\.title$"):
        graphmill.from_pyg(hetero, out=tmp_path / "h")


def test_names_that_batches_have_are_refused(cites, tmp_path):
    data = Data(edge_index=cites.edge_index, x=cites.x, input_id=torch.arange(60))
    with pytest.raises(ValueError, match="'input_id', as a part of batches is"):
        graphmill.from_pyg(data, out=tmp_path / "g")


def test_one_column_of_labels_stays_one(cites, tmp_path):
    data = Data(edge_index=cites.edge_index, x=cites.x, y=cites.y[:, None])
    stored = graphmill.from_pyg(data, out=tmp_path / "g")
    assert stored.num_classes == 3
    theirs = NodeLoader(data, reference(data), torch.arange(9), batch_size=4)
    for mine, other in zip(graphmill.NeighborLoader(stored, [-1, -1], range(9), batch_size=4), theirs, strict=True):
        assert_same(mine, other)


def test_their_numbers_of_neighbors_are_taken(stored, library):
    def found(data, numbers, nodes):
        return [batch.to_dict() for batch in graphmill.NeighborLoader(data, numbers, nodes, output="pyg")]

    assert str(found(stored, NumNeighbors([2, 1]), [4])) == str(found(stored, [2, 1], [4]))
    _, library = library
    every = found(library, {WRITES: [3, 1], CITES: [2, 2], REV: [2, 2]}, ("paper", [4]))
    assert str(found(library, NumNeighbors({WRITES: [3, 1]}, default=[2, 2]), ("paper", [4]))) == str(every)
    some = found(library, {WRITES: [3, 1]}, ("paper", [4]))
    assert str(found(library, {"author__writes__paper": [3, 1]}, ("paper", [4]))) == str(some)
    with pytest.raises(ValueError, match="empty dict: name an edge type"):
        found(library, {}, "paper")
    with pytest.raises(ValueError, match="there is no edge type"):
        found(library, {"author__to__paper": [1]}, "paper")
    with pytest.raises(ValueError, match="name an edge type"):
        library.edge_index()
