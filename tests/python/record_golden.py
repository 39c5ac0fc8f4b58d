"""Records the golden batches of tests/golden, as the law in plain Python makes them.

    python tests/python/record_golden.py

A file is one batch: how its dataset is made (`generate`: arguments of `graphmill generate`, and `partition`: those of
`graphmill partition` where it is cut; or `fixture`: a path in the repository), `config`, `seeds` (ids or pairs), `epoch`,
`g`, and the `batch` that must come out. All seeds are one batch, unless `cutting` says how they are cut into several. Recording
anew changes what is pinned: that is a new law version, unless a file is new.
"""

import json
import subprocess
import tempfile
from pathlib import Path

from conftest import REPOSITORY, find_binary
from law import Law
from reader import Dataset

GOLDEN = REPOSITORY / "tests" / "golden"
KARATE = {"generate": ["karate", "--layout", "both", "--edge-ids"]}
WEIGHTS = {"generate": ["karate", "--layout", "both", "--weights", "--seed", "5"]}
NODE_WEIGHTS = {"generate": ["karate", "--layout", "both", "--node-weights", "--seed", "6"]}
PARTS = {**KARATE, "partition": ["--parts", "3", "--method", "range"]}
LIBRARY = {"fixture": "crates/graphmill-graph/tests/fixtures/v1/assigned"}
WRITES, CITES, LIKES = ["author", "writes", "paper"], ["paper", "cites", "paper"], ["author", "likes", "paper"]


def golden() -> dict[str, dict]:
    """All recipes: everything of a file but its batch."""
    return {
        "uniform": karate(neighbors([5, 3])),
        "uniform-replace": karate(neighbors([4, 2], replace=True)),
        "uniform-mixed": karate(neighbors([3, -1, 2]), direction="out"),
        "uniform-features": karate(neighbors([2]), features=["x"], labels=True),
        "weighted": karate(neighbors([5, 3], weighted=True), dataset=WEIGHTS),
        "weighted-replace": karate(neighbors([4, 2], weighted=True, replace=True), dataset=WEIGHTS),
        "induced": karate({"induced": {"fanouts": [3]}}),
        "induced-seeds": karate({"induced": {}}, seeds=[0, 1, 2, 3, 7, 13, 33]),
        "ppr": karate({"ppr": {"eps": 0.01, "max_nodes": 8}}),
        "ppr-capped": karate({"ppr": {"alpha": 0.25, "eps": 0.005, "neighbors_per_hop": 5, "top_up": True}}),
        "links": links(None, [[0, 1, 3], [33, 8, 1], [5, 6, 0]]),
        "links-binary": links({"binary": {"amount": 2.5, "strict": True}}, [[0, 1, 3], [33, 8, 1], [5, 6, 0]]),
        "links-triplet": links({"triplet": {"amount": 3, "strict": True}}, [[0, 1], [33, 8], [0, 2]]),
        "links-weighted": links(
            {"binary": {"amount": 3, "strict": True, "weighted": True}}, [[0, 1], [33, 8]], dataset=NODE_WEIGHTS
        ),
        "types": library(
            {"nodes": {"type": "paper"}},
            neighbors([{"type": WRITES, "fanouts": [1, -1]}, {"type": CITES, "fanouts": [2, 2]}]),
            [4, 0, 4],
            features=["x", "halves", "bytes", "born", "short", "rank"],
            edge_features=["share", "note"],
            labels=True,
        ),
        "types-ppr": library({"nodes": {"type": "paper"}}, {"ppr": {"max_nodes": {"paper": 3, "author": 1}}}, [1, 4]),
        "anchors": library(
            {"anchors": {"supervision": [{"positive": LIKES, "negative": None}], "max_labels": 2}},
            neighbors([2]),
            [2, 0, 2],
        ),
        "partition-order": {
            **karate(neighbors([3, 2]), seeds=range(34), dataset=PARTS),
            "cutting": {"batch_size": 4, "shuffle": True, "drop_last": False, "seed_order": "partition"},
        },
        "partition-order-links": {
            **links({"triplet": {"amount": 2}}, [[i, 33 - i] for i in range(34)], dataset=PARTS),
            "cutting": {"batch_size": 3, "shuffle": True, "drop_last": True, "seed_order": "partition"},
        },
        "partition-order-types": {
            **library({"nodes": {"type": "paper"}}, neighbors([2]), [4, 0, 1, 3, 2, 4]),
            "cutting": {"batch_size": 1, "shuffle": False, "drop_last": False, "seed_order": "partition"},
        },
    }


def karate(expand: dict, seeds=(0, 33, 5, 0), dataset=KARATE, **config) -> dict:
    return recipe(dataset, {"expand": expand, "edge_ids": "ppr" not in expand, **config}, list(seeds))


def links(negatives: dict | None, pairs: list, dataset=KARATE) -> dict:
    return recipe(dataset, {"task": {"links": {"negatives": negatives}}, "expand": neighbors([2])}, pairs)


def library(task: dict, expand: dict, seeds: list, **config) -> dict:
    return recipe(LIBRARY, {"task": task, "expand": expand, **config}, seeds)


def neighbors(fanouts: list, **options) -> dict:
    return {"neighbors": {"fanouts": fanouts, **options}}


def recipe(dataset: dict, config: dict, seeds: list) -> dict:
    return {**dataset, "config": {**config, "seed": 42}, "seeds": seeds, "epoch": 1, "g": 2}


def dataset_of(recipe: dict, folder: Path, binary: Path) -> Path:
    """Where the dataset of a recipe lies, made in the folder if it must be."""
    if "fixture" in recipe:
        return REPOSITORY / recipe["fixture"]
    out = folder / "dataset"
    subprocess.run([binary, "generate", *recipe["generate"], "--out", out, "--quiet"], check=True, capture_output=True)
    if "partition" in recipe:
        whole, out = out, folder / "parts"
        cut = [binary, "partition", whole, *recipe["partition"], "--out", out, "--quiet"]
        subprocess.run(cut, check=True, capture_output=True)
    return out


def batch_of(recipe: dict, dataset: Path) -> dict:
    law = Law(Dataset(dataset), recipe["config"])
    if "cutting" in recipe:
        return law.batches(recipe["seeds"], recipe["epoch"], **recipe["cutting"])[recipe["g"]]
    return law.batch(recipe["seeds"], recipe["epoch"], recipe["g"])


def written(content: dict) -> str:
    """JSON with a line per key, and one per key of the batch."""
    batch = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in content["batch"].items())
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items() if key != "batch"]
    return "{\n" + ",\n".join([*lines, f' "batch": {{\n{batch}\n }}']) + "\n}\n"


def main():
    GOLDEN.mkdir(exist_ok=True)
    for name, recipe in golden().items():
        with tempfile.TemporaryDirectory() as folder:
            batch = batch_of(recipe, dataset_of(recipe, Path(folder), find_binary()))
        (GOLDEN / f"{name}.json").write_text(written({**recipe, "batch": batch}))


if __name__ == "__main__":
    main()
