"""Object servers, Redis servers and processes that use them, for the tests of the object store."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import members
import pytest

from graphmill.objects import Connector

# Does what lines of its input say, and answers each with a line.
SCRIPT = """
import json, os, pickle, sys, time
from graphmill.objects import Connector, Key
connector = Connector(**json.loads(sys.argv[1])) if sys.argv[1:] else None
print(json.dumps(["made", os.getpid()]), flush=True)
while line := sys.stdin.readline():
    try:
        answer = ["value", eval(line)]
    except BaseException as error:
        answer = [type(error).__name__, str(error)]
    print(json.dumps(answer), flush=True)
"""
# How servers look in the table of processes.
SERVER = b"serve_spawned_objects"


@contextlib.contextmanager
def worker(*config: str) -> Iterator[members.Worker]:
    """A process, with a connector if it is told how."""
    made = members.Worker(SCRIPT, *config)
    try:
        assert made.hear(60)[0] == "made"
        yield made
    finally:
        made.kill()


def settings(transport: str, folder: Path, redis: Callable[[], str]) -> dict[str, Any]:
    """What a connector of a transport is made with; whether large objects are copied is part of its name."""
    spawn = {"server": {"linger": 5, "budget": 256 << 20, "object_limit": 64 << 20}}
    copied = {"shared_memory": False} if transport.endswith("-copied") else {}
    if transport == "redis":
        return {"address": redis()}
    address = f"127.0.0.1:{free_port()}" if transport.startswith("tcp") else f"unix:{folder}/objects.sock"
    return {"address": address, "spawn": spawn, **copied}


@contextlib.contextmanager
def connected(config: dict[str, Any]) -> Iterator[Connector]:
    """A connector whose server ends with it."""
    connector = Connector(**config)
    try:
        yield connector
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            connector.close(kill_server=not config["address"].startswith("redis:"))


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """The address of a Redis server that ends with this."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until(lambda: is_open(port), "redis-server listens")
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def servers(folder: Path) -> list[int]:
    """The object servers that were started with this folder for their locks and sockets."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ours = f"XDG_RUNTIME_DIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0")
            if ours and SERVER in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def until(happened: Callable[[], Any], what: str, seconds: float = 20) -> None:
    """Waits for something."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"it does not happen that {what}"
        time.sleep(0.02)


def wait_child(child: int, seconds: float = 20) -> int:
    """The status of a forked child, which must end in time."""
    status = []
    until(lambda: (ended := os.waitpid(child, os.WNOHANG))[0] and status.append(ended[1]) is None, "the child ends", seconds)
    return status[0]


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
