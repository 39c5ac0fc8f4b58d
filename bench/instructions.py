"""Counts the instructions of the inner loops per sampled edge with callgrind.

Unlike a clock it gives the same answer on a busy machine. Two runs that differ only in their number of batches are
subtracted, so that opening and warming up do not count.

    python3 bench/instructions.py target/release/graphmill
"""

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphmill", type=Path)
    binary = parser.parse_args().graphmill.resolve()
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph"
        made = ("generate", "rmat", "--nodes", "100k", "--edges", "2M", "--features", "0", "--weights")
        subprocess.run([binary, *made, "--out", graph, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        print(f"{'sampler':<10} {'fanouts':<9} {'all':>7}   instructions per sampled edge")
        for sampler in ("uniform", "weighted"):
            for fanouts in ("15,10", "10,10,5"):
                command = [binary, "bench", "sample", graph, "--quiet", "--json", "--fanouts", fanouts]
                command += ["--sampler", sampler, "--batches"]
                few, many = (count(command, batches, Path(folder)) for batches in (20, 120))
                edges = many["edges"] - few["edges"]
                total = (many["total"] - few["total"]) / edges
                print(f"{sampler:<10} {fanouts:<9} {total:7.1f}")


def count(command: list, batches: int, folder: Path) -> dict:
    """Instructions and edges of one run."""
    profile = folder / "callgrind.out"
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", *command, str(batches)]
    done = subprocess.run(valgrind, check=True, capture_output=True, text=True)
    measured = json.loads(done.stdout)
    total = int(re.search(r"Collected : (\d+)", done.stderr)[1])
    # The warm-up has a tenth as many batches, and one.
    return {"total": total, "edges": measured["edges_per_batch"] * (measured["batches"] + batches // 10 + 1)}


if __name__ == "__main__":
    main()
