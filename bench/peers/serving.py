"""Compares batches from a server with GraphLearn-for-PyTorch's server-client mode: same machine, graph and fanouts.

    python3 bench/peers/serving.py [--nodes 1000000] [--edges 20000000] [--seconds 10] [--rounds 3]

One server process and one process that pulls batches from it, reads every byte of each once and has its own clock.
Makes the environment of GraphLearn where it is missing (some 5 GB of disk; 10 to 30 minutes the first time, most of it
a build from source), generates a graph, and measures in rounds: in each, GraphLearn and we run one after the other,
with and without features. Prints theirs, ours and the ratio, by the medians over the rounds, and us with two servers
beside us with one. If GraphLearn cannot be installed or fails, the reason is given.
"""

import argparse
import random
import socket
import time
from functools import partial
from pathlib import Path

import comparison
import serving_report
from commands import Failed, run_together, say
from comparison import fanouts, told
from environments import HERE, PYG, Environments
from serving_report import OUR_RUNS, PEER, Run

# Batches that our rank asks for ahead, of each server; theirs asks for as many.
PREFETCH = 8
# How long starting and ending may take, beside what is measured; a loaded machine takes a minute.
GRACE = 240
# Where this is set, each process would compile all it imports, and take twice as long to start.
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
# By itself it would talk over the address that the name of this machine resolves to, if it does.
PEER_VARIABLES = {"TP_SOCKET_IFNAME": "lo", **COMPILED}


def main():
    made = comparison.parser(__doc__)
    made.add_argument("--fanouts", type=fanouts, default="15,10")
    made.add_argument("--seconds", type=float, default=10, help="seconds to measure, after one to warm up")
    comparison.main(made, compare)


def compare(arguments: argparse.Namespace) -> tuple[dict, str]:
    graph = comparison.generate(arguments)
    sides, reasons = {}, {}
    try:
        python = peer_python(Environments(HERE))
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
    measured = comparison.in_rounds(sides, arguments.rounds, reasons)
    keys = ("nodes", "edges", "feature_dim", "batch_size", "fanouts", "seconds", "rounds")
    size = {key: getattr(arguments, key) for key in keys}
    result = serving_report.summarise(size, measured, reasons)
    return result, serving_report.table(result)


def peer_python(environments: Environments) -> Path:
    """The interpreter of GraphLearn's environment."""
    python = environments.python(PYG)
    # Not measured: after an installation the first import is slower than all later ones.
    run_together([(python, "-c", "import graphlearn_torch")], GRACE, PEER_VARIABLES)
    return python


def cut(graph: Path, arguments: argparse.Namespace) -> Path:
    """The graph in two partitions, one for each of two servers; made anew, for the graph may be."""
    halves = graph.with_name(f"{graph.name}-halves")
    say(f"partitioning {graph.name}")
    command = (arguments.graphmill, "partition", graph, "--parts", 2, "--out", halves, "--force", "--quiet")
    run_together([command], GRACE)
    return halves


def run_peer(python: Path, graph: Path, features: bool, arguments: argparse.Namespace) -> list[dict]:
    port, sampler_port = free_ports(2)
    common = [graph, "--fanouts", arguments.fanouts, "--batch-size", arguments.batch_size]
    common += ["--seconds", arguments.seconds, "--port", port, "--sampler-port", sampler_port]
    common += ["--launched", time.monotonic()] + ["--features"] * features
    sides = [[python, HERE / "serving_graphlearn.py", role, *common] for role in ("server", "client")]
    _, printed = run_together(sides, arguments.seconds + GRACE, PEER_VARIABLES)
    return [{**told(printed), "name": serving_report.peer_name(features)}]


def run_ours(graph: Path, ours: Run, arguments: argparse.Namespace) -> list[dict]:
    command = [arguments.graphmill, "bench", "loader", graph, "--fanouts", arguments.fanouts, "--json", "--quiet"]
    command += ["--batch-size", arguments.batch_size, "--seconds", arguments.seconds]
    command += ["--servers", ours.servers, "--transport", ours.transport, "--prefetch", PREFETCH]
    command += ["--features"] * ours.features + ["--mmap"] * ours.mmap
    (printed,) = run_together([command], arguments.seconds + GRACE)
    return [{**told(printed), "name": ours.name}]


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, below those that the system gives away: GraphLearn listens there only after it has loaded."""
    given_away = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    # Where it gives all of them away, any will have to do.
    candidates = range(given_away // 2, given_away) if given_away >= 4096 else range(1024, 65536)
    ports = []
    for port in random.sample(candidates, 1000):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise Failed("there are no free ports")


if __name__ == "__main__":
    main()
