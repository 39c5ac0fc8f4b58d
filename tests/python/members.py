"""Processes that do what they are told, and coordinators and members of runs among them."""

import contextlib
import json
import queue
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import packages
import pytest

# Does what lines of its input say, and answers each with a line.
SCRIPT = """
import json, os, sys
import graphmill.rendezvous
rendezvous = graphmill.rendezvous.Rendezvous(sys.argv[1], **json.loads(sys.argv[2]))
print(json.dumps(["made", rendezvous.node]), flush=True)
def join():
    global here
    here = rendezvous.next_rendezvous()
    return [here.round, here.rank, here.world_size, here.master_addr, here.master_port]
while line := sys.stdin.readline():
    try:
        answer = ["value", eval(line)]
    except BaseException as error:
        answer = [type(error).__name__, str(error)]
    print(json.dumps(answer), flush=True)
"""


@contextlib.contextmanager
def coordinator(binary: Path, *flags: str) -> Iterator[str]:
    """The address of a coordinator that ends with this."""
    with packages.Server([binary, "rendezvous", "serve", "--listen", "127.0.0.1:0", *flags]) as server:
        yield server.wait().address


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def etcd(folder: Path) -> Iterator[str]:
    """The address of an etcd that ends with this."""
    if not shutil.which("etcd"):
        pytest.skip("etcd is not installed")
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [
        "etcd", "--data-dir", str(folder / "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield client.removeprefix("http://")
    finally:
        process.kill()
        process.wait()


class Worker:
    """A Python process that answers lines of its input with lines: a kind, and a value or a message."""

    def __init__(self, script: str, *arguments: str):
        command = [sys.executable, "-c", script, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answers: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.answers.put(json.loads(line))
        self.answers.put(["ended", ""])

    def ask(self, expression: str) -> "Worker":
        """Has it do something; :meth:`hear` tells what came of it."""
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return self

    def hear(self, timeout: float = 20) -> tuple[str, Any]:
        """A kind, and a value or a message."""
        return tuple(self.answers.get(timeout=timeout))

    def value(self, timeout: float = 20) -> Any:
        """What it was asked for."""
        kind, value = self.hear(timeout)
        assert kind == "value", value
        return value

    def kill(self) -> None:
        """Ends it without a word to anyone."""
        self.process.kill()
        self.process.wait()
        # What was not sent goes nowhere.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


class Member(Worker):
    """A member in a process of its own."""

    def __init__(self, address: str, **settings: Any):
        super().__init__(SCRIPT, address, json.dumps(settings))


@contextlib.contextmanager
def members(address: str, count: int, **settings: Any) -> Iterator[list[Member]]:
    """Members that are ready to join, and end with this."""
    made = [Member(address, **settings) for _ in range(count)]
    try:
        assert all(member.hear(60)[0] == "made" for member in made)
        yield made
    finally:
        for member in made:
            member.kill()
