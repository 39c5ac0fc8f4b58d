"""What all tests share: the binary, a place to make datasets in, and object servers."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from reader import Dataset
from samplers import BinarySampler, LawSampler

# A script's background jobs ignore Ctrl-C, and so would all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)

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


@pytest.fixture
def runtime_folder(monkeypatch) -> Iterator[Path]:
    """A place for the locks and sockets of object servers that is this test's own; short, as paths of sockets must be."""
    with tempfile.TemporaryDirectory(prefix="gm-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture(scope="session")
def redis() -> Iterator[Callable[[], str]]:
    """Starts a Redis server the first time that its address is asked for."""
    # Here and below: tests of the binary alone need no package.
    import stores

    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda: stack.enter_context(stores.redis_server()))


@pytest.fixture(params=["unix", "unix-copied", "tcp", "tcp-copied", "redis"])
def config(request, runtime_folder: Path, redis: Callable[[], str]) -> dict:
    """What a connector to an object store is made with, once for each transport."""
    import stores

    return stores.settings(request.param, runtime_folder, redis)


@pytest.fixture
def connector(config: dict) -> Iterator:
    """A connector to an object store, once for each transport; its server ends with it."""
    import stores

    with stores.connected(config) as connector:
        yield connector
