"""torchrun's agents as members of a run: ``torchrun --rdzv-backend=graphmill --rdzv-endpoint=HOST:PORT ...``.

Registered under the entry-point group ``torchrun.handlers``; scripts need not know of it.
"""

import atexit
import contextlib
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.events import NodeState, construct_and_record_rdzv_event
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from graphmill.rendezvous import Rendezvous, RendezvousClosed, RendezvousGracefulExit, RendezvousTimeout, Round

__all__ = ["Handler", "create_handler", "handlers"]

_log = logging.getLogger(__name__)

# How long rank 0 keeps the store up for agents that are still at the exit barrier.
_LINGER = 2.0
# Seconds in which another round can be tried.
_LEAST = 0.001
# How long an agent tries to reach the store of rank 0, and waits for a value in it.
_STORE_TIMEOUT = timedelta(seconds=60)

# What --rdzv-conf may say, and how it is read.
_SECONDS = (
    "join_timeout", "last_call_timeout", "close_timeout", "heartbeat_timeout", "keep_alive_interval",
)  # fmt: skip
_COUNTS = ("keep_alive_max_attempt", "expected")
_FILES = ("tls_ca", "tls_cert", "tls_key")
# What torchrun and other backends say, and this one has no use for.
_ELSEWHERE = (
    "timeout", "rank", "is_host", "store_type", "read_timeout", "use_libuv", "cas_backoff_max_seconds",
)  # fmt: skip


def handlers() -> Callable[[RendezvousParameters], "Handler"]:
    """What the entry point gives to torchrun."""
    return create_handler


def create_handler(params: RendezvousParameters) -> "Handler":
    """A handler for what torchrun was told.

    ``--rdzv-conf`` may have ``join_timeout``, ``last_call_timeout``, ``close_timeout``, ``heartbeat_timeout``,
    ``keep_alive_interval`` (seconds), ``keep_alive_max_attempt``, ``expected``, ``stable_ranks``, ``token_file``, ``tls_ca``,
    ``tls_cert`` and ``tls_key``.
    """
    try:
        return Handler(_rendezvous(params))
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        construct_and_record_rdzv_event(run_id=params.run_id, message=message, node_state=NodeState.FAILED)
        raise


def _rendezvous(params: RendezvousParameters) -> Rendezvous:
    settings: dict[str, Any] = {}
    for name, value in params.config.items():
        if name in _SECONDS:
            settings[name] = _number(float, name, value, "seconds")
        elif name in _COUNTS:
            settings[name] = _number(int, name, value, "a whole number")
        elif name == "stable_ranks":
            settings[name] = params.get_as_bool(name)
        elif name == "token_file":
            settings["token"] = Path(value)
        elif name not in _FILES and name not in _ELSEWHERE:
            known = ", ".join((*_SECONDS, *_COUNTS, "stable_ranks", "token_file", *_FILES))
            raise ValueError(f"--rdzv-conf has {name!r}, which is not known; there are: {known}")
    if files := {name.removeprefix("tls_"): params.config[name] for name in _FILES if name in params.config}:
        settings["tls"] = files
    return Rendezvous(
        params.endpoint, params.run_id, min_nodes=params.min_nodes, max_nodes=params.max_nodes,
        local_addr=params.local_addr, **settings,
    )  # fmt: skip


def _number(kind: type, name: str, value: Any, expected: str) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r} in --rdzv-conf, expected {expected}") from None


class Handler(RendezvousHandler):
    """An agent's membership of a run.

    In each round rank 0 hosts a ``TCPStore`` that is new, so nothing of the rounds before is in it. Agents share it, and
    workers too unless ``TORCH_DISABLE_SHARE_RDZV_TCP_STORE`` is 1.
    """

    def __init__(self, rendezvous: Rendezvous):
        self._rendezvous = rendezvous
        self._round: Round | None = None
        self._server: dist.TCPStore | None = None
        self._ended = False
        # An agent that ends by a signal does not shut down; it leaves, so that others need not wait for its lease to end.
        atexit.register(_leave, weakref.ref(self))

    def get_backend(self) -> str:
        """The name of the backend."""
        return "graphmill"

    def get_run_id(self) -> str:
        """The name of the run."""
        return self._rendezvous.run

    @property
    def use_agent_store(self) -> bool:
        """Whether workers use the store of the agents."""
        return os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    def next_rendezvous(self) -> RendezvousInfo:
        """Leaves the round that this agent is in, and waits until it takes part in the next."""
        run, node = self.get_run_id(), "_".join(map(str, self._rendezvous.node))
        self._record(f"The node '{node}' attempts to join the next round of the rendezvous '{run}'.")
        with self._errors():
            here, store = self._next()
            address = self._rendezvous.local_addr
            if self.use_agent_store:
                bootstrap = RendezvousStoreInfo(here.master_addr, here.master_port)
            else:
                bootstrap = RendezvousStoreInfo.build(here.rank, store, local_addr=address)
        self._record(
            f"The node '{node}' has joined round {here.round} of the rendezvous '{run}' as rank {here.rank} in a world of size "
            f"{here.world_size}.",
            rank=here.rank,
        )
        return RendezvousInfo(store, here.rank, here.world_size, bootstrap)

    def _next(self) -> tuple[Round, dist.Store]:
        """The next round whose rank 0 can be reached, and its store."""
        left = within = self._rendezvous._join_timeout
        deadline = time.monotonic() + within
        while True:
            hosted: list[dist.TCPStore] = []
            here = self._rendezvous._next(lambda: self._host(hosted), left)
            # Only a spare takes longer, and has all its time again.
            if time.monotonic() >= deadline:
                deadline = time.monotonic() + within
            # What was hosted for an earlier round is of no use to anyone.
            self._round, self._server = here, hosted[0] if hosted else None
            try:
                reached = self._server or dist.TCPStore(
                    here.master_addr, here.master_port, is_master=False, wait_for_workers=False, timeout=_STORE_TIMEOUT
                )
            except dist.DistError as error:
                if (left := deadline - time.monotonic()) < _LEAST:
                    at = f"{here.master_addr}:{here.master_port}"
                    raise RendezvousConnectionError(f"the store of rank 0 cannot be reached at {at}: {error}") from error
                _log.warning("the store of rank 0 cannot be reached, so another round is tried: %s", error)
                continue
            return here, dist.PrefixStore(f"graphmill/{self.get_run_id()}/{here.round}", reached)

    def _host(self, hosted: list[dist.TCPStore]) -> int:
        address = self._rendezvous.local_addr
        server = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=_STORE_TIMEOUT)
        hosted[:] = [server]
        return server.port

    def is_closed(self) -> bool:
        """Whether the run is closed."""
        with self._errors():
            return self._rendezvous.is_closed()

    def set_closed(self) -> None:
        """Closes the run, for good and for all."""
        with self._errors():
            self._rendezvous.set_closed()
        self._closed()

    def num_nodes_waiting(self) -> int:
        """How many wait for the next round."""
        with self._errors():
            return self._rendezvous.num_nodes_waiting()

    def shutdown(self) -> bool:
        """Closes the run; whether that worked."""
        self._ended = True
        closed = self._rendezvous.shutdown()
        if closed:
            self._closed()
        else:
            self._record(f"The rendezvous '{self.get_run_id()}' could not be closed.", NodeState.FAILED)
        self._say_goodbye()
        return closed

    def _closed(self) -> None:
        self._record(f"The rendezvous '{self.get_run_id()}' has been closed.", NodeState.SUCCEEDED)

    def _say_goodbye(self) -> None:
        """Rank 0 waits a moment for the other agents, which may still be reading from its store."""
        if (here := self._round) is None:
            return
        with contextlib.suppress(Exception):
            if here.rank:
                here.store.set(f"torchrun/ended/{here.rank}", b"")
            elif here.world_size > 1:
                here.store.wait([f"torchrun/ended/{rank}" for rank in range(1, here.world_size)], timeout=_LINGER)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors as torch knows them."""
        try:
            try:
                yield
            except RendezvousGracefulExit as error:
                raise RendezvousGracefulExitError(str(error)) from error
            except RendezvousClosed as error:
                raise RendezvousClosedError(str(error)) from error
            except RendezvousTimeout as error:
                raise RendezvousTimeoutError(str(error)) from error
            except (ConnectionError, PermissionError, TimeoutError, dist.DistError) as error:
                raise RendezvousConnectionError(str(error)) from error
            except ValueError as error:
                raise RendezvousError(str(error)) from error
        except Exception as error:
            self._record(f"{type(error).__name__}: {error}", NodeState.FAILED)
            raise

    def _record(self, message: str, state: NodeState = NodeState.RUNNING, rank: int | None = None) -> None:
        _log.log(logging.WARNING if state == NodeState.FAILED else logging.INFO, message)
        address, process, counter = self._rendezvous.node
        construct_and_record_rdzv_event(
            run_id=self.get_run_id(), message=message, node_state=state, name=type(self).__name__, hostname=address,
            pid=process, local_id=counter, rank=rank,
        )  # fmt: skip


def _leave(handler: "weakref.ref[Handler]") -> None:
    here = handler()
    if here is not None and not here._ended and here._round is not None:
        with contextlib.suppress(Exception):
            here._rendezvous.leave()
