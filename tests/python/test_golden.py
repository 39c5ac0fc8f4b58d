"""Golden batches: what version 1 of the law makes, for ever, of small graphs."""

import json

import pytest
from reader import Dataset
from record_golden import GOLDEN, batch_of, dataset_of, golden
from sample import ask, rounded, sample

FILES = sorted(GOLDEN.glob("*.json"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def pinned(request) -> dict:
    return json.loads(request.param.read_text())


def test_every_recipe_is_recorded():
    recorded = {path.stem: json.loads(path.read_text()) for path in FILES}
    for pinned in recorded.values():
        del pinned["batch"]
    assert recorded == golden()


def test_the_law_in_python_keeps_its_promise(pinned, tmp_path, binary):
    assert batch_of(pinned, dataset_of(pinned, tmp_path, binary)) == pinned["batch"]


def test_the_binary_keeps_its_promise(pinned, workshop):
    dataset = dataset_of(pinned, workshop.path, workshop.binary)
    manifest = Dataset(dataset).manifest
    asked = [*ask(pinned["seeds"]), "--epoch", pinned["epoch"], "--batch", pinned["g"], *cutting(pinned)]
    assert sample(workshop, dataset, manifest, pinned["config"], *asked) == [rounded(pinned["batch"], manifest)]


def cutting(pinned: dict) -> list:
    """How seeds are cut into batches, as flags."""
    flags = []
    for name, value in pinned.get("cutting", {}).items():
        flag = f"--{name.replace('_', '-')}"
        flags += [flag] if value is True else [] if value is False else [flag, value]
    return flags
