"""Arrays of all kinds into numpy, and other arguments into what the native half takes."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

SPLITS = ("train", "val", "test")

LARGEST = 2**63 - 1

# The largest count that a sampler takes.
MOST = 2**31 - 1

File = str | os.PathLike[str]
Array = np.ndarray[Any, np.dtype[Any]]


def installed(name: str) -> bool:
    """Whether a package can be imported; it is not imported."""
    return sys.modules[name] is not None if name in sys.modules else importlib.util.find_spec(name) is not None


def need(name: str, what: str) -> Any:
    """Imports a package that is optional, or says why it is needed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = "install it with `pip install torch torch_geometric`"
        raise ImportError(f"{what} needs {name}, which cannot be imported ({error}); {hint}", name=name) from error


def is_tensor(value: object) -> bool:
    """Whether something is a torch tensor; torch is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(value: Any) -> Array:
    """An array, a tensor or a sequence as numpy has it."""
    if is_tensor(value):
        value = value.detach().cpu().numpy()
    return np.asarray(value)


def to_ids(value: Any, what: str = "ids") -> Array:
    """Ids as one row of 64-bit numbers."""
    array = to_numpy(value)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1:
        raise ValueError(f"{what} have the shape {array.shape}, expected one dimension")
    if too_large(array):
        raise ValueError(f"{what} have numbers above {LARGEST}, the largest id there can be")
    if array.dtype == np.bool_ or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{what} are {array.dtype}, expected whole numbers")
    return np.ascontiguousarray(array, dtype=np.int64)


def too_large(array: Array) -> bool:
    """Whether there are whole numbers that 63 bits do not hold."""
    if array.dtype == np.object_:
        return any(isinstance(number, int) and number > LARGEST for number in array.reshape(-1))
    return array.dtype == np.uint64 and array.size > 0 and int(array.max()) > LARGEST


def whole(value: Any, what: str, least: int = 0, most: int = LARGEST) -> int:
    """A whole number within bounds."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise ValueError(f"{what} is {value!r}, expected a whole number, {least} or more")
    if value > most:
        raise ValueError(f"{what} is {value!r}, expected a whole number, at most {most}")
    return int(value)


def to_rank(rank: Any, world_size: Any) -> tuple[int, int]:
    """A rank and the number of ranks."""
    rank, world_size = whole(rank, "rank"), whole(world_size, "world_size", 1, MOST)
    if rank >= world_size:
        raise ValueError(f"rank is {rank}, expected 0 or more and below world_size, which is {world_size}")
    return rank, world_size


def mask_to_ids(value: Any, count: int, what: str) -> tuple[Array, bool]:
    """Ids from ids or from a mask of so many nodes, and whether it was a mask."""
    array = to_numpy(value)
    if array.dtype != np.bool_:
        return to_ids(array, what), False
    if array.shape != (count,):
        raise ValueError(f"{what} is a mask of shape {array.shape}, expected ({count},), one value for each node")
    return np.flatnonzero(array).astype(np.int64), True


def credentials(
    token: File | None, tls: File | Mapping[str, File] | None
) -> tuple[str | None, File | None, tuple[File, File | None, File | None] | None]:
    """A token, or the file that holds it; and the files of certificates."""
    files: tuple[File, File | None, File | None] | None = None
    if isinstance(tls, Mapping):
        if unknown := set(tls) - {"ca", "cert", "key"}:
            raise ValueError(f"tls has {sorted(unknown)}, expected ca, cert and key")
        if "ca" not in tls or ("cert" in tls) != ("key" in tls):
            raise ValueError("tls needs ca, and cert and key together")
        cert, key = (_absolute(tls[name]) if tls.get(name) is not None else None for name in ("cert", "key"))
        files = _absolute(tls["ca"]), cert, key
    elif tls is not None:
        files = _absolute(tls), None, None
    if token is None or isinstance(token, str):
        return token, None, files
    return None, _absolute(token), files


def _absolute(file: File) -> str:
    """Where a file is, for a process that goes elsewhere before it opens it again."""
    return os.path.abspath(os.fspath(file))
