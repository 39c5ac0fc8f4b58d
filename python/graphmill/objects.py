"""The object store: blobs in memory that processes and hosts share.

One process puts bytes and gets a key, whoever has the key gets the bytes::

    with Connector() as connector:
        key = connector.put(b"...")
        connector.get(key)

A server is found or started, and ends when nobody uses it. :class:`Connector` follows ProxyStore's connector protocols, so
``proxystore.store.Store("name", Connector())`` works. ``docs/objects.md`` says what can be relied on.
"""

import ipaddress
import json
import math
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphmill import _graphmill
from graphmill._convert import is_tensor, need

__all__ = ["Connector", "Key"]

# What a connector starts: this interpreter with the native half alone, which listens long before the package could be imported.
_SERVE = (
    "import importlib.machinery as m, importlib.util as u, sys;"
    "l = m.ExtensionFileLoader('_graphmill', sys.argv[1]);"
    "x = u.module_from_spec(u.spec_from_loader('_graphmill', l));"
    "l.exec_module(x);"
    "x.serve_spawned_objects()"
)

# An array's object begins with this and the length of the JSON that follows; both are filled up to whole lines of a cache.
_MAGIC = b"GMARRAY\x01"
_PREFIX = struct.Struct("<8sI")
_LINE = 64


class Key(NamedTuple):
    """What finds an object from any process: a text that reads like a URL. Keys compare, hash and travel as their texts."""

    url: str
    """The key as ``graphmill objects`` prints it."""

    @property
    def id(self) -> str:
        """The object on its server, 32 hexadecimal digits."""
        return _graphmill.object_key(self.url)[0]

    @property
    def size(self) -> int | None:
        """The object's bytes; not known where the key was made before its object."""
        return _graphmill.object_key(self.url)[1]

    @property
    def location(self) -> str:
        """Where its server is."""
        return _graphmill.object_key(self.url)[2]

    @property
    def generation(self) -> int:
        """The start of the server that has it; 0 where that says nothing."""
        return _graphmill.object_key(self.url)[3]

    def __str__(self) -> str:
        return self.url


class Connector:
    """A way to an object server, or to Redis. Any number of threads may use one; a forked child uses connections of its own.

    While it is open it holds a lease: a server that a connector started stays.

    Args:
        address: ``"HOST:PORT"``, ``"unix:/PATH"`` or ``"redis://HOST:PORT/DATABASE"``; the user's own server unless told.
        token_file: A file with the token that the server wants to hear.
        tls_ca: Who signs the server's certificate, a PEM file; it is then reached over TLS.
        tls_cert: The certificate to show to it.
        tls_key: The certificate's key.
        deadline: Seconds within which a call must be answered, and one more for each 16 MiB.
        wait: Seconds within which a server must take a connection; where none does, one is started.
        put_wait: Seconds for which a put waits for room.
        shared_memory: Whether objects of 64 KiB and more may be mapped where the server is on this host.
        spawn: Whether to start a server where there is none; unless told, on this host alone, and with
            the same token. A dict says how: ``command``,
            ``deadline`` and ``server``, for example ``{"server": {"budget": 8 << 30, "linger": 60}}``.

    Every call may raise, with the kind of ``docs/objects.md`` as the exception's attribute ``kind``:

    Raises:
        TimeoutError: No answer within the deadline.
        ConnectionError: Nobody answers, the connection broke, or a server could not be started.
        PermissionError: Token or certificate are missing or wrong.
        MemoryError: There is no room for an object, also after waiting.
        ValueError: An object is over the limit, a key cannot be used, or a setting cannot be right.
        RuntimeError: The server says no for another reason, which it gives.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        deadline: float = 30.0,
        wait: float = 0.1,
        put_wait: float = 2.0,
        shared_memory: bool = True,
        spawn: bool | Mapping[str, Any] | None = None,
    ):
        files = {"token_file": token_file, "tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key}
        config: dict[str, Any] = {name: os.path.abspath(file) for name, file in files.items() if file is not None}
        if address is not None:
            config["address"] = address
        config |= {"deadline": deadline, "wait": wait, "put_wait": put_wait, "shared_memory": shared_memory}
        if spawn is None:
            # A server with certificates is for whoever has them to start.
            spawn = tls_ca is None and (address is None or _is_here(address))
        self._has_own_command = False
        if spawn is not False:
            config["spawn"] = {} if spawn is True else dict(spawn)
            self._has_own_command = bool(config["spawn"].get("command"))
            if not self._has_own_command:
                config["spawn"]["command"] = _command()
            if token_file is not None:
                # It wants to hear what this connector says.
                config["spawn"]["server"] = {"token_file": config["token_file"], **config["spawn"].get("server", {})}
        self._native = _graphmill.ObjectConnector(_to_json(config))

    def put(self, obj: Any, *, ttl: float | None = None) -> Key:
        """Stores bytes under a new key.

        Args:
            obj: Whatever is bytes-like; it is not copied on its way.
            ttl: Seconds after which it is gone; as long as the server says if left open.
        """
        return Key(self._native.put(obj, ttl=ttl))

    def put_batch(
        self, objs: Sequence[Any], *, ttl: float | None = None, return_exceptions: bool = False
    ) -> list[Key]:
        """Stores many objects, without waiting for one before sending the next; keys in their order.

        If one cannot be stored none is, and its exception is raised. With ``return_exceptions`` the exceptions are in the
        places of the keys instead, and the other objects are stored.
        """
        done = self._native.put_batch(list(objs), ttl)
        keys = [Key(one) if isinstance(one, str) else one for one in done]
        failed = None if return_exceptions else _first_exception(keys)
        if failed is not None:
            for key in keys:
                if isinstance(key, Key):
                    self.evict(key)
            raise failed
        return keys  # type: ignore[return-value]  # exceptions only where they are asked for

    def get(self, key: Key, *, wait: float = 0.0) -> memoryview | None:
        """The bytes of an object, over its own memory; nothing if it is not there.

        Large objects are mapped where the server is on this host. The buffer may be written to, which nobody else sees. It
        stays as it is whatever happens to the object.

        Args:
            key: Of any server, which is asked with this connector's token and certificates.
            wait: Seconds to wait for an object that is not there yet; it comes as soon as it is set.
        """
        return self._native.get(_url(key), wait)

    def get_batch(self, keys: Sequence[Key], *, return_exceptions: bool = False) -> list[memoryview | None]:
        """Many objects, in the order of their keys. With ``return_exceptions`` one that cannot be got is an exception there."""
        got = self._native.get_batch([_url(key) for key in keys])
        failed = None if return_exceptions else _first_exception(got)
        if failed is not None:
            raise failed
        return got  # type: ignore[return-value]  # as above

    def exists(self, key: Key) -> bool:
        """Whether an object is there."""
        return self._native.exists(_url(key))

    def evict(self, key: Key) -> None:
        """Forgets an object; whoever has got it keeps it. One that is not there is fine."""
        self._native.evict(_url(key))

    def new_key(self, obj: Any = None) -> Key:
        """A key for an object that will be :meth:`set` later. ``obj`` is not looked at."""
        return Key(self._native.new_key())

    def set(self, key: Key, obj: Any, *, ttl: float | None = None) -> None:
        """Stores bytes under a key that was made before, and sends them to whoever waits; replaces what is there."""
        self._native.set(_url(key), obj, ttl=ttl)

    def put_array(self, array: Any, *, ttl: float | None = None) -> Key:
        """Stores an array, without pickle: of numpy, a tensor of torch, or what speaks DLPack.

        Its bytes are not copied on their way if they are on the CPU and in one piece.
        """
        return Key(self._native.put(*_array_parts(array), ttl=ttl))

    def set_array(self, key: Key, array: Any, *, ttl: float | None = None) -> None:
        """As :meth:`put_array`, under a key that was made before."""
        self._native.set(_url(key), *_array_parts(array), ttl=ttl)

    def get_array(self, key: Key, *, wait: float = 0.0, output: str = "numpy") -> Any:
        """An array over the object's own memory, mapped where :meth:`get` maps; nothing if it is not there.

        It may be edited in place, which nobody else sees.

        Args:
            key: Of an object that was stored as an array.
            wait: As for :meth:`get`.
            output: ``"numpy"`` or ``"torch"``. Numpy has no bfloat16; its bits stand for it, as ``uint16``.
        """
        if output not in ("numpy", "torch"):
            raise ValueError(f'output is {output!r}, expected "numpy" or "torch"')
        found = self.get(key, wait=wait)
        return None if found is None else _to_array(found, key, output)

    def stat(self) -> dict[str, Any]:
        """What the server holds and has done: ``objects``, ``used``, ``budget``, ``puts``, ``gets`` and more."""
        told: dict[str, Any] = json.loads(self._native.stat())
        return told

    def config(self) -> dict[str, Any]:
        """Plain data of which :meth:`from_config` makes the same in another process. It names files, not what is in them.

        A password in the address of Redis is part of it; where that must not travel, give it in a ``token_file``.
        """
        config: dict[str, Any] = json.loads(self._native.config())
        spawn: dict[str, Any] | None = config.pop("spawn")
        if spawn and not self._has_own_command:
            # Another process has its own interpreter.
            del spawn["command"]
        return {**_without_none(config), "spawn": _without_none(spawn) if spawn else False}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Connector":
        """A connector of :meth:`config`."""
        return cls(**config)

    def close(self, kill_server: bool = False) -> None:
        """Ends the lease. A shared server stays, unless ``kill_server`` says otherwise and a connector started it.

        Closing again is fine; a call after it connects again.
        """
        self._native.close(kill_server)

    def __enter__(self) -> "Connector":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Connector.from_config, (self.config(),)

    def __repr__(self) -> str:
        # Without the password that may be in it.
        scheme, mark, rest = json.loads(self._native.config())["address"].rpartition("://")
        return f"Connector({scheme + mark + rest.rpartition('@')[2]!r})"


def _url(key: Key) -> str:
    if not isinstance(key, Key):
        raise TypeError(f"expected a key, got {type(key).__name__}; Key(text) makes one of a text")
    return key.url


def _is_here(address: str) -> bool:
    """Whether a server at an address would be on this host, so that it can be started."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _command() -> list[str]:
    """What starts a server; left to the native half, which knows of the binary, where there is no interpreter to start."""
    return [sys.executable, "-I", "-S", "-c", _SERVE, _graphmill.__file__] if sys.executable else []


def _to_json(config: dict[str, Any]) -> str:
    try:
        return json.dumps(config, default=os.fspath, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a connector's configuration is not plain data: {error}") from None


def _without_none(config: dict[str, Any]) -> dict[str, Any]:
    """What is set: some formats, TOML among them, cannot say that something is not."""
    plain = {name: _without_none(value) if isinstance(value, dict) else value for name, value in config.items()}
    return {name: value for name, value in plain.items() if value is not None}


def _first_exception(results: Sequence[Any]) -> BaseException | None:
    return next((one for one in results if isinstance(one, BaseException)), None)


def _array_parts(array: Any) -> tuple[bytes, memoryview]:
    """What an array's object consists of: a header, and the array's own bytes."""
    if is_tensor(array):
        torch = sys.modules["torch"]
        array = array.detach().cpu().contiguous()
        name = "bfloat16" if array.dtype == torch.bfloat16 else None
        array = (array.view(torch.uint16) if name else array).numpy()
    else:
        name = None
        if hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray):
            array = np.from_dlpack(array)
        array = np.asarray(array, order="C")
    if array.dtype.hasobject or array.dtype.fields is not None:
        raise ValueError(f"an array of {array.dtype} cannot be stored as it is; expected numbers, times or texts of one length")
    about = json.dumps({"dtype": name or array.dtype.str, "shape": array.shape}).encode()
    length = -(-(_PREFIX.size + len(about)) // _LINE) * _LINE - _PREFIX.size
    # As bytes: numpy does not offer times as a buffer.
    return _PREFIX.pack(_MAGIC, length) + about.ljust(length), array.reshape(-1).view(np.uint8).data


def _to_array(found: memoryview, key: Key, output: str) -> Any:
    try:
        magic, length = _PREFIX.unpack_from(found)
        start = _PREFIX.size + length
        about: Any = json.loads(bytes(found[_PREFIX.size : start])) if magic == _MAGIC else {}
        name, shape = about["dtype"], tuple(about["shape"])
        dtype = np.dtype("<u2" if name == "bfloat16" else str(name))
        sound = all(type(extent) is int and extent >= 0 for extent in shape) and not dtype.hasobject
        sound = sound and math.prod(shape) * dtype.itemsize == len(found) - start
    except (struct.error, ValueError, TypeError, KeyError, RecursionError):
        sound = False
    if not sound:
        raise ValueError(f"the object of {key} is not an array; it was not stored with put_array")
    array = np.ndarray(shape, dtype, buffer=found, offset=start)
    if output == "numpy":
        return array
    torch = need("torch", 'output="torch"')
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if name == "bfloat16" else tensor
