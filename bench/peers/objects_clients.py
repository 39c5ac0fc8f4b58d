"""Clients of an object store, processes that put and get at the same time.

    python objects_clients.py SIDE ADDRESS [--clients 8] [--sizes 1000,1000000] [--batch 200] [--seconds 1]
    python objects_clients.py SIDE ADDRESS --cold

Prints a line of JSON for each thing measured. Run by `objects.py` in the environment of the peers.
"""

import argparse
import contextlib
import json
import multiprocessing
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

# The fewest calls that a number is made of, however long they take.
LEAST = 3
# The longest that a client may be waited for.
PATIENCE = 300


class RedisItself:
    """Redis with as little as possible between: what a user of redis-py would write."""

    def __init__(self, address: str):
        import redis

        host, port = address.split(":")
        self.redis = redis.Redis(host=host, port=int(port))
        self.counter = 0
        self.prefix = f"{time.monotonic_ns()}-"

    def new(self) -> str:
        self.counter += 1
        return f"{self.prefix}{self.counter}"

    def put(self, value: bytes) -> str:
        key = self.new()
        self.redis.set(key, value)
        return key

    def put_batch(self, values: list[bytes]) -> list[str]:
        keys = [self.new() for _ in values]
        self.redis.mset(dict(zip(keys, values)))
        return keys

    def get(self, key: str) -> bytes | None:
        return self.redis.get(key)

    def get_batch(self, keys: list[str]) -> list[bytes | None]:
        return self.redis.mget(keys)

    def evict(self, key: str) -> None:
        self.redis.delete(key)

    def close(self) -> None:
        self.redis.close()


def connect(side: str, address: str) -> tuple[Any, str]:
    """A connector, and the version of what it is of."""
    if side.startswith("graphmill"):
        import graphmill
        from graphmill.objects import Connector

        # Over TCP as between hosts, without shared memory.
        return Connector(address, shared_memory="TCP" not in side), graphmill.__version__
    host, port = address.split(":")
    if side == "ProxyStore ZMQ":
        from proxystore_ex.connectors.dim.zmq import ZeroMQConnector

        return ZeroMQConnector(int(port), host), version("proxystore-ex")
    if side == "ProxyStore Redis":
        from proxystore.connectors.redis import RedisConnector

        return RedisConnector(host, int(port)), version("proxystore")
    return RedisItself(address), version("redis")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side")
    parser.add_argument("address")
    parser.add_argument("--cold", action="store_true", help="measure from nothing to the first put, nothing else")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=[1000])
    parser.add_argument("--batch", type=int, default=0, help="objects of the first size in a batch; 0 for no batches")
    parser.add_argument("--seconds", type=float, default=1)
    arguments = parser.parse_args()
    if arguments.cold:
        print(json.dumps(cold(arguments)))
        return
    context = multiprocessing.get_context("fork")
    together, told = context.Barrier(arguments.clients), context.SimpleQueue()
    clients = [
        context.Process(target=client, args=(arguments, number, together, told)) for number in range(arguments.clients)
    ]
    for one in clients:
        one.start()
    for one in clients:
        one.join(PATIENCE)
        if one.exitcode != 0:
            # The others wait for it in vain.
            for other in clients:
                other.kill()
            raise SystemExit(f"error: a client ended with {one.exitcode}")
    found = [told.get() for _ in clients]
    for rows in zip(*found):
        print(json.dumps({**rows[0], "rate": sum(row["rate"] for row in rows)}))


def cold(arguments: argparse.Namespace) -> dict:
    """From before a connector is made until an object is stored; modules are imported before, as by a program that runs."""
    with contextlib.suppress(ImportError):
        import graphmill.objects  # noqa: F401
    with contextlib.suppress(ImportError):
        import proxystore_ex.connectors.dim.zmq  # noqa: F401
    began = time.perf_counter()
    connector, found = connect(arguments.side, arguments.address)
    connector.put(b"first")
    seconds = time.perf_counter() - began
    connector.close(True)
    return {"what": "cold start", "seconds": seconds, "side": arguments.side, "version": found}


def client(arguments: argparse.Namespace, number: int, together: Any, told: Any) -> None:
    connector, found = connect(arguments.side, arguments.address)
    rng = np.random.default_rng(number)
    rows = []

    def measure(what: str, size: int, objects: int, call: Callable[[], Any], after: Callable[[Any], None]) -> None:
        after(call())
        together.wait(PATIENCE)
        calls, spent = 0, 0.0
        until = time.perf_counter() + arguments.seconds
        while calls < LEAST or time.perf_counter() < until:
            began = time.perf_counter()
            result = call()
            spent += time.perf_counter() - began
            calls += 1
            after(result)
            # Giving memory back is part of the call.
            began = time.perf_counter()
            del result
            spent += time.perf_counter() - began
        about = {"what": what, "size": size, "objects": objects, "clients": arguments.clients}
        rows.append({**about, "rate": objects * calls / spent, "side": arguments.side, "version": found})
        together.wait(PATIENCE)

    for size in arguments.sizes:
        value = rng.bytes(size)
        measure("put", size, 1, lambda: connector.put(value), connector.evict)
        key = connector.put(value)
        assert bytes(connector.get(key)) == value, "it is not what was put"
        measure("get", size, 1, lambda: connector.get(key), lambda _: None)
        measure("get and read", size, 1, lambda: read(connector.get(key)), lambda _: None)
        connector.evict(key)
    if arguments.batch:
        size = arguments.sizes[0]
        values = [rng.bytes(size) for _ in range(arguments.batch)]

        def evict(keys: list) -> None:
            for key in keys:
                connector.evict(key)

        measure("put", size, arguments.batch, lambda: connector.put_batch(values), evict)
        keys = connector.put_batch(values)
        assert [bytes(one) for one in connector.get_batch(keys)] == values, "it is not what was put"
        measure("get", size, arguments.batch, lambda: connector.get_batch(keys), lambda _: None)
        evict(keys)
    connector.close()
    told.put(rows)


def read(value: Any) -> int:
    """Looks at every byte once, eight at a time."""
    return int(np.frombuffer(value, np.uint64, count=len(value) // 8).sum())


if __name__ == "__main__":
    main()
