"""What is drawn has the distribution it should have; the same tests for the law in plain Python and for the binary.

Seeds are fixed, so a test passes always or never. It fails where a fair sampler would only once in ten thousand times.
"""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations, product

import law
import numpy as np
import pytest
from toys import karate_pairs, toy_graph

FAIR = 1e-4
DRAWS = 4000
WEIGHTS = [1.0, 2.0, 0.0, 4.0, 3.0, 2.5]


def survival(statistic: float, freedom: int) -> float:
    """The chance that a chi-square variate exceeds the statistic: Q(a + 1, x) = Q(a, x) + x^a e^-x / Γ(a + 1)."""
    x = statistic / 2
    a, chance = (0.5, math.erfc(math.sqrt(x))) if freedom % 2 else (1.0, math.exp(-x))
    while a < freedom / 2:
        chance += math.exp(a * math.log(x) - x - math.lgamma(a + 1)) if x else 0.0
        a += 1
    return chance


def assert_fair(drawn: Counter, chances: dict):
    """The outcomes drawn follow these chances, and nothing else was drawn."""
    total = sum(drawn.values())
    assert set(drawn) <= set(chances), f"never to be drawn: {set(drawn) - set(chances)}"
    assert sum(chances.values()) == pytest.approx(1) and min(chances.values()) * total >= 5, "too few draws to tell"
    statistic = sum((drawn[outcome] - chance * total) ** 2 / (chance * total) for outcome, chance in chances.items())
    assert survival(float(statistic), len(chances) - 1) > FAIR, f"{statistic} with {len(chances)} outcomes: {drawn}"


def uniform(outcomes) -> dict:
    outcomes = list(outcomes)
    return dict.fromkeys(outcomes, 1 / len(outcomes))


def test_the_survival_function_is_that_of_the_tables():
    table = [(3.8415, 1, 0.05), (6.6349, 1, 0.01), (5.9915, 2, 0.05), (18.307, 10, 0.05), (44.263, 15, 1e-4)]
    for statistic, freedom, chance in table:
        assert survival(statistic, freedom) == pytest.approx(chance, rel=1e-3)


def star(leaves: int, hubs: int = 1, weights=None):
    """Hubs 0, 1, … with an edge from each leaf."""
    return toy_graph(hubs + leaves, [(hubs + leaf, hub) for hub in range(hubs) for leaf in range(leaves)], weights)


def leaves_of(batch: dict, hub: int = 0, hubs: int = 1) -> list[int]:
    """The leaves drawn for a hub, in the order of drawing."""
    nodes, (edges,) = batch["nodes"]["node"]["node"], batch["edges"]
    return [nodes[row] - hubs for row, col in zip(edges["row"], edges["col"]) if nodes[col] == hub]


def neighbors(fanouts, seed=0, **options) -> dict:
    return {"expand": {"neighbors": {"fanouts": fanouts, **options}}, "seed": seed}


@pytest.mark.parametrize("leaves, fanout", [(12, 1), (6, 3), (8, 6)])
def test_every_set_of_neighbours_is_drawn_equally_often(sampler, leaves, fanout):
    made = sampler.batches(star(leaves), neighbors([fanout]), [0] * DRAWS, batch_size=1)
    drawn = Counter(frozenset(leaves_of(batch)) for batch in made)
    assert_fair(drawn, uniform(map(frozenset, combinations(range(leaves), fanout))))


def test_every_sequence_is_drawn_equally_often_with_replacement(sampler):
    made = sampler.batches(star(6), neighbors([2], replace=True), [0] * DRAWS, batch_size=1)
    assert_fair(Counter(tuple(leaves_of(batch)) for batch in made), uniform(product(range(6), repeat=2)))


def test_weighted_draws_with_replacement_follow_the_weights(sampler):
    config = neighbors([4], weighted=True, replace=True)
    made = sampler.batches(star(6, weights=WEIGHTS), config, [0] * DRAWS, batch_size=1)
    drawn = [leaves_of(batch) for batch in made]
    chances = {leaf: weight / sum(WEIGHTS) for leaf, weight in enumerate(WEIGHTS) if weight}
    assert_fair(Counter(leaf for each in drawn for leaf in each), chances)
    pairs = {(a, b): chances[a] * chances[b] for a, b in product(chances, repeat=2)}
    assert_fair(Counter((first, last) for first, *_, last in drawn), pairs)


def sequences(weights: list, length: int) -> dict[tuple, Fraction]:
    """The exact chance of every sequence of draws by weight from what is left."""
    chances = {}
    for sequence in permutations([leaf for leaf, weight in enumerate(weights) if weight], length):
        rest, chance = Fraction(sum(weights)), Fraction(1)
        for leaf in sequence:
            chance *= Fraction(weights[leaf]) / rest
            rest -= Fraction(weights[leaf])
        chances[sequence] = chance
    return chances


def gathered(chances: dict, of) -> dict:
    """The chances of what `of` makes of an outcome."""
    whole = Counter()
    for outcome, chance in chances.items():
        whole[of(outcome)] += chance
    return whole


@pytest.mark.parametrize("fanout", [1, 2, 3])
def test_weighted_draws_without_replacement_follow_the_weights_left(sampler, fanout):
    made = sampler.batches(star(6, weights=WEIGHTS), neighbors([fanout], weighted=True), [0] * DRAWS, batch_size=1)
    drawn, chances = [tuple(leaves_of(batch)) for batch in made], sequences(WEIGHTS, fanout)
    for of in (lambda sequence: sequence[0], lambda sequence: sequence[-1], frozenset, tuple):
        assert_fair(Counter(map(of, drawn)), gathered(chances, of))
    for leaf in range(6):
        inside = gathered(chances, lambda sequence, leaf=leaf: leaf in sequence)
        assert_fair(Counter(leaf in sequence for sequence in drawn), inside)


def test_draws_of_different_nodes_batches_epochs_and_seeds_are_independent(sampler):
    graph = star(5, hubs=2)

    def first(seed=0, epoch=0):
        made = sampler.batches(graph, neighbors([1], seed), [0, 1] * DRAWS, batch_size=2, epoch=epoch)
        return [tuple(leaves_of(batch, hub, 2)[0] for hub in (0, 1)) for batch in made]

    drawn, both = first(), uniform(product(range(5), repeat=2))
    one = [leaf for leaf, _ in drawn]
    assert_fair(Counter(drawn), both)
    assert_fair(Counter(zip(one[::2], one[1::2])), both)
    assert_fair(Counter(zip(one, (leaf for leaf, _ in first(epoch=1)))), both)
    assert_fair(Counter(zip(one, (leaf for leaf, _ in first(seed=1)))), both)


def test_draws_of_different_hops_are_independent(sampler):
    """Hub 1 is expanded in the first hop as a seed, and in the second when it is found from hub 0."""
    graph = toy_graph(7, [(1, 0)] + [(2 + leaf, 1) for leaf in range(5)])
    early, late = (sampler.batches(graph, neighbors([1, 1]), [hub] * DRAWS, batch_size=1) for hub in (1, 0))
    drawn = Counter((leaves_of(a, 1, 2)[0], leaves_of(b, 1, 2)[0]) for a, b in zip(early, late))
    assert_fair(drawn, uniform(product(range(5), repeat=2)))


# Negatives

EDGES = [(0, 1), (0, 3), (1, 3), (3, 0), (4, 4)]


def negatives(sampler, kind: str, amount, **options) -> Counter:
    """The negatives of the pair (0, 1): pairs, or targets of triplets."""
    task = {"links": {"negatives": {kind: {"amount": amount, **options}}}}
    graph = toy_graph(6, EDGES, node_weights=WEIGHTS)
    (batch,) = sampler.batches(graph, {"task": task, **neighbors([])}, [(0, 1)])
    nodes, told = batch["nodes"]["node"]["node"], batch["metadata"]
    assert told["negatives_missing"] == 0
    if kind == "triplet":
        return Counter(nodes[row] for row in told["dst_neg_index"][0])
    return Counter((nodes[s], nodes[d]) for s, d in list(zip(*told["edge_label_index"]))[1:])


def by_weight(weights: dict) -> dict:
    """The chances of what has a weight."""
    return {outcome: weight / sum(weights.values()) for outcome, weight in weights.items() if weight}


def test_binary_negatives_are_uniform(sampler):
    every = list(product(range(6), repeat=2))
    assert_fair(negatives(sampler, "binary", float(DRAWS)), uniform(every))
    assert_fair(negatives(sampler, "binary", float(DRAWS), strict=True), uniform(set(every) - set(EDGES)))


def test_triplet_negatives_are_uniform(sampler):
    assert_fair(negatives(sampler, "triplet", DRAWS), uniform(range(6)))
    assert_fair(negatives(sampler, "triplet", DRAWS, strict=True), uniform({0, 2, 4, 5}))


def test_weighted_negatives_follow_the_weights(sampler):
    pairs = {(s, d): WEIGHTS[s] * WEIGHTS[d] for s, d in product(range(6), repeat=2)}
    assert_fair(negatives(sampler, "binary", float(DRAWS), weighted=True), by_weight(pairs))
    rest = {pair: weight for pair, weight in pairs.items() if pair not in EDGES}
    assert_fair(negatives(sampler, "binary", float(DRAWS), weighted=True, strict=True), by_weight(rest))
    targets = dict(enumerate(WEIGHTS))
    assert_fair(negatives(sampler, "triplet", DRAWS, weighted=True), by_weight(targets))
    rest = {target: weight for target, weight in targets.items() if target not in (1, 3)}
    assert_fair(negatives(sampler, "triplet", DRAWS, weighted=True, strict=True), by_weight(rest))


# The order of an epoch


@pytest.mark.parametrize("n", [3, 8])
def test_a_seed_is_equally_likely_in_every_place(n):
    orders = [law.order(n, 8, epoch) for epoch in range(DRAWS // 8)]
    for place in {0, 1, n - 1}:
        assert_fair(Counter(order[place] for order in orders), uniform(range(n)))


@pytest.mark.parametrize("n", [5, 8])
def test_two_neighbours_of_an_order_are_independent(n):
    orders = [law.order(n, 9, epoch) for epoch in range(DRAWS // 8)]
    assert_fair(Counter((order[1] - order[0]) % n for order in orders), uniform(range(1, n)))


# Personalised PageRank


@pytest.mark.parametrize("eps", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("alpha", [0.15, 0.5])
def test_a_push_stays_within_its_tolerance_of_power_iteration(sampler, eps, alpha):
    pairs = karate_pairs()
    step = np.zeros((34, 34))
    for source, target in pairs:
        step[target, source] = 1
    degree = step.sum(axis=1)
    step /= degree[:, None]
    config = {"expand": {"ppr": {"alpha": alpha, "eps": eps, "max_nodes": 34}}}
    (batch,) = sampler.batches(toy_graph(34, pairs), config, list(range(34)))
    found, told = np.zeros((34, 34)), batch["metadata"]["ppr"]["node"]["node"]
    nodes = np.array(batch["nodes"]["node"]["node"])
    found[nodes[told["index"][0]], nodes[told["index"][1]]] = told["score"]
    for seed in range(34):
        exact = start = np.eye(34)[seed]
        for _ in range(400):
            exact = alpha * start + (1 - alpha) * exact @ step
        lost = exact - found[seed]
        assert (lost >= -1e-12).all() and (lost <= eps * degree + 1e-12).all()
        assert lost.max() > 0
