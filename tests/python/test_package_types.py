"""The package's types: what an editor and a type checker are told is what there is."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
# Kept: torch and numpy take most of a minute to be read.
CACHE = REPOSITORY / "target" / "mypy"


def check(module: str, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_and_a_program_that_uses_it_are_typed_throughout():
    check("mypy", "--cache-dir", CACHE, "python/graphmill", HERE / "user_script.py")


def test_a_wrong_use_of_the_package_is_seen(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import graphmill\ngraphmill.NeighborLoader(graphmill.open('g'), [2], batch_sise=3)\n")
    with pytest.raises(AssertionError, match="batch_sise"):
        check("mypy", "--strict", "--cache-dir", CACHE, wrong)


def test_the_native_half_is_as_its_stubs_say():
    check("mypy.stubtest", "graphmill._graphmill")
