"""What users write, checked and turned into what a sampler takes."""

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, cast

import numpy as np

from graphmill._convert import (
    LARGEST, MOST, Array, installed, is_tensor, mask_to_ids, need, to_ids, to_numpy, to_rank, too_large, whole
)  # fmt: skip
from graphmill.dataset import Dataset, EdgeInfo, EdgeType, NodeInfo, to_edge_type

# Arguments of torch_geometric's loaders that mean something else here, or nothing.
ELSEWHERE = {
    "num_workers": "sampling runs on threads of this process: num_threads=N",
    "persistent_workers": "sampling runs on threads of this process, which keep their memory from epoch to epoch",
    "prefetch_factor": "batches are sampled ahead: prefetch=N",
    "subgraph_type": "NeighborLoader samples directional subgraphs, SubgraphLoader induced ones",
    "disjoint": "disjoint subgraphs are not sampled yet",
    "time_attr": "temporal sampling is not there yet",
    "input_time": "temporal sampling is not there yet",
    "edge_label_time": "temporal sampling is not there yet",
    "sampler": "a loader goes over input_nodes; give it the ids it is to go over",
    "batch_sampler": "a loader goes over input_nodes; give it the ids it is to go over",
    "filter_per_worker": "features are gathered where the graph is",
    "collate_fn": "use transform, which is called with each batch",
    "is_sorted": "a dataset's edges are sorted",
}


class Common(TypedDict, total=False):
    """Arguments of all loaders; :data:`MEANINGS` says what they are."""

    batch_size: int
    shuffle: bool
    drop_last: bool
    seed_order: str
    replace: bool
    weight_attr: str | None
    direction: str | None
    features: bool | Sequence[str]
    feature_dtype: Any
    labels: bool
    transform: Callable[[Any], Any] | None
    seed: int
    prefetch: int
    ordered: bool
    num_threads: int
    rank: int | None
    world_size: int | None
    even: bool | None
    pin_memory: bool
    output: str | None


class Settled(TypedDict):
    """The same, with everything decided."""

    batch_size: int
    shuffle: bool
    drop_last: bool
    seed_order: str
    replace: bool
    weight_attr: str | None
    direction: str | None
    features: bool | Sequence[str]
    feature_dtype: str | None
    labels: bool
    transform: Callable[[Any], Any] | None
    seed: int
    prefetch: int
    ordered: bool
    num_threads: int
    rank: int
    world_size: int
    even: bool
    pin_memory: bool
    output: str


DEFAULTS: Common = {
    "batch_size": 1, "shuffle": False, "drop_last": False, "seed_order": "global", "replace": False, "weight_attr": None,
    "direction": None, "features": True, "feature_dtype": None, "labels": True, "transform": None, "seed": 0, "prefetch": 2,
    "ordered": True, "num_threads": 1, "rank": None, "world_size": None, "even": None, "pin_memory": False, "output": None,
}  # fmt: skip


# For the docstrings of loaders.
MEANINGS = {
    "batch_size": "Seeds per batch.",
    "shuffle": "An order of its own for each epoch.",
    "drop_last": "Leave out a short last batch; of each partition, in partition order.",
    "seed_order": "``\"global\"``, or ``\"partition\"``: all seeds of a batch are of one partition.",
    "replace": "An edge may be drawn twice.",
    "weight_attr": "``\"edge_weight\"``, or another name for it: edges are drawn by the dataset's weights.",
    "direction": "``\"in\"`` or ``\"out\"``: which way edges are walked; the dataset's own unless told otherwise.",
    "features": "Which features come along: all, none, or names.",
    "feature_dtype": "``\"float16\"``: features that are stored as ``float32`` come as ``float16``.",
    "labels": "Whether labels come along, where there are any.",
    "transform": "Called with each batch.",
    "seed": "Of everything random.",
    "prefetch": "Batches ahead, of each server.",
    "ordered": "False: batches as they are ready.",
    "num_threads": "Threads that sample ahead, where no server does.",
    "rank": "This rank takes every ``world_size``-th batch; torchrun's unless told otherwise.",
    "world_size": "The number of ranks; torchrun's unless told otherwise.",
    "even": "All ranks have equally many batches, the last repeated if need be; so by default with several ranks.",
    "pin_memory": "Tensors in page-locked memory, a copy.",
    "output": "``\"pyg\"``, ``\"torch\"`` or ``\"numpy\"``; ``pyg`` where torch_geometric is installed, else ``numpy``.",
}  # fmt: skip


def documented(docstring: str) -> str:
    """The docstring of a loader, with the meanings of the arguments that all of them take."""
    indent = " " * 8
    meanings = "\n".join(f"{indent}{name}: {meaning}" for name, meaning in MEANINGS.items())
    return docstring.replace(f"{indent}**common: Those of all loaders.", meanings)


def common(given: Mapping[str, Any]) -> Settled:
    """All common arguments, with defaults and from the environment."""
    for name in given:
        if name in ELSEWHERE:
            raise TypeError(f"there is no argument {name}: {ELSEWHERE[name]}")
        if name not in DEFAULTS:
            raise TypeError(f"there is no argument {name}; there are: {', '.join(DEFAULTS)}")
    arguments: dict[str, Any] = {**DEFAULTS, **given}
    for name, least, most in (
        ("batch_size", 1, LARGEST), ("prefetch", 0, 1 << 20), ("num_threads", 0, 1024), ("seed", 0, 2**64 - 1)
    ):  # fmt: skip
        arguments[name] = whole(arguments[name], name, least, most)
    for name in ("shuffle", "drop_last", "replace", "labels", "ordered", "pin_memory"):
        arguments[name] = flag(arguments[name], name)
    if arguments["direction"] not in (None, "in", "out"):
        raise ValueError(f"direction is {arguments['direction']!r}, expected \"in\" or \"out\"")
    if arguments["transform"] is not None and not callable(arguments["transform"]):
        raise TypeError(f"transform is {arguments['transform']!r}, expected something that can be called with a batch")
    arguments["feature_dtype"] = feature_dtype(arguments["feature_dtype"])
    arguments["rank"], arguments["world_size"] = ranks(arguments["rank"], arguments["world_size"])
    if arguments["seed_order"] not in ("global", "partition"):
        raise ValueError(f"seed_order is {arguments['seed_order']!r}, expected \"global\" or \"partition\"")
    even = arguments["even"]
    arguments["even"] = arguments["world_size"] > 1 if even is None else flag(even, "even")
    arguments["output"] = output(arguments["output"])
    if arguments["pin_memory"]:
        torch = need("torch", "pin_memory=True")
        if arguments["output"] == "numpy":
            raise ValueError("pin_memory=True needs tensors; output is \"numpy\"")
        if not torch.cuda.is_available():
            warnings.warn("pin_memory=True, but there is no CUDA here: tensors are not pinned", stacklevel=3)
            arguments["pin_memory"] = False
    return cast(Settled, arguments)


def flag(value: Any, what: str) -> bool:
    """Yes or no."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ValueError(f"{what} is {value!r}, expected True or False")


def feature_dtype(given: Any) -> str | None:
    """The element type that features of single precision come in, as a sampler calls it."""
    if given is None:
        return None
    # A type of torch's calls itself by its whole name.
    name = str(given).removeprefix("torch.") if is_torch_dtype(given) or isinstance(given, str) else None
    try:
        half = np.dtype(given if name is None else name) == np.float16
    except TypeError:
        half = False
    if not half:
        raise ValueError(f"feature_dtype is {given!r}, expected \"float16\", or None for features as they are stored")
    return "f16"


def is_torch_dtype(given: Any) -> bool:
    """Whether something is an element type of torch's."""
    return type(given).__module__ == "torch" and type(given).__name__ == "dtype"


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and number of ranks: as given, else as torchrun says, else one alone."""
    if rank is None and world_size is None:
        named, of = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
        if named is None or of is None:
            return 0, 1
        if not (named.isdecimal() and of.isdecimal()):
            raise ValueError(f"RANK is {named!r} and WORLD_SIZE {of!r} in the environment, expected numbers")
        rank, world_size = int(named), int(of)
    elif rank is None or world_size is None:
        raise ValueError(f"rank is {rank} and world_size {world_size}; give both, or neither to take them from torchrun")
    return to_rank(rank, world_size)


def output(wanted: str | None) -> str:
    """What batches are made of."""
    if wanted is None:
        return "pyg" if installed("torch_geometric") and installed("torch") else "numpy"
    if wanted not in ("pyg", "torch", "numpy"):
        raise ValueError(f"output is {wanted!r}, expected \"pyg\", \"torch\" or \"numpy\"")
    if wanted != "numpy":
        need("torch", f"output=\"{wanted}\"")
    return wanted


class Seeds(NamedTuple):
    """What a loader goes over."""

    type: Any
    """The node type or edge type; none when homogeneous."""
    seeds: Any
    """As the native half takes them."""
    positions: bool = False
    """Whether ``input_id`` is the place in a list, not an id."""


def nodes(data: Dataset, given: Any) -> Seeds:
    """Seed nodes, as torch_geometric's ``input_nodes`` or by the name of a split."""
    type_, wanted = None, given
    if data.node_types is not None:
        given = pair_of_type(given)
        types = f"the dataset's node types are: {', '.join(map(repr, data.node_types))}"
        if isinstance(given, str):
            type_, wanted = given, None
        elif isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], str):
            type_, wanted = given
        else:
            raise ValueError(f"input_nodes needs a node type: \"paper\", or (\"paper\", \"train\" or ids); {types}")
    elif isinstance(given, (tuple, list)) and len(given) == 2 and (given[0] is None or isinstance(given[0], str)):
        named, wanted = given
        if named is not None:
            raise ValueError(f"input_nodes names the node type {named!r}, but the dataset is homogeneous; leave the type out")
    info = data._node(type_)
    if wanted is None:
        return Seeds(type_, None)
    if isinstance(wanted, str):
        if wanted not in info["splits"]:
            there_are = ", ".join(info["splits"]) or "none"
            raise ValueError(f"there is no split {wanted!r}; there are: {there_are}")
        return Seeds(type_, wanted)
    if (lists := per_server(wanted)) is not None:
        return Seeds(type_, np.concatenate([np.empty(0, np.int64), *lists]), positions=True)
    ids, masked = mask_to_ids(wanted, info["count"], "input_nodes")
    return Seeds(type_, ids, positions=not masked)


def pair_of_type(given: Any) -> Any:
    """A dict of one node type, or of pairs of type and nodes for each server, as the pair of type and nodes; anything else as
    it is."""
    if not isinstance(given, Mapping) or not given:
        return given
    if all(isinstance(key, str) for key in given):
        names, wanted = list(given), next(iter(given.values()))
    elif all(isinstance(one, (tuple, list)) and len(one) == 2 and isinstance(one[0], str) for one in given.values()):
        names = sorted({name for name, _ in given.values()})
        wanted = {server: ids for server, (_, ids) in given.items()}
    else:
        return given
    if len(names) > 1:
        several = ", ".join(map(repr, names))
        raise ValueError(f"input_nodes has the node types {several}; the seeds of a loader are of one: make a loader for each")
    return names[0], wanted


def per_server(given: Any) -> list[np.ndarray] | None:
    """Ids that are given for each server, in the order of servers; nothing where they are not."""
    if isinstance(given, Mapping):
        if bad := [key for key in given if not isinstance(key, (int, np.integer)) or isinstance(key, bool) or key < 0]:
            raise ValueError(f"input_nodes has the key {bad[0]!r}, expected the numbers of servers")
        lists: Sequence[Any] = [given[key] for key in sorted(given)]
    elif isinstance(given, (tuple, list)) and given and all(is_list(one) for one in given):
        lists = given
    else:
        return None
    return [to_ids(ids, "input_nodes") for ids in lists]


def is_list(given: Any) -> bool:
    """Whether something holds numbers, and is none itself."""
    return isinstance(given, (tuple, list, range)) or ((is_tensor(given) or isinstance(given, np.ndarray)) and given.ndim > 0)


def links(data: Dataset, given: Any, labels: Any) -> Seeds:
    """Seed pairs, as torch_geometric's ``edge_label_index`` and ``edge_label``."""
    type_, pairs = None, given
    pair = given if isinstance(given, (tuple, list)) and len(given) == 2 else (given, None)
    if data.edge_types is not None:
        if not names_edge_type(pair[0]):
            names = ", ".join(map(repr, data.edge_types))
            raise ValueError(f"edge_label_index needs an edge type: (type, pairs) or a type alone; there are: {names}")
        type_, pairs = to_edge_type(pair[0]), pair[1]
    elif names_edge_type(pair[0]):
        raise ValueError(f"edge_label_index names the edge type {pair[0]!r}, but the dataset is homogeneous; leave it out")
    elif pair[0] is None:
        pairs = pair[1]
    data._edge(type_)
    if pairs is None:
        if labels is not None:
            raise ValueError("edge_label belongs to pairs: give edge_label_index too")
        return Seeds(type_, "edges")
    pairs = to_numpy(pairs)
    if pairs.ndim != 2 or len(pairs) != 2:
        raise ValueError(f"edge_label_index has the shape {pairs.shape}, expected (2, number of pairs)")
    src, dst = (to_ids(ends, "edge_label_index") for ends in pairs)
    classes = None if labels is None else link_classes(labels)
    if classes is not None and len(classes) != len(src):
        raise ValueError(f"edge_label has {len(classes)} values for {len(src)} pairs")
    return Seeds(type_, (src, dst, classes))


def names_edge_type(given: Any) -> bool:
    """Whether something is three names."""
    return isinstance(given, (tuple, list)) and len(given) == 3 and all(isinstance(part, str) for part in given)


def link_classes(given: Any) -> Array:
    """A class for each pair: whole numbers, also where they are kept as fractions or booleans."""
    labels = to_numpy(given.double() if is_tensor(given) and given.is_floating_point() else given)
    if labels.ndim != 1:
        raise ValueError(f"edge_label has the shape {labels.shape}, expected one class for each pair")
    if labels.dtype.kind == "f":
        bad = labels[~(np.isfinite(labels) & (labels == np.floor(labels)) & (np.abs(labels) < LARGEST))]
        if bad.size:
            raise ValueError(f"edge_label has {bad[0]}, expected a class for each pair, a whole number")
    return to_ids(labels.astype(np.int64) if labels.dtype.kind in "fb" else labels, "edge_label")


def label_type(given: Any, binary: bool) -> str | None:
    """The element type of the links' labels in batches: the one they were given in, as in torch_geometric."""
    if given is None:
        return "float32" if binary else None
    name = str(given.dtype).removeprefix("torch.") if is_tensor(given) else to_numpy(given).dtype.name
    # Negatives have a class of their own.
    return "int64" if name == "bool" and binary else name


def fanouts(data: Dataset, given: Any) -> Any:
    """Neighbours per hop, for all edge types or for some."""
    default = None
    if type(given).__name__ == "NumNeighbors":
        given, default = given.values, given.default
    if not isinstance(given, Mapping):
        return hops(given)
    if data.homogeneous:
        raise ValueError("num_neighbors is a dict, but the dataset is homogeneous; give a list")
    known = [edge["name"] for edge in data._about["edges"] if not edge["label"]]
    wanted = {} if default is None else dict.fromkeys(known, default)
    wanted.update((data._edge(unwritten(key))["name"], value) for key, value in given.items())
    if not wanted:
        raise ValueError(f"num_neighbors is an empty dict: name an edge type; there are: {', '.join(map(repr, known))}")
    return [{"type": list(name), "fanouts": hops(value)} for name, value in wanted.items()]


def unwritten(name: Any) -> Any:
    """An edge type, also where torch_geometric writes it as one string."""
    if not isinstance(name, str):
        return name
    parts = tuple(name.split("__"))
    return (parts[0], "to", parts[1]) if len(parts) == 2 else parts


def hops(given: Any) -> list[int]:
    """Neighbours per hop."""
    try:
        numbers = to_numpy(given)
    except (TypeError, ValueError):
        numbers = None
    if numbers is not None and numbers.ndim == 1 and not numbers.size:
        return []
    if numbers is None or numbers.ndim != 1 or not (numbers.dtype.kind in "iu" or too_large(numbers)):
        raise ValueError(f"num_neighbors is {given!r}, expected a list of whole numbers, one for each hop")
    wanted: list[int] = numbers.tolist()
    if bad := [number for number in wanted if not -1 <= number <= MOST]:
        raise ValueError(f"num_neighbors has {bad[0]}, expected 0 to {MOST}, or -1 for all neighbours")
    return wanted


def number(value: Any, what: str, least: float, below: float = math.inf) -> float:
    """A number within bounds."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not least <= found < below:
        kind = f"a number, {least:g} or more" + ("" if below == math.inf else f" and below {below:g}")
        raise ValueError(f"{what} is {value!r}, expected {kind}")
    return found


def budget(data: Dataset, given: Any) -> int | dict[str, int]:
    """The most nodes that are kept of a seed, for all node types or for some."""
    if not isinstance(given, Mapping):
        return whole(given, "max_ppr_nodes", 0, MOST)
    if data.homogeneous:
        raise ValueError("max_ppr_nodes is a dict, but the dataset is homogeneous; give a number")
    return {data._node(key)["name"]: whole(value, f"max_ppr_nodes of {key!r}", 0, MOST) for key, value in given.items()}


def walked(data: Dataset, wanted: Any) -> list[EdgeInfo]:
    """The edge types that fanouts walk."""
    known = [edge for edge in data._about["edges"] if not edge["label"]]
    if isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        names = [tuple(one["type"]) for one in wanted]
        return [edge for edge in known if edge["name"] in names]
    return known


def features(data: Dataset, wanted: bool | Sequence[str]) -> tuple[list[str], list[str]]:
    """The names of node features and of edge features that batches carry."""

    def names(types: Sequence[NodeInfo | EdgeInfo]) -> list[str]:
        return sorted({name for one in types for name, _, _ in one["features"]})

    of_nodes, of_edges = names(data._about["nodes"]), names(data._about["edges"])
    if wanted is True:
        return of_nodes, of_edges
    if wanted is False or wanted is None:
        return [], []
    if not isinstance(wanted, (str, list, tuple, set, frozenset)):
        raise ValueError(f"features is {wanted!r}, expected True, False, or a list of names")
    if isinstance(wanted, (set, frozenset)):
        # A set has another order in each process, and the order of features is part of the configuration.
        wanted = sorted(wanted, key=str)
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in wanted:
        if name not in of_nodes and name not in of_edges:
            raise ValueError(f"there is no feature {name!r}; there are: {', '.join(of_nodes + of_edges) or 'none'}")
    return [name for name in wanted if name in of_nodes], [name for name in wanted if name in of_edges]


def edge_types(given: Any, what: str) -> list[EdgeType]:
    """One edge type or several."""
    if names_edge_type(given):
        return [to_edge_type(given)]
    if isinstance(given, (tuple, list)) and given and all(isinstance(one, (tuple, list)) and len(one) == 3 for one in given):
        return [to_edge_type(one) for one in given]
    raise ValueError(f"{what} is {given!r}, expected an edge type (source, relation, target), or a list of such")
