"""Datasets, here or on storage servers."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Real
from types import TracebackType
from typing import Any, NamedTuple, Self, TypedDict, cast

import numpy as np

from graphmill import _graphmill
from graphmill._convert import Array, File, credentials, need, to_ids, to_numpy, to_rank, whole

EdgeType = tuple[str, str, str]


class FeatureInfo(NamedTuple):
    """The element type of a feature, and the shape of one row."""

    dtype: str
    shape: tuple[int, ...]


class AnchorLabels(NamedTuple):
    """Anchors with what label edges link them to: rows of ids, filled up with -1."""

    anchors: Array
    positives: Array
    negatives: Array | None


class NodeInfo(TypedDict):
    """What the native half tells of a node type."""

    name: str
    count: int
    features: list[tuple[str, str, list[int]]]
    splits: dict[str, int]
    label: tuple[str, list[int]] | None
    weights: bool
    original_ids: str | None


class EdgeInfo(TypedDict):
    """What the native half tells of an edge type."""

    name: EdgeType
    count: int
    features: list[tuple[str, str, list[int]]]
    label: bool
    edge_ids: bool
    id_count: int
    weights: bool
    layouts: list[str]


class About(TypedDict):
    """What the native half tells of a dataset."""

    homogeneous: bool
    edge_dir: str
    parts: int
    fingerprint: str
    nodes: list[NodeInfo]
    edges: list[EdgeInfo]


def open(path: File, *, storage: str = "mmap") -> "Dataset":  # noqa: A001
    """Opens a dataset of this machine.

    Args:
        path: The directory.
        storage: ``"mmap"`` maps the files and reads what is touched, ``"ram"`` reads everything first.
    """
    # Whole: a child or another process may open it from elsewhere.
    return Dataset("open", {"path": os.path.abspath(os.fspath(path)), "storage": storage})


def connect(
    servers: str | Sequence[str],
    *,
    token: File | None = None,
    tls: File | Mapping[str, File] | None = None,
    transport: str = "auto",
    timeout: float = 60.0,
    run: str = "",
    worker: str = "",
) -> "Dataset":
    """Connects to the storage servers of a dataset.

    By the URL of a run, it waits until all partitions are served, at most ``timeout`` seconds, and learns of servers that
    come and go from then on.

    Args:
        servers: ``"host:port,host:port"``, or a list of addresses; or the URL of a run, ``"graphmill://host:port/run"``.
        token: What the servers want to hear: the text, or a ``Path`` of a file that holds it.
        tls: Who signs the servers' certificates, a PEM file; or a dict of ``ca`` and, to show one, ``cert`` and ``key``.
        transport: ``"auto"``, ``"tcp"``, ``"unix"`` or ``"shm"``.
        timeout: Seconds that an answer, or a batch that is waited for, may take.
        run: Keeps the samplers of runs apart that share servers.
        worker: A name for people.
    """
    if isinstance(servers, str) and "://" in servers:
        servers = [servers]
    elif isinstance(servers, str):
        servers = [server.strip() for server in servers.split(",") if server.strip()]
    if not isinstance(servers, (list, tuple)) or not all(isinstance(server, str) for server in servers):
        raise TypeError(f"servers is {servers!r}, expected \"host:port,host:port\" or a list of addresses")
    if not isinstance(run, str) or not isinstance(worker, str):
        raise TypeError("run and worker are names, expected strings")
    if not servers:
        raise ValueError("no server was named; write \"host:port\"")
    if isinstance(timeout, bool) or not isinstance(timeout, Real) or not timeout > 0:
        raise ValueError(f"timeout is {timeout!r}, expected a number of seconds above 0")
    text, file, files = credentials(token, tls)
    arguments = {
        "servers": list(servers), "token": text, "token_file": file, "tls": files, "transport": transport,
        "timeout": float(timeout), "run": run, "worker": worker,
    }
    return Dataset("connect", arguments)


class Dataset:
    """A graph with its features, labels and splits; made by :func:`open` or :func:`connect`."""

    def __init__(self, how: str, arguments: dict[str, Any]):
        self._how = how
        self._arguments = arguments
        self._process = os.getpid()
        self._core: _graphmill.Dataset | None = self._make()

    def _make(self) -> _graphmill.Dataset:
        if self._how == "open":
            return _graphmill.open(**self._arguments)
        # Named here: a child is another process.
        return _graphmill.connect(**{**self._arguments, "worker": self._arguments["worker"] or f"process {os.getpid()}"})

    @property
    def _native(self) -> _graphmill.Dataset:
        if self._core is None:
            raise ValueError("this dataset is closed")
        if self._process != os.getpid():
            # A forked child has none of its parent's threads and connections, so it opens its own.
            self._core, self._process = self._make(), os.getpid()
        return self._core

    def close(self) -> None:
        """Lets go of files or connections, as soon as no loader needs them any more."""
        self._core = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["Dataset"], tuple[str, dict[str, Any]]]:
        return Dataset, (self._how, self._arguments)

    def __repr__(self) -> str:
        where = self._arguments["path"] if self._how == "open" else ",".join(self._arguments["servers"])
        if self._core is None and "_about" not in self.__dict__:
            return f"Dataset({where!r}, closed)"
        return f"Dataset({where!r}, num_nodes={self.num_nodes}, num_edges={self.num_edges})"

    @cached_property
    def _about(self) -> About:
        about: About = json.loads(self._native.describe())
        for edge in about["edges"]:
            edge["name"] = to_edge_type(edge["name"])
        return about

    @property
    def homogeneous(self) -> bool:
        """Whether there is one node type and one edge type, without names."""
        return self._about["homogeneous"]

    @property
    def node_types(self) -> list[str] | None:
        """The names of the node types; ``None`` when homogeneous."""
        return None if self.homogeneous else [node["name"] for node in self._about["nodes"]]

    @property
    def edge_types(self) -> list[EdgeType] | None:
        """The names of the edge types; ``None`` when homogeneous."""
        return None if self.homogeneous else [edge["name"] for edge in self._about["edges"]]

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, of all types."""
        return sum(node["count"] for node in self._about["nodes"])

    @property
    def num_edges(self) -> int:
        """How many edges there are, of all types."""
        return sum(edge["count"] for edge in self._about["edges"])

    @property
    def num_nodes_dict(self) -> dict[str, int]:
        """How many nodes each type has."""
        return {node["name"]: node["count"] for node in self._about["nodes"]}

    @property
    def num_edges_dict(self) -> dict[EdgeType, int]:
        """How many edges each type has."""
        return {edge["name"]: edge["count"] for edge in self._about["edges"]}

    @property
    def node_features(self) -> dict[Any, Any]:
        """The features of nodes by name; by node type first when heterogeneous."""
        found: dict[Any, Any] = self._by_type(self._about["nodes"], _features, {})
        return found

    @property
    def edge_features(self) -> dict[Any, Any]:
        """The features of edges by name; by edge type first when heterogeneous."""
        found: dict[Any, Any] = self._by_type(self._about["edges"], _features, {})
        return found

    @property
    def splits(self) -> dict[Any, Any]:
        """The sizes of the splits by name; by node type first when heterogeneous."""
        found: dict[Any, Any] = self._by_type(self._about["nodes"], lambda node: dict(node["splits"]), {})
        return found

    @property
    def num_features(self) -> Any:
        """The width of the feature ``x``, 0 without one; by node type when heterogeneous."""

        def width(node: NodeInfo) -> int:
            info = _features(node).get("x")
            return 0 if info is None else info.shape[0] if info.shape else 1

        return self._by_type(self._about["nodes"], width, 0)

    @cached_property
    def num_classes(self) -> Any:
        """How many classes labels tell apart, 0 without labels; by node type when heterogeneous. Reads all labels once."""

        def classes(node: NodeInfo) -> int:
            if node["label"] is None:
                return 0
            dtype, shape = node["label"]
            if shape and shape[0] > 1:
                return shape[0]
            labels = self.labels(type=None if self.homogeneous else node["name"])
            if labels.dtype.kind == "f" or dtype == "bf16":
                # Values and not classes: how many there are.
                return len(np.unique(labels))
            return int(labels.max()) + 1 if labels.size else 0

        return self._by_type(self._about["nodes"], classes, 0)

    def _by_type(self, types: list[Any], value: Callable[[Any], Any], nothing: Any) -> Any:
        if self.homogeneous:
            return value(types[0]) if types else nothing
        return {one["name"]: value(one) for one in types}

    @property
    def num_partitions(self) -> int:
        """How many partitions there are."""
        return self._about["parts"]

    @property
    def edge_dir(self) -> str:
        """The direction samplers walk unless told otherwise, ``"in"`` or ``"out"``."""
        return self._about["edge_dir"]

    @property
    def fingerprint(self) -> str:
        """The name of the content: equal content has an equal one, however it is partitioned."""
        return self._about["fingerprint"]

    def _node(self, type: str | None) -> NodeInfo:  # noqa: A002
        return cast(NodeInfo, self._one("node", self._about["nodes"], type))

    def _edge(self, type: EdgeType | None) -> EdgeInfo:  # noqa: A002
        return cast(EdgeInfo, self._one("edge", self._about["edges"], None if type is None else to_edge_type(type)))

    def _one(self, kind: str, known: Sequence[NodeInfo | EdgeInfo], name: object) -> NodeInfo | EdgeInfo:
        if self.homogeneous:
            if name is not None:
                raise ValueError(f"the dataset is homogeneous: there is no {kind} type {name!r}; leave the type out")
            if not known:
                raise ValueError(f"the dataset has no {kind}s")
            return known[0]
        names = ", ".join(repr(one["name"]) for one in known)
        if name is None:
            article = "an" if kind == "edge" else "a"
            raise ValueError(f"the dataset is heterogeneous: name {article} {kind} type; there are: {names}")
        for one in known:
            if one["name"] == name:
                return one
        raise ValueError(f"there is no {kind} type {name!r}; there are: {names}")

    def node_ids(
        self,
        split: str | None = None,
        *,
        type: str | None = None,  # noqa: A002
        rank: int | None = None,
        world_size: int | None = None,
    ) -> Array:
        """The ids of a split, or of all nodes of a type.

        With ``rank`` and ``world_size``: the share of a rank; the shares of all ranks make up the whole. It is a stretch of
        the ids of each server, and so depends on how many servers there are: let all ranks name the same ones.
        """
        self._node(type)
        rank, world_size = _rank(rank, world_size)
        return self._native.node_ids(split, type, rank, world_size)

    def features(
        self,
        ids: Any = None,
        *,
        name: str | None = None,
        type: str | EdgeType | None = None,  # noqa: A002
    ) -> Array:
        """Rows of a feature: of a node type by node id, or of an edge type by edge id.

        Args:
            ids: Whose rows; all without.
            name: The feature; ``"x"`` of nodes and ``"edge_attr"`` of edges unless told otherwise.
            type: A node type, or an edge type as ``(source, relation, target)``; none when homogeneous, where
                ``edge_attr`` and other names that only edges have mean the edges.
        """
        wanted = None if ids is None else to_ids(ids)
        if isinstance(type, str) or (type is None and not self._means_edges(name)):
            self._check_nodes(wanted, type)
            return self._native.node_features("x" if name is None else name, type, wanted)
        edge = self._edge(type)
        _within(wanted, "edge", ":".join(edge["name"]), edge["id_count"])
        edge_type = None if type is None else to_edge_type(type)
        return self._native.edge_features("edge_attr" if name is None else name, edge_type, wanted)

    def _check_nodes(self, ids: Array | None, type: str | None) -> None:  # noqa: A002
        node = self._node(type)
        _within(ids, "node", node["name"], node["count"])

    def _means_edges(self, name: str | None) -> bool:
        return self.homogeneous and name is not None and name not in self.node_features and name in self.edge_features

    def labels(self, ids: Any = None, *, type: str | None = None) -> Array:  # noqa: A002
        """The labels of nodes; of all of them without ``ids``."""
        wanted = None if ids is None else to_ids(ids)
        self._check_nodes(wanted, type)
        return self._native.labels(type, wanted)

    def edge_index(self, *, type: EdgeType | None = None, layout: str = "coo") -> Any:  # noqa: A002
        """All edges of a type, in stored order.

        Args:
            type: The edge type; none when homogeneous.
            layout: ``"coo"`` gives sources and targets as ``[2, E]``; ``"csr"`` where the targets of each source begin, and
                the targets; ``"csc"`` the same of the sources of each target.
        """
        if layout not in ("coo", "csr", "csc"):
            raise ValueError(f"there is no layout {layout!r}; there are: coo, csr, csc")
        self._edge(type)
        edge_type = None if type is None else to_edge_type(type)
        if layout == "coo":
            return self._native.edge_index(edge_type)
        return self._native.adjacency(edge_type, layout == "csr")

    def original_ids(self, ids: Any, *, type: str | None = None) -> Array:  # noqa: A002
        """What nodes were called in the input: numbers, or strings."""
        wanted = to_ids(ids)
        self._check_nodes(wanted, type)
        found = self._native.original_ids(type, wanted)
        return np.array(found) if found else np.array([], dtype=np.int64)

    def lookup(self, keys: Iterable[int | str], *, type: str | None = None) -> Array:  # noqa: A002
        """The ids of nodes by what they were called in the input; -1 where there is no such node."""
        self._node(type)
        if isinstance(keys, str) or not isinstance(keys, Iterable):
            raise TypeError(f"keys is {keys!r}, expected a list of numbers or strings")
        keys = keys if isinstance(keys, (list, tuple)) else to_numpy(keys).tolist()
        return self._native.lookup(type, [key.item() if isinstance(key, np.generic) else key for key in keys])

    def partition_ids(self, ids: Any, *, type: str | None = None) -> Array:  # noqa: A002
        """The partition that owns each node."""
        self._node(type)
        return self._native.partition_ids(type, to_ids(ids))

    def edge_partition_ids(self, ids: Any, *, type: EdgeType | None = None) -> Array:  # noqa: A002
        """The partition that has the features of each edge, by edge id."""
        wanted, edge = to_ids(ids), self._edge(type)
        _within(wanted, "edge", ":".join(edge["name"]), edge["id_count"])
        return self._native.edge_partition_ids(None if type is None else edge["name"], wanted)

    def degrees(
        self, ids: Any = None, *, type: EdgeType | None = None, direction: str | None = None  # noqa: A002
    ) -> Array:
        """How many edges of a type nodes have.

        Args:
            ids: Whose; those of all nodes without.
            type: The edge type; none when homogeneous.
            direction: ``"in"`` counts edges that end at a node, ``"out"`` those that begin there; the dataset's own
                direction unless told otherwise.
        """
        if direction not in (None, "in", "out"):
            raise ValueError(f"direction is {direction!r}, expected \"in\" or \"out\"")
        edge, outward = self._edge(type), (direction or self.edge_dir) == "out"
        wanted = None if ids is None else to_ids(ids)
        self._check_nodes(wanted, None if self.homogeneous else edge["name"][0 if outward else 2])
        return self._native.degrees(None if type is None else edge["name"], outward, wanted)

    def anchor_labels(
        self,
        split: str | None = None,
        *,
        positive: EdgeType | None = None,
        negative: EdgeType | None = None,
        max_labels: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> AnchorLabels:
        """Anchors and their labels: what :class:`graphmill.AnchorLinkLoader` goes over, as arrays.

        Args:
            split: Which anchors; all nodes that ``positive`` begins at without.
            positive: The edge type from anchors to labels; none when homogeneous.
            negative: One to negative labels.
            max_labels: The most labels of an anchor and edge type, the first of its list.
            rank: With ``world_size``: the share of a rank, as of :meth:`node_ids`.
            world_size: The number of ranks.
        """
        self._edge(positive)
        along, against = (None if type is None else self._edge(type)["name"] for type in (positive, negative))
        most = None if max_labels is None else whole(max_labels, "max_labels", 0, 2**32 - 1)
        rank, world_size = _rank(rank, world_size)
        return AnchorLabels(*self._native.anchor_labels(split, along, against, most, rank, world_size))

    def pyg_stores(self) -> tuple[Any, Any]:
        """A ``FeatureStore`` and a ``GraphStore`` for torch_geometric's own loaders."""
        need("torch_geometric", "pyg_stores")
        from graphmill import pyg

        return pyg.FeatureStore(self), pyg.GraphStore(self)

    def pyg_sampler(
        self, num_neighbors: Any, *, replace: bool = False, weight_attr: str | None = None, direction: str | None = None
    ) -> Any:
        """A ``BaseSampler`` for torch_geometric's ``NodeLoader`` and ``LinkLoader``.

        Args:
            num_neighbors: Neighbours per node in each hop, -1 for all; or a dict of such lists by edge type.
            replace: An edge may be drawn twice.
            weight_attr: Any name: edges are drawn by the dataset's weights.
            direction: ``"in"`` or ``"out"``; the dataset's own unless told otherwise.
        """
        need("torch_geometric", "pyg_sampler")
        from graphmill import pyg

        return pyg.Sampler(self, num_neighbors, replace=replace, weight_attr=weight_attr, direction=direction)


def to_edge_type(name: object) -> EdgeType:
    """An edge type from anything like one, a list say."""
    if isinstance(name, (tuple, list)) and len(name) == 3 and all(isinstance(part, str) for part in name):
        source, relation, target = name
        return source, relation, target
    raise ValueError(f"{name!r} is not an edge type; write (source, relation, target)")


def _rank(rank: int | None, world_size: int | None) -> tuple[int | None, int | None]:
    if rank is None and world_size is None:
        return None, None
    if rank is None or world_size is None:
        raise ValueError(f"rank is {rank} and world_size {world_size}; give both, or neither")
    return to_rank(rank, world_size)


def _within(ids: Array | None, kind: str, name: str, count: int) -> None:
    """Refuses ids that are out of range before a server is asked."""
    if ids is not None and ids.size and ids.max() >= count:
        raise IndexError(f"{kind} id {ids[ids >= count][0]} is out of range: there are {count} of type `{name}`")


def _features(one: NodeInfo | EdgeInfo) -> dict[str, FeatureInfo]:
    return {name: FeatureInfo(dtype, tuple(shape)) for name, dtype, shape in one["features"]}
