"""Compares the rendezvous with torch's c10d backend: how long members take to find each other, each a Python process.

    .venv/bin/python bench/peers/rendezvous.py [--members 2,8,32,64] [--rounds 3]

The time is from the last call of `next_rendezvous` until all members have their ranks and know how rank 0 is reached, with
as many members as there can be, so no last call is waited for. In each round c10d and we run one after the other. Prints
theirs, ours and the ratio, by the medians over the rounds. Needs torch and the package `graphmill` in the environment that
runs it; `make bench-rendezvous` sees to both.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
BACKENDS = ("c10d", "graphmill")


def main() -> None:
    arguments = parse()
    # What was started is ended in `finally` clauses, which a plain SIGTERM would skip.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    with tempfile.TemporaryDirectory(prefix="graphmill-rendezvous-") as folder:
        # A copy: whoever builds anew meanwhile does not change what is measured.
        binary = shutil.copy2(arguments.graphmill, folder)
        runs = [
            {"members": members, "round": number, "backend": backend, **measure(backend, members, binary, arguments.seconds)}
            for members in arguments.members
            for number in range(arguments.rounds)
            for backend in BACKENDS
        ]
    rows = [row(members, runs) for members in arguments.members]
    show(rows)
    if arguments.json:
        machine = {"cores": os.cpu_count(), "system": platform.platform(), "torch": version("torch")}
        arguments.json.write_text(json.dumps({"machine": machine, "rows": rows, "runs": runs}, indent=1) + "\n")
    if any("failed" in run for run in runs):
        sys.exit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=numbers, default="2,8,32,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120, help="the most that a measurement may take")
    parser.add_argument("--graphmill", type=Path, default=REPOSITORY / "target" / "release" / "graphmill")
    parser.add_argument("--json", type=Path, help="write all that was measured to this file too")
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    found = [int(number) for number in text.split(",")]
    if min(found) < 1:
        raise argparse.ArgumentTypeError("at least one member is needed")
    return found


def measure(backend: str, members: int, binary: str, seconds: float) -> dict:
    """What one group of members measured, or why it failed."""
    print(f"{members} members with {backend}", file=sys.stderr)
    if backend == "c10d":
        return group(backend, f"127.0.0.1:{free_port()}", members, seconds)
    command = [binary, "rendezvous", "serve", "--listen", "127.0.0.1:0", "--until-stdin-closes"]
    coordinator = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        address = coordinator.stdout.readline().split()[-1]
        return group(backend, address, members, seconds)
    finally:
        coordinator.kill()
        coordinator.communicate()


def group(backend: str, address: str, members: int, seconds: float) -> dict:
    command = [sys.executable, str(HERE / "rendezvous_members.py"), backend, address, str(members), str(seconds)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        printed, errors = process.communicate(timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        return {"failed": "it did not end"}
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        reason = errors.strip().splitlines()[-1:] or [f"it ended with {process.returncode}"]
        return {"failed": reason[0]}
    return json.loads(printed)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def row(members: int, runs: list[dict]) -> dict:
    """Medians, where any run of a backend worked."""
    found: dict = {"members": members}
    for backend in BACKENDS:
        mine = [run for run in runs if run["members"] == members and run["backend"] == backend]
        times = [run["join_s"] for run in mine if "join_s" in run]
        found[backend] = statistics.median(times) if times else None
        found[f"{backend}_failed"] = [run["failed"] for run in mine if "failed" in run]
    theirs, ours = (found[backend] for backend in BACKENDS)
    found["ratio"] = theirs / ours if theirs and ours else None
    return found


def show(rows: list[dict]) -> None:
    print(f"{'members':>7}  {'torch c10d':>12}  {'graphmill':>12}  {'ratio':>8}")
    for one in rows:
        theirs, ours = (f"{one[backend] * 1e3:.1f} ms" if one[backend] else "failed" for backend in BACKENDS)
        ratio = f"{one['ratio']:.0f} x" if one["ratio"] else "-"
        print(f"{one['members']:>7}  {theirs:>12}  {ours:>12}  {ratio:>8}")
        for backend in BACKENDS:
            for reason in one[f"{backend}_failed"]:
                print(f"         {backend}: {reason}")


if __name__ == "__main__":
    main()
