"""Graphs and servers for the tests of the Python package."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import graphmill

WRITES, CITES, REV = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "rev_writes", "author")
LIKES, HATES = ("author", "likes", "paper"), ("author", "hates", "paper")


def random_edges(rng: np.random.Generator, sources: int, targets: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs in random order."""
    chosen = rng.choice(sources * targets, size=count, replace=False)
    return chosen // targets, chosen % targets


def homogeneous(out: Path, nodes: int = 300, edges: int = 2400, parts: int = 1) -> graphmill.Dataset:
    """A graph with features of all kinds, labels and splits."""
    rng = np.random.default_rng(7)
    src, dst = random_edges(rng, nodes, nodes, edges)
    x = {"x": rng.random((nodes, 16), dtype=np.float32), "age": np.arange(nodes, dtype=np.int64)}
    return graphmill.from_edges(
        src, dst, out=out, num_nodes=nodes, x=x, y=np.arange(nodes) % 5, edge_attr=rng.random((edges, 3), dtype=np.float32),
        edge_weight=rng.random(edges, dtype=np.float32), train=np.arange(0, nodes, 2), val=np.arange(nodes) % 4 == 1,
        test=range(3, nodes, 4), parts=parts,
    )  # fmt: skip


def heterogeneous(out: Path, parts: int = 1) -> graphmill.Dataset:
    """Authors and papers, with two kinds of labels edges."""
    rng = np.random.default_rng(11)
    writes = random_edges(rng, 80, 120, 400)
    edges = {
        WRITES: writes, REV: writes[::-1], CITES: random_edges(rng, 120, 120, 500),
        LIKES: random_edges(rng, 80, 120, 90), HATES: random_edges(rng, 80, 120, 60),
    }  # fmt: skip
    return graphmill.from_edges(
        edges, out=out, num_nodes={"author": 80, "paper": 120}, y={"paper": np.arange(120) % 3},
        x={"author": rng.random((80, 8), dtype=np.float32), "paper": rng.random((120, 4), dtype=np.float32)},
        train={"paper": range(60), "author": range(0, 80, 2)}, label_edges=[LIKES, HATES], parts=parts,
    )  # fmt: skip


def mapping(address: int) -> str | None:
    """The file that memory is mapped from: its number, if it is one that a server made."""
    for line in open("/proc/self/maps"):
        first, last = (int(bound, 16) for bound in line.split()[0].split("-"))
        if first <= address < last:
            return line.split()[4] if "/memfd:" in line else None
    return None


@contextlib.contextmanager
def serving(binary: Path, dataset: Path, *flags: str, partitions: list[str] | None = None) -> Iterator[list["Server"]]:
    """Servers of a dataset, one for each list of partitions; they end with this."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        sockets = [f"unix:{folder}/{place}" for place in range(len(partitions or [None]))]
        servers = []
        for place, owned in enumerate(partitions or [None]):
            peers = [socket for other, socket in enumerate(sockets) if other != place]
            arguments = [*(["--partition", owned] if owned else []), *(["--peers", ",".join(peers)] if peers else [])]
            listen = ["--listen", "127.0.0.1:0", "--listen", sockets[place]]
            servers.append(stack.enter_context(Server([binary, "serve", dataset, *listen, *arguments, *flags])))
        yield [server.wait() for server in servers]


class Server:
    """A server's process."""

    def __init__(self, command: list):
        self.command = [str(word) for word in [*command, "--until-stdin-closes"]]
        self.address = ""
        # Of several addresses the one that others are given.
        listens = [word for word in self.command if word.startswith("unix:")]
        alone = len(listens) == self.command.count("--listen") > 0
        self.listening = "listening on " if alone else "listening on 127.0.0.1:"

    def __enter__(self) -> "Server":
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return self

    def wait(self) -> "Server":
        """Waits until it says where it listens."""
        for line in self.process.stdout:
            if line.startswith(self.listening):
                self.address = line.split()[-1]
                return self
        raise AssertionError(f"the server ended: {self.process.stderr.read()}")

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
