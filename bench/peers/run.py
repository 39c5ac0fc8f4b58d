"""Compares neighbour sampling with its peers: same machine, same graph, same fanouts, one thread each.

    python3 bench/peers/run.py [--nodes 1000000] [--edges 20000000] [--fanouts 15,10 --fanouts 10,10,5]

Makes the environments of the peers where they are missing (some 10 GB of disk; 15 to 30 minutes the first time, most
of it a build from source), generates a graph, and measures in rounds: in each, every peer and we run once, one process
after the other, so that a slow minute of the machine hits all alike. Prints theirs, ours and the ratio, by the medians
over the rounds. A peer that cannot be installed or fails is listed with its reason.
"""

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import report
from commands import Failed, run, say
from environments import DGL, HERE, PYG_SAMPLER, Environments, Stage
from report import OURS, OURS_MAPPED

REPOSITORY = HERE.parents[1]
VARIABLES = {
    # Every threading library that any of the peers may come with.
    **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")},
    # Without it DGL writes a settings file into the home of the user.
    "DGLBACKEND": "pytorch",
}


@dataclass(frozen=True)
class Peer:
    name: str
    worker: str
    stage: Stage


PEERS = (
    Peer("DGL", "peer_dgl.py", DGL),
    Peer("GraphBolt", "peer_graphbolt.py", DGL),
    # It imports torch-sparse too.
    Peer("GraphLearn", "peer_graphlearn.py", PYG_SAMPLER),
    Peer("torch_geometric", "peer_pyg.py", PYG_SAMPLER),
)
# What is measured of us: the name of the row, whether features are gathered, how the dataset is opened. The peers hold
# all in memory, so `ram` is compared with them; `mmap` shows what it costs to read from the page cache.
OUR_RUNS = ((OURS, False, "ram"), (OURS, True, "ram"), (OURS_MAPPED, True, "mmap"))


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="graphmill-peers-") as folder:
        # A copy: whoever builds anew meanwhile does not change what is measured.
        arguments.graphmill = shutil.copy2(arguments.graphmill, folder)
        compare(arguments)


def compare(arguments: argparse.Namespace):
    environments = Environments(HERE)
    # Who is measured: a name, and what runs it once and tells what it measured.
    sides, reasons = {}, {}
    for peer in PEERS:
        try:
            sides[peer.name] = partial(run_peer, environments.python(peer.stage), peer)
        except Failed as failure:
            reasons[peer.name] = str(failure)
    sides[OURS] = run_ours
    graph = generate(arguments)

    measured = {name: [] for name in sides}
    for number in range(1, arguments.rounds + 1):
        for name, measure in sides.items():
            if name in reasons:
                continue
            say(f"round {number} of {arguments.rounds}: {name}")
            try:
                measured[name] += [{**told, "round": number} for told in measure(graph, arguments)]
            except Failed as failure:
                reasons[name] = str(failure)
                # One failure makes the rounds before it doubtful.
                measured[name] = []

    names = ("nodes", "edges", "feature_dim", "batch_size", "batches", "rounds")
    size = {name: getattr(arguments, name) for name in names}
    told = [one for several in measured.values() for one in several]
    result = report.summarise(size, arguments.fanouts, [peer.name for peer in PEERS], told, reasons)
    print(report.table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--feature-dim", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=1024)
    several = "may be given several times (default: 15,10 and 10,10,5)"
    parser.add_argument("--fanouts", type=fanouts, action="append", help=several)
    parser.add_argument("--batches", type=int, default=50, help="timed batches of a peer in one round")
    parser.add_argument("--warm-up", type=int, default=5, help="batches before those")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--graphmill", type=Path, default=REPOSITORY / "target" / "release" / "graphmill")
    parser.add_argument("--work", type=Path, default=HERE / ".work", help="where the graph is kept between runs")
    parser.add_argument("--json", type=Path, help="write all that was measured to this file too")
    arguments = parser.parse_args()
    arguments.fanouts = arguments.fanouts or ["15,10", "10,10,5"]
    if sys.version_info[:2] != (3, 11):
        parser.error("the pinned packages are for Python 3.11: run this with python3.11")
    if not arguments.graphmill.is_file():
        parser.error(f"there is no graphmill binary at {arguments.graphmill}: build it with `cargo build --release`")
    return arguments


def fanouts(text: str) -> str:
    return ",".join(str(int(fanout)) for fanout in text.split(","))


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


def run_peer(python: Path, peer: Peer, graph: Path, arguments: argparse.Namespace) -> list[dict]:
    wanted = [word for text in arguments.fanouts for word in ("--fanouts", text)]
    count = ("--batch-size", arguments.batch_size, "--batches", arguments.batches, "--warm-up", arguments.warm_up)
    printed = run((python, HERE / peer.worker, graph, *wanted, *count), VARIABLES)
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def run_ours(graph: Path, arguments: argparse.Namespace) -> list[dict]:
    measured = []
    for text in arguments.fanouts:
        for name, features, storage in OUR_RUNS:
            command = [arguments.graphmill, "bench", "sample", graph, "--fanouts", text, "--threads", 1, "--json"]
            command += ["--batch-size", arguments.batch_size, "--storage", storage]
            printed = run([*command, "--features"] if features else command)
            try:
                told = json.loads(printed)
            except json.JSONDecodeError as error:
                raise Failed(f"`graphmill bench sample` printed no JSON object: {error}") from None
            measured.append({**told, "peer": name, "fanouts": [int(n) for n in text.split(",")], "features": features})
    return measured


if __name__ == "__main__":
    main()
