"""Loaders: epochs of batches."""

import contextlib
import json
import math
import os
import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, Unpack

from graphmill import _arguments, _graphmill
from graphmill._arguments import Common, Seeds, Settled
from graphmill._convert import MOST, whole
from graphmill.batch import Assembler
from graphmill.dataset import Dataset, EdgeType


@dataclass(frozen=True)
class NegativeSampling:
    """How negative links are drawn.

    Args:
        mode: ``"binary"`` draws both ends, ``"triplet"`` targets for the given sources.
        amount: How many for each given link.
        strict: Refuse edges of the graph, in up to 32 attempts for each negative.
        weighted: Draw nodes by the dataset's node weights.
    """

    mode: str
    amount: float = 1
    strict: bool = False
    weighted: bool = False

    @classmethod
    def cast(cls, given: Any) -> "NegativeSampling | None":
        """From the name of a mode, a dict, or torch_geometric's class of this name."""
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, str):
            given = {"mode": given}
        if isinstance(given, Mapping):
            return cls(**given)
        if getattr(given, "src_weight", None) is not None or getattr(given, "dst_weight", None) is not None:
            raise ValueError("negatives are drawn by the dataset's node weights: graphmill.NegativeSampling(weighted=True)")
        mode = getattr(given, "mode", None)
        if mode is None or not hasattr(given, "amount"):
            raise ValueError(f"neg_sampling is {given!r}, expected \"binary\", \"triplet\" or a NegativeSampling")
        return cls(getattr(mode, "value", mode), given.amount)

    def __post_init__(self) -> None:
        if self.mode not in ("binary", "triplet"):
            raise ValueError(f"the mode of neg_sampling is {self.mode!r}, expected \"binary\" or \"triplet\"")
        for name in ("strict", "weighted"):
            _arguments.flag(getattr(self, name), f"{name} of neg_sampling")
        if isinstance(self.amount, str):
            raise ValueError(f"the amount of neg_sampling is {self.amount!r}, expected a number above 0")
        _arguments.number(self.amount, "the amount of neg_sampling", 0, 1e9)
        if self.amount <= 0 or (self.mode == "triplet" and self.amount != math.ceil(self.amount)):
            kind = "a whole number above 0" if self.mode == "triplet" else "a number above 0"
            raise ValueError(f"the amount of neg_sampling is {self.amount}, expected {kind}")

    def _config(self) -> dict[str, Any]:
        amount = float(self.amount) if self.mode == "binary" else int(self.amount)
        return {self.mode: {"amount": amount, "strict": self.strict, "weighted": self.weighted}}


class Loader:
    """What all loaders do; made by its subclasses.

    Iterating gives the batches of the next epoch. ``len`` is the number of batches of this rank.
    """

    def __init__(
        self, data: Dataset, task: dict[str, Any], expand: dict[str, Any], seeds: Seeds, common: Settled, shape: dict[str, Any]
    ):
        self.data = data
        self.batch_size = common["batch_size"]
        self._config = json.dumps(_config(data, task, expand, common))
        self._options: dict[str, Any] = {
            "output": common["output"], "positions": seeds.positions, "batch_size": common["batch_size"],
            "shuffle": common["shuffle"], "drop_last": common["drop_last"], "seed_order": common["seed_order"],
            "threads": common["num_threads"], "ordered": common["ordered"], "prefetch": common["prefetch"],
            "rank": common["rank"], "world_size": common["world_size"], "even": common["even"],
        }  # fmt: skip
        self._seeds = seeds.seeds
        self._assemble = Assembler(
            output=common["output"],
            homogeneous=data.homogeneous,
            seed_type=seeds.type,
            reverse=(common["direction"] or data.edge_dir) == "out",
            evened=common["even"] and common["world_size"] > 1,
            pin_memory=common["pin_memory"],
            transform=common["transform"],
            **shape,
        )
        self._epoch = 0
        # Iterations that have not ended, the newest last.
        self._under_way: list[weakref.ref[Epoch]] = []
        # Where an iteration stood that was left early.
        self._left: dict[str, Any] | None = None
        # One that was resumed and not begun yet, and the state that it was resumed from.
        self._resumed: _graphmill.Batches | None = None
        self._resumed_from = ""
        self._process = os.getpid()
        self._core: _graphmill.Loader | None = self._make()
        self._length = len(self._core)

    def __init_subclass__(cls) -> None:
        if cls.__doc__:
            cls.__doc__ = _arguments.documented(cls.__doc__)

    _made_of: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        loader = super().__new__(cls)
        loader._made_of = arguments, named
        return loader

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), *self._made_of)

    def _make(self) -> _graphmill.Loader:
        return self.data._native.loader(self._config, self._seeds, **self._options)

    @property
    def _native(self) -> _graphmill.Loader:
        if self._core is None:
            raise ValueError("this loader is closed")
        if self._process != os.getpid():
            # A forked child has none of its parent's threads and connections, and its iterations stay its own.
            core = self._make()
            self._resumed = None if self._resumed is None else core.resume(self._resumed_from)
            self._core, self._under_way, self._process = core, [], os.getpid()
        return self._core

    def __len__(self) -> int:
        return len(self._native)

    def __iter__(self) -> Iterator[Any]:
        native = self._native
        self._check_worker()
        while True:
            resumed, number = self._resumed, self._epoch
            epoch = Epoch(self, native.epoch(number) if resumed is None else resumed)
            # Other threads may have begun one meanwhile. From here on nothing is called, so that neither they nor signals come
            # between: whoever asks for the state finds the loader before this epoch, or in it.
            if self._epoch == number and self._resumed is resumed:
                self._under_way = [*self._under_way, epoch._reference]
                self._epoch = number + 1 if resumed is None else number
                self._resumed = self._left = None
                return epoch

    def _check_worker(self) -> None:
        """Says so where each of several worker processes is about to go over everything."""
        data = sys.modules.get("torch.utils.data")
        worker = data and data.get_worker_info()
        if worker is not None and worker.num_workers > 1 and self._made_of[1].get("rank") is None:
            warnings.warn(
                f"each of the {worker.num_workers} workers of a DataLoader goes over the whole epoch: iterate over the loader"
                " itself (num_threads=N samples ahead), or make it with the worker's rank and world_size",
                stacklevel=3,
            )

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: after the last batch that was handed out. A batch that failed was not.

        Of several iterations at once it is the newest that has not ended.
        """
        native = self._native
        epoch = self._newest()
        if self._resumed is not None:
            state = self._resumed.state()
        elif epoch is not None:
            return epoch._state()
        elif self._left is not None:
            return dict(self._left)
        else:
            state = native.state(self._epoch)
        return _parsed(state)

    def _newest(self) -> "Epoch | None":
        return next((epoch for reference in reversed(self._under_way) if (epoch := reference()) is not None), None)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration go on from a state of this loader, or of one like it with any number of ranks."""
        if not isinstance(state, Mapping):
            raise ValueError(f"a loader's state is a dict, not {type(state).__name__}")
        try:
            text = json.dumps(dict(state))
        except TypeError:
            raise ValueError("this is not the state of a loader: give what state_dict returned") from None
        self._resumed = self._native.resume(text)
        self._resumed_from = text
        self._epoch = state["epoch"] + 1
        self._under_way, self._left = [], None

    def close(self) -> None:
        """Stops what is under way, and lets go of it."""
        for reference in self._under_way:
            if (epoch := reference()) is not None:
                epoch._open().close()
                epoch._batches = None
        self._core = self._resumed = None
        self._under_way = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        about = f"{self.data!r}, batch_size={self.batch_size}, batches={self._length}"
        return f"{type(self).__name__}({about}{', closed' if self._core is None else ''})"


class Epoch:
    """The batches of one epoch. After a batch that failed the others follow."""

    def __init__(self, loader: Loader, batches: _graphmill.Batches):
        self._reference = weakref.ref(self)
        self._batches: _graphmill.Batches | None = batches
        self._assemble = loader._assemble
        self._rounds = _number_handed_out(self._state()) + len(batches)
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batches = self._open()
        try:
            parts = next(batches)
        except StopIteration:
            self._end(over=True)
            raise
        try:
            batch = self._assemble(parts)
        except StopIteration as error:
            raise RuntimeError("transform raised StopIteration, which would end the epoch") from error
        batches.handed_out = parts[0]["round"]
        return batch

    def __len__(self) -> int:
        return len(self._open())

    def __del__(self) -> None:
        if getattr(self, "_loader", None) is not None:
            self._end(over=False)

    def _open(self) -> _graphmill.Batches:
        if self._batches is None:
            raise ValueError("this loader is closed")
        return self._batches

    def _state(self) -> dict[str, Any]:
        return _parsed(self._open().state())

    def _end(self, over: bool) -> None:
        """Tells the loader where this stood, unless it asks another iteration."""
        loader = self._loader
        others = [reference for reference in loader._under_way if reference is not self._reference]
        if len(others) == len(loader._under_way):
            return
        here = self._batches is not None and loader._process == os.getpid()
        if here and all(reference() is None for reference in others):
            state = self._state()
            # An epoch that is over is left behind, unless some of its batches failed.
            loader._left = None if over and _number_handed_out(state) == self._rounds else state
        # Last: until here, who asks for the state is told by this.
        with contextlib.suppress(ValueError):
            loader._under_way.remove(self._reference)


class NeighborLoader(Loader):
    """Batches of seed nodes with neighbours sampled hop by hop, as torch_geometric's loader of this name.

    Args:
        data: The dataset.
        num_neighbors: Neighbours per node in each hop, -1 for all; or a dict of such lists by edge type.
        input_nodes: A split, ids, a mask, ids per server (a list, or a dict by number), or ``None`` for all nodes; of a
            heterogeneous dataset a node type, or a pair, or a dict of one entry, of node type and any of those.
        **common: Those of all loaders.
    """

    def __init__(self, data: Dataset, num_neighbors: Any, input_nodes: Any = None, **common: Unpack[Common]):
        _check(data)
        arguments = _arguments.common(common)
        seeds = _arguments.nodes(data, input_nodes)
        expand = {"neighbors": _steps(data, num_neighbors, arguments)}
        super().__init__(data, {"nodes": {"type": seeds.type}}, expand, seeds, arguments, {"task": "nodes"})


class SubgraphLoader(Loader):
    """Batches of seed nodes with all edges among them, or among what ``num_neighbors`` finds.

    Args:
        data: The dataset.
        input_nodes: As for :class:`NeighborLoader`.
        num_neighbors: As for :class:`NeighborLoader`; without it, the seeds alone.
        **common: Those of all loaders.
    """

    def __init__(self, data: Dataset, input_nodes: Any = None, num_neighbors: Any = (), **common: Unpack[Common]):
        _check(data)
        arguments = _arguments.common(common)
        seeds = _arguments.nodes(data, input_nodes)
        expand = {"induced": _steps(data, num_neighbors, arguments)}
        super().__init__(data, {"nodes": {"type": seeds.type}}, expand, seeds, arguments, {"task": "nodes"})


class PPRLoader(Loader):
    """Batches of seed nodes with the nodes of highest personalised PageRank of each.

    Args:
        data: The dataset.
        input_nodes: As for :class:`NeighborLoader`.
        alpha: The chance to go back to the seed.
        eps: The error per degree.
        max_ppr_nodes: The most nodes kept per seed and node type; or a dict by node type, others keep none.
        num_neighbors_per_hop: The most neighbours fetched of a node and edge type.
        top_up: Fill free places with the nodes of largest residual.
        **common: Those of all loaders.
    """

    def __init__(
        self,
        data: Dataset,
        input_nodes: Any = None,
        *,
        alpha: float = 0.5,
        eps: float = 1e-4,
        max_ppr_nodes: int | Mapping[str, int] = 50,
        num_neighbors_per_hop: int = 1000,
        top_up: bool = False,
        **common: Unpack[Common],
    ):
        _check(data)
        arguments = _arguments.common(common)
        for name, given in (("replace", arguments["replace"]), ("weight_attr", arguments["weight_attr"])):
            if given:
                raise ValueError(f"PPRLoader draws no edges, so that {name} means nothing; leave it out")
        seeds = _arguments.nodes(data, input_nodes)
        ppr = {
            "alpha": _arguments.number(alpha, "alpha", 0.001, 1), "eps": _arguments.number(eps, "eps", 1e-12),
            "top_up": _arguments.flag(top_up, "top_up"), "max_nodes": _arguments.budget(data, max_ppr_nodes),
            "neighbors_per_hop": whole(num_neighbors_per_hop, "num_neighbors_per_hop", 1, MOST),
        }  # fmt: skip
        super().__init__(data, {"nodes": {"type": seeds.type}}, {"ppr": ppr}, seeds, arguments, {"task": "nodes"})


class LinkNeighborLoader(Loader):
    """Batches of seed links with neighbours of both ends, as torch_geometric's loader of this name.

    Args:
        data: The dataset.
        num_neighbors: As for :class:`NeighborLoader`.
        edge_label_index: Pairs as ``[2, P]``, or ``None`` for all edges; of a heterogeneous dataset an edge type, or a pair
            of edge type and pairs.
        edge_label: A class for each pair.
        neg_sampling: ``"binary"``, ``"triplet"``, or a :class:`NegativeSampling`, this package's or torch_geometric's.
        neg_sampling_ratio: Binary negatives for each pair.
        **common: Those of all loaders.
    """

    def __init__(
        self,
        data: Dataset,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Any = None,
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        **common: Unpack[Common],
    ):
        _check(data)
        arguments = _arguments.common(common)
        seeds = _arguments.links(data, edge_label_index, edge_label)
        negatives = NegativeSampling.cast(neg_sampling)
        if neg_sampling_ratio is not None and _arguments.number(neg_sampling_ratio, "neg_sampling_ratio", 0) > 0:
            if negatives is not None:
                raise ValueError("give neg_sampling or neg_sampling_ratio, not both")
            negatives = NegativeSampling("binary", neg_sampling_ratio)
        binary = negatives is not None and negatives.mode == "binary"
        label_type = _arguments.label_type(edge_label, binary)
        triplet = negatives is not None and not binary
        if triplet and edge_label is not None:
            raise ValueError("triplets have no edge_label: leave it out, or use binary negatives")
        if binary and edge_label is not None:
            src, dst, classes = seeds.seeds
            # 0 is for negatives. As in torch_geometric, classes that leave it free stay as they are; the sampler adds 1.
            seeds = seeds._replace(seeds=(src, dst, classes - 1 if len(classes) and classes.min() > 0 else classes))
        shape = {
            "task": "links", "link_labels": label_type,
            "one_negative": negatives is not None and not binary and negatives.amount == 1,
        }  # fmt: skip
        task = {"links": {"type": seeds.type, "negatives": negatives and negatives._config()}}
        expand = {"neighbors": _steps(data, num_neighbors, arguments)}
        super().__init__(data, task, expand, seeds, arguments, shape)


class AnchorLinkLoader(Loader):
    """Batches of anchor nodes with neighbours of the anchors and of what label edges link them to.

    Args:
        data: The dataset.
        num_neighbors: As for :class:`NeighborLoader`.
        input_nodes: The anchors: a split, ids, a mask, ids per server, or ``None`` for all nodes of their type.
        positive: The label edge type from anchors to what they should be linked to, or several.
        negative: The label edge type to what they should not, one for each positive type.
        max_labels: The most labels of an anchor and edge type.
        **common: Those of all loaders.
    """

    def __init__(
        self,
        data: Dataset,
        num_neighbors: Any,
        input_nodes: Any = None,
        *,
        positive: EdgeType | Sequence[EdgeType],
        negative: EdgeType | Sequence[EdgeType] | None = None,
        max_labels: int | None = None,
        **common: Unpack[Common],
    ):
        _check(data)
        arguments = _arguments.common(common)
        positives = _arguments.edge_types(positive, "positive")
        negatives = [None] * len(positives) if negative is None else _arguments.edge_types(negative, "negative")
        if len(negatives) != len(positives):
            raise ValueError(f"there are {len(positives)} positive and {len(negatives)} negative types; give equally many")
        for edge_type in [*positives, *filter(None, negatives)]:
            data._edge(edge_type)
        anchor = positives[0][0]
        input_nodes = _arguments.pair_of_type(input_nodes)
        typed = isinstance(input_nodes, (tuple, list)) and len(input_nodes) == 2 and isinstance(input_nodes[0], str)
        named = isinstance(input_nodes, str) and input_nodes in (data.node_types or ())
        if (typed and input_nodes[0] != anchor) or (named and input_nodes != anchor):
            raise ValueError(f"anchors are of type {anchor!r}, where {positives[0]} begins, not {input_nodes!r}")
        seeds = _arguments.nodes(data, input_nodes if typed or named else (anchor, input_nodes))
        supervision = [
            {"positive": list(positive), "negative": negative and list(negative)}
            for positive, negative in zip(positives, negatives, strict=True)
        ]
        most = None if max_labels is None else whole(max_labels, "max_labels", 0, MOST)
        task = {"anchors": {"supervision": supervision, "max_labels": most}}
        expand = {"neighbors": _steps(data, num_neighbors, arguments)}
        super().__init__(data, task, expand, seeds, arguments, {"task": "anchors", "supervision": positives})


def _remake(cls: type[Loader], arguments: tuple[Any, ...], named: dict[str, Any]) -> Loader:
    return cls(*arguments, **named)


def _parsed(state: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(state)
    return parsed


def _number_handed_out(state: dict[str, Any]) -> int:
    rounds: int = state["rounds"]
    return rounds + len(state["ahead"])


def _check(data: Any) -> None:
    if not isinstance(data, Dataset):
        made = "make a dataset of it with graphmill.from_pyg(data, out=...)"
        hint = made if hasattr(data, "edge_index") or hasattr(data, "edge_types") else "open one with graphmill.open(path)"
        raise TypeError(f"a loader takes a graphmill.Dataset, not {type(data).__name__}; {hint}")


def _steps(data: Dataset, num_neighbors: Any, common: Settled) -> dict[str, Any]:
    fanouts = _arguments.fanouts(data, num_neighbors)
    weighted = common["weight_attr"] is not None
    if weighted and not (isinstance(common["weight_attr"], str) and common["weight_attr"]):
        raise ValueError(f"weight_attr is {common['weight_attr']!r}, expected \"edge_weight\", or None")
    features = {name for edge in _arguments.walked(data, fanouts) for name, _, _ in edge["features"]}
    if weighted and common["weight_attr"] in features - {"edge_weight"}:
        raise ValueError(
            f"weight_attr is {common['weight_attr']!r}, which is a feature: edges are drawn by the weights that the dataset was"
            " made with, weight_attr=\"edge_weight\""
        )
    if weighted and not any(edge["weights"] for edge in _arguments.walked(data, fanouts)):
        raise ValueError(f"weight_attr is {common['weight_attr']!r}, but no edge type that is walked has weights")
    return {"fanouts": fanouts, "replace": common["replace"], "weighted": weighted}


def _config(data: Dataset, task: dict[str, Any], expand: dict[str, Any], common: Settled) -> dict[str, Any]:
    """A sampler's configuration (``docs/sampling.md``, section 9)."""
    node_features, edge_features = _arguments.features(data, common["features"])
    config = {
        "task": task, "expand": expand, "direction": common["direction"], "seed": common["seed"],
        "features": node_features, "edge_features": edge_features,
        "labels": common["labels"] and any(node["label"] for node in data._about["nodes"]),
    }  # fmt: skip
    if common["feature_dtype"] is not None:
        config["feature_dtype"] = common["feature_dtype"]
    if "ppr" in expand:
        return {**config, "edge_features": []}
    fanouts = next(iter(expand.values()))["fanouts"]
    edges = _arguments.walked(data, fanouts)
    walked_features = {name for edge in edges for name, _, _ in edge["features"]}
    config["edge_features"] = [name for name in edge_features if name in walked_features]
    return {**config, "edge_ids": bool(edges) and all(edge["edge_ids"] for edge in edges)}
