"""What the comparisons share: arguments, the graph, rounds, and how results are told."""

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from commands import Failed, run, say
from environments import HERE

REPOSITORY = HERE.parents[1]

# Who is measured: a name, and what runs it once and tells what it measured.
Sides = dict[str, Callable[[], list[dict]]]


def parser(text: str) -> argparse.ArgumentParser:
    """With the arguments that all comparisons have."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--nodes", type=int, default=1_000_000)
    made.add_argument("--edges", type=int, default=20_000_000)
    made.add_argument("--feature-dim", type=int, default=128)
    made.add_argument("--batch-size", type=int, default=1024)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--graphmill", type=Path, default=REPOSITORY / "target" / "release" / "graphmill")
    made.add_argument("--work", type=Path, default=HERE / ".work", help="where the graph is kept between runs")
    made.add_argument("--json", type=Path, help="write all that was measured to this file too")
    return made


def fanouts(text: str) -> str:
    return ",".join(str(int(fanout)) for fanout in text.split(","))


def main(made: argparse.ArgumentParser, compare: Callable[[argparse.Namespace], tuple[dict, str]]):
    """Parses the arguments, compares, and prints; `compare` gives all that was measured, and the table of it."""
    arguments = made.parse_args()
    if sys.version_info[:2] != (3, 11):
        made.error("the pinned packages are for Python 3.11: run this with python3.11")
    if not arguments.graphmill.is_file():
        made.error(f"there is no graphmill binary at {arguments.graphmill}: build it with `cargo build --release`")
    # What was started is ended in `finally` clauses, which a plain SIGTERM would skip.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    with tempfile.TemporaryDirectory(prefix="graphmill-peers-") as folder:
        # A copy: whoever builds anew meanwhile does not change what is measured.
        arguments.graphmill = Path(shutil.copy2(arguments.graphmill, folder))
        result, table = compare(arguments)
    print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def generate(arguments: argparse.Namespace) -> Path:
    graph = arguments.work / f"rmat-{arguments.nodes}-{arguments.edges}-{arguments.feature_dim}"
    if not opens(graph, arguments.graphmill):
        say(f"generating {graph.name}")
        arguments.work.mkdir(parents=True, exist_ok=True)
        size = ("--nodes", arguments.nodes, "--edges", arguments.edges, "--features", arguments.feature_dim)
        out = ("--layout", "in", "--out", graph, "--force", "--quiet")
        try:
            run((arguments.graphmill, "generate", "rmat", *size, *out))
        except Failed as failure:
            sys.exit(f"generating the graph failed: {failure}")
    return graph


def opens(graph: Path, graphmill: Path) -> bool:
    """Whether a graph of an earlier run is there. One that another build wrote may be of no use to this one."""
    if not graph.is_dir():
        return False
    try:
        run((graphmill, "inspect", graph, "--original-ids", 0, "--json"))
    except Failed:
        return False
    return True


def in_rounds(sides: Sides, rounds: int, reasons: dict[str, str]) -> list[dict]:
    """What all sides measured, each with its round; why one failed goes to `reasons`."""
    measured: dict[str, list[dict]] = {name: [] for name in sides}
    for number in range(1, rounds + 1):
        for name, measure in sides.items():
            if name in reasons:
                continue
            say(f"round {number} of {rounds}: {name}")
            try:
                measured[name] += [{**told, "round": number} for told in measure()]
            except Failed as failure:
                reasons[name] = str(failure)
                # One failure makes the rounds before it doubtful.
                measured[name] = []
    return [told for several in measured.values() for told in several]


def told(printed: str) -> dict:
    """The JSON object in what was printed; libraries may print lines of their own before it."""
    start = 0 if printed.startswith("{") else printed.find("\n{") + 1
    try:
        return json.loads(printed[start:])
    except json.JSONDecodeError as error:
        raise Failed(f"no JSON object was printed: {error}") from None


def told_by_line(printed: str) -> list[dict]:
    """The JSON objects in what was printed, one a line, among other lines."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def result(size: dict, measured: list[dict], reasons: dict[str, str], works: object) -> dict:
    """All that is kept of a comparison."""
    return {
        "machine": {"cores": os.cpu_count(), "processor": processor()},
        "size": size,
        "versions": {one["peer"]: one["version"] for one in measured if "version" in one},
        "reasons": reasons,
        "works": works,
        "measured": measured,
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
