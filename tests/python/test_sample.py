"""`graphmill sample` against the law in plain Python: whole batches, value by value, on one partition and on four."""

from dataclasses import dataclass

import numpy as np
import pytest
from cases import Case, random_case
from conftest import Workshop
from graphs import write_csv, write_npy
from law import Law, order
from reader import Dataset
from sample import ask, refusal, rounded, sample
from samplers import BinarySampler
from toys import toy_graph

USER, ITEM = "Käufer/in", "item"
VIEWS, KNOWS, HAS, NEXT = (USER, "views", ITEM), (USER, "knows", USER), (ITEM, "has", "tag"), (ITEM, "next", ITEM)
LIKES, SKIPS, TRUSTS = (USER, "likes", ITEM), (USER, "skips", ITEM), (USER, "trusts", USER)
SHOP = """
layout = "both"

[[nodes]]
type = "Käufer/in"
count = 80
features.x = { files = "user-x.npy" }
features.age = { files = "age.npy" }
labels = { files = "group.npy" }
weights = { files = "user-weight.npy" }
splits = { by = "fraction", train = 0.6, val = 0.2, test = 0.2, seed = 2 }

[[nodes]]
type = "item"
count = 50
features.x = { files = "item-x.npy" }
features.half = { files = "item-x.npy", dtype = "f16" }
features.brain = { files = "item-x.npy", dtype = "bf16" }
labels = { files = "tags.npy", kind = "multi" }
weights = { files = "item-weight.npy" }

[[nodes]]
type = "tag"
count = 9

[[edges]]
type = ["Käufer/in", "views", "item"]
files = "views.csv"
timestamp = "t"
features.attr = { columns = ["a"], dtype = "f32" }

[[edges]]
type = ["Käufer/in", "knows", "Käufer/in"]
files = "knows.csv"
undirected = true
weight = "w"

[[edges]]
type = ["item", "has", "tag"]
files = "has.csv"
edge_ids = true

[[edges]]
type = ["item", "next", "item"]
files = "next.csv"
weight = "w"
features.attr = { columns = ["a"], dtype = "f64" }
features.rank = { columns = ["t"], dtype = "i32" }

[[edges]]
type = ["Käufer/in", "likes", "item"]
files = "likes.csv"
timestamp = "t"
role = "label"

[[edges]]
type = ["Käufer/in", "skips", "item"]
files = "skips.csv"
role = "label"

[[edges]]
type = ["Käufer/in", "trusts", "Käufer/in"]
files = "trusts.csv"
role = "label"
"""


@dataclass
class World:
    """A graph whole and cut into four, and the law of it."""

    workshop: Workshop
    dataset: Dataset

    def sample(self, folder: str, config: dict, *flags) -> list[dict]:
        return sample(self.workshop, folder, self.dataset.manifest, config, *flags)

    def expected(self, config: dict, seeds: list, **asked) -> list[dict]:
        return [rounded(batch, self.dataset.manifest) for batch in Law(self.dataset, config).batches(seeds, **asked)]

    def check(self, case: Case):
        expected = rounded(Law(self.dataset, case.config).batch(case.seeds, case.epoch, case.g), self.dataset.manifest)
        for folder in ("whole", "parts"):
            assert self.sample(folder, case.config, *case.arguments) == [expected], f"{folder}: {case}"


def write_shop(workshop: Workshop):
    rng, path = np.random.default_rng(6), workshop.path
    write_npy(path / "user-x.npy", rng.standard_normal((80, 3), dtype=np.float32))
    write_npy(path / "age.npy", rng.integers(0, 99, 80).astype(np.int32))
    write_npy(path / "group.npy", rng.integers(-1, 4, 80))
    write_npy(path / "item-x.npy", rng.standard_normal((50, 2, 2), dtype=np.float32))
    write_npy(path / "tags.npy", rng.integers(0, 2, (50, 4)).astype(np.uint8))
    write_npy(path / "user-weight.npy", rng.random(80, dtype=np.float32))
    write_npy(path / "item-weight.npy", rng.integers(0, 3, 50).astype(np.float32))
    for (_, relation, _), sources, targets, count in (
        (VIEWS, 80, 50, 600),
        (KNOWS, 80, 80, 200),
        (HAS, 50, 9, 70),
        (NEXT, 49, 50, 400),
        (LIKES, 78, 50, 150),
        (SKIPS, 80, 50, 90),
        (TRUSTS, 80, 80, 100),
    ):
        columns = {
            "src": rng.integers(0, sources, count),
            "dst": (rng.random(count) ** 2 * targets).astype(np.int64),
            "w": (rng.random(count) * rng.choice([0, 1e-40, 1e-25, 1, 2], count)).astype(np.float32),
            "t": rng.integers(0, 20, count),
            "a": rng.standard_normal(count),
        }
        write_csv(path / f"{relation}.csv", columns)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory, binary) -> dict[str, World]:
    made = {}
    for name in ("karate", "rmat", "shop"):
        workshop = Workshop(tmp_path_factory.mktemp(name), binary)
        if name == "karate":
            dataset = workshop.generate("karate", "--layout", "both", "--edge-ids", "--node-weights", out="whole")
        elif name == "rmat":
            size = ("--nodes", 300, "--edges", 4000, "--features", 2, "--classes", 3)
            dataset = workshop.generate("rmat", *size, "--weights", "--layout", "both", out="whole")
        else:
            write_shop(workshop)
            dataset = workshop.ingest(SHOP, "whole")
        workshop.run("partition", "whole", "--parts", 4, "--method", "hash", "--out", "parts", "--quiet")
        made[name] = World(workshop, dataset)
    return made


@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("name", ["karate", "rmat", "shop"])
def test_a_random_batch_follows_the_law(worlds, name, number):
    worlds[name].check(random_case(worlds[name].dataset, number))


# What chance may leave out, one by one

FANOUTS = {"plain": [5, 3], "mixed": [-1, 5], "zero": [0, 4], "none": [], "long": [3, 2, 2, 1], "all": [-1, -1]}


@pytest.mark.parametrize("fanouts", FANOUTS.values(), ids=FANOUTS)
@pytest.mark.parametrize("expand", ["neighbors", "induced"])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_fanouts(worlds, fanouts, expand, replace, weighted):
    options = {"fanouts": fanouts, "replace": replace, "weighted": weighted}
    for name in ("rmat", "shop"):
        type = next(iter(worlds[name].dataset.nodes))
        config = {"task": {"nodes": {"type": type}}, "expand": {expand: options}, "edge_ids": True}
        worlds[name].check(Case(config, [7, 3, 3, 20, 0], epoch=1, g=2))


@pytest.mark.parametrize("direction", ["in", "out"])
def test_fanouts_of_single_types(worlds, direction):
    fanouts = {KNOWS: [4, -1, 0], VIEWS: [2, 2, 2], NEXT: [0, 0, 3], HAS: [1, -1, 1]}
    for kept in ((KNOWS, VIEWS, NEXT, HAS), (KNOWS, VIEWS), (VIEWS, NEXT), (HAS,)):
        by_type = [{"type": type, "fanouts": fanouts[type]} for type in kept]
        for type in (USER, ITEM, "tag"):
            config = {
                "task": {"nodes": {"type": type}},
                "expand": {"neighbors": {"fanouts": by_type, "weighted": True}},
                "direction": direction,
            }
            worlds["shop"].check(Case(config, [1, 5, 8], epoch=0, g=0))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind, amount", [(None, None), ("binary", 1.7), ("triplet", 2)])
def test_links(worlds, kind, amount, strict, weighted):
    negatives = {kind: {"amount": amount, "strict": strict, "weighted": weighted}} if kind else None
    for name, types in (("karate", [None]), ("shop", [LIKES, VIEWS, TRUSTS, KNOWS])):
        for type in types:
            task = {"links": {"negatives": negatives, **({"type": type} if type else {})}}
            config = {"task": task, "expand": {"neighbors": {"fanouts": [3, 2]}}, "seed": 2**64 - 1}
            for pairs in ([(0, 1), (0, 1), (2, 2), (7, 0)], [(3, 4, 0), (5, 6, 2), (1, 1, 1)]):
                worlds[name].check(Case(config, pairs, epoch=3, g=1))


def test_negatives_that_cannot_be_found_are_missing(worlds):
    workshop = worlds["karate"].workshop
    pairs = [(s, d) for s in range(6) for d in range(6) if (s, d) != (2, 1)]
    write_csv(workshop.path / "full.csv", {"src": [s for s, _ in pairs], "dst": [d for _, d in pairs]})
    full = World(workshop, workshop.ingest('[[edges]]\nfiles = "full.csv"\n', "full"))
    for kind in ("binary", "triplet"):
        config = {
            "task": {"links": {"negatives": {kind: {"amount": 300, "strict": True}}}},
            "expand": {"neighbors": {"fanouts": [2]}},
        }
        expected = full.expected(config, [(0, 3), (2, 2)])
        assert full.sample("full", config, "--pairs", "0:3,2:2") == expected
        assert 0 < expected[0]["metadata"]["negatives_missing"] < 600


@pytest.mark.parametrize("most", [None, 1, 3])
@pytest.mark.parametrize("expand", [{"neighbors": {"fanouts": [3]}}, {"induced": {}}, {"ppr": {"eps": 0.01}}], ids=str)
def test_anchors(worlds, most, expand):
    for supervision in (
        [{"positive": LIKES}],
        [{"positive": LIKES, "negative": SKIPS}],
        [{"positive": TRUSTS, "negative": SKIPS}, {"positive": LIKES, "negative": None}],
    ):
        config = {"task": {"anchors": {"supervision": supervision, "max_labels": most}}, "expand": expand}
        worlds["shop"].check(Case(config, [9, 79, 9, 4, 30], epoch=2, g=7))


@pytest.mark.parametrize("options", [
    {},
    {"eps": 0.01, "top_up": True},
    {"alpha": 0.15, "eps": 0.001, "max_nodes": 12},
    {"eps": 0.001, "neighbors_per_hop": 4, "max_nodes": 500, "top_up": True},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("direction", ["in", "out"])
def test_personalised_pagerank(worlds, options, direction):
    for world in worlds.values():
        first = next(iter(world.dataset.nodes))
        config = {"task": {"nodes": {"type": first}}, "expand": {"ppr": options}, "direction": direction}
        world.check(Case(config, [5, 0, 5, 31], epoch=0, g=4))


@pytest.mark.parametrize("most", [{USER: 5}, {ITEM: 3, "tag": 2}, {USER: 2, ITEM: 30, "tag": 9}], ids=str)
def test_personalised_pagerank_keeps_as_many_as_each_type_may(worlds, most):
    config = {"task": {"nodes": {"type": ITEM}}, "expand": {"ppr": {"eps": 0.01, "max_nodes": most, "top_up": True}}}
    worlds["shop"].check(Case(config, [5, 0, 5, 31], epoch=0, g=4))


@pytest.mark.parametrize("number", [1, 64, 224, 318])
def test_a_node_that_is_found_again_by_a_shorter_way_has_the_lesser_hop(workshop, number):
    """In these graphs a node of high degree waits in no queue until others have been pushed, and then shortens ways."""
    rng = np.random.default_rng(number)
    count = int(rng.integers(100, 300))
    targets = (rng.random(count) ** 3 * 40).astype(np.int64)
    graph = toy_graph(40, np.stack([rng.integers(0, 40, count), targets], axis=1))
    config = {"expand": {"ppr": {"eps": 0.01, "alpha": 0.15, "max_nodes": 40}}}
    (expected,) = Law(graph, config).batches(list(range(0, 40, 4)))
    (found,) = BinarySampler(workshop).batches(graph, config, list(range(0, 40, 4)))
    assert found["metadata"] == expected["metadata"]


@pytest.mark.parametrize("walk", [[VIEWS], [KNOWS, NEXT], [HAS, NEXT, VIEWS]], ids=str)
@pytest.mark.parametrize("expand", [{"neighbors": {"fanouts": [3]}}, {"induced": {}}, {"ppr": {"eps": 0.01}}], ids=str)
def test_only_the_types_asked_for_are_walked(worlds, walk, expand):
    for type in (USER, ITEM):
        config = {"task": {"nodes": {"type": type}}, "expand": expand, "walk": walk}
        worlds["shop"].check(Case(config, [12, 13], epoch=0, g=0))


@pytest.mark.parametrize("dtype", [{}, {"feature_dtype": "f16"}], ids=str)
def test_everything_a_batch_can_carry(worlds, dtype):
    config = {
        **dtype,
        "task": {"nodes": {"type": USER}},
        "expand": {"neighbors": {"fanouts": [4, 4]}},
        "direction": "out",
        "features": ["x", "age", "half", "brain"],
        "edge_features": ["attr", "rank"],
        "labels": True,
    }
    for expand in (config["expand"], {"induced": {"fanouts": [2]}}, {"ppr": {"eps": 0.01}}):
        case = Case({**config, "expand": expand}, [1, 2, 3, 4], epoch=0, g=0)
        if "ppr" in expand:
            del case.config["edge_features"]
        worlds["shop"].check(case)


# Epochs


@pytest.mark.parametrize("flags", [[], ["--shuffle"], ["--drop-last"], ["--shuffle", "--drop-last"]], ids=str)
@pytest.mark.parametrize("name", ["karate", "shop"])
def test_the_batches_of_an_epoch_in_partition_order(worlds, name, flags):
    world = worlds[name]
    type, nodes = next(iter(world.dataset.nodes.items()))
    config = {"task": {"nodes": {"type": type}}, "expand": {"neighbors": {"fanouts": [3]}}, "seed": 11}
    asked = {"shuffle": "--shuffle" in flags, "drop_last": "--drop-last" in flags, "epoch": 6, "batch_size": 4}
    flags = [*flags, "--batch-size", 4, "--epoch", 6, "--seed-order", "partition"]
    for folder in ("whole", "parts"):
        dataset = Dataset(world.workshop.path / folder)
        for seeds in (nodes.splits["train"].tolist(), [5, 1, 1, 8, 20, 31, 2, 2, 4, 30]):
            expected = Law(dataset, config).batches(seeds, seed_order="partition", **asked)
            assert world.sample(folder, config, *ask(seeds), *flags) == [rounded(one, dataset.manifest) for one in expected]
            for batch in expected:
                assert len(set(dataset.nodes[type].owner[batch["seed"]])) == 1


def test_pairs_are_owned_by_their_sources(worlds):
    config = {"task": {"links": {"negatives": {"triplet": {}}}}, "expand": {"neighbors": {"fanouts": [2]}}, "seed": 3}
    dataset = Dataset(worlds["karate"].workshop.path / "parts")
    pairs = [tuple(pair) for pair in dataset.only_edges.pairs[:31].tolist()]
    flags = ["--batch-size", 3, "--shuffle", "--seed-order", "partition"]
    expected = Law(dataset, config).batches(pairs, batch_size=3, shuffle=True, seed_order="partition")
    assert worlds["karate"].sample("parts", config, *ask(pairs), *flags) == expected
    assert sorted(i for batch in expected for i in batch["seed"]) == list(range(31))


@pytest.mark.parametrize("flags", [[], ["--shuffle"], ["--drop-last"], ["--shuffle", "--drop-last"]], ids=str)
@pytest.mark.parametrize("name", ["karate", "shop"])
def test_the_batches_of_an_epoch(worlds, name, flags):
    world = worlds[name]
    type, nodes = next(iter(world.dataset.nodes.items()))
    config = {"task": {"nodes": {"type": type}}, "expand": {"neighbors": {"fanouts": [3]}}, "seed": 11}
    asked = {"shuffle": "--shuffle" in flags, "drop_last": "--drop-last" in flags, "epoch": 6, "batch_size": 7}
    flags = [*flags, "--batch-size", 7, "--epoch", 6]
    for folder in ("whole", "parts"):
        expected = world.expected(config, nodes.splits["train"].tolist(), **asked)
        assert len(expected) > 1 and world.sample(folder, config, "--split", "train", *flags) == expected
        assert world.sample(folder, config, "--split", "train", *flags, "--batch", 1) == expected[1:2]
        seeds = [5, 1, 1, 8, 20, 31, 2, 2, 4, 30]
        assert world.sample(folder, config, *ask(seeds), *flags) == world.expected(config, seeds, **asked)


def test_pairs_are_known_by_their_place_in_the_list(worlds):
    config = {"task": {"links": {"negatives": {"triplet": {}}}}, "expand": {"neighbors": {"fanouts": [2]}}, "seed": 3}
    pairs = [tuple(pair) for pair in worlds["karate"].dataset.only_edges.pairs[:11].tolist()]
    expected = worlds["karate"].expected(config, pairs, epoch=1, batch_size=4, shuffle=True)
    assert [i for batch in expected for i in batch["seed"]] == order(11, 3, 1)
    flags = ["--batch-size", 4, "--shuffle", "--epoch", 1]
    assert worlds["karate"].sample("parts", config, *ask(pairs), *flags) == expected


# Mistakes


def test_an_id_that_is_not_there_is_named(worlds):
    config = {"expand": {"neighbors": {"fanouts": [2]}}}
    karate, shop = worlds["karate"].workshop, worlds["shop"].workshop
    assert "34" in refusal(karate, "whole", config, "--seeds", "1,34")
    assert "99" in refusal(karate, "parts", {**config, "task": {"links": {}}}, "--pairs", "1:99")
    said = refusal(shop, "parts", {**config, "task": {"nodes": {"type": "tag"}}}, "--seeds", "9")
    assert "9" in said and "tag" in said


def test_classes_are_given_to_all_pairs_or_to_none(worlds):
    config = {"task": {"links": {}}, "expand": {"neighbors": {"fanouts": [2]}}}
    assert "class" in refusal(worlds["karate"].workshop, "whole", config, "--pairs", "0:1:2,1:2")


@pytest.mark.parametrize("config, word", [
    ({"expand": {"neighbors": {"fanouts": [2]}}, "fanout": 3}, "fanout"),
    ({"expand": {"neighbors": {"fanouts": [2], "weigthed": True}}}, "weigthed"),
    ({"expand": {"neighbors": {"fanouts": [-2]}}}, "-2"),
    ({"expand": {"neighbors": {"fanouts": [2]}}, "features": ["y"]}, "y"),
    ({"expand": {"neighbors": {"fanouts": [2]}}, "task": {"nodes": {"type": "nobody"}}}, "nobody"),
    ({"expand": {"neighbors": {"fanouts": [-1, -1]}}, "max_edges": 20}, "20"),
])  # fmt: skip
def test_a_mistake_in_the_configuration_is_named(worlds, config, word):
    assert word in refusal(worlds["karate"].workshop, "whole", config, "--seeds", "0")


def test_a_direction_that_is_not_stored_is_refused(worlds):
    workshop = worlds["karate"].workshop
    narrow = World(workshop, workshop.generate("karate", "--layout", "in", out="narrow"))
    config = {"expand": {"neighbors": {"fanouts": [2]}}}
    assert "out" in refusal(workshop, "narrow", {**config, "direction": "out"}, "--seeds", "0")
    assert narrow.sample("narrow", {**config, "direction": "in"}, "--seeds", "0") == narrow.expected(config, [0])
