"""Members of one round, each a process, as `rendezvous.py` starts them: `BACKEND ADDRESS MEMBERS SECONDS`; prints JSON.

What is imported is imported once, before the members fork off. They make their handlers, and call `next_rendezvous` when all
have.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable


def graphmill(address: str, count: int) -> Callable[[int], Callable]:
    from graphmill.rendezvous import Rendezvous

    def make(_: int) -> Callable:
        return Rendezvous(address, f"bench {os.getppid()}", min_nodes=count, max_nodes=count).next_rendezvous

    return make


def c10d(address: str, count: int) -> Callable[[int], Callable]:
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import _register_default_handlers, get_rendezvous_handler

    _register_default_handlers()

    def make(place: int) -> Callable:
        # The first hosts the store, as the agent of the first node does.
        conf = {"is_host": str(place == 0).lower()}
        parameters = RendezvousParameters("c10d", address, "bench", count, count, "127.0.0.1", **conf)
        return get_rendezvous_handler(parameters).next_rendezvous

    return make


def member(join: Callable, ready: int, go: int, done: int) -> None:
    os.write(ready, b".")
    os.read(go, 1)
    # One clock for all processes of a machine.
    called = time.monotonic()
    joined = join()
    line = json.dumps([called, time.monotonic(), joined.rank, joined.world_size]) + "\n"
    os.write(done, line.encode())
    # Others may still need what this one hosts.
    signal.pause()


def main() -> None:
    backend, address, members, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    until = time.monotonic() + seconds
    make = {"graphmill": graphmill, "c10d": c10d}[backend](address, members)
    (is_ready, ready), (may_go, go), (is_done, done) = os.pipe(), os.pipe(), os.pipe()

    def read(pipe: int, amount: Callable[[bytes], int]) -> bytes:
        found = b""
        while amount(found) < members:
            if not select.select([pipe], [], [], max(until - time.monotonic(), 0))[0]:
                sys.exit(f"{amount(found)} of {members} members are there after {seconds:.0f} s")
            found += os.read(pipe, 1 << 16)
        return found

    children = []
    try:
        for place in range(members):
            if (child := os.fork()) == 0:
                try:
                    member(make(place), ready, may_go, done)
                finally:
                    os._exit(1)
            children.append(child)
        read(is_ready, len)
        # Handlers have come to rest.
        time.sleep(0.5)
        os.write(go, b"." * members)
        lines = read(is_done, lambda found: found.count(b"\n")).splitlines()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    called, joined, ranks, sizes = zip(*map(json.loads, lines), strict=True)
    if sorted(ranks) != list(range(members)) or set(sizes) != {members}:
        sys.exit(f"ranks are {sorted(ranks)} of {set(sizes)}")
    print(json.dumps({"join_s": max(joined) - max(called), "called_within_s": max(called) - min(called)}))


if __name__ == "__main__":
    main()
