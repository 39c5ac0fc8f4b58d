"""Random sampler configurations, with seeds to ask for, for any dataset."""

from dataclasses import dataclass

import numpy as np
from reader import Dataset
from sample import ask


@dataclass
class Case:
    """A configuration and one batch under it."""

    config: dict
    seeds: list
    epoch: int
    g: int

    @property
    def arguments(self) -> list:
        """How `graphmill sample` is asked for it."""
        return [*ask(self.seeds), "--epoch", self.epoch, "--batch", self.g]


def random_case(dataset: Dataset, number: int) -> Case:
    rng = np.random.default_rng(number)
    kind = rng.choice(["nodes", "links", "anchors"] if label_types(dataset) else ["nodes", "links"])
    task, seeds = {"nodes": nodes, "links": links, "anchors": anchors}[kind](dataset, rng)
    config = {"task": task, "expand": expand(dataset, rng)}
    if not by_type(config) and chance(rng, 0.4):
        config["walk"] = some(rng, message_types(dataset))
    if chance(rng, 0.7):
        config["direction"] = str(rng.choice(["in", "out"]))
    if "ppr" not in config["expand"]:
        config |= edge_columns(dataset, config, rng)
    if chance(rng, 0.3):
        config["labels"] = True
    if chance(rng, 0.3):
        config["features"] = some(rng, sorted({name for nodes in dataset.nodes.values() for name in nodes.features}))
    if chance(rng, 0.8):
        config["seed"] = int(rng.integers(0, 2**64 - 1, dtype=np.uint64, endpoint=True))
    return Case(config, seeds, epoch=int(rng.integers(0, 5)), g=int(rng.integers(0, 100)))


# Tasks


def nodes(dataset: Dataset, rng) -> tuple[dict, list]:
    type = pick(rng, list(dataset.nodes))
    unnamed = dataset.manifest["homogeneous"] and chance(rng, 0.5)
    return {"nodes": {} if unnamed else {"type": type}}, random_ids(dataset, type, rng)


def links(dataset: Dataset, rng) -> tuple[dict, list]:
    type = pick(rng, list(dataset.edges))
    known = dataset.edges[type].pairs.tolist()
    pairs = [tuple(pick(rng, known)) for _ in range(rng.integers(1, 9))]
    pairs += list(zip(random_ids(dataset, type[0], rng), random_ids(dataset, type[2], rng)))
    if chance(rng, 0.3):
        pairs = [(*pair, int(rng.integers(0, 5))) for pair in pairs]
    weights = [getattr(dataset.nodes[end], "weights", None) for end in (type[0], type[2])]
    options = {"strict": chance(rng, 0.5), "weighted": all(w is not None for w in weights) and chance(rng, 0.5)}
    negatives = pick(
        rng,
        [
            None,
            {"binary": {"amount": pick(rng, [0.3, 1.0, 2.5]), **options}},
            {"triplet": {"amount": int(rng.integers(1, 4)), **options}},
        ],
    )
    task = {"negatives": negatives}
    if not dataset.manifest["homogeneous"] or chance(rng, 0.5):
        task["type"] = list(type)
    return {"links": task}, pairs


def anchors(dataset: Dataset, rng) -> tuple[dict, list]:
    labels = label_types(dataset)
    type = pick(rng, labels)[0]
    labels = [list(labels[place]) for place in rng.permutation(len(labels)) if labels[place][0] == type]
    supervision = []
    while labels and (not supervision or chance(rng, 0.7)):
        supervision.append({"positive": labels.pop()})
        if labels and chance(rng, 0.5):
            supervision[-1]["negative"] = labels.pop()
    task = {"supervision": supervision}
    if chance(rng, 0.5):
        task["max_labels"] = int(rng.integers(1, 4))
    return {"anchors": task}, random_ids(dataset, type, rng)


# Expansion


def expand(dataset: Dataset, rng) -> dict:
    kind = str(rng.choice(["neighbors", "neighbors", "induced", "ppr"]))
    if kind == "ppr":
        return {"ppr": ppr(dataset, rng)}
    hops = int(rng.integers(0, 4))
    options = {"replace": chance(rng, 0.4), "weighted": chance(rng, 0.5)}
    if kind == "neighbors" or chance(rng, 0.7):
        options["fanouts"] = fanouts(rng, hops)
        if chance(rng, 0.5) and not dataset.manifest["homogeneous"]:
            types = some(rng, message_types(dataset))
            options["fanouts"] = [{"type": list(type), "fanouts": fanouts(rng, hops)} for type in types]
    return {kind: options}


def fanouts(rng, hops: int) -> list[int]:
    return [int(fanout) for fanout in rng.choice([-1, 0, 1, 2, 3, 5, 5, 10], hops)]


def ppr(dataset: Dataset, rng) -> dict:
    options = {"eps": pick(rng, [1e-2, 1e-3]), "alpha": pick(rng, [0.5, 0.15, 0.25]), "top_up": chance(rng, 0.5)}
    if chance(rng, 0.6):
        options["max_nodes"] = int(rng.integers(1, 30))
    elif chance(rng, 0.6):
        options["max_nodes"] = {type: int(rng.integers(1, 20)) for type in some(rng, list(dataset.nodes))}
    if chance(rng, 0.6):
        options["neighbors_per_hop"] = int(rng.integers(1, 8))
    return options


def edge_columns(dataset: Dataset, config: dict, rng) -> dict:
    columns = {"edge_ids": True} if chance(rng, 0.5) else {}
    features = sorted({name for type in walked(dataset, config) for name in dataset.edges[tuple(type)].features})
    if features and chance(rng, 0.3):
        columns["edge_features"] = some(rng, features)
    return columns


# Choices


def label_types(dataset: Dataset) -> list[tuple]:
    return [type for type, edges in dataset.edges.items() if edges.info["role"] == "label"]


def message_types(dataset: Dataset) -> list[tuple]:
    return [type for type, edges in dataset.edges.items() if edges.info["role"] == "message"]


def walked(dataset: Dataset, config: dict) -> list[tuple]:
    return [entry["type"] for entry in by_type(config)] or config.get("walk") or message_types(dataset)


def by_type(config: dict) -> list[dict]:
    """The fanouts of single edge types, if that is how they are given."""
    ((_, options),) = config["expand"].items()
    return [entry for entry in options.get("fanouts", []) if isinstance(entry, dict)]


def random_ids(dataset: Dataset, type: str, rng) -> list[int]:
    return rng.integers(0, dataset.nodes[type].count, rng.integers(1, 13)).tolist()


def chance(rng, share: float) -> bool:
    return bool(rng.random() < share)


def pick(rng, items: list):
    return items[rng.integers(len(items))]


def some(rng, items: list) -> list:
    """At least one of the items, in their order."""
    kept = [item for item in items if chance(rng, 0.5)]
    return kept or [pick(rng, items)]
