"""Compares neighbour sampling with its peers: same machine, same graph, same fanouts, one thread each.

    python3 bench/peers/run.py [--nodes 1000000] [--edges 20000000] [--fanouts 15,10 --fanouts 10,10,5]

Makes the environments of the peers where they are missing (some 10 GB of disk; 15 to 30 minutes the first time, most
of it a build from source), generates a graph, and measures in rounds: in each, every peer and we run once, one process
after the other, so that a slow minute of the machine hits all alike. Prints theirs, ours and the ratio, by the medians
over the rounds. A peer that cannot be installed or fails is listed with its reason.
"""

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import comparison
import report
from commands import Failed, run
from comparison import fanouts, told, told_by_line
from environments import DGL, HERE, PYG, PYG_SAMPLER, Environments, Stage
from report import OURS, OURS_MAPPED

# Without it DGL writes a settings file into the home of the user.
DGL_VARIABLES = {"DGLBACKEND": "pytorch"}


@dataclass(frozen=True)
class Peer:
    name: str
    worker: str
    stage: Stage


PEERS = (
    Peer("DGL", "peer_dgl.py", DGL),
    Peer("GraphBolt", "peer_graphbolt.py", DGL),
    Peer("GraphLearn", "peer_graphlearn.py", PYG),
    Peer("torch_geometric", "peer_pyg.py", PYG_SAMPLER),
)
# What is measured of us: the name of the row, whether features are gathered, how the dataset is opened. The peers hold
# all in memory, so `ram` is compared with them; `mmap` shows what it costs to read from the page cache.
OUR_RUNS = ((OURS, False, "ram"), (OURS, True, "ram"), (OURS_MAPPED, True, "mmap"))


def main():
    made = comparison.parser(__doc__)
    several = "may be given several times (default: 15,10 and 10,10,5)"
    made.add_argument("--fanouts", type=fanouts, action="append", help=several)
    made.add_argument("--batches", type=int, default=50, help="timed batches of a peer in one round")
    made.add_argument("--warm-up", type=int, default=5, help="batches before those")
    add_without(made)
    comparison.main(made, compare)


def add_without(made: argparse.ArgumentParser):
    names = [peer.name for peer in PEERS]
    made.add_argument("--without", choices=names, action="append", default=[], help="a peer to leave out; may be repeated")


def peer_python(environments: Environments, peer: Peer, without: list[str]) -> Path:
    """The interpreter of a peer's environment, unless it is left out."""
    if peer.name in without:
        raise Failed("left out")
    return environments.python(peer.stage)


def compare(arguments: argparse.Namespace) -> tuple[dict, str]:
    arguments.fanouts = arguments.fanouts or ["15,10", "10,10,5"]
    environments = Environments(HERE)
    graph = comparison.generate(arguments)
    sides, reasons = {}, {}
    for peer in PEERS:
        try:
            python = peer_python(environments, peer, arguments.without)
            sides[peer.name] = partial(run_peer, python, peer, graph, arguments)
        except Failed as failure:
            reasons[peer.name] = str(failure)
    sides[OURS] = partial(run_ours, graph, arguments)
    measured = comparison.in_rounds(sides, arguments.rounds, reasons)
    names = ("nodes", "edges", "feature_dim", "batch_size", "batches", "rounds")
    size = {name: getattr(arguments, name) for name in names}
    result = report.summarise(size, arguments.fanouts, [peer.name for peer in PEERS], measured, reasons)
    return result, report.table(result)


def threads(count: int) -> dict[str, str]:
    """The variables of every threading library that any of the peers may come with."""
    return {f"{library}_NUM_THREADS": str(count) for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}


def run_peer(python: Path, peer: Peer, graph: Path, arguments: argparse.Namespace) -> list[dict]:
    wanted = [word for text in arguments.fanouts for word in ("--fanouts", text)]
    count = ("--batch-size", arguments.batch_size, "--batches", arguments.batches, "--warm-up", arguments.warm_up)
    printed = run((python, HERE / peer.worker, graph, *wanted, *count), {**threads(1), **DGL_VARIABLES})
    return told_by_line(printed)


def run_ours(graph: Path, arguments: argparse.Namespace) -> list[dict]:
    measured = []
    for text in arguments.fanouts:
        for name, features, storage in OUR_RUNS:
            command = [arguments.graphmill, "bench", "sample", graph, "--fanouts", text, "--threads", 1, "--json"]
            command += ["--batch-size", arguments.batch_size, "--storage", storage]
            printed = run([*command, "--features"] if features else command)
            numbers = [int(fanout) for fanout in text.split(",")]
            measured.append({**told(printed), "peer": name, "fanouts": numbers, "features": features})
    return measured


if __name__ == "__main__":
    main()
