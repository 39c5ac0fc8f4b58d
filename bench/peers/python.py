"""Compares loaders as a training script has them, from Python: same machine, graph and fanouts, with features.

    python3 bench/peers/python.py [--nodes 1000000] [--edges 20000000] [--seconds 6] [--rounds 3]

- Our loader over shared memory beside a rank in Rust, on the same server, reading every byte of each batch and none.
- The same beside GraphLearn-for-PyTorch's server-client mode; both read every byte.
- Our loader in the process that trains, with one thread and two, beside the loaders of torch_geometric, DGL and
  GraphBolt with 0, 1 and 2 workers, and with one and two threads of their own; nobody reads.
- What it costs to hand over a batch of 16 MB that is there already.

Makes the environments where they are missing (some 15 GB of disk; 15 to 30 minutes the first time, most of it a build
from source), builds our package, generates a graph, and measures in rounds: in each, all run one after the other. A
ratio is the median of the ratios of the rounds. A peer that cannot be installed or fails is listed with its reason.
"""

import argparse
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import comparison
import python_report
import serving
from commands import Failed, end_session, run_together
from comparison import fanouts, told, told_by_line
from environments import GRAPHMILL, HERE, Environments
from python_report import HANDED_BYTES, SERVED, served_name
from run import DGL_VARIABLES, PEERS, add_without, peer_python, threads
from serving import COMPILED

# Those whose loaders run in the process that trains; GraphLearn's is compared as a server and its client.
LOADERS = [peer for peer in PEERS if peer.name != "GraphLearn"]
WORKERS = (0, 1, 2)
THREADS = (1, 2)
# Batches that are asked for ahead, by Rust and by Python.
PREFETCH = 8


def main():
    made = comparison.parser(__doc__)
    made.add_argument("--fanouts", type=fanouts, default="15,10")
    made.add_argument("--seconds", type=float, default=6, help="seconds to measure, after one to warm up")
    add_without(made)
    comparison.main(made, compare)


def compare(arguments: argparse.Namespace) -> tuple[dict, str]:
    graph = comparison.generate(arguments)
    environments = Environments(HERE)
    sides, reasons = {}, {}
    ours = environments.python_with(GRAPHMILL, comparison.REPOSITORY)
    try:
        python = serving.peer_python(environments)
        sides[serving.PEER] = partial(serving.run_peer, python, graph, True, arguments)
    except Failed as failure:
        reasons[serving.PEER] = str(failure)
    sides[SERVED] = partial(run_served, ours, graph, arguments)
    sides["graphmill"] = partial(run_loader, ours, "peer_graphmill.py", graph, THREADS, 1, arguments)
    for peer in LOADERS:
        for count in THREADS:
            name = f"{peer.name}, threads: {count}"
            try:
                python = peer_python(environments, peer, arguments.without)
            except Failed as failure:
                reasons[name] = str(failure)
            else:
                sides[name] = partial(run_loader, python, peer.worker, graph, WORKERS, count, arguments)
    measured = comparison.in_rounds(sides, arguments.rounds, reasons)
    keys = ("nodes", "edges", "feature_dim", "batch_size", "fanouts", "seconds", "rounds")
    size = {key: getattr(arguments, key) for key in keys}
    result = python_report.summarise(size, [peer.name for peer in LOADERS], measured, reasons)
    return result, python_report.table(result)


def run_served(python: Path, graph: Path, arguments: argparse.Namespace) -> list[dict]:
    """Rust and Python in turn on one server, then handing over alone."""
    measured = []
    with server(arguments.graphmill, graph) as address:
        common = ["--fanouts", arguments.fanouts, "--prefetch", PREFETCH]
        timed = [*common, "--batch-size", arguments.batch_size, "--seconds", arguments.seconds]
        rust = [arguments.graphmill, "bench", "loader", graph, "--at", address, "--features", *timed, "--json"]
        pull = [python, HERE / "serving_graphmill.py", "pull", address, graph, *timed]
        for read in (True, False):
            for language, command in (("Rust", rust + ["--unread"] * (not read)), ("Python", pull + ["--read"] * read)):
                (printed,) = run_together([command], arguments.seconds + serving.GRACE, COMPILED)
                measured.append({**told(printed), "name": served_name(language, read)})
        # So many seeds that a batch has the size that is asked for, or a little more: neighbours are shared.
        seeds = round(1.1 * arguments.batch_size * HANDED_BYTES / measured[0]["bytes_per_batch"])
        hand = [python, HERE / "serving_graphmill.py", "hand", address, graph, *common, "--batch-size", seeds]
        (printed,) = run_together([hand], serving.GRACE, COMPILED)
        measured.append({**told(printed), "name": "hand"})
    return measured


@contextmanager
def server(graphmill: Path, graph: Path) -> Iterator[str]:
    """A server as `graphmill bench loader` starts one; its address."""
    command = [graphmill, "serve", graph, "--quiet", "--listen", "127.0.0.1:0", "--until-stdin-closes"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    quiet = {**os.environ, "GRAPHMILL_LOG": "error"}
    process = subprocess.Popen(command, **pipes, env=quiet, start_new_session=True)
    try:
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise Failed("the server does not listen")
        yield line.removeprefix("listening on ").strip()
        process.communicate(timeout=serving.GRACE)
    finally:
        end_session(process)


def run_loader(
    python: Path, worker: str, graph: Path, workers: tuple[int, ...], count: int, arguments: argparse.Namespace
) -> list[dict]:
    command = [python, HERE / worker, graph, "--fanouts", arguments.fanouts, "--batch-size", arguments.batch_size]
    command += ["--seconds", arguments.seconds, "--threads", count]
    command += [word for number in workers for word in ("--workers", number)]
    deadline = 2 * len(workers) * arguments.seconds + serving.GRACE
    (printed,) = run_together([command], deadline, {**threads(count), **DGL_VARIABLES, **COMPILED})
    return [{**one, "name": "embedded"} for one in told_by_line(printed)]


if __name__ == "__main__":
    main()
