"""Compares batches from a server with GraphLearn-for-PyTorch's server-client mode: same machine, graph and fanouts.

    python3 bench/peers/serving.py [--nodes 1000000] [--edges 20000000] [--seconds 10] [--rounds 3]

One server process and one process that pulls batches from it, reads every byte of each once and has its own clock.
Makes the environment of GraphLearn where it is missing (some 5 GB of disk; 10 to 30 minutes the first time, most of it
a build from source), generates a graph, and measures in rounds: in each, GraphLearn and we run one after the other,
with and without features. Prints theirs, ours and the ratio, by the medians over the rounds, and us with two servers
beside us with one. If GraphLearn cannot be installed or fails, the reason is given.
"""

import argparse
import json
import shutil
import signal
import socket
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import serving_report
from commands import Failed, run_together, say
from environments import HERE, PYG_SAMPLER, Environments
from run import REPOSITORY, fanouts, generate
from serving_report import OUR_RUNS, PEER, Run

# How long starting and ending may take, beside what is measured; a loaded machine takes a minute.
GRACE = 240
PEER_VARIABLES = {
    # By itself it would talk over the address that the name of this machine resolves to, if it does.
    "TP_SOCKET_IFNAME": "lo",
    # Where this is set, each of its processes would compile all it imports, and take twice as long to start.
    "PYTHONDONTWRITEBYTECODE": "",
}


def main():
    arguments = parse()
    # What was started is ended in `finally` clauses, which a plain SIGTERM would skip.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    with tempfile.TemporaryDirectory(prefix="graphmill-peers-") as folder:
        # A copy: whoever builds anew meanwhile does not change what is measured.
        arguments.graphmill = shutil.copy2(arguments.graphmill, folder)
        compare(arguments)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--feature-dim", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fanouts", type=fanouts, default="15,10")
    parser.add_argument("--seconds", type=float, default=10, help="seconds to measure, after one to warm up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--graphmill", type=Path, default=REPOSITORY / "target" / "release" / "graphmill")
    parser.add_argument("--work", type=Path, default=HERE / ".work", help="where the graph is kept between runs")
    parser.add_argument("--json", type=Path, help="write all that was measured to this file too")
    arguments = parser.parse_args()
    if sys.version_info[:2] != (3, 11):
        parser.error("the pinned packages are for Python 3.11: run this with python3.11")
    if not arguments.graphmill.is_file():
        parser.error(f"there is no graphmill binary at {arguments.graphmill}: build it with `cargo build --release`")
    return arguments


def compare(arguments: argparse.Namespace):
    reasons, measured = {}, []
    graph = generate(arguments)
    # Who is measured: a name, and what runs it once and tells what it measured.
    sides = {}
    try:
        python = Environments(HERE).python(PYG_SAMPLER)
        # Not measured: after an installation the first import is slower than all later ones.
        run_together([(python, "-c", "import graphlearn_torch")], GRACE, PEER_VARIABLES)
        for features in (True, False):
            sides[serving_report.peer_name(features)] = partial(run_peer, python, graph, features, arguments)
    except Failed as failure:
        reasons[PEER] = str(failure)
    try:
        halves = cut(graph, arguments)
    except Failed as failure:
        halves = None
        reasons["two servers"] = str(failure)
    for ours in OUR_RUNS:
        if ours.servers == 1 or halves:
            sides[ours.name] = partial(run_ours, halves if ours.servers == 2 else graph, ours, arguments)

    for number in range(1, arguments.rounds + 1):
        for name, measure in sides.items():
            if name not in reasons:
                say(f"round {number} of {arguments.rounds}: {name}")
                try:
                    measured.append(measure())
                except Failed as failure:
                    reasons[name] = str(failure)
    keys = ("nodes", "edges", "feature_dim", "batch_size", "fanouts", "seconds", "rounds")
    size = {key: getattr(arguments, key) for key in keys}
    result = serving_report.summarise(size, measured, reasons)
    print(serving_report.table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def cut(graph: Path, arguments: argparse.Namespace) -> Path:
    """The graph in two partitions, one for each of two servers; made anew, for the graph may be."""
    halves = graph.with_name(f"{graph.name}-halves")
    say(f"partitioning {graph.name}")
    command = (arguments.graphmill, "partition", graph, "--parts", 2, "--out", halves, "--force", "--quiet")
    run_together([command], GRACE)
    return halves


def run_peer(python: Path, graph: Path, features: bool, arguments: argparse.Namespace) -> dict:
    port, sampler_port = free_ports(2)
    common = [graph, "--fanouts", arguments.fanouts, "--batch-size", arguments.batch_size]
    common += ["--seconds", arguments.seconds, "--port", port, "--sampler-port", sampler_port]
    common += ["--launched", time.monotonic()] + ["--features"] * features
    sides = [[python, HERE / "serving_graphlearn.py", role, *common] for role in ("server", "client")]
    _, printed = run_together(sides, arguments.seconds + GRACE, PEER_VARIABLES)
    return {**told(printed), "name": serving_report.peer_name(features)}


def run_ours(graph: Path, ours: Run, arguments: argparse.Namespace) -> dict:
    command = [arguments.graphmill, "bench", "loader", graph, "--fanouts", arguments.fanouts, "--json", "--quiet"]
    command += ["--batch-size", arguments.batch_size, "--seconds", arguments.seconds]
    command += ["--servers", ours.servers, "--transport", ours.transport]
    command += ["--features"] * ours.features + ["--mmap"] * ours.mmap
    (printed,) = run_together([command], arguments.seconds + GRACE)
    return {**told(printed), "name": ours.name}


def told(printed: str) -> dict:
    """The JSON object in what was printed; libraries may print lines of their own before it."""
    start = 0 if printed.startswith("{") else printed.find("\n{") + 1
    try:
        return json.loads(printed[start:])
    except json.JSONDecodeError as error:
        raise Failed(f"no JSON object was printed: {error}") from None


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


if __name__ == "__main__":
    main()
