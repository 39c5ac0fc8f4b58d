"""What all tests share: the binary, and a place to make datasets in."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from reader import Dataset
from samplers import BinarySampler, LawSampler

REPOSITORY = Path(__file__).resolve().parents[2]


def find_binary() -> Path:
    if path := os.environ.get("GRAPHMILL"):
        return Path(path).resolve()
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    built = [path for profile in ("release", "debug") if (path := target / profile / "graphmill").is_file()]
    if not built:
        pytest.exit("there is no graphmill binary: run `make test`, or set GRAPHMILL to one", returncode=2)
    return max(built, key=lambda path: path.stat().st_mtime)


@dataclass
class Workshop:
    """A directory of one test, and the commands run in it."""

    path: Path
    binary: Path

    def run(self, *arguments, expect: int | None = 0, env: dict | None = None) -> subprocess.CompletedProcess:
        command = [str(self.binary), *map(str, arguments)]
        environment = {**os.environ, **(env or {})}
        done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True, timeout=120)
        if expect is not None:
            assert done.returncode == expect, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done

    def describe(self, text: str, name: str = "graph.toml") -> Path:
        path = self.path / name
        path.write_text(text)
        return path

    def ingest(self, text: str, out: str = "out", *flags, env: dict | None = None) -> Dataset:
        self.run("ingest", self.describe(text, f"{out}.toml"), "--out", out, "--quiet", *flags, env=env)
        return Dataset(self.path / out)

    def refuse(self, text: str, *flags) -> str:
        """The message of an ingest that fails and leaves nothing behind."""
        before = set(os.listdir(self.path)) | {"refused.toml"}
        done = self.run("ingest", self.describe(text, "refused.toml"), "--out", "refused", "--quiet", *flags, expect=None)
        assert done.returncode != 0, "the ingest should have failed"
        assert "panicked" not in done.stderr
        assert set(os.listdir(self.path)) == before, "a failed ingest left something behind"
        return done.stderr

    def generate(self, *arguments, out: str = "out") -> Dataset:
        self.run("generate", *arguments, "--out", out, "--quiet")
        return Dataset(self.path / out)

    def inspect(self, name: str = "out") -> dict:
        return json.loads(self.run("inspect", name, "--json").stdout)


@pytest.fixture(scope="session")
def binary() -> Path:
    return find_binary()


@pytest.fixture
def workshop(tmp_path: Path, binary: Path) -> Workshop:
    return Workshop(tmp_path, binary)


@pytest.fixture(params=["law", "binary"])
def sampler(request, workshop: Workshop) -> LawSampler | BinarySampler:
    return LawSampler() if request.param == "law" else BinarySampler(workshop)
