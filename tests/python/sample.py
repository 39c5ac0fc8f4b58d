"""Asks `graphmill sample` for batches, and reads what it says."""

import json

import numpy as np


def sample(workshop, dataset, manifest: dict, config: dict, *flags) -> list[dict]:
    """The batches that the binary makes of a dataset with this manifest."""
    said = workshop.run("sample", dataset, "--config", write_config(workshop, config), *flags, "--json").stdout
    return [rounded(batch, manifest) for batch in objects(said)]


def refusal(workshop, dataset, config: dict, *flags) -> str:
    """The message of a request that fails."""
    asked = ("sample", dataset, "--config", write_config(workshop, config), *flags, "--json")
    done = workshop.run(*asked, expect=None)
    assert done.returncode != 0 and "panicked" not in done.stderr, done.stdout + done.stderr
    return done.stderr


def write_config(workshop, config: dict):
    file = workshop.path / "config.json"
    file.write_text(json.dumps(config))
    return file


def ask(seeds: list) -> list:
    """Ids or pairs as flags."""
    if isinstance(seeds[0], (tuple, list)):
        return ["--pairs", ",".join(":".join(map(str, pair)) for pair in seeds)]
    return ["--seeds", ",".join(map(str, seeds))]


def objects(text: str) -> list[dict]:
    """All JSON objects of a text."""
    decoder, found, text = json.JSONDecoder(), [], text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


def rounded(batch: dict, manifest: dict) -> dict:
    """The batch with features as numbers of their type: a single may be written shorter than as a double."""
    features = {info["name"]: info["features"] for info in manifest["node_types"]}
    features |= {tuple(info["type"]): info["features"] for info in manifest["edge_types"]}
    for type, part in [*batch["nodes"].items(), *((tuple(edges["type"]), edges) for edges in batch["edges"])]:
        for feature in features[type]:
            if feature["dtype"] in ("f16", "bf16", "f32") and feature["name"] in part["features"]:
                part["features"][feature["name"]] = np.float32(part["features"][feature["name"]]).tolist()
    return batch
