"""The examples, each run as a process of its own at a small size."""

import os
import re
import runpy
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from conftest import REPOSITORY
from test_cora import CORA

for package in ("torch", "torch_geometric"):
    if find_spec(package) is None:
        pytest.skip(f"the examples train with {package}, which is not installed", allow_module_level=True)

EXAMPLES = REPOSITORY / "examples"

# Importing torch_geometric takes longer than most examples: it is done once, in a process that the others are forks of.
forks = get_context("forkserver")
forks.set_forkserver_preload(["torch_geometric.nn", "torch.nn.parallel", "tqdm", "graphmill"])


class Run:
    """An example under way."""

    def __init__(self, folder: Path, binary: Path, name: str | Path, *arguments: object):
        self.log = folder / f"{Path(name).name}.log"
        words = [str(EXAMPLES / name), *map(str, arguments)]
        self.process = forks.Process(target=_run, args=(words, str(folder), str(self.log), str(binary)))
        self.process.start()

    def end(self) -> str:
        """What it said, when it has ended well."""
        self.process.join(120)
        assert self.process.exitcode == 0, self.log.read_text()
        return self.log.read_text()


def _run(words: list[str], folder: str, log: str, binary: str) -> None:
    import torch

    # Several threads on busy cores wait for each other more than they work.
    torch.set_num_threads(1)
    os.chdir(folder)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ["GRAPHMILL"] = binary
    sys.argv = words
    sys.path.insert(0, str(EXAMPLES))
    runpy.run_path(words[0], run_name="__main__")
    sys.stdout.flush()


@pytest.fixture
def run(tmp_path, binary):
    return lambda name, *arguments: Run(tmp_path, binary, name, *arguments).end()


def torchrun(ranks: int, folder: Path, binary: Path, name: str, *arguments: object) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*command, EXAMPLES / name, *map(str, arguments)], cwd=folder, text=True, timeout=240, capture_output=True,
        env={**os.environ, "GRAPHMILL": str(binary), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "stopped with" not in done.stderr, "a server was ended under an open channel"
    return done.stdout


def told(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])


@pytest.mark.parametrize(
    ("name", "pattern", "least"),
    [
        ("node_classification.py", r"test accuracy ([\d.]+)%", 60),
        ("heterogeneous.py", r"test accuracy ([\d.]+)%", 50),
        ("link_prediction.py", r"test AUC ([\d.]+)", 0.7),
        ("ppr.py", r"test accuracy ([\d.]+)%", 60),
    ],
)
def test_an_example_runs_as_it_is_and_learns(run, tmp_path, name, pattern, least):
    said = run(name, "--nodes", 3000)
    assert told(pattern, said) > least
    assert "epoch 1" in said, "there is a progress bar"
    assert os.listdir(tmp_path) == [f"{name}.log"]


def test_the_quick_start_is_ten_lines_that_run(run, tmp_path):
    in_docs, in_readme = (
        re.findall(r"^```python\n(.*?)^```", (REPOSITORY / page).read_text(), re.MULTILINE | re.DOTALL)[0]
        for page in ("docs/python.md", "README.md")
    )
    assert in_docs == in_readme
    assert len(in_docs.splitlines()) <= 12
    (tmp_path / "quick_start.py").write_text(in_docs)
    assert told(r"loss ([\d.]+)", run(tmp_path / "quick_start.py")) < 1.3


def test_node_classification_takes_any_dataset(run, workshop):
    workshop.generate("sbm", "--nodes", "2k", "--edges", "20k", "--features", "16", "--classes", "4", out="blocks")
    assert told(r"test accuracy ([\d.]+)%", run("node_classification.py", "--data", "blocks")) > 50


def test_inference_writes_a_row_for_every_node_with_any_number_of_ranks(run, tmp_path, binary):
    assert told(r"test accuracy ([\d.]+)%", run("inference.py", "--nodes", 2000)) > 50
    torchrun(2, tmp_path, binary, "inference.py", "--nodes", 2000, "--out", "two.npy")
    one, two = (np.load(tmp_path / name) for name in ("embeddings.npy", "two.npy"))
    assert one.shape == (2000, 64) and (np.abs(one).sum(axis=1) > 0).all()
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)
    assert sorted(os.listdir(tmp_path)) == ["embeddings.npy", "inference.py.log", "two.npy"]


def test_two_ranks_train_against_two_servers(tmp_path, binary):
    said = torchrun(2, tmp_path, binary, "ddp.py", "--nodes", 3001)
    assert "2 ranks" in said and told(r"test accuracy ([\d.]+)%", said) > 60
    tested = told(r"of (\d+) nodes", said)
    assert 800 < tested < 1000 and os.listdir(tmp_path) == []


def test_a_killed_training_goes_on_with_the_next_batch(tmp_path, binary, run):
    flags = ("--nodes", 3000, "--every", 3, "--epochs", 4)
    saved = tmp_path / "resume-run" / "saved.pt"
    killed = Run(tmp_path, binary, "resume.py", *flags)
    deadline = time.monotonic() + 60
    while not saved.exists():
        assert time.monotonic() < deadline and killed.process.is_alive(), killed.log.read_text()
        time.sleep(0.001)
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.join()
    assert killed.process.exitcode == -signal.SIGKILL
    again = Run(tmp_path, binary, "resume.py", *flags, "--kill-after", 20)
    again.process.join(60)
    assert again.process.exitcode == -signal.SIGKILL
    said = run("resume.py", *flags)
    assert "going on after batch 18, in epoch 2" in said
    assert "batches are exactly those of an uninterrupted run" in said
    assert os.listdir(tmp_path) == ["resume.py.log"]


@pytest.mark.skipif(
    not (CORA / "edges.csv").is_file(), reason=f"the Cora files are not at {CORA}; set GRAPHMILL_CORA to their folder"
)
def test_sampled_training_on_cora_is_as_good_as_the_full_graph(run):
    said = run("cora.py", "--data", CORA, "--epochs", 25)
    full, embedded, remote = (
        told(rf"{way} +([\d.]+)%", said) for way in ("full graph", "embedded", "two servers")
    )
    for found in (embedded, remote):
        assert found >= 79 and abs(found - full) <= 1.5, said
