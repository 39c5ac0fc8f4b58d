"""Datasets from arrays, tensors and torch_geometric's objects."""

import json
import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphmill import _graphmill
from graphmill._convert import (
    LARGEST,
    SPLITS,
    Array,
    File,
    is_tensor,
    mask_to_ids,
    to_ids,
    to_numpy,
    too_large,
    whole,
)
from graphmill.dataset import Dataset, EdgeType, to_edge_type
from graphmill.dataset import open as open_dataset

# Element types that a dataset has; others are widened.
STORED = {"f2": "f16", "f4": "f32", "f8": "f64", "i1": "i8", "u1": "u8", "i4": "i32", "i8": "i64"}
WIDENED = {"b1": "u1", "i2": "i4", "u2": "i4", "u4": "i8", "u8": "i8"}

# What torch_geometric calls links to learn from, and their labels.
LINKS = re.compile(r"((pos|neg)_)?edge_label(_index|_time)?")

# What batches call their own parts, so that no feature can be called so.
TAKEN = frozenset("""
    batch_size dst_neg_index dst_pos_index e_id edge_index edge_label edge_label_index epoch g input_id n_id negatives_missing
    num_nodes num_sampled_edges num_sampled_nodes ppr_hop ppr_index ppr_score repeated seed_index src_index y y_negative
    y_positive
""".split())


def from_edges(
    src: Any,
    dst: Any = None,
    *,
    out: File,
    num_nodes: int | Mapping[str, int] | None = None,
    x: Any = None,
    y: Any = None,
    edge_attr: Any = None,
    edge_weight: Any = None,
    train: Any = None,
    val: Any = None,
    test: Any = None,
    label_edges: Sequence[EdgeType] = (),
    parts: int = 1,
) -> Dataset:
    """Makes a dataset from edges, and opens it.

    Args:
        src: The sources of the edges. For a heterogeneous graph a dict of ``(sources, targets)`` by edge type; then the
            arguments below are dicts by node type or edge type.
        dst: The targets.
        out: Where the dataset goes; there must be nothing yet.
        num_nodes: How many nodes there are, where edges and rows do not say.
        x: A feature with a row for each node, or a dict of such by name.
        y: A class for each node, or a row of values.
        edge_attr: A feature with a row for each edge, or a dict of such by name.
        edge_weight: What edges are drawn by with ``weight_attr``; also kept as an edge feature of this name.
        train: The nodes to train on, as ids or as a mask.
        val: The nodes to choose a model by.
        test: The nodes to report on.
        label_edges: Edge types that are supervision and never walked.
        parts: The number of partitions.
    """
    splits = {"train": train, "val": val, "test": test}
    labels = [to_edge_type(one) for one in label_edges]
    graph = _Graph()
    if isinstance(src, Mapping):
        if dst is not None:
            raise ValueError("src is a dict by edge type, which has the targets too; leave dst out")
        by_type = {"x": x, "y": y, "num_nodes": num_nodes, "edge_attr": edge_attr, "edge_weight": edge_weight, **splits}
        for argument, given in by_type.items():
            if given is not None and not isinstance(given, Mapping):
                raise ValueError(f"{argument} is {type(given).__name__}, expected a dict by type, as src is")
        edges = {to_edge_type(name): ends for name, ends in src.items()}
        named = [name for given in (x, y, num_nodes, *splits.values()) if isinstance(given, Mapping) for name in given]
        for name in dict.fromkeys([*(end for one in edges for end in (one[0], one[2])), *named]):
            of = {split: given[name] for split, given in splits.items() if given and name in given}
            count = num_nodes.get(name) if isinstance(num_nodes, Mapping) else None
            graph.add_nodes(name, count, _by_name("x", (x or {}).get(name)), (y or {}).get(name), of)
        unknown = {to_edge_type(name) for name in [*(edge_attr or {}), *(edge_weight or {}), *labels]} - set(edges)
        if unknown:
            raise ValueError(f"there are no edges of type {sorted(unknown)[0]}; there are: {sorted(edges)}")
        for name, ends in edges.items():
            features = _by_name("edge_attr", (edge_attr or {}).get(name))
            sources, targets = _both(ends, name)
            graph.add_edges(name, sources, targets, features, (edge_weight or {}).get(name), name in labels)
    else:
        if dst is None:
            raise ValueError("dst is missing: give the target of each edge")
        if labels:
            raise ValueError("label_edges names edge types, which only a heterogeneous graph has; give src as a dict")
        of = {split: given for split, given in splits.items() if given is not None}
        graph.add_nodes(None, num_nodes, _by_name("x", x), y, of)
        graph.add_edges(None, src, dst, _by_name("edge_attr", edge_attr), edge_weight, False)
    return graph.write(out, parts)


def from_pyg(
    data: Any, *, out: File, label_edges: Sequence[EdgeType] = (), parts: int = 1
) -> Dataset:
    """Makes a dataset from ``torch_geometric``'s ``Data`` or ``HeteroData``, and opens it.

    Labels are ``y``, splits ``train_mask``, ``val_mask`` and ``test_mask``; other node and edge tensors are features by their
    names. ``edge_weight`` is what edges are drawn by with ``weight_attr``, and a feature too. What ``RandomLinkSplit`` adds
    (``edge_label_index``, ``edge_label``) is for :class:`graphmill.LinkNeighborLoader` and no feature. Whatever else is
    neither a node's nor an edge's tensor is left out, with a warning.

    Args:
        data: The graph.
        out: Where the dataset goes; there must be nothing yet.
        label_edges: Edge types that are supervision and never walked.
        parts: The number of partitions.
    """
    if not hasattr(data, "node_stores") or not hasattr(data, "edge_stores"):
        raise TypeError(f"from_pyg takes torch_geometric's Data or HeteroData, not {type(data).__name__}")
    graph = _Graph()
    labels = {to_edge_type(one) for one in label_edges}
    left_out = [str(key) for key in getattr(data, "_global_store", ())]
    for store in data.node_stores:
        name = getattr(store, "_key", None)
        count = store.num_nodes
        splits, features, y = {}, {}, None
        for key in store:
            value = store[key]
            split = key.removesuffix("_mask")
            if key in ("num_nodes", "n_id") or (name is None and (_of_edges(store, key) or _of_links(store, key))):
                continue
            if _in_columns(data, key, value):
                left_out.append(key if name is None else f"{name}.{key}")
            elif key.endswith("_mask") and split in SPLITS:
                splits[split] = _mask(value, count, key)
            elif not store.is_node_attr(key) or not (is_tensor(value) or isinstance(value, np.ndarray)):
                left_out.append(key if name is None else f"{name}.{key}")
            elif key == "y":
                y = value
            else:
                features[key] = value
        graph.add_nodes(name, count, features, y, splits)
    for store in data.edge_stores:
        name = getattr(store, "_key", None)
        if "edge_index" not in store:
            if name is None and "adj_t" not in store:
                continue
            raise ValueError(f"edges {name or ''} have no edge_index; convert adj_t with to_edge_index first")
        features, weight = {}, None
        for key in store:
            value = store[key]
            if key in ("edge_index", "e_id", "adj_t") or _of_links(store, key):
                continue
            if _in_columns(data, key, value) or not store.is_edge_attr(key) or not (is_tensor(value) or isinstance(value, np.ndarray)):
                if name is not None:
                    left_out.append(f"{name}.{key}")
            elif key == "edge_weight":
                weight = value
            else:
                features[key] = value
        sources, targets = _both(store.edge_index, name)
        graph.add_edges(name, sources, targets, features, weight, name in labels)
    if missing := labels - set(graph.edge_types):
        raise ValueError(f"there are no edges of type {sorted(missing)[0]}; there are: {graph.edge_types}")
    if left_out:
        names = ", ".join(left_out)
        warnings.warn(f"from_pyg leaves out what is no tensor of nodes or of edges: {names}", stacklevel=2)
    return graph.write(out, parts)


def _of_edges(store: Any, key: str) -> bool:
    """Whether an attribute of a homogeneous graph is for its edges to take, or to leave out."""
    value = store[key]
    if key in ("edge_index", "e_id", "adj_t"):
        return True
    tensor = is_tensor(value) or isinstance(value, np.ndarray)
    return tensor and not _in_columns(store._parent(), key, value) and store.is_edge_attr(key)


def _of_links(store: Any, key: str) -> bool:
    """Whether an attribute is of links that a loader is given, as RandomLinkSplit names them, whatever its key is."""
    return bool(LINKS.fullmatch(key)) or (key != "edge" and f"{key}_index" in store)


def _in_columns(data: Any, key: str, value: Any) -> bool:
    """Whether torch_geometric has an attribute's values in columns, as it has pairs: these are not rows of nodes or edges."""
    return getattr(value, "ndim", 0) > 1 and data.__cat_dim__(key, value) == -1


def _mask(value: Any, count: int | None, what: str) -> Array:
    """A mask as booleans, also where it was kept as numbers."""
    mask = to_numpy(value)
    if mask.ndim and count is not None and len(mask) != count:
        raise ValueError(f"{what} is a mask of shape {mask.shape}, but there are {count} nodes; set num_nodes if there are more")
    if mask.dtype != np.bool_ and not ((mask == 0) | (mask == 1)).all():
        raise ValueError(f"{what} has other values than 0 and 1, expected a mask")
    return mask.astype(np.bool_)


class _Graph:
    """A description of files that are to be written."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.nodes: list[str] = []
        self.edges: list[str] = []
        self.edge_types: list[EdgeType] = []
        # By node type: how many nodes are said to be there, how many the ends of edges tell of, and the splits.
        self.counts: dict[str | None, int] = {}
        self.ends: dict[str | None, list[tuple[str, Array]]] = {}
        self.splits: list[tuple[str | None, str, str, Array]] = []
        self.node_features: set[str] = set()

    def add_nodes(
        self, name: str | None, count: Any, features: Mapping[str, Any], y: Any, splits: Mapping[str, Any]
    ) -> None:
        what = "nodes" if name is None else f"nodes of {name!r}"
        place = f"nodes{len(self.nodes)}"
        lines = ["[[nodes]]"] + ([] if name is None else [f"type = {json.dumps(name)}"])
        _check_names(features, what, TAKEN)
        self.node_features.update(features)
        rows = {len(to_numpy_rows(value, f"{key} of {what}")[0]) for key, value in features.items()}
        if y is not None:
            y, dtype = to_numpy_rows(y, f"y of {what}")
            if y.ndim > 2:
                raise ValueError(f"y of {what} has the shape {y.shape}, expected a class for each node, or a row of values")
            rows.add(len(y))
        if count is not None:
            rows.add(whole(count, "num_nodes", 0, 2**40))
        if len(rows) > 1:
            raise ValueError(f"{what} have {sorted(rows)} rows in their arrays and num_nodes; they must be equally many")
        if rows:
            (self.counts[name],) = rows
            lines.append(f"count = {self.counts[name]}")
        for number, (key, value) in enumerate(features.items()):
            lines.append(self._tensor(f"features.{json.dumps(key)}", f"{place}-{number}", value))
        if y is not None:
            kind = "single" if y.ndim == 1 else "multi"
            lines.append(self._tensor("labels", f"{place}-y", y, dtype, f", kind = \"{kind}\""))
        if splits:
            for split, given in splits.items():
                nodes = to_numpy(given)
                if nodes.ndim != 1:
                    raise ValueError(f"{split} of {what} has the shape {nodes.shape}, expected one dimension; choose a column")
                self.splits.append((name, f"{split} of {what}", f"{place}-{split}.npy", nodes))
            files = ", ".join(f"{split} = \"{place}-{split}.npy\"" for split in splits)
            lines.append(f"splits = {{ by = \"files\", {files} }}")
        self.nodes.append("\n".join(lines))

    def add_edges(
        self, name: EdgeType | None, src: Any, dst: Any, features: Mapping[str, Any], weight: Any, label: bool
    ) -> None:
        what = "edges" if name is None else f"edges of {name}"
        place = f"edges{len(self.edges)}"
        ends = {"src": to_ids(src, f"sources of {what}"), "dst": to_ids(dst, f"targets of {what}")}
        count = len(ends["src"])
        if len(ends["dst"]) != count:
            raise ValueError(f"{what} have {count} sources and {len(ends['dst'])} targets")
        for key, ids in ends.items():
            if (ids < 0).any():
                place_of = np.flatnonzero(ids < 0)[0]
                raise ValueError(f"{key} of {what} has {ids[place_of]} in row {place_of + 1}, expected ids, 0 or more")
        for end, key in ((0, "src"), (2, "dst")):
            self.ends.setdefault(name and name[end], []).append((f"{key} of {what}", ends[key]))
        _check_names(features, what, TAKEN if name is None else TAKEN - {"y"})
        if name is None and (both := self.node_features & set(features)):
            raise ValueError(f"nodes and edges both have a feature {min(both)!r}, which a batch has once; rename one")
        lines = ["[[edges]]", f"files = \"{place}.npz\"", "src = \"src\"", "dst = \"dst\"", "edge_ids = true"]
        if name is not None:
            lines.append(f"type = {json.dumps(list(name))}")
            self.edge_types.append(name)
        if label:
            lines.append("role = \"label\"")
        if weight is not None:
            ends["weight"] = to_numpy(weight).reshape(-1).astype(np.float32)
            if bad := np.flatnonzero(~((ends["weight"] >= 0) & (ends["weight"] < np.inf))).tolist():
                value = ends["weight"][bad[0]]
                raise ValueError(f"edge_weight of {what} has {value} in row {bad[0] + 1}, expected finite numbers, 0 or more")
            if len(ends["weight"]) != count:
                raise ValueError(f"edge_weight of {what} has {len(ends['weight'])} values for {count} edges")
            lines.append("weight = \"weight\"")
            features = {**features, "edge_weight": weight}
        self.arrays[f"{place}.npz"] = ends
        for number, (key, value) in enumerate(features.items()):
            rows, dtype = to_numpy_rows(value, f"{key} of {what}")
            if len(rows) != count:
                raise ValueError(f"{key} of {what} has {len(rows)} rows for {count} edges")
            lines.append(self._tensor(f"features.{json.dumps(key)}", f"{place}-{number}", rows, dtype))
        self.edges.append("\n".join(lines))

    def _tensor(self, key: str, file: str, value: Any, dtype: str | None = None, further: str = "") -> str:
        if dtype is None:
            value, dtype = to_numpy_rows(value)
        self.arrays[f"{file}.npy"] = value
        return f"{key} = {{ files = \"{file}.npy\", dtype = \"{dtype}\"{further} }}"

    def write(self, out: File, parts: int) -> Dataset:
        out = Path(out)
        if out.exists():
            raise FileExistsError(f"{out} exists already; remove it or choose another place")
        parts = whole(parts, "parts", 1, 2**32 - 1)
        self._check_ids()
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
            for name, value in self.arrays.items():
                path = Path(folder) / name
                np.savez(path, **value) if isinstance(value, dict) else np.save(path, value)
            (Path(folder) / "graph.toml").write_text("\n\n".join([*self.nodes, *self.edges]) + "\n")
            try:
                _graphmill.ingest(folder, out, parts)
            except ValueError as error:
                raise ValueError(_without_files(str(error), folder)) from None
        return open_dataset(out)

    def _check_ids(self) -> None:
        """Ends of edges and splits, now that it is known how many nodes there are."""
        for name, ends in self.ends.items():
            most = max((int(ids.max()) for _, ids in ends if ids.size), default=-1)
            if most >= self.counts.setdefault(name, most + 1):
                what = next(what for what, ids in ends if ids.size and ids.max() == most)
                raise ValueError(f"{what} has the id {most}, but there are {self.counts[name]} nodes")
        for name, what, file, given in self.splits:
            count = self.counts.get(name, 0)
            ids, masked = mask_to_ids(given, count, what)
            if not masked and len(ids) == count and len(ids) != len(np.unique(ids)) and set(ids.tolist()) <= {0, 1}:
                raise ValueError(
                    f"{what} has a 0 or 1 for each node, which may be a mask or ids; give a mask as booleans"
                    " (mask.astype(bool), mask.bool()), or the ids"
                )
            if ids.size and not 0 <= ids.min() <= ids.max() < count:
                bad = ids[(ids < 0) | (ids >= count)][0]
                raise ValueError(f"{what} has the id {bad}, but there are {count} nodes")
            self.arrays[file] = ids


def _without_files(text: str, folder: str) -> str:
    """What went wrong, without the files that it went wrong in, which are gone, and what only the command line has."""
    text = text.replace(f"{folder}/", "").replace(folder, "").replace("graph.toml: ", "")
    return re.sub(r"^(nodes|edges)\d+(-\w+)?\.np[yz]: |(;|,) fix it, or skip bad rows with --on-error skip", "", text)


def _check_names(features: Mapping[Any, Any], what: str, taken: frozenset[str]) -> None:
    for name in features:
        if not isinstance(name, str):
            raise ValueError(f"a feature of {what} is called {name!r}, expected a name")
        if name in taken:
            raise ValueError(f"a feature of {what} is called {name!r}, as a part of batches is; rename it")


def to_numpy_rows(value: Any, what: str = "an array") -> tuple[Array, str]:
    """An array that a dataset can hold, and its element type there."""
    if is_tensor(value) and str(value.dtype) == "torch.bfloat16":
        return to_numpy(value.float()), "bf16"
    array = to_numpy(value)
    if array.ndim == 0 or 0 in array.shape[1:]:
        raise ValueError(f"{what} has the shape {array.shape}, expected rows of values")
    if too_large(array):
        raise ValueError(f"{what} has numbers above {LARGEST}, the largest that a dataset can hold")
    code = f"{array.dtype.kind}{array.dtype.itemsize}"
    if code in WIDENED:
        code = WIDENED[code]
        array = array.astype(f"<{code}")
    if code not in STORED:
        raise ValueError(f"{what} is {array.dtype}, which a dataset cannot hold; there are: {', '.join(STORED.values())}")
    return np.ascontiguousarray(array), STORED[code]


def _by_name(name: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    return dict(given) if isinstance(given, Mapping) else {name: given}


def _both(ends: Any, name: EdgeType | None) -> tuple[Any, Any]:
    """Sources and targets."""
    what = "edges" if name is None else f"edges of {name}"
    try:
        sources, targets = ends
    except (TypeError, ValueError):
        raise ValueError(f"{what} are {type(ends).__name__}, expected sources and targets") from None
    return sources, targets
