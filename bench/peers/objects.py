"""Compares object stores from Python: ours beside ProxyStore's ZeroMQ and Redis connectors and Redis itself.

    python3 bench/peers/objects.py [--seconds 1] [--rounds 3]

Puts and gets of 1 KB, 1 MB and 100 MB, and batches of 200 x 1 KB, by one client and by 8, each a process; then how long it takes
from nothing to the first put. Makes an environment where it is missing, and measures in rounds: in each, all run one after the
other. A ratio is the median of the ratios of the rounds. Needs `redis-server`, and our module built for release;
`make bench-objects` sees to both.
"""

import argparse
import contextlib
import json
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import comparison
from commands import Failed, end_session, run_together
from comparison import REPOSITORY, told_by_line
from environments import HERE, OBJECTS, Environments

ZMQ, REDIS, ITSELF, SHARED, TCP = "ProxyStore ZMQ", "ProxyStore Redis", "redis-py", "graphmill", "graphmill over TCP"
SIDES = (ZMQ, REDIS, ITSELF, SHARED, TCP)
SMALL, MIDDLE, LARGE = 1000, 1_000_000, 100_000_000
BATCH = 200
# Bytes that all clients together may have in flight, several times over in some stores.
MOST = 128_000_000
# Seconds that clients may take beyond those that are measured.
GRACE = 240
# What we ask of ourselves, by one client: ours, theirs, what, size, objects in a batch, at least so many times.
ASKED = [
    *((SHARED, peer, what, SMALL, 1, times) for what in ("put", "get") for peer, times in ((REDIS, 3), (ZMQ, 10))),
    *((SHARED, REDIS, what, MIDDLE, 1, 3) for what in ("put", "get")),
    (SHARED, ZMQ, "put", LARGE, 1, 10),
    (SHARED, ZMQ, "get", LARGE, 1, 50),
    (TCP, ZMQ, "get", LARGE, 1, 5),
    *((SHARED, ZMQ, what, SMALL, BATCH, 20) for what in ("put", "get")),
]
COLD_SECONDS = 0.1


def main() -> None:
    arguments = parse()
    # What was started is ended in `finally` clauses, which a plain SIGTERM would skip.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    python = Environments(HERE).python(OBJECTS)
    with tempfile.TemporaryDirectory(prefix="gm-peers-") as folder:
        # A copy: whoever builds anew meanwhile does not change what is measured.
        package = Path(folder, "package", "graphmill")
        shutil.copytree(REPOSITORY / "python" / "graphmill", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        shutil.copy2(arguments.module, package / "_graphmill.abi3.so")
        variables = {"PYTHONPATH": str(package.parent), "XDG_RUNTIME_DIR": folder}
        reasons: dict[str, str] = {}
        sides = {side: partial(measure, side, python, variables, Path(folder), arguments) for side in SIDES}
        measured = comparison.in_rounds(sides, arguments.rounds, reasons)
    size = {"seconds": arguments.seconds, "rounds": arguments.rounds, "clients": arguments.clients}
    works = {"rows": rows(measured), "asked": asked(measured), "cold": cold(measured)}
    result = {**comparison.result(size, [], reasons, works), "versions": versions(measured), "measured": measured}
    print(table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1, help="seconds of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=lambda text: [int(count) for count in text.split(",")], default=[1, 8])
    parser.add_argument("--module", type=Path, default=REPOSITORY / "target" / "release" / "lib_graphmill.so")
    parser.add_argument("--json", type=Path, help="write all that was measured to this file too")
    arguments = parser.parse_args()
    if sys.version_info[:2] != (3, 11):
        parser.error("the pinned packages are for Python 3.11: run this with python3.11")
    if not arguments.module.is_file():
        parser.error(f"there is no module at {arguments.module}: build it with `cargo build --release -p graphmill-py`")
    return arguments


def measure(side: str, python: Path, variables: dict, folder: Path, arguments: argparse.Namespace) -> list[dict]:
    """All numbers of one side."""
    clients = [python, HERE / "objects_clients.py", side]
    found = []
    if side in (ZMQ, SHARED, TCP):
        found += told_by_line(run_together([[*clients, address(side, folder), "--cold"]], GRACE, variables)[0])
    with serving(side, python, folder) as at:
        for count in arguments.clients:
            sizes = [size for size in (SMALL, MIDDLE, LARGE) if size * count <= MOST]
            timed = ["--clients", count, "--sizes", ",".join(map(str, sizes)), "--batch", BATCH, "--seconds", arguments.seconds]
            found += told_by_line(run_together([[*clients, at, *timed]], GRACE, variables)[0])
    return found


@contextlib.contextmanager
def serving(side: str, python: Path, folder: Path) -> Iterator[str]:
    """A server, and its address; ours is started by whoever comes first."""
    at = address(side, folder)
    if side in (SHARED, TCP):
        yield at
        return
    host, port = at.split(":")
    start = f"from proxystore_ex.connectors.dim.zmq import start_server; start_server({host!r}, {port})"
    redis = ["redis-server", "--bind", host, "--port", port, "--save", "", "--appendonly", "no"]
    try:
        process = subprocess.Popen(
            [python, "-c", start] if side == ZMQ else redis, stdout=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise Failed(f"cannot start a server: {error}") from None
    try:
        until = time.monotonic() + GRACE
        while not answers(host, int(port)):
            if process.poll() is not None or time.monotonic() > until:
                raise Failed("the server does not listen")
            time.sleep(0.05)
        yield at
    finally:
        end_session(process)


def address(side: str, folder: Path) -> str:
    """Where a side's server is, or is to be; nobody is there yet."""
    if side == SHARED:
        return f"unix:{folder}/{time.monotonic_ns()}.sock"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def answers(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def rates(measured: list[dict], side: str, what: str, size: int, objects: int, clients: int) -> dict[int, float]:
    """Objects a second, by round."""
    wanted = {"side": side, "what": what, "size": size, "objects": objects, "clients": clients}
    return {one["round"]: one["rate"] for one in measured if all(one.get(key) == value for key, value in wanted.items())}


def rows(measured: list[dict]) -> list[dict]:
    """Medians of all sides."""
    keys = dict.fromkeys(
        (one["clients"], one["objects"], one["size"], one["what"]) for one in measured if one["what"] != "cold start"
    )
    found = []
    for clients, objects, size, what in keys:
        row = {"what": what, "size": size, "objects": objects, "clients": clients}
        for side in SIDES:
            several = rates(measured, side, what, size, objects, clients).values()
            row[side] = statistics.median(several) if several else None
        found.append(row)
    return found


def asked(measured: list[dict]) -> list[dict]:
    """What we ask of ourselves, and what came of it."""
    found = []
    for ours, theirs, what, size, objects, times in ASKED:
        mine, others = (rates(measured, side, what, size, objects, 1) for side in (ours, theirs))
        ratios = [mine[number] / others[number] for number in mine.keys() & others.keys()]
        row = {"ours": ours, "theirs": theirs, "what": what, "size": size, "objects": objects, "asked": times}
        found.append({**row, "ratio": statistics.median(ratios) if ratios else None})
    return found


def cold(measured: list[dict]) -> dict[str, float]:
    """Seconds from nothing to the first put."""
    starts = [one for one in measured if one["what"] == "cold start"]
    return {
        side: statistics.median(one["seconds"] for one in starts if one["side"] == side)
        for side in dict.fromkeys(one["side"] for one in starts)
    }


def versions(measured: list[dict]) -> dict[str, str]:
    return {one["side"]: one["version"] for one in measured}


def table(result: dict) -> str:
    works = result["works"]
    lines = ["objects a second".ljust(36) + "".join(f"{side:>20}" for side in SIDES)]
    for row in works["rows"]:
        name = f"{row['what']}, {amount(row)}, {row['clients']} client{'s' * (row['clients'] > 1)}"
        lines.append(name.ljust(36) + "".join(f"{number(row[side]):>20}" for side in SIDES))
    lines += ["", "asked of ourselves".ljust(66) + f"{'asked':>8}{'found':>10}"]
    for row in works["asked"]:
        name = f"{row['what']}, {amount(row)}: {row['ours']} beside {row['theirs']}"
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.1f} x"
        lines.append(name.ljust(66) + f"{row['asked']:>6} x{ratio:>10}")
    for side, seconds in works["cold"].items():
        wanted = f"{COLD_SECONDS * 1e3:.0f} ms" if side in (SHARED, TCP) else ""
        lines.append(f"cold start to the first put: {side}".ljust(66) + f"{wanted:>8}{seconds * 1e3:>7.0f} ms")
    lines += [f"{side}: {reason}" for side, reason in result["reasons"].items()]
    return "\n".join(lines)


def amount(row: dict) -> str:
    size = {SMALL: "1 KB", MIDDLE: "1 MB", LARGE: "100 MB"}[row["size"]]
    return size if row["objects"] == 1 else f"{row['objects']} x {size}"


def number(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 100 else f"{rate:.2f}"


if __name__ == "__main__":
    main()
