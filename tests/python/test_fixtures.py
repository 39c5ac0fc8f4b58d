"""Datasets of every released version, read by the binary and by the independent reader."""

import pytest
from conftest import REPOSITORY
from reader import Dataset

FIXTURES = REPOSITORY / "crates" / "graphmill-graph" / "tests" / "fixtures"
DATASETS = sorted(manifest.parent for manifest in FIXTURES.glob("*/*/manifest.json"))


@pytest.mark.parametrize("path", DATASETS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_an_old_dataset_stays_readable(workshop, path):
    dataset = Dataset(path)
    told = workshop.inspect(path)
    assert told["fingerprint"] == dataset.fingerprint()
    assert told["num_edges"] == sum(len(edges.pairs) for edges in dataset.edges.values())
    workshop.run("inspect", path, "--verify")


def test_every_version_has_its_fixtures():
    assert {path.parent.name for path in DATASETS} == {"v1"}
