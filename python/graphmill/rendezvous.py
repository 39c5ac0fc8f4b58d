"""Members of a run: who takes part, with which rank, in which round.

A coordinator (``graphmill rendezvous serve``) forms the rounds::

    with Rendezvous("127.0.0.1:4300", run="train", min_nodes=2, max_nodes=4) as rendezvous:
        here = rendezvous.next_rendezvous()
        print(here.rank, here.world_size, here.master_addr, here.master_port)

``docs/rendezvous.md`` says what can be relied on.
"""

import contextlib
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from graphmill._convert import File, credentials
from graphmill._graphmill import Member, RendezvousClosed, RendezvousGracefulExit, RendezvousTimeout
from graphmill._graphmill import Store as _Store

__all__ = ["Rendezvous", "RendezvousClosed", "RendezvousGracefulExit", "RendezvousTimeout", "Round", "Store"]

# Seconds that a store's answer may take, unless told otherwise.
_WAIT = 300.0


class Store:
    """The key-value store of a round, which all its participants share. Text is kept as UTF-8.

    Keys have up to 1 KiB; a round's keys and values up to 1 MiB together.
    """

    def __init__(self, native: _Store, prefix: str = ""):
        self._native = native
        self._prefix = prefix

    def prefixed(self, prefix: str) -> "Store":
        """The same store, with ``prefix`` before every key."""
        return Store(self._native, self._prefix + prefix)

    def set(self, key: str, value: bytes | str) -> None:
        """Sets a key, and wakes who waits for it."""
        self._native.set([(self._prefix + key, _bytes(value))])

    def multi_set(self, values: Mapping[str, bytes | str]) -> None:
        """Sets keys, all at once."""
        self._native.set([(self._prefix + key, _bytes(value)) for key, value in values.items()])

    def get(self, key: str, timeout: float = _WAIT) -> bytes:
        """The value of a key, which is waited for; ``TimeoutError`` when it does not come within ``timeout`` seconds."""
        return self._native.get([self._prefix + key], timeout)[0]

    def multi_get(self, keys: Iterable[str], timeout: float = _WAIT) -> list[bytes]:
        """The values of keys, when all are there."""
        return self._native.get(self._keys(keys), timeout)

    def wait(self, keys: Iterable[str], timeout: float = _WAIT) -> None:
        """Waits until all keys are there."""
        self._native.wait(self._keys(keys), timeout)

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all keys are there now."""
        return self._native.check(self._keys(keys))

    def add(self, key: str, amount: int = 1) -> int:
        """Adds to the number of a key, 0 if it is not there, and returns the sum; ``ValueError`` if it is no number."""
        return self._native.add(self._prefix + key, amount)

    def compare_set(self, key: str, expected: bytes | str, value: bytes | str) -> bytes:
        """Sets a key that has the expected value, and returns what it has now.

        A key that is not there is made when nothing (``b""``) is expected, and is a ``KeyError`` otherwise.
        """
        return self._native.compare_set(self._prefix + key, _bytes(expected), _bytes(value))

    def append(self, key: str, value: bytes | str) -> None:
        """Appends to a key's value."""
        self._native.append([(self._prefix + key, _bytes(value))])

    def delete(self, key: str) -> bool:
        """Removes a key; whether it was there."""
        return self._native.delete([self._prefix + key]) > 0

    def count(self, prefix: str = "") -> int:
        """How many keys begin with ``prefix``."""
        return self._native.count(self._prefix + prefix)

    def _keys(self, keys: Iterable[str]) -> list[str]:
        if isinstance(keys, str):
            raise TypeError(f"keys is {keys!r}, expected a list of keys")
        return [self._prefix + key for key in keys]


@dataclass(frozen=True)
class Round:
    """A round that this member takes part in."""

    round: int
    """Counts from 0, and only goes up."""
    rank: int
    """This member's rank, 0 to ``world_size - 1``."""
    world_size: int
    """How many take part."""
    store: Store
    """What the participants of this round share."""
    master_addr: str
    """How rank 0 is reached, the same for all."""
    master_port: int
    """A port of rank 0, the same for all."""


class Rendezvous:
    """A member of a run. Its lease is kept up in the background, whatever Python does meanwhile.

    Args:
        url: Where the coordinator is, ``"host:port"``; several as ``"host:port,host:port"``; the run may follow, ``"host:port/run"``.
            A Unix socket is ``"unix:/path"`` or ``"unix:/path//run"``; ``"etcd://host:2379/run"`` finds the coordinator that leads.
        run: The name of the run.
        min_nodes: The fewest participants of a round.
        max_nodes: The most; who comes later is a spare.
        join_timeout: Seconds within which a round is to be complete. Spares wait without a time-out.
        last_call_timeout: Seconds that a round with enough participants waits for more.
        close_timeout: Seconds within which the run is to be closed.
        heartbeat_timeout: Seconds that any other answer may take.
        keep_alive_interval: Seconds between signs of life.
        keep_alive_max_attempt: How many of them may be missed before a member is taken for dead.
        expected: How many are expected; when they are there, nobody else is waited for.
        stable_ranks: Members that stay keep their rank, as long as it is below the new world size.
        local_addr: How others reach this host; found out otherwise.
        token: What the coordinator wants to hear: the text, or a ``Path`` of a file that holds it.
        tls: Who signs the coordinator's certificate, a PEM file; or a dict of ``ca`` and, to show one, ``cert`` and ``key``.

    The settings of a run are those of its first member; a member that brings others is refused with a ``ValueError``.
    """

    def __init__(
        self,
        url: str,
        run: str | None = None,
        *,
        min_nodes: int,
        max_nodes: int,
        join_timeout: float = 600,
        last_call_timeout: float = 30,
        close_timeout: float = 30,
        heartbeat_timeout: float = 5,
        keep_alive_interval: float = 5,
        keep_alive_max_attempt: int = 3,
        expected: int | None = None,
        stable_ranks: bool = True,
        local_addr: str | None = None,
        token: File | None = None,
        tls: File | Mapping[str, File] | None = None,
    ):
        counts = {
            "min_nodes": min_nodes, "max_nodes": max_nodes, "keep_alive_max_attempt": keep_alive_max_attempt,
            **({} if expected is None else {"expected": expected}),
        }  # fmt: skip
        for name, value in counts.items():
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**32:
                raise ValueError(f"{name} is {value!r}, expected a whole number, 1 or more")
        text, file, files = credentials(token, tls)
        self._local_addr = local_addr or own_address(url)
        times = {
            "join_timeout": join_timeout, "last_call_timeout": last_call_timeout, "close_timeout": close_timeout,
            "heartbeat_timeout": heartbeat_timeout, "keep_alive_interval": keep_alive_interval,
        }  # fmt: skip
        for name, time in times.items():
            if not isinstance(time, (int, float)) or isinstance(time, bool):
                raise ValueError(f"{name} is {time!r}, expected seconds")
        self._join_timeout = float(join_timeout)
        self._member = Member(
            url, run, self._local_addr, join_timeout=self._join_timeout, last_call_timeout=float(last_call_timeout),
            close_timeout=float(close_timeout), heartbeat_timeout=float(heartbeat_timeout),
            keep_alive_interval=float(keep_alive_interval), stable_ranks=stable_ranks, token=text, token_file=file,
            tls=files, min_nodes=min_nodes, max_nodes=max_nodes, keep_alive_max_attempt=keep_alive_max_attempt,
            expected=expected,
        )  # fmt: skip

    @property
    def run(self) -> str:
        """The name of the run."""
        return self._member.run

    @property
    def local_addr(self) -> str:
        """How others reach this host."""
        return self._local_addr

    @property
    def node(self) -> tuple[str, int, int]:
        """Who this member is: address, process and counter. Members are ordered as that."""
        return self._member.node

    def next_rendezvous(self, master_port: int | None = None) -> Round:
        """Leaves the round this member is in, and waits until it takes part in the next.

        Args:
            master_port: What is told to all if this member has rank 0; a port that is free now otherwise.

        Raises:
            RendezvousClosed: The run is closed.
            RendezvousGracefulExit: It is, and this member was a spare that was never needed.
            RendezvousTimeout: No round was complete in time.
            RuntimeError: Another thread is joining as this member, or has let it leave meanwhile.
            ConnectionError: No coordinator answers.
            PermissionError: The token is missing or wrong.
            ValueError: The run has other settings.
        """
        return self._next(lambda: master_port or _free_port(), self._join_timeout)

    def _next(self, host: Callable[[], int], timeout: float) -> Round:
        """As :meth:`next_rendezvous`, within ``timeout`` seconds; rank 0 calls ``host`` for a port."""
        number, rank, world_size, native, address, port = self._member.next_rendezvous(host, timeout)
        return Round(number, rank, world_size, Store(native), address, port)

    def is_lost(self) -> bool:
        """Whether this member must take itself for dead, because the coordinator has not heard of it for as long as its lease.

        Its round goes on without it; :meth:`next_rendezvous` joins the next.
        """
        return self._member.is_lost()

    def num_nodes_waiting(self) -> int:
        """How many wait for the next round; a member that was taken for dead counts itself."""
        return self._member.num_nodes_waiting()

    def is_closed(self) -> bool:
        """Whether the run is closed."""
        return self._member.is_closed()

    def set_closed(self) -> None:
        """Closes the run, for good and for all."""
        self._member.set_closed()

    def leave(self) -> None:
        """Leaves the run, which goes on without this member."""
        self._member.leave()

    def shutdown(self) -> bool:
        """Closes the run, and keeps the lease up no longer; whether the run could be closed."""
        return self._member.shutdown()

    def __enter__(self) -> "Rendezvous":
        return self

    def __exit__(self, *_: Any) -> None:
        # Whoever cannot take leave is missed when the lease ends.
        with contextlib.suppress(OSError, ValueError):
            self.leave()


def own_address(url: str) -> str:
    """How others reach this host: loopback when the coordinator is there, else the address that faces the coordinator."""
    first = url.partition("://")[2] or url
    if first.startswith("unix:"):
        return "127.0.0.1"
    first = re.split("[/,?]", first, maxsplit=1)[0].strip()
    if first.startswith("["):
        host = first[1:].partition("]")[0]
    else:
        host = first if first.count(":") > 1 else first.partition(":")[0]
    if host in ("", "localhost"):
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return host
    with contextlib.suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            # Sends nothing; only finds the way.
            probe.connect(address)
            found: str = probe.getsockname()[0]
        if not ipaddress.ip_address(found.partition("%")[0]).is_loopback:
            return found
    return socket.getfqdn()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))
