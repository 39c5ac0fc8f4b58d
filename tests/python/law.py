"""The sampling law a second time, in plain Python.

It follows docs/sampling.md and nothing else, so that page and the Rust samplers check each other; the sections named
below are that page's. A batch is built from Python integers and lists, one function per rule, for small graphs.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property

import numpy as np

LAW = 1
SHUFFLE, NEIGHBORS, NEGATIVES, PPR = 1, 2, 3, 4
STEP = 0x9E3779B97F4A7C15
MASK = 2**64 - 1
ROUNDS = 6
SMALL, SMALL_ROUNDS = 256, 64
ATTEMPTS = 32
MISSING = -1


class Refused(Exception):
    """The batch, or the configuration, is an error."""


# Section 1: words


def mix(w: int) -> int:
    w = (w ^ (w >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    w = (w ^ (w >> 27)) * 0x94D049BB133111EB & MASK
    return w ^ (w >> 31)


def stream(seed: int, *words: int) -> int:
    key = mix(seed ^ STEP)
    for word in words:
        key = mix(key ^ mix((word + STEP) & MASK))
    return key


def at(key: int, n: int) -> int:
    return mix(key ^ mix(n * STEP & MASK))


def draw(k: int, i: int) -> int:
    return mix((k + (i + 1) * STEP) & MASK)


def below(w: int, b: int) -> int:
    return w * b >> 64


def fnv1a(content: bytes) -> int:
    hashed = 0xCBF29CE484222325
    for byte in content:
        hashed = (hashed ^ byte) * 0x100000001B3 & MASK
    return hashed


def name(edge_type) -> int:
    return fnv1a(b"\0".join(part.encode() for part in edge_type))


# Section 2: which seeds make which batch


def order(n: int, seed: int, epoch: int, *partition: int) -> list[int]:
    """The permutation of `0..n` that a shuffled epoch follows, or the list of a partition in it."""
    key = stream(seed, LAW, SHUFFLE, epoch, *partition)
    if n <= SMALL:
        return [swap_or_not(i, n, key) for i in range(n)]
    half = -(-(n - 1).bit_length() // 2)
    round_keys = [at(key, r) for r in range(ROUNDS)]
    return [walk_cycle(i, n, half, round_keys) for i in range(n)]


def swap_or_not(v: int, n: int, key: int) -> int:
    for r in range(SMALL_ROUNDS):
        other = (below(at(key, 2 * r), n) + n - v) % n
        if at(at(key, 2 * r + 1), max(v, other)) % 2 == 1:
            v = other
    return v


def walk_cycle(i: int, n: int, half: int, round_keys: list[int]) -> int:
    v = feistel(i, half, round_keys)
    while v >= n:
        v = feistel(v, half, round_keys)
    return v


def feistel(v: int, half: int, round_keys: list[int]) -> int:
    ones = (1 << half) - 1
    left, right = v >> half, v & ones
    for key in round_keys:
        left, right = right, left ^ (mix(right ^ key) & ones)
    return left << half | right


def total_batches(n: int, batch_size: int, drop_last: bool) -> int:
    return n // batch_size if drop_last else -(-n // batch_size)


def cuts(n: int, seed: int, epoch: int, batch_size: int, shuffle: bool, drop_last: bool) -> list[list[int]]:
    """The positions of every batch, in global order."""
    followed = order(n, seed, epoch) if shuffle else list(range(n))
    return [followed[g * batch_size : (g + 1) * batch_size] for g in range(total_batches(n, batch_size, drop_last))]


def cuts_by_partition(
    owners: list[int], seed: int, epoch: int, batch_size: int, shuffle: bool, drop_last: bool
) -> list[list[int]]:
    """The positions of every batch, in partition order; `owners` are the partitions of the elements."""
    standing = []
    for p in sorted(set(owners)):
        members = [i for i, owner in enumerate(owners) if owner == p]
        followed = order(len(members), seed, epoch, p) if shuffle else range(len(members))
        total = total_batches(len(members), batch_size, drop_last)
        for k in range(total):
            cut = [members[i] for i in followed[k * batch_size : (k + 1) * batch_size]]
            standing.append((Fraction(2 * k + 1, total), p, cut))
    return [cut for _, _, cut in sorted(standing)]


def places(total: int, rank: int, world_size: int, even: bool, drop_last: bool, start: int) -> list[tuple[int, bool]]:
    """The batches that a rank takes in an epoch, in order: their numbers, and whether they are repeated."""
    left = max(0, total - start)
    rounds = left // world_size if even and drop_last else -(-left // world_size)
    taken = [start + j * world_size + rank for j in range(rounds)]
    if even:
        return [(i % total, i >= total) for i in taken]
    return [(i, False) for i in taken if i < total]


# Section 4: how a list is drawn from. A rule takes `word`, the function from `i` to the i-th word of the draw.


def floyd(n: int, f: int, word) -> list[int]:
    taken = []
    for i in range(f):
        j = n - f + i
        t = below(word(i), j + 1)
        taken.append(j if t in taken else t)
    return taken


def with_replacement(n: int, f: int, word) -> list[int]:
    return [below(word(i), n) for i in range(f)] if n else []


def weighted(q: list[int], f: int, word) -> list[int]:
    """Up to `f` positions by weight, none twice; `word(i)` is the i-th random word."""
    tries = 4 * f + 16
    taken = list(dict.fromkeys(weighted_with_replacement(q, tries, word)))[:f]
    return from_what_is_left(q, f, lambda i: word(tries + i), taken)


def from_what_is_left(q: list[int], f: int, word, taken: list[int]) -> list[int]:
    """Takes further positions by weight until there are `f`, or nothing of positive weight is left."""
    c, taken = running_sums(q), list(taken)
    for i in range(f - len(taken)):
        left = c[-1] - sum(q[t] for t in taken)
        if left == 0:
            break
        x = below(word(i), left)
        for p in sorted(taken):
            if x < c[p] - q[p]:
                break
            x += q[p]
        taken.append(first_above(c, x))
    return taken


def weighted_with_replacement(q: list[int], f: int, word) -> list[int]:
    table = alias_table(tuple(q))
    return [attempt(table, word(i)) for i in range(f)] if any(q) else []


def attempt(table: list[tuple[int, int]], word: int) -> int:
    product = word * len(table)
    s, x = product >> 64, product >> 32 & 0xFFFFFFFF
    threshold, other = table[s]
    return s if x < threshold else other


@cache
def alias_table(q: tuple[int, ...]) -> list[tuple[int, int]]:
    """The threshold and the other place of each place; docs/format.md has the rule."""
    n, total = len(q), sum(q)
    light = [place for place in range(n) if q[place] * n < total]
    heavy = [place for place in range(n) if q[place] * n >= total]
    kept, other = {}, {}
    rest = q[heavy[0]] * n if heavy else 0
    while rest < total or light:
        if rest < total:
            cell, owner = heavy.pop(0), heavy[0]
            kept[cell], other[cell] = rest, owner
            rest += q[owner] * n - total
        else:
            cell = light.pop(0)
            kept[cell], other[cell] = q[cell] * n, heavy[0]
            rest += q[cell] * n - total
    assert rest == total and all(q[place] * n == total for place in heavy[1:])

    def threshold(place: int) -> int:
        if q[place] == 0:
            return 0
        return max(1, (kept[place] << 32) // total) if place in kept else 2**32 - 1

    return [(threshold(place), other.get(place, place)) for place in range(n)]


def integer_weights(weights) -> list[int]:
    """The integers that stand for a list of weights; docs/format.md has the rule."""
    weights = [Fraction(float(w)) for w in weights]
    largest = max(weights, default=0)
    if largest == 0:
        return [0] * len(weights)
    _, e = math.frexp(float(largest))
    scale = Fraction(2) ** (62 - len(weights).bit_length() - e)
    return [max(1, math.floor(w * scale)) if w else 0 for w in weights]


def running_sums(q: list[int]) -> list[int]:
    sums, total = [], 0
    for weight in q:
        total += weight
        sums.append(total)
    return sums


def first_above(c: list[int], x: int) -> int:
    return next(t for t, total in enumerate(c) if total > x)


# What a batch is made of


class Met:
    """The nodes of a batch: per type their ids in the order they were met, and the row of each."""

    def __init__(self, types):
        self.ids = {type: [] for type in types}
        self.rows = {type: {} for type in types}

    def add(self, type: str, node: int):
        if node not in self.rows[type]:
            self.rows[type][node] = len(self.ids[type])
            self.ids[type].append(node)

    def sizes(self) -> dict[str, int]:
        return {type: len(ids) for type, ids in self.ids.items()}


class Lists:
    """The neighbour lists of an edge type in one direction, as plain numbers."""

    def __init__(self, lists):
        self.bounds = lists.indptr.tolist()
        self.neighbors = lists.neighbors.tolist()
        self.edge_ids = None if lists.edge_ids is None else lists.edge_ids.tolist()
        self.weights = None if lists.weights is None else lists.weights.tolist()
        self.integers = cache(self._integers)

    def degree(self, v: int) -> int:
        return self.bounds[v + 1] - self.bounds[v]

    def of(self, v: int) -> list[int]:
        return self.neighbors[self.bounds[v] : self.bounds[v + 1]]

    def _integers(self, v: int) -> list[int]:
        return integer_weights(self.weights[self.bounds[v] : self.bounds[v + 1]])


@dataclass
class Walk:
    """An edge type that is walked: nodes of type `owner` are expanded and give nodes of type `other`."""

    type: tuple[str, str, str]
    owner: str
    other: str
    lists: Lists
    fanouts: list[int] = field(default_factory=list)


@dataclass
class Found:
    """The sampled edges of one type: per edge the neighbour, the node expanded, and the place in all lists."""

    edges: list[tuple[int, int, int]] = field(default_factory=list)
    per_hop: list[int] = field(default_factory=list)

    def add(self, walk: Walk, v: int, position: int):
        place = walk.lists.bounds[v] + position
        self.edges.append((walk.lists.neighbors[place], v, place))


@dataclass
class Asked:
    """What a task makes of its elements: the seeds met, and the fields that go with them."""

    met: Met
    seed: list[int]
    seed_index: list[int]
    batch_size: int
    metadata: dict


@dataclass
class Draws:
    """The keys of one batch's draws."""

    seed: int
    epoch: int
    g: int

    def key(self, purpose: int, hop: int, edge_type, n: int) -> int:
        return at(stream(self.seed, LAW, purpose, self.epoch, self.g, hop, name(edge_type)), n)

    def words(self, purpose: int, hop: int, edge_type, n: int):
        k = self.key(purpose, hop, edge_type, n)
        return lambda i: draw(k, i)


class Law:
    """All batches of a dataset under a configuration (section 9)."""

    def __init__(self, dataset, config: dict):
        self.dataset = dataset
        self.config = config
        self.types = list(dataset.nodes)
        ((self.task, self.task_options),) = config.get("task", {"nodes": {}}).items()
        ((self.expand, self.options),) = config["expand"].items()
        self.direction = config.get("direction") or dataset.manifest["edge_dir"]
        self.seed = config.get("seed", 0)
        self.walks = self._walks()
        self.lists = cache(self._lists)
        self.edge_set = cache(self._edge_set)
        self.node_table = cache(self._node_table)

    def batches(
        self, seeds: list, epoch=0, batch_size=None, shuffle=False, drop_last=False, seed_order="global"
    ) -> list[dict]:
        """The batches of an epoch of one rank."""
        size = batch_size or len(seeds)
        if seed_order == "global":
            made = cuts(len(seeds), self.seed, epoch, size, shuffle, drop_last)
        else:
            made = cuts_by_partition(self._owners(seeds), self.seed, epoch, size, shuffle, drop_last)
        return [self.batch([seeds[i] for i in cut], epoch, g, cut) for g, cut in enumerate(made)]

    def _owners(self, seeds: list) -> list[int]:
        """The partitions that own the elements of a seed list; a pair's is its source's."""
        if self.task == "nodes":
            type = self.task_options.get("type") or self.types[0]
        elif self.task == "links":
            type = self._edge_type(self.task_options.get("type"))[0]
        else:
            type = self._edge_type(self.task_options["supervision"][0].get("positive"))[0]
        sources = [seed[0] if isinstance(seed, (tuple, list)) else seed for seed in seeds]
        return self.dataset.nodes[type].owner[sources].tolist()

    def batch(self, seeds: list, epoch: int, g: int, positions: list[int] | None = None, repeated=False) -> dict:
        """The batch of these elements of the seed list, in the shape of section 10; they stand there at `positions`."""
        draws = Draws(self.seed, epoch, g)
        if self.task == "nodes":
            asked = self._nodes(seeds)
        elif self.task == "links":
            asked = self._links(seeds, list(range(len(seeds))) if positions is None else positions, draws)
        else:
            asked = self._anchors(seeds)
        met, metadata = asked.met, asked.metadata
        if self.expand == "neighbors":
            new, found = self._neighbors(met, draws)
        elif self.expand == "induced":
            new, found = self._induced(met, draws)
        else:
            new, found, metadata["ppr"] = self._ppr(met, draws)
        if sum(len(sampled.edges) for sampled in found.values()) > self.config.get("max_edges", 10**8):
            raise Refused("more edges than max_edges")
        return {
            "law": LAW,
            "fingerprint": self.dataset.manifest["fingerprint"],
            "epoch": epoch,
            "g": g,
            "repeated": repeated,
            "batch_size": asked.batch_size,
            "seed": asked.seed,
            "seed_index": asked.seed_index,
            "nodes": {type: self._show_nodes(type, ids, new[type]) for type, ids in met.ids.items() if ids},
            "edges": [self._show_edges(walk, met, found[walk.type]) for walk in self.walks if walk.type in found],
            "metadata": metadata,
        }

    # Section 9: what is walked, and how far

    def _walks(self) -> list[Walk]:
        allowed = self.config.get("walk")
        allowed = None if allowed is None else {tuple(type) for type in allowed}
        fanouts, by_type = self.options.get("fanouts", []), None
        if fanouts and isinstance(fanouts[0], dict):
            by_type = {self._edge_type(entry.get("type")): entry["fanouts"] for entry in fanouts}
            fanouts = fanouts[0]["fanouts"]
        self.hops = len(fanouts)
        walks = []
        for type, edges in self.dataset.edges.items():
            if edges.info["role"] == "label" or (allowed is not None and type not in allowed):
                continue
            if by_type is not None and type not in by_type:
                continue
            src, _, dst = type
            owner, other = (dst, src) if self.direction == "in" else (src, dst)
            lists = Lists(edges.lists[self.direction])
            walks.append(Walk(type, owner, other, lists, fanouts if by_type is None else by_type[type]))
        return walks

    def _edge_type(self, type) -> tuple[str, str, str]:
        if type is None:
            (type,) = self.dataset.edges
        return tuple(type)

    def _lists(self, type: tuple, direction: str) -> Lists:
        return Lists(self.dataset.edges[type].lists[direction])

    # Section 4: neighbour sampling

    def _neighbors(self, met: Met, draws: Draws) -> tuple[dict, dict]:
        found = {walk.type: Found() for walk in self.walks}
        new = {type: [size] for type, size in met.sizes().items()}
        start = dict.fromkeys(self.types, 0)
        for hop in range(self.hops):
            end = met.sizes()
            for walk in self.walks:
                before = len(found[walk.type].edges)
                for v in met.ids[walk.owner][start[walk.owner] : end[walk.owner]]:
                    for position in self._choose(walk, v, hop, draws):
                        found[walk.type].add(walk, v, position)
                found[walk.type].per_hop.append(len(found[walk.type].edges) - before)
            for walk in self.walks:
                sampled = found[walk.type]
                for neighbor, _, _ in sampled.edges[len(sampled.edges) - sampled.per_hop[hop] :]:
                    met.add(walk.other, neighbor)
            start = end
            for type, size in met.sizes().items():
                new[type].append(size - end[type])
        return new, found

    def _choose(self, walk: Walk, v: int, hop: int, draws: Draws) -> list[int]:
        """The positions in the list of `v` that are taken, in the order of drawing."""
        n, f = walk.lists.degree(v), walk.fanouts[hop]
        word = draws.words(NEIGHBORS, hop, walk.type, v)
        replace = self.options.get("replace", False)
        if self.options.get("weighted", False) and walk.lists.weights is not None:
            q = walk.lists.integers(v)
            if f == -1 or (not replace and n <= f):
                return [position for position in range(n) if q[position] > 0]
            return weighted_with_replacement(q, f, word) if replace else weighted(q, f, word)
        if f == -1 or (not replace and n <= f):
            return list(range(n))
        return with_replacement(n, f, word) if replace else floyd(n, f, word)

    # Section 5: induced subgraph

    def _induced(self, met: Met, draws: Draws) -> tuple[dict, dict]:
        new, _ = self._neighbors(met, draws)
        found = {walk.type: Found() for walk in self.walks}
        for walk in self.walks:
            for v in met.ids[walk.owner]:
                for position, neighbor in enumerate(walk.lists.of(v)):
                    if neighbor in met.rows[walk.other]:
                        found[walk.type].add(walk, v, position)
            found[walk.type].per_hop.append(len(found[walk.type].edges))
        return new, found

    # Section 6: tasks

    def _checked(self, type: str, node: int) -> int:
        if not 0 <= node < self.dataset.nodes[type].count:
            raise Refused(f"there is no node {node} of type {type}")
        return node

    def _nodes(self, seeds: list[int]) -> Asked:
        type = self.task_options.get("type") or self.types[0]
        met = Met(self.types)
        for seed in seeds:
            met.add(type, self._checked(type, seed))
        return Asked(met, list(seeds), [met.rows[type][seed] for seed in seeds], len(met.ids[type]), {})

    def _links(self, pairs: list, positions: list[int], draws: Draws) -> Asked:
        edge_type = self._edge_type(self.task_options.get("type"))
        src, _, dst = edge_type
        sources = [self._checked(src, pair[0]) for pair in pairs]
        targets = [self._checked(dst, pair[1]) for pair in pairs]
        kind, negatives = self._negatives(edge_type, sources, draws)
        present = [pair for pair in negatives if pair is not None]
        met = Met(self.types)
        for type, nodes in (
            (src, sources),
            (dst, targets),
            (src, [s for s, _ in present] if kind == "binary" else []),
            (dst, [d for _, d in present]),
        ):
            for node in nodes:
                met.add(type, node)

        def row(type, node):
            return met.rows[type][node]

        positive_rows = [row(src, s) for s in sources], [row(dst, d) for d in targets]
        negative_rows = [
            (MISSING, MISSING) if pair is None else (row(src, pair[0]), row(dst, pair[1])) for pair in negatives
        ]
        classes = [pair[2] for pair in pairs if len(pair) > 2]
        if classes and len(classes) < len(pairs):
            raise Refused("some pairs have a class and others have none")
        if kind == "triplet":
            amount = len(negatives) // len(pairs)
            drawn = [d for _, d in negative_rows]
            metadata = {
                "src_index": positive_rows[0],
                "dst_pos_index": positive_rows[1],
                "dst_neg_index": [drawn[i * amount : (i + 1) * amount] for i in range(len(pairs))],
            }
        else:
            metadata = {
                "edge_label_index": [
                    positive_rows[0] + [s for s, _ in negative_rows],
                    positive_rows[1] + [d for _, d in negative_rows],
                ],
                "edge_label": edge_labels(len(pairs), classes, kind, len(negatives)),
            }
        if kind is not None:
            metadata["negatives_missing"] = len(negatives) - len(present)
        return Asked(met, list(positions), [], len(pairs), metadata)

    def _negatives(self, edge_type: tuple, sources: list[int], draws: Draws) -> tuple[str | None, list]:
        """The kind of negatives and the negative pairs, None for a missing one."""
        if not self.task_options.get("negatives"):
            return None, []
        ((kind, options),) = self.task_options["negatives"].items()
        amount = options.get("amount", 1)
        count = math.ceil(float(len(sources)) * float(amount)) if kind == "binary" else len(sources) * amount
        src, _, dst = edge_type
        by_weight = options.get("weighted", False)
        negatives = []
        for i in range(count):
            word = draws.words(NEGATIVES, 0, edge_type, i)

            def attempt(r, i=i, word=word):
                source = self._draw_node(src, word(2 * r), by_weight) if kind == "binary" else sources[i // amount]
                target = self._draw_node(dst, word(2 * r + 1), by_weight)
                return None if source is None or target is None else (source, target)

            if options.get("strict", False):
                tried = (attempt(r) for r in range(ATTEMPTS))
                negatives.append(next((pair for pair in tried if pair not in self.edge_set(edge_type)), None))
            else:
                negatives.append(attempt(0))
        return kind, negatives

    def _draw_node(self, type: str, word: int, by_weight: bool) -> int | None:
        if not by_weight:
            return below(word, self.dataset.nodes[type].count)
        c = self.node_table(type)
        return first_above(c, below(word, c[-1])) if c and c[-1] else None

    def _node_table(self, type: str) -> list[int]:
        weights = getattr(self.dataset.nodes[type], "weights", None)
        if weights is None:
            raise Refused(f"nodes of type {type} have no weights to draw by")
        return running_sums(integer_weights(weights))

    def _edge_set(self, edge_type: tuple) -> set[tuple[int, int]]:
        """The pairs that are not strict negatives of an edge type."""
        src, _, dst = edge_type
        pairs = set()
        for type, edges in self.dataset.edges.items():
            if type == edge_type or (edges.info["role"] == "label" and (type[0], type[2]) == (src, dst)):
                pairs |= set(map(tuple, edges.pairs.tolist()))
        return pairs

    def _anchors(self, anchors: list[int]) -> Asked:
        supervisions = [
            (self._edge_type(entry.get("positive")), tuple(entry["negative"]) if entry.get("negative") else None)
            for entry in self.task_options["supervision"]
        ]
        anchor_type = supervisions[0][0][0]
        met = Met(self.types)
        for anchor in anchors:
            met.add(anchor_type, self._checked(anchor_type, anchor))
        batch_size = len(met.ids[anchor_type])
        for label_types in supervisions:
            for label_type in filter(None, label_types):
                for _, label in self._label_pairs(label_type, anchors):
                    met.add(label_type[2], label)

        def rows(label_type):
            pairs = self._label_pairs(label_type, anchors)
            owners, labels = met.rows[anchor_type], met.rows[label_type[2]]
            return [[owners[anchor] for anchor, _ in pairs], [labels[label] for _, label in pairs]]

        shown = [
            {
                "positive": list(positive),
                "y_positive": rows(positive),
                "negative": negative and list(negative),
                "y_negative": negative and rows(negative),
            }
            for positive, negative in supervisions
        ]
        index = [met.rows[anchor_type][anchor] for anchor in anchors]
        return Asked(met, list(anchors), index, batch_size, {"labels": shown})

    def _label_pairs(self, label_type: tuple, anchors: list[int]) -> list[tuple[int, int]]:
        lists, most = self.lists(label_type, "out"), self.task_options.get("max_labels")
        return [(anchor, label) for anchor in anchors for label in lists.of(anchor)[:most]]

    # Section 7: personalised PageRank

    def _ppr(self, met: Met, draws: Draws) -> tuple[dict, dict, dict]:
        seeds = [(type, seed) for type in self.types for seed in met.ids[type]]
        new = {type: [size] for type, size in met.sizes().items()}
        kept = {seed: self._keep(*self._push(seed, draws)) for seed in seeds}
        for seed in seeds:
            for type in self.types:
                for node, _, _ in kept[seed][type]:
                    met.add(type, node)
        for type in self.types:
            new[type].append(len(met.ids[type]) - new[type][0])
        shown = {}
        for seed_type in dict.fromkeys(type for type, _ in seeds):
            shown[seed_type] = {}
            for type in filter(met.ids.get, self.types):
                rows = [(seed, *entry) for seed in seeds if seed[0] == seed_type for entry in kept[seed][type]]
                shown[seed_type][type] = {
                    "index": [
                        [met.rows[seed_type][seed] for (_, seed), *_ in rows],
                        [met.rows[type][node] for _, node, _, _ in rows],
                    ],
                    "score": [score for _, _, score, _ in rows],
                    "hop": [hop for _, _, _, hop in rows],
                }
        return new, {}, shown

    def _push(self, seed: tuple[str, int], draws: Draws) -> tuple[dict, dict, dict]:
        """Score, residual and hop of every node that the push from a seed touches."""
        alpha, eps = float(self.options.get("alpha", 0.5)), float(self.options.get("eps", 1e-4))
        score, residual, hop = {}, {seed: alpha}, {seed: 0}
        queue = [seed]
        while queue:
            taken = {v: (residual[v], hop[v]) for v in queue}
            for v, (r, _) in taken.items():
                score[v] = score.get(v, 0.0) + r
                residual[v] = 0.0
            for v, (r, h) in taken.items():
                if self._degree(v) > 0:
                    share = ((1.0 - alpha) * r) / float(self._degree(v))
                    for u in self._fetched(v, draws):
                        residual[u] = residual.get(u, 0.0) + share
                        hop[u] = min(hop.get(u, math.inf), h + 1)
            queue = [v for v, r in residual.items() if r > 0 and r >= (alpha * eps) * float(self._degree(v))]
            queue.sort(key=lambda v: (self.types.index(v[0]), v[1]))
        return score, residual, hop

    def _degree(self, v: tuple[str, int]) -> int:
        type, node = v
        return sum(walk.lists.degree(node) for walk in self.walks if walk.owner == type)

    def _fetched(self, v: tuple[str, int], draws: Draws) -> list[tuple[str, int]]:
        type, node = v
        most = self.options.get("neighbors_per_hop", 1000)
        fetched = []
        for walk in self.walks:
            if walk.owner == type:
                neighbors = walk.lists.of(node)
                if len(neighbors) > most:
                    word = draws.words(PPR, 0, walk.type, node)
                    neighbors = [neighbors[position] for position in floyd(len(neighbors), most, word)]
                fetched += [(walk.other, neighbor) for neighbor in neighbors]
        return fetched

    def _keep(self, score: dict, residual: dict, hop: dict) -> dict[str, list[tuple[int, float, int]]]:
        """Per node type the nodes that are kept, in order: id, score and hop."""
        most = self.options.get("max_nodes", 50)
        kept = {}
        for type in self.types:
            room = most.get(type, 0) if isinstance(most, dict) else most
            ranked = best(type, score)
            if self.options.get("top_up", False):
                ranked += best(type, {v: r for v, r in residual.items() if v not in score})
            kept[type] = [(node, value, hop[type, node]) for node, value in ranked[:room]]
        return kept

    # Section 10: what is shown

    def _show_nodes(self, type: str, ids: list[int], new: list[int]) -> dict:
        nodes = self.dataset.nodes[type]
        shown = {"node": ids, "num_sampled_nodes": new}
        shown["features"] = {
            feature: self._numbers(nodes.features[feature][ids], self.dtypes["nodes", type, feature])
            for feature in self.config.get("features", [])
            if feature in nodes.features
        }
        if self.config.get("labels", False) and nodes.label is not None:
            shown["label"] = nodes.label[ids].tolist()
        return shown

    def _show_edges(self, walk: Walk, met: Met, found: Found) -> dict:
        shown = {
            "type": list(walk.type),
            "row": [met.rows[walk.other][neighbor] for neighbor, _, _ in found.edges],
            "col": [met.rows[walk.owner][v] for _, v, _ in found.edges],
            "num_sampled_edges": found.per_hop,
        }
        edge_ids = walk.lists.edge_ids
        ids = None if edge_ids is None else [edge_ids[place] for _, _, place in found.edges]
        if self.config.get("edge_ids", False) and ids is not None:
            shown["edge"] = ids
        features = self.dataset.edges[walk.type].features
        shown["features"] = {
            feature: self._numbers(features[feature][np.array(ids, np.int64)], self.dtypes["edges", walk.type, feature])
            for feature in self.config.get("edge_features", [])
            if feature in features
        }
        return shown

    def _numbers(self, rows: np.ndarray, dtype: str) -> list:
        if dtype == "f32" and self.config.get("feature_dtype") == "f16":
            with np.errstate(over="ignore"):
                rows = rows.astype(np.float16)
        return numbers(rows, dtype)

    @cached_property
    def dtypes(self) -> dict:
        """The element type of every feature."""
        manifest = self.dataset.manifest
        return {
            (kind, key(info), feature["name"]): feature["dtype"]
            for kind, infos, key in (
                ("nodes", manifest["node_types"], lambda info: info["name"]),
                ("edges", manifest["edge_types"], lambda info: tuple(info["type"])),
            )
            for info in infos
            for feature in info["features"]
        }


def edge_labels(positives: int, classes: list[int], kind: str | None, negatives: int) -> list[int]:
    if not classes:
        return [1] * positives + [0] * negatives
    return classes if kind is None else [value + 1 for value in classes] + [0] * negatives


def best(type: str, values: dict) -> list[tuple[int, float]]:
    """The nodes of a type with a positive value, the largest first, then by id."""
    positive = [(v[1], value) for v, value in values.items() if v[0] == type and value > 0]
    return sorted(positive, key=lambda item: (-item[1], item[0]))


def numbers(rows: np.ndarray, dtype: str) -> list:
    if dtype == "bf16":
        rows = (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.tolist()
