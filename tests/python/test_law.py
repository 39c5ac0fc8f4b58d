"""The law in plain Python against the simplest oracles: known answers, enumeration, layers, linear algebra."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import law
import numpy as np
import pytest
from law import Law, Refused
from toys import karate_pairs, toy, toy_graph

TO = ("node", "to", "node")
KARATE = toy_graph(34, karate_pairs())
TYPES = {"author": 12, "paper": 30, "venue": 4}
WRITES, CITES, IN, LIKES, HATES = (
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "in", "venue"),
    ("author", "likes", "paper"),
    ("author", "hates", "paper"),
)


def random_pairs(rng, sources: int, targets: int, count: int) -> list:
    return list(zip(rng.integers(0, sources, count).tolist(), rng.integers(0, targets, count).tolist()))


def library(seed: int = 0):
    """A graph of several types, with parallel edges, isolated nodes, and weights of which some are zero."""
    rng = np.random.default_rng(seed)
    counts = {WRITES: 40, CITES: 90, IN: 30, LIKES: 25, HATES: 15}
    edges = {type: random_pairs(rng, TYPES[type[0]] - 1, TYPES[type[2]] - 1, count) for type, count in counts.items()}
    weights = {CITES: rng.integers(0, 4, 90) * rng.random(90)}
    node_weights = {"author": rng.random(12), "paper": rng.integers(0, 3, 30).astype(float)}
    return toy(TYPES, edges, labels=(LIKES, HATES), edge_weights=weights, node_weights=node_weights)


def random_toy(seed: int, count: int = 40, edges: int = 200):
    rng = np.random.default_rng(seed)
    weights = rng.random(edges) * rng.integers(0, 3, edges)
    return toy_graph(count, random_pairs(rng, count - 2, count - 2, edges), weights)


def neighbors(fanouts, **options) -> dict:
    return {"expand": {"neighbors": {"fanouts": fanouts, **options}}}


# Words


def test_words_are_those_of_splitmix64_and_fnv():
    assert [law.draw(0, i) for i in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [law.draw(1234567, i) for i in range(2)] == [6457827717110365317, 3203168211198807973]
    assert law.fnv1a(b"") == 0xCBF29CE484222325
    assert law.fnv1a(b"a") == 0xAF63DC4C8601EC8C
    assert law.fnv1a(b"foobar") == 0x85944171F73967E8
    assert law.name(("a", "b", "é")) == law.fnv1a(b"a\0b\0\xc3\xa9")


def test_streams_of_different_words_are_different():
    words = list(itertools.product((0, 1, 2, 2**64 - 1), repeat=3))
    assert len({law.stream(7, *each) for each in words} | {law.stream(8, *each) for each in words}) == 2 * len(words)
    assert len({law.at(5, n) for n in range(10_000)}) == 10_000


# Which seeds make which batch


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000])
def test_an_order_is_a_permutation_that_changes_with_seed_and_epoch(n):
    orders = [law.order(n, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(sorted(each) == list(range(n)) for each in orders)
    if n > 10:
        assert len(set(map(tuple, orders))) == 4


def test_an_order_is_the_same_for_ever():
    assert law.order(12, 42, 3) == [9, 1, 7, 10, 3, 8, 0, 5, 6, 2, 11, 4]
    assert law.order(5, 2**64 - 1, 0) == [4, 1, 2, 0, 3]


def test_every_element_of_an_order_goes_everywhere():
    n, epochs = 6, 3000
    seen = np.zeros((n, n))
    for epoch in range(epochs):
        seen[np.arange(n), law.order(n, 3, epoch)] += 1
    assert np.abs(seen - epochs / n).max() < 5 * math.sqrt(epochs / n)


@pytest.mark.parametrize("total", [0, 1, 5, 6, 7])
@pytest.mark.parametrize("world_size", [1, 2, 3, 9])
@pytest.mark.parametrize("start", [0, 2, 5])
def test_ranks_share_the_places_of_an_epoch(total, world_size, start):
    def taken(**flags):
        return [law.places(total, rank, world_size, start=start, **flags) for rank in range(world_size)]

    left = list(range(start, total))
    plain = taken(even=False, drop_last=False)
    assert sorted(g for rank in plain for g, _ in rank) == left

    even = taken(even=True, drop_last=False)
    assert len({len(rank) for rank in even}) == 1
    assert sorted(g for rank in even for g, repeated in rank if not repeated) == left
    padding = [g for j in range(len(even[0])) for rank in even for g, repeated in [rank[j]] if repeated]
    assert padding == [i % total for i in range(total, total + len(padding))] and len(padding) < world_size

    short = taken(even=True, drop_last=True)
    assert len({len(rank) for rank in short}) == 1
    first = [rank[j] for j in range(len(short[0])) for rank in short]
    assert first == [(g, False) for g in left[: len(left) // world_size * world_size]]


def test_partition_order_cuts_every_list_and_spreads_them_evenly():
    owners = [0, 1, 0, 0, 2, 1, 0, 0, 0, 1, 0]
    plain = law.cuts_by_partition(owners, 5, 2, 2, shuffle=False, drop_last=False)
    # Four batches of partition 0 stand at 1/4, 3/4, 5/4, 7/4, two of partition 1 at 1/2 and 3/2, one of partition 2 at 1.
    assert plain == [[0, 2], [1, 5], [3, 6], [4], [7, 8], [9], [10]]
    assert law.cuts_by_partition(owners, 5, 2, 2, shuffle=False, drop_last=True) == [[0, 2], [3, 6], [1, 5], [7, 8]]
    # Where two stand at the same place, as the two in the middle just now, the lower partition is first.
    assert law.cuts_by_partition([1, 0, 0, 1], 0, 0, 1, shuffle=False, drop_last=False) == [[1], [0], [2], [3]]
    shuffled = law.cuts_by_partition(owners, 5, 2, 2, shuffle=True, drop_last=False)
    assert [len(cut) for cut in shuffled] == [len(cut) for cut in plain]
    members = [0, 2, 3, 6, 7, 8, 10]
    mine = [i for cut in shuffled for i in cut if owners[i] == 0]
    assert mine == [members[i] for i in law.order(7, 5, 2, 0)] != [members[i] for i in law.order(7, 5, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_partition_order_meets_every_seed_once(seed):
    rng = np.random.default_rng(seed)
    owners, size = rng.integers(0, 5, rng.integers(0, 60)).tolist(), int(rng.integers(1, 9))
    for shuffle in (False, True):
        cuts = law.cuts_by_partition(owners, seed, 1, size, shuffle, drop_last=False)
        assert sorted(i for cut in cuts for i in cut) == list(range(len(owners)))
        assert all(len({owners[i] for i in cut}) == 1 and len(cut) <= size for cut in cuts)
        full = law.cuts_by_partition(owners, seed, 1, size, shuffle, drop_last=True)
        assert all(len(cut) == size for cut in full)
        assert len(full) == sum(owners.count(p) // size for p in range(5))


def test_the_batches_of_an_epoch_are_cuts_of_its_order():
    seeds = [3, 1, 4, 15, 9, 2, 6]
    sampler = Law(KARATE, {**neighbors([]), "seed": 5})
    expected = [seeds[i] for i in law.order(7, 5, 2)]
    for drop_last in (False, True):
        made = sampler.batches(seeds, epoch=2, batch_size=3, shuffle=True, drop_last=drop_last)
        assert [batch["seed"] for batch in made] == [expected[:3], expected[3:6], expected[6:]][: 2 if drop_last else 3]
        assert [batch["g"] for batch in made] == list(range(len(made)))


# Draws


def word_giving(t: int, b: int) -> int:
    """The least word that `below` turns into `t` of `b`."""
    word = -(-t * 2**64 // b)
    assert law.below(word, b) == t and (t == 0 or law.below(word - 1, b) == t - 1)
    return word


@pytest.mark.parametrize("n, f", [(2, 1), (5, 1), (5, 2), (5, 3), (6, 4), (5, 4)])
def test_floyd_takes_every_subset_equally_often(n, f):
    drawn = Counter()
    for choice in itertools.product(*(range(n - f + i + 1) for i in range(f))):
        words = [word_giving(t, n - f + i + 1) for i, t in enumerate(choice)]
        taken = law.floyd(n, f, words.__getitem__)
        assert len(set(taken)) == f
        drawn[frozenset(taken)] += 1
    assert len(drawn) == math.comb(n, f) and len(set(drawn.values())) == 1


def one_after_the_other(q: list[int], f: int, taken=()) -> Counter:
    """The exact chances of drawing positions by weight, each from what is left."""
    rest = sum(q) - sum(q[p] for p in taken)
    if len(taken) == f or rest == 0:
        return Counter({taken: Fraction(1)})
    chances = Counter()
    for t, weight in enumerate(q):
        if weight and t not in taken:
            for sequence, chance in one_after_the_other(q, f, (*taken, t)).items():
                chances[sequence] += Fraction(weight, rest) * chance
    return chances


def every_weighted_draw(q: list[int], f: int, xs=()) -> Counter:
    """The chances of the law's draws, by trying every number that a word can become."""
    made = law.from_what_is_left(q, len(xs), lambda i: xs[i], [])
    rest = sum(q) - sum(q[p] for p in made)
    if len(xs) == f or rest == 0:
        return Counter({tuple(made): Fraction(1)})
    chances = Counter()
    for x in range(rest):
        for sequence, chance in every_weighted_draw(q, f, (*xs, word_giving(x, rest))).items():
            chances[sequence] += chance / rest
    return chances


@pytest.mark.parametrize("q", [[1, 1, 1], [3, 0, 1, 2], [0, 0, 5, 1], [1, 2, 3, 4], [0, 2, 0], [4]])
@pytest.mark.parametrize("f", [1, 2, 3])
def test_weighted_draws_are_by_weight_from_what_is_left(q, f):
    assert every_weighted_draw(q, f) == one_after_the_other(q, f)


@pytest.mark.parametrize(
    "q", [[7], [2, 2, 2], [3, 0, 1, 2], [0, 0, 5, 1], [1, 2**61 - 1], [0, 2, 0, 2], [1, 2**40, 5, 0, 2**41, 7, 9]]
)
def test_an_alias_table_gives_every_place_its_share_of_the_cells(q):
    table, n = law.alias_table(tuple(q)), len(q)
    shares, cells = Counter(), Counter()
    for place, (threshold, other) in enumerate(table):
        for owner, share in ((place, Fraction(threshold, 2**32)), (other, 1 - Fraction(threshold, 2**32))):
            shares[owner] += share
            cells[owner] += 1
    for place, weight in enumerate(q):
        assert abs(shares[place] - Fraction(weight * n, sum(q))) <= Fraction(cells[place], 2**32)
        assert (shares[place] > 0) == (table[place][0] > 0) == (weight > 0)


def word_in(cell: int, x: int, n: int) -> int:
    """The least word that falls at `x` in a cell of a list of `n`."""
    word = -(-(cell << 64 | x << 32) // n)
    assert word * n >> 32 == cell << 32 | x
    return word


def test_weighted_draws_refuse_what_was_taken_until_that_takes_too_long():
    q, total = [1, 2**40, 5, 0, 2**41, 7, 9], 1 + 2**40 + 5 + 2**41 + 7 + 9
    words = [word_in(*at, 7) for at in ((0, 0), (1, 0), (1, 0), (2, 0), (0, 0), (3, 2**32 - 1))]
    # The last falls into the cell of a place without weight, which belongs to place 4.
    assert law.weighted(q, 4, lambda i: words[min(i, 5)]) == [0, 1, 2, 4]
    # Every try takes position 1; then the words after the 24 tries take what is left.
    left = total - 2**40
    assert law.weighted(q, 2, lambda i: word_in(1, 0, 7) if i < 24 else word_giving(left - 1, left)) == [1, 6]
    assert law.weighted([0, 3, 0], 2, lambda i: 0) == [1] and law.weighted([0, 0, 0], 2, lambda i: 0) == []


def test_draws_with_replacement_are_by_weight():
    q = [3, 0, 1, 2]
    # Cells have six parts each.
    words = [((2 * part + 1) << 64) // 48 for part in range(24)]
    assert Counter(law.weighted_with_replacement(q, 24, words.__getitem__)) == {0: 12, 2: 4, 3: 8}
    assert [law.weighted_with_replacement(q, 3, lambda _: 0) for q in ([0, 0], [])] == [[], []]
    assert [law.with_replacement(5, 1, lambda _, t=t: word_giving(t, 5)) for t in range(5)] == [[t] for t in range(5)]


def test_integer_weights_keep_proportions_and_never_lose_an_edge():
    rng = np.random.default_rng(1)
    lists = [rng.random(n).astype(np.float32) * np.float32(2.0) ** rng.integers(-120, 120) for n in range(1, 60)]
    lists += [[1.0], [0.0, 1.0], [1.4e-45, 3.4e38], [2.0] * 8, [0.5, 0.25], [1.4e-45]]
    for weights in lists:
        q, n, largest = law.integer_weights(weights), len(weights), Fraction(float(max(weights)))
        s = 62 - len(bin(n)[2:])
        e = next(e for e in range(-150, 130) if largest < Fraction(2) ** e)
        assert q == [max(1, Fraction(float(w)) * Fraction(2) ** (s - e) // 1) if w else 0 for w in weights]
        assert sum(q) < 2**62
    assert law.integer_weights([]) == [] and law.integer_weights([0.0, 0.0]) == [0, 0]


# Neighbour sampling


def layers(graph, seeds, hops: int, direction: str) -> list[list[tuple]]:
    """The nodes at each distance from the seeds, through message edges."""
    seen, found = set(seeds), [sorted(set(seeds))]
    for _ in range(hops):
        near = set()
        for (src, _, dst), edges in graph.edges.items():
            for s, d in edges.pairs.tolist() if edges.info["role"] == "message" else []:
                from_, to = ((dst, d), (src, s)) if direction == "in" else ((src, s), (dst, d))
                if from_ in found[-1]:
                    near.add(to)
        found.append(sorted(near - seen))
        seen |= near
    return found


def met_per_hop(batch) -> list[list[tuple]]:
    hops = max(len(nodes["num_sampled_nodes"]) for nodes in batch["nodes"].values())
    found = [[] for _ in range(hops)]
    for type, nodes in batch["nodes"].items():
        ends = np.cumsum(nodes["num_sampled_nodes"]).tolist()
        assert ends[-1] == len(nodes["node"]) == len(set(nodes["node"]))
        for hop, (start, end) in enumerate(zip([0, *ends], ends)):
            found[hop] += [(type, node) for node in nodes["node"][start:end]]
    return [sorted(nodes) for nodes in found]


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("seed", range(3))
def test_all_neighbours_are_the_layers_of_a_breadth_first_search(direction, seed):
    for graph, type, count in ((library(seed), "paper", 30), (random_toy(seed), "node", 40)):
        seeds = np.random.default_rng(seed).integers(0, count, 4).tolist()
        config = {"task": {"nodes": {"type": type}}, **neighbors([-1, -1, -1]), "direction": direction}
        batch = Law(graph, config).batch(seeds, 0, 0)
        assert met_per_hop(batch) == layers(graph, [(type, node) for node in seeds], 3, direction)


def ends_of(batch, edges: dict, direction: str) -> list[tuple[int, int]]:
    """The (source, target) ids of an edge type's sampled edges."""
    src, _, dst = edges["type"]
    row_type, col_type = (src, dst) if direction == "in" else (dst, src)
    rows = [batch["nodes"][row_type]["node"][row] for row in edges["row"]]
    cols = [batch["nodes"][col_type]["node"][col] for col in edges["col"]]
    return list(zip(rows, cols)) if direction == "in" else list(zip(cols, rows))


def assert_lawful(graph, config: dict, batch: dict):
    """Every rule of sections 3 and 4 that does not depend on what was drawn."""
    ((_, options),) = config["expand"].items()
    direction = config.get("direction", "in")
    for edges in batch["edges"]:
        type = tuple(edges["type"])
        pairs, owner = graph.edges[type].pairs.tolist(), type[2] if direction == "in" else type[0]
        assert ends_of(batch, edges, direction) == [tuple(pairs[edge]) for edge in edges["edge"]]
        fanouts = options["fanouts"]
        if fanouts and isinstance(fanouts[0], dict):
            (fanouts,) = [entry["fanouts"] for entry in fanouts if tuple(entry["type"]) == type]
        weights = graph.edges[type].lists[direction].weights
        by_weight = options.get("weighted", False) and weights is not None
        column = 1 if direction == "in" else 0
        start = 0
        for hop, (fanout, count) in enumerate(zip(fanouts, edges["num_sampled_edges"], strict=True)):
            cols, ids = edges["col"][start : start + count], edges["edge"][start : start + count]
            assert cols == sorted(cols), "edges stand in the order of the nodes expanded"
            new = batch["nodes"].get(owner, {"num_sampled_nodes": [0] * (hop + 1), "node": []})
            first = sum(new["num_sampled_nodes"][:hop])
            for row in range(first, first + new["num_sampled_nodes"][hop]):
                taken = [edge for col, edge in zip(cols, ids) if col == row]
                mine = {edge for edge, pair in enumerate(pairs) if pair[column] == new["node"][row]}
                if by_weight:
                    heavy = dict(zip(graph.edges[type].lists[direction].edge_ids.tolist(), weights.tolist()))
                    mine = {edge for edge in mine if heavy[edge] > 0}
                assert set(taken) <= mine
                if options.get("replace") and fanout >= 0:
                    assert len(taken) == (fanout if mine else 0)
                else:
                    assert len(set(taken)) == len(taken) == (len(mine) if fanout == -1 else min(fanout, len(mine)))
            start += count
        assert start == len(edges["row"]) == len(edges["col"])


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("by_weight", [False, True])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_batch_of_neighbours_is_lawful(replace, by_weight, direction):
    options = {"replace": replace, "weighted": by_weight}
    for case in range(6):
        graph, rng = library(case), np.random.default_rng(case)
        walked = [type for type in (WRITES, CITES, IN) if rng.random() < 0.7]
        per_type = [{"type": list(type), "fanouts": rng.integers(-1, 4, 3).tolist()} for type in walked]
        for type, count in TYPES.items():
            for fanouts in ([2, 3], [-1, 2, 1], [0, 4], [], per_type):
                config = {
                    "task": {"nodes": {"type": type}},
                    "direction": direction,
                    "edge_ids": True,
                    "seed": case,
                    **neighbors(fanouts, **options),
                }
                assert_lawful(graph, config, Law(graph, config).batch(rng.integers(0, count, 3).tolist(), case, 1))


def test_new_nodes_stand_in_the_order_of_the_edges_that_found_them():
    batch = Law(library(), {"task": {"nodes": {"type": "paper"}}, **neighbors([3, 2])}).batch([5, 2, 5, 9], 0, 0)
    for type, nodes in batch["nodes"].items():
        found = list(range(nodes["num_sampled_nodes"][0]))
        for hop in range(2):
            for edges in batch["edges"]:
                if edges["type"][0] == type:
                    start = sum(edges["num_sampled_edges"][:hop])
                    found += edges["row"][start : start + edges["num_sampled_edges"][hop]]
        assert list(dict.fromkeys(found)) == list(range(len(nodes["node"])))


def test_walking_out_is_walking_in_on_the_reversed_graph():
    pairs, weights = karate_pairs()[:70], np.arange(70) % 7
    for options in ({}, {"weighted": True}, {"replace": True}):
        config = {**neighbors([3, 2], **options), "edge_ids": True}
        back = Law(toy_graph(34, [(d, s) for s, d in pairs], weights), {**config, "direction": "out"})
        assert back.batch([0, 33], 1, 2) == Law(toy_graph(34, pairs, weights), config).batch([0, 33], 1, 2)


def test_what_a_node_gives_does_not_depend_on_the_seeds_beside_it():
    sampler = Law(KARATE, neighbors([4]))
    together = sampler.batch([0, 33, 2], 0, 0)
    for place, seed in enumerate([0, 33, 2]):
        alone = sampler.batch([seed], 0, 0)
        mine = [row for row, col in zip(together["edges"][0]["row"], together["edges"][0]["col"]) if col == place]
        assert [together["nodes"]["node"]["node"][row] for row in mine] == [
            alone["nodes"]["node"]["node"][row] for row in alone["edges"][0]["row"]
        ]


def test_seeds_asked_for_twice_are_one_node():
    batch = Law(KARATE, neighbors([])).batch([4, 7, 4], 0, 0)
    assert (batch["seed"], batch["seed_index"], batch["batch_size"]) == ([4, 7, 4], [0, 1, 0], 2)
    assert batch["nodes"]["node"] == {"node": [4, 7], "num_sampled_nodes": [2], "features": {}}
    assert batch["edges"][0]["row"] == [] and batch["edges"][0]["num_sampled_edges"] == []


def test_an_isolated_seed_has_empty_hops():
    batch = Law(random_toy(0), {**neighbors([5, 5]), "edge_ids": True}).batch([39], 0, 0)
    assert batch["nodes"]["node"]["num_sampled_nodes"] == [1, 0, 0]
    assert batch["edges"][0]["edge"] == [] and batch["edges"][0]["num_sampled_edges"] == [0, 0]


def test_an_unknown_id_is_named():
    with pytest.raises(Refused, match="34.*node"):
        Law(KARATE, neighbors([1])).batch([3, 34], 0, 0)


@pytest.mark.parametrize("fanouts", [[], [2], [2, 2]])
def test_an_induced_subgraph_has_every_edge_among_its_nodes(fanouts):
    graph = library()
    for direction in ("in", "out"):
        config = {"task": {"nodes": {"type": "paper"}}, "direction": direction, "edge_ids": True}
        seeds = [5, 2, 17, 9, 11, 3]
        induced = Law(graph, {**config, "expand": {"induced": {"fanouts": fanouts}}}).batch(seeds, 0, 0)
        assert induced["nodes"] == Law(graph, {**config, **neighbors(fanouts)}).batch(seeds, 0, 0)["nodes"]
        for edges in induced["edges"]:
            src, _, dst = edges["type"]
            inside = {type: induced["nodes"].get(type, {"node": []})["node"] for type in (src, dst)}
            pairs = graph.edges[tuple(edges["type"])].pairs.tolist()
            expected = [edge for edge, (s, d) in enumerate(pairs) if s in inside[src] and d in inside[dst]]
            assert sorted(edges["edge"]) == expected and edges["num_sampled_edges"] == [len(expected)]
            assert ends_of(induced, edges, direction) == [tuple(pairs[edge]) for edge in edges["edge"]]


# Tasks


def links(negatives=None, type=LIKES, **config) -> dict:
    return {"task": {"links": {"type": list(type), "negatives": negatives}}, **neighbors([]), **config}


def test_links_without_negatives_carry_their_classes():
    batch = Law(library(), links()).batch([(3, 7, 5), (2, 7, 1), (3, 1, 0)], 0, 0)
    assert batch["nodes"]["author"]["node"] == [3, 2] and batch["nodes"]["paper"]["node"] == [7, 1]
    assert batch["metadata"] == {"edge_label_index": [[0, 1, 0], [0, 0, 1]], "edge_label": [5, 1, 0]}
    assert (batch["batch_size"], batch["seed"], batch["seed_index"]) == (3, [0, 1, 2], [])
    assert Law(library(), links()).batch([(3, 7), (2, 7)], 0, 0)["metadata"]["edge_label"] == [1, 1]
    with pytest.raises(Refused, match="class"):
        Law(library(), links()).batch([(3, 7, 5), (2, 7)], 0, 0)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("by_weight", [False, True])
@pytest.mark.parametrize("amount", [0.4, 1.0, 2.5])
def test_binary_negatives_follow_the_positives(strict, by_weight, amount):
    graph, options = library(), {"amount": amount, "strict": strict, "weighted": by_weight}
    pairs = [(3, 7, 5), (2, 7, 0), (3, 1, 1), (0, 0, 0), (1, 0, 2)]
    batch = Law(graph, links({"binary": options}, seed=9)).batch(pairs, 1, 2)
    rows, labels = batch["metadata"]["edge_label_index"], batch["metadata"]["edge_label"]
    authors, papers = batch["nodes"]["author"]["node"], batch["nodes"]["paper"]["node"]
    shown = [(authors[s], papers[d]) for s, d in zip(*rows)]
    count = math.ceil(5 * amount)
    assert shown[:5] == [pair[:2] for pair in pairs] and len(shown) == 5 + count
    assert labels == [6, 1, 2, 1, 3] + [0] * count and batch["metadata"]["negatives_missing"] == 0
    negatives = shown[5:]
    assert authors == list(dict.fromkeys([3, 2, 3, 0, 1] + [s for s, _ in negatives]))
    assert papers == list(dict.fromkeys([7, 7, 1, 0, 0] + [d for _, d in negatives]))
    if strict:
        known = {tuple(pair) for type in (LIKES, HATES) for pair in graph.edges[type].pairs.tolist()}
        assert not known & set(negatives)
    if by_weight:
        assert all(graph.nodes["paper"].weights[d] > 0 for _, d in negatives)


def test_triplets_keep_the_source():
    batch = Law(library(), links({"triplet": {"amount": 3, "strict": True}})).batch([(3, 7), (2, 7), (3, 1)], 0, 0)
    told = batch["metadata"]
    assert told["src_index"] == [0, 1, 0] and told["dst_pos_index"] == [0, 0, 1]
    assert [len(row) for row in told["dst_neg_index"]] == [3, 3, 3] and "edge_label" not in told
    assert batch["nodes"]["author"]["node"] == [3, 2]
    papers = batch["nodes"]["paper"]["node"]
    drawn = [papers[row] for rows in told["dst_neg_index"] for row in rows]
    assert papers == list(dict.fromkeys([7, 1, *drawn]))


def test_negatives_that_cannot_be_found_are_missing():
    everything = [(s, d) for s in range(4) for d in range(4) if (s, d) != (2, 1)]
    graph = toy_graph(4, everything)
    for kind in ("binary", "triplet"):
        config = links({kind: {"amount": 40, "strict": True}}, type=TO)
        batch = Law(graph, config).batch([(0, 0)], 0, 0)
        told, nodes = batch["metadata"], batch["nodes"]["node"]["node"]
        if kind == "triplet":
            assert told["dst_neg_index"] == [[-1] * 40] and told["negatives_missing"] == 40 and nodes == [0]
        else:
            sources, targets = (rows[1:] for rows in told["edge_label_index"])
            assert told["negatives_missing"] == sources.count(-1) == targets.count(-1) < 40
            assert {(nodes[s], nodes[d]) for s, d in zip(sources, targets) if s >= 0} == {(2, 1)}
            assert nodes == [0, 2, 1] and told["edge_label"] == [1] + [0] * 40


def test_a_pair_of_one_type_places_sources_before_targets():
    batch = Law(KARATE, links(type=TO)).batch([(5, 6), (7, 5)], 0, 0)
    assert batch["nodes"]["node"]["node"] == [5, 7, 6]
    assert batch["metadata"]["edge_label_index"] == [[0, 1], [2, 0]]


@pytest.mark.parametrize("most", [None, 0, 1, 2])
def test_anchors_bring_their_labels(most):
    graph, anchors = library(), [3, 0, 3, 11]
    supervision = [{"positive": list(LIKES), "negative": list(HATES)}, {"positive": list(HATES)}]
    config = {"task": {"anchors": {"supervision": supervision, "max_labels": most}}, **neighbors([])}
    batch = Law(graph, config).batch(anchors, 0, 0)

    def labels(type):
        pairs = graph.edges[type].pairs.tolist()
        return [(anchor, d) for anchor in anchors for d in sorted(d for s, d in pairs if s == anchor)[:most]]

    wanted = [labels(LIKES), labels(HATES), labels(HATES)]
    assert batch["nodes"]["author"]["node"] == [3, 0, 11] and batch["batch_size"] == 3
    papers = list(dict.fromkeys(d for pairs in wanted for _, d in pairs))
    assert batch["nodes"].get("paper", {"node": []})["node"] == papers
    rows = [[[[3, 0, 11].index(a) for a, _ in pairs], [papers.index(d) for _, d in pairs]] for pairs in wanted]
    assert batch["metadata"]["labels"] == [
        {"positive": list(LIKES), "y_positive": rows[0], "negative": list(HATES), "y_negative": rows[1]},
        {"positive": list(HATES), "y_positive": rows[2], "negative": None, "y_negative": None},
    ]
    assert (batch["seed"], batch["seed_index"]) == (anchors, [0, 1, 0, 2])


# Personalised PageRank


def exact_pagerank(graph, direction: str, alpha: float) -> tuple[list, np.ndarray, np.ndarray]:
    """All nodes, the PageRank of each (column) as seen from each (row), and their degrees, by linear algebra."""
    nodes = [(type, node) for type, info in graph.nodes.items() for node in range(info.count)]
    index = {node: place for place, node in enumerate(nodes)}
    step = np.zeros((len(nodes), len(nodes)))
    for (src, _, dst), edges in graph.edges.items():
        for s, d in edges.pairs.tolist() if edges.info["role"] == "message" else []:
            from_, to = ((dst, d), (src, s)) if direction == "in" else ((src, s), (dst, d))
            step[index[from_], index[to]] += 1
    degree = step.sum(axis=1)
    step /= np.maximum(degree, 1)[:, None]
    return nodes, alpha * np.linalg.inv(np.eye(len(nodes)) - (1 - alpha) * step), degree


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("alpha", [0.2, 0.5])
def test_a_push_without_tolerance_is_pagerank(direction, alpha):
    for graph, type in ((library(), "paper"), (random_toy(1), "node"), (KARATE, "node")):
        seeds = [0, 7]
        nodes, exact, _ = exact_pagerank(graph, direction, alpha)
        config = {
            "task": {"nodes": {"type": type}},
            "direction": direction,
            "expand": {"ppr": {"alpha": alpha, "eps": 1e-12, "max_nodes": 1000}},
        }
        batch = Law(graph, config).batch(seeds, 0, 0)
        assert batch["edges"] == []
        for place, seed in enumerate(seeds):
            found = dict.fromkeys(nodes, 0.0)
            for other, told in batch["metadata"]["ppr"][type].items():
                ids = batch["nodes"][other]["node"]
                for row, node, score in zip(*told["index"], told["score"]):
                    if row == place:
                        found[other, ids[node]] = score
            expected = dict(zip(nodes, exact[nodes.index((type, seed))]))
            assert found == pytest.approx(expected, abs=1e-8)


def test_hops_of_a_push_are_distances():
    config = {"expand": {"ppr": {"eps": 1e-9, "max_nodes": 34}}}
    batch = Law(KARATE, config).batch([11], 0, 0)
    told, ids = batch["metadata"]["ppr"]["node"]["node"], batch["nodes"]["node"]["node"]
    near = layers(KARATE, [("node", 11)], 6, "in")
    distance = {node: hop for hop, nodes in enumerate(near) for _, node in nodes}
    assert {ids[row]: hop for row, hop in zip(told["index"][1], told["hop"])} == distance


def test_a_shorter_way_that_is_found_later_lowers_the_hop():
    """Node 3 has so many neighbours that it waits for the push of node 1, and is then the shorter way to node 4."""
    pairs = [(0, 1)] * 8 + [(0, 3)] + [(1, 2)] * 2 + [(1, 3)] * 6 + [(2, 4), (3, 4)] + [(3, leaf) for leaf in range(5, 25)]
    config = {"expand": {"ppr": {"alpha": 0.15, "eps": 0.006}}, "direction": "out"}
    batch = Law(toy_graph(25, pairs), config).batch([0], 0, 0)
    told, ids = batch["metadata"]["ppr"]["node"]["node"], batch["nodes"]["node"]["node"]
    hops = {ids[row]: hop for row, hop in zip(told["index"][1], told["hop"])}
    assert [hops[node] for node in range(6)] == [0, 1, 2, 1, 2, 2]


def test_kept_nodes_are_the_best_and_residuals_fill_up():
    def kept(**options):
        batch = Law(KARATE, {"expand": {"ppr": {"eps": 0.02, **options}}}).batch([11, 4], 0, 0)
        told, ids = batch["metadata"]["ppr"]["node"]["node"], batch["nodes"]["node"]["node"]
        entries = list(zip(told["index"][0], (ids[row] for row in told["index"][1]), told["score"]))
        assert list(dict.fromkeys([11, 4, *(node for _, node, _ in entries)])) == ids
        return [[(node, score) for place, node, score in entries if place == seed] for seed in (0, 1)]

    everything, filled = kept(), kept(top_up=True)
    for whole, more in zip(everything, filled):
        assert whole == sorted(whole, key=lambda entry: (-entry[1], entry[0]))
        rest = more[len(whole) :]
        assert more[: len(whole)] == whole and rest == sorted(rest, key=lambda entry: (-entry[1], entry[0]))
    assert any(len(more) > len(whole) for whole, more in zip(everything, filled))
    assert kept(max_nodes=3) == [whole[:3] for whole in everything]
    assert kept(max_nodes=10, top_up=True) == [more[:10] for more in filled]
    assert kept(max_nodes={"node": 2}) == [whole[:2] for whole in everything]


def test_a_hub_gives_only_as_many_neighbours_as_asked():
    star = toy_graph(200, [(leaf, 0) for leaf in range(1, 200)])
    batch = Law(star, {"expand": {"ppr": {"neighbors_per_hop": 7, "eps": 1e-6}}}).batch([0], 0, 0)
    told = batch["metadata"]["ppr"]["node"]["node"]
    assert told["score"] == [0.5] + [0.25 / 199] * 7 and told["hop"] == [0] + [1] * 7
    ids = batch["nodes"]["node"]["node"][1:]
    assert ids == sorted(set(ids)) and ids != list(range(1, 8))


def test_types_without_a_number_of_their_own_keep_none():
    config = {"task": {"nodes": {"type": "paper"}}, "expand": {"ppr": {"max_nodes": {"author": 4}}}}
    batch = Law(library(), config).batch([5, 6], 0, 0)
    assert batch["nodes"]["paper"] == {"node": [5, 6], "num_sampled_nodes": [2, 0], "features": {}}
    assert batch["metadata"]["ppr"]["paper"]["paper"] == {"index": [[], []], "score": [], "hop": []}
    assert 0 < len(batch["metadata"]["ppr"]["paper"]["author"]["score"]) <= 8
