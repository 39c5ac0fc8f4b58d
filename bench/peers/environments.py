"""Makes the Python environments of the peers and of our own package, each from published packages pinned in a
requirements file.

An environment is made in stages. A stage leaves a mark that holds what it was made from, so a second run does nothing
and a changed pin makes the stage again. A stage that fails takes with it only the peers that need it.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commands import Failed, run, say

HERE = Path(__file__).resolve().parent

# Some packages have hundreds of megabytes, and whoever serves them may pause.
PATIENT = {"UV_HTTP_TIMEOUT": "600"}


# At import GraphLearn asks for `torch.device(0)`, which torch refuses without a GPU; by name it is only a name. It also asks for
# torch-sparse, half an hour's build, and needs it only for graphs that come as pairs: ours come as lists.
GRAPHLEARN_PATCHES = {
    "torch.device(0)": "torch.device('cuda:0')",
    "\nimport torch_sparse\n": "\n",
    "  adj_t = torch_sparse.": "  import torch_sparse\n  adj_t = torch_sparse.",
}


def patch_graphlearn(python: Path):
    """Lets GraphLearn be imported here."""
    (package,) = python.parent.parent.glob("lib/python*/site-packages/graphlearn_torch")
    for file in package.rglob("*.py"):
        text = patched = file.read_text()
        for wrong, right in GRAPHLEARN_PATCHES.items():
            patched = patched.replace(wrong, right)
        if patched != text:
            file.write_text(patched)


@dataclass(frozen=True)
class Stage:
    """One installation into an environment."""

    name: str
    environment: str
    requirements: str
    flags: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    then: Callable[[Path], None] | None = None
    after: "Stage | None" = None
    note: str = ""

    @property
    def pins(self) -> str:
        """What it is made from: when a pin of it or of what it builds on changes, it is made again."""
        return (self.after.pins if self.after else "") + (HERE / self.requirements).read_text()


GRAPHMILL = Stage("graphmill", "graphmill", "requirements-graphmill.txt")
OBJECTS = Stage("objects", "objects", "requirements-objects.txt")
DGL = Stage("dgl", "dgl", "requirements-dgl.txt")
PYG = Stage("pyg", "pyg", "requirements-pyg.txt", then=patch_graphlearn)
PYG_SAMPLER = Stage(
    "pyg-sampler",
    "pyg",
    "requirements-pyg-source.txt",
    # A wheel from the cache may have been built against another torch.
    flags=("--no-build-isolation", "--reinstall", "--no-cache"),
    # One compiler at a time: each takes up to 2 GB of memory, and whoever shares the machine keeps a core.
    variables=(("FORCE_ONLY_CPU", "1"), ("MAX_JOBS", "1"), ("UV_CONCURRENT_BUILDS", "1")),
    after=PYG,
    note="built from source, 10 to 30 minutes",
)


class Environments:
    """The environments in one folder, `.venv-<name>` each."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._failed: dict[str, str] = {}

    def python(self, stage: Stage) -> Path:
        """The interpreter of an environment that holds this stage and those before it."""
        if stage.after:
            self.python(stage.after)
        self._ensure(stage)
        return self._home(stage) / "bin" / "python"

    def python_with(self, stage: Stage, source: Path) -> Path:
        """The same, with a package built from its source, which may have changed since the last time."""
        python = self.python(stage)
        say(f"building the package of {source}")
        command = [self._uv(), "pip", "install", "--quiet", "--python", python, "--no-deps", "--reinstall"]
        run([*command, source], {"VIRTUAL_ENV": str(self._home(stage))})
        return python

    def _home(self, stage: Stage) -> Path:
        return self.folder / f".venv-{stage.environment}"

    def _ensure(self, stage: Stage):
        if reason := self._failed.get(stage.name):
            raise Failed(reason)
        mark = self._home(stage) / f".installed-{stage.name}"
        if mark.is_file() and mark.read_text() == stage.pins:
            return
        try:
            self._install(stage)
        except Failed as failure:
            self._failed[stage.name] = f"installing {stage.name}: {failure}"
            raise Failed(self._failed[stage.name])
        mark.write_text(stage.pins)

    def _install(self, stage: Stage):
        python = self._home(stage) / "bin" / "python"
        started = time.monotonic()
        say(f"installing {stage.name}" + (f" ({stage.note})" if stage.note else ""))
        uv = self._uv()
        if not python.is_file():
            run([uv, "venv", "--quiet", "--python", sys.executable, self._home(stage)])
        # Every requirement is listed and pinned, so nothing is resolved: GraphLearn's own list would ask for more.
        command = [uv, "pip", "install", "--quiet", "--python", python, "--no-deps", *stage.flags]
        # A source build finds the compiler's helpers of its environment, not those of whoever calls.
        path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        variables = {**dict(stage.variables), **PATIENT, "VIRTUAL_ENV": str(self._home(stage)), "PATH": path}
        run([*command, "-r", HERE / stage.requirements], variables)
        if stage.then:
            stage.then(python)
        say(f"installed {stage.name} in {time.monotonic() - started:.0f} s")

    def _uv(self) -> Path:
        home = self.folder / ".venv-uv"
        uv, mark = home / "bin" / "uv", home / ".installed"
        wanted = (HERE / "requirements-uv.txt").read_text()
        if not (mark.is_file() and mark.read_text() == wanted):
            run([sys.executable, "-m", "venv", home])
            pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run([*pip, "-r", HERE / "requirements-uv.txt"])
            mark.write_text(wanted)
        return uv
