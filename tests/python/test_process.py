"""The binary as a process: what it says where, and what is left when it is stopped."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest
from graphs import write_csv, write_npy
from reader import Dataset


@pytest.fixture
def shop(workshop):
    write_csv(workshop.path / "e.csv", {"src": [0, 1], "dst": [1, 2]})
    workshop.describe('[[edges]]\nfiles = "e.csv"\n')
    return workshop


def test_quiet_is_quiet_and_results_are_on_standard_output(shop):
    quiet = shop.run("ingest", "graph.toml", "--out", "quiet", "--quiet")
    assert quiet.stderr == ""
    loud = shop.run("ingest", "graph.toml", "--out", "loud")
    assert "\r" not in loud.stderr and "\x1b" not in loud.stderr, "without a terminal progress comes in plain lines"
    assert loud.stderr and "loud" in loud.stdout


def test_an_existing_dataset_is_replaced_only_when_asked(shop):
    shop.run("ingest", "graph.toml", "--out", "out", "--quiet")
    write_csv(shop.path / "e.csv", {"src": [0], "dst": [5]})
    refused = shop.run("ingest", "graph.toml", "--out", "out", "--quiet", expect=None)
    assert refused.returncode != 0 and "exists" in refused.stderr
    assert Dataset(shop.path / "out").only_nodes.count == 3
    shop.run("ingest", "graph.toml", "--out", "out", "--quiet", "--force")
    assert Dataset(shop.path / "out").only_nodes.count == 6


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_writer_leaves_no_half_dataset(workshop, stop):
    write_npy(workshop.path / "e.npy", np.random.default_rng(0).integers(0, 300_000, (3_000_000, 2)))
    workshop.describe('[[edges]]\nfiles = "e.npy"\n')
    command = [workshop.binary, "ingest", "graph.toml", "--out", "out", "--memory", "4MiB", "--quiet"]
    process = subprocess.Popen(command, cwd=workshop.path, stderr=subprocess.PIPE, text=True)
    while not any(name.startswith(".out.writing-") for name in os.listdir(workshop.path)):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)
    time.sleep(0.1)
    process.send_signal(stop)
    _, message = process.communicate(timeout=30)
    assert process.returncode != 0
    left = sorted(os.listdir(workshop.path))
    assert "out" not in left
    if stop != signal.SIGKILL:
        assert left == ["e.npy", "graph.toml"], "an interrupted writer cleans up"
        assert "interrupted" in message
    else:
        write_npy(workshop.path / "e.npy", np.array([[0, 1]]))
        workshop.run("ingest", "graph.toml", "--out", "out", "--quiet")
        assert sorted(os.listdir(workshop.path)) == ["e.npy", "graph.toml", "out"], "the next writer cleans up"


def test_damage_to_the_manifest_is_explained(shop):
    shop.run("ingest", "graph.toml", "--out", "out", "--quiet")
    manifest = shop.path / "out" / "manifest.json"
    sound = manifest.read_text()
    for text, word in (
        (sound.replace('"version": 1', '"version": 99'), "99"),
        (sound.replace('"parts": 1', '"parts": 2'), "checksum"),
        (sound[: len(sound) // 2], "manifest"),
        ("", "manifest"),
    ):
        manifest.write_text(text)
        done = shop.run("inspect", "out", expect=None)
        assert done.returncode != 0 and word in done.stderr and "panicked" not in done.stderr, done.stderr


def test_a_truncated_array_is_named_with_what_was_expected(shop):
    shop.run("ingest", "graph.toml", "--out", "out", "--quiet")
    (array,) = (shop.path / "out").rglob("in.neighbors.u32")
    array.write_bytes(array.read_bytes()[:-1])
    done = shop.run("inspect", "out", expect=None)
    assert done.returncode != 0
    assert array.name in done.stderr and "expected 8 bytes" in done.stderr and "found 7" in done.stderr


def test_the_demo_ends_well(workshop):
    before = os.listdir(workshop.path)
    done = workshop.run("demo", "--nodes", "2000", "--edges", "20000", "--quiet")
    assert "partition" in done.stdout and os.listdir(workshop.path) == before
