"""Measures what making, cutting, opening and reading a large graph costs on this machine.

    python bench/foundation.py path/to/graphmill [--nodes 1000000] [--edges 20000000] [--features 128]

Prints a table of wall-clock seconds, rates and peak resident memory, one process per line. The files are made in a
temporary folder (some 4 GB at the default size) and removed afterwards.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

PEAK = Path(__file__).resolve().parents[1] / "tests" / "python" / "peak.py"
ROW = "{:<44} {:>9} {:>14} {:>12}"


@dataclass
class Cost:
    """What one process took."""

    seconds: float
    peak_bytes: int
    output: str


def measure(*command) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "peak.json"
        words = [sys.executable, "-S", PEAK, told, *command]
        done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))} failed")
        return Cost(**json.loads(told.read_text()), output=done.stdout)


def report(what: str, cost: Cost, edges: int | None = None):
    rate = f"{edges / cost.seconds / 1e6:.2f} M edges/s" if edges else ""
    print(ROW.format(what, f"{cost.seconds:.3f} s", rate, f"{cost.peak_bytes / 2**20:,.0f} MiB"), flush=True)


def seconds(cost: Cost) -> float:
    return cost.seconds


def forget(folder: Path):
    """Asks the system to drop what it holds of the files in memory, so that the next reader finds them on disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_inputs(folder: Path, nodes: int, edges: int) -> dict[str, Path]:
    """The same random edges as CSV, gzipped CSV, Parquet and npy."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, nodes, (edges, 2))
    table = pa.table({"src": pairs[:, 0], "dst": pairs[:, 1]})
    files = {kind: folder / f"edges.{kind}" for kind in ("csv", "csv.gz", "parquet", "npy")}
    pa.csv.write_csv(table, files["csv"])
    with pa.CompressedOutputStream(files["csv.gz"], "gzip") as compressed:
        pa.csv.write_csv(table, compressed)
    pa.parquet.write_table(table, files["parquet"])
    np.save(files["npy"], pairs)
    return files


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphmill", type=Path)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--folder", type=Path, help="where to make the temporary folder")
    arguments = parser.parse_args()
    graphmill, edges = arguments.graphmill.resolve(), arguments.edges

    print(f"{os.cpu_count()} cores, {processor()}")
    print(f"{arguments.nodes:,} nodes, {edges:,} edges, {arguments.features} f32 features\n")
    print(ROW.format("step", "time", "rate", "peak memory"))
    with tempfile.TemporaryDirectory(prefix="graphmill-bench-", dir=arguments.folder) as temporary:
        folder = Path(temporary)
        graph = folder / "graph"
        size = ("--nodes", arguments.nodes, "--edges", edges, "--features", arguments.features)
        report("generate rmat", measure(graphmill, "generate", "rmat", *size, "--out", graph, "--quiet"), edges)
        for method in ("range", "hash", "ldg"):
            cut = folder / method
            command = ("partition", graph, "--parts", 4, "--method", method, "--out", cut, "--quiet")
            report(f"partition into 4 by {method}", measure(graphmill, *command), edges)
        for name, cut in (("whole", graph), ("4 partitions", folder / "ldg")):
            opening = (graphmill, "inspect", cut, "--original-ids", 0, "--json")
            forget(cut)
            report(f"open {name}, cold", measure(*opening))
            report(f"open {name}, warm", min((measure(*opening) for _ in range(5)), key=seconds))
        inspected = measure(graphmill, "inspect", graph, "--json")
        report("inspect", inspected)
        report("inspect, 4 partitions", measure(graphmill, "inspect", folder / "ldg", "--json"))
        report("inspect --verify", measure(graphmill, "inspect", graph, "--verify", "--json", "--quiet"))

        for kind, file in write_inputs(folder, arguments.nodes, edges).items():
            config = folder / f"{kind}.toml"
            config.write_text(f'[[nodes]]\ncount = {arguments.nodes}\n[[edges]]\nfiles = "{file.name}"\n')
            for memory in ("2GiB", "64MiB"):
                out = folder / f"from-{kind}-{memory}"
                command = ("ingest", config, "--out", out, "--memory", memory, "--quiet")
                report(f"ingest {kind}, --memory {memory}", measure(graphmill, *command), edges)

        told = json.loads(inspected.output)
        print(f"\ntopology: {told['topology_bytes'] / told['num_edges']:.3f} bytes per edge")


if __name__ == "__main__":
    main()
