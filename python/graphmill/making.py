"""Datasets from arrays, tensors and torch_geometric's objects."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphmill import _graphmill
from graphmill._convert import is_tensor, mask_to_ids, to_ids, to_numpy
from graphmill.dataset import Dataset, EdgeType
from graphmill.dataset import open as open_dataset

SPLITS = ("train", "val", "test")

# Element types that a dataset has; others are widened.
STORED = {"f2": "f16", "f4": "f32", "f8": "f64", "i1": "i8", "u1": "u8", "i4": "i32", "i8": "i64"}
WIDENED = {"b1": "u1", "i2": "i4", "u2": "i4", "u4": "i8", "u8": "i8"}


def from_edges(
    src: Any,
    dst: Any = None,
    *,
    out: str | os.PathLike,
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
    graph = _Graph()
    if isinstance(src, Mapping):
        if dst is not None:
            raise ValueError("src is a dict by edge type, which has the targets too; leave dst out")
        for argument, given in (("x", x), ("y", y), ("num_nodes", num_nodes), ("edge_attr", edge_attr), *splits.items()):
            if given is not None and not isinstance(given, Mapping):
                raise ValueError(f"{argument} is {type(given).__name__}, expected a dict by type, as src is")
        edges = {_edge_type(name): ends for name, ends in src.items()}
        named = [name for given in (x, y, num_nodes, *splits.values()) for name in given or ()]
        for name in dict.fromkeys([*(end for one in edges for end in (one[0], one[2])), *named]):
            of = {split: given[name] for split, given in splits.items() if given and name in given}
            count = (num_nodes or {}).get(name)
            graph.add_nodes(name, count, _features("x", (x or {}).get(name)), (y or {}).get(name), of)
        unknown = {_edge_type(name) for name in [*(edge_attr or {}), *(edge_weight or {}), *label_edges]} - set(edges)
        if unknown:
            raise ValueError(f"there are no edges of type {sorted(unknown)[0]}; there are: {sorted(edges)}")
        for name, ends in edges.items():
            features = _features("edge_attr", (edge_attr or {}).get(name))
            label = name in [tuple(one) for one in label_edges]
            graph.add_edges(name, *ends, features, (edge_weight or {}).get(name), label)
    else:
        if dst is None:
            raise ValueError("dst is missing: give the target of each edge")
        if label_edges:
            raise ValueError("label_edges names edge types, which only a heterogeneous graph has; give src as a dict")
        of = {split: given for split, given in splits.items() if given is not None}
        graph.add_nodes(None, num_nodes, _features("x", x), y, of)
        graph.add_edges(None, src, dst, _features("edge_attr", edge_attr), edge_weight, False)
    return graph.write(out, parts)


def from_pyg(
    data: Any, *, out: str | os.PathLike, label_edges: Sequence[EdgeType] = (), parts: int = 1
) -> Dataset:
    """Makes a dataset from ``torch_geometric``'s ``Data`` or ``HeteroData``, and opens it.

    Labels are ``y``, splits ``train_mask``, ``val_mask`` and ``test_mask``; other node and edge tensors are features by their
    names. ``edge_weight`` is what edges are drawn by with ``weight_attr``, and a feature too.

    Args:
        data: The graph.
        out: Where the dataset goes; there must be nothing yet.
        label_edges: Edge types that are supervision and never walked.
        parts: The number of partitions.
    """
    if not hasattr(data, "node_stores") or not hasattr(data, "edge_stores"):
        raise TypeError(f"from_pyg takes torch_geometric's Data or HeteroData, not {type(data).__name__}")
    graph = _Graph()
    labels = {tuple(one) for one in label_edges}
    for store in data.node_stores:
        name = getattr(store, "_key", None)
        count = store.num_nodes
        splits, features, y = {}, {}, None
        for key in [key for key in store if store.is_node_attr(key) and key not in ("num_nodes", "n_id")]:
            value = store[key]
            if key in ("train_mask", "val_mask", "test_mask"):
                splits[key.removesuffix("_mask")] = value
            elif key == "y":
                y = value
            elif is_tensor(value) or isinstance(value, np.ndarray):
                features[key] = value
        graph.add_nodes(name, count, features, y, splits)
    for store in data.edge_stores:
        name = getattr(store, "_key", None)
        if "edge_index" not in store:
            if name is None and "adj_t" not in store:
                continue
            raise ValueError(f"edges {name or ''} have no edge_index; convert adj_t with to_edge_index first")
        features, weight = {}, None
        for key in [key for key in store if store.is_edge_attr(key) and key not in ("edge_index", "e_id")]:
            if key == "edge_weight":
                weight = store[key]
            elif is_tensor(store[key]) or isinstance(store[key], np.ndarray):
                features[key] = store[key]
        graph.add_edges(name, *store.edge_index, features, weight, name in labels)
    if missing := labels - set(graph.edge_types):
        raise ValueError(f"there are no edges of type {sorted(missing)[0]}; there are: {graph.edge_types}")
    return graph.write(out, parts)


class _Graph:
    """A description of files that are to be written."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.nodes: list[str] = []
        self.edges: list[str] = []
        self.edge_types: list[EdgeType] = []

    def add_nodes(self, name: str | None, count: int | None, features: dict, y: Any, splits: dict) -> None:
        what = "nodes" if name is None else f"nodes of {name!r}"
        place = f"nodes{len(self.nodes)}"
        lines = ["[[nodes]]"] + ([] if name is None else [f"type = {json.dumps(name)}"])
        rows = {len(to_numpy_rows(value)[0]) for value in [*features.values(), *([] if y is None else [y])]}
        if count is not None:
            rows.add(int(count))
        if len(rows) > 1:
            raise ValueError(f"{what} have {sorted(rows)} rows in their arrays and num_nodes; they must be equally many")
        if rows:
            lines.append(f"count = {rows.copy().pop()}")
        for number, (key, value) in enumerate(features.items()):
            lines.append(self._tensor(f"features.{json.dumps(key)}", f"{place}-{number}", value))
        if y is not None:
            array, dtype = to_numpy_rows(y)
            array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
            kind = "single" if array.ndim == 1 else "multi"
            lines.append(self._tensor("labels", f"{place}-y", array, dtype, f", kind = \"{kind}\""))
        if splits:
            for split, given in splits.items():
                nodes = to_numpy(given)
                if nodes.ndim != 1:
                    raise ValueError(f"{split} of {what} has the shape {nodes.shape}, expected one dimension; choose a column")
                ids = mask_to_ids(nodes, rows.copy().pop() if rows else len(nodes), split)[0]
                self.arrays[f"{place}-{split}.npy"] = ids
            files = ", ".join(f"{split} = \"{place}-{split}.npy\"" for split in splits)
            lines.append(f"splits = {{ by = \"files\", {files} }}")
        self.nodes.append("\n".join(lines))

    def add_edges(
        self, name: EdgeType | None, src: Any, dst: Any, features: dict, weight: Any, label: bool
    ) -> None:
        what = "edges" if name is None else f"edges of {name}"
        place = f"edges{len(self.edges)}"
        ends = {"src": to_ids(src, f"sources of {what}"), "dst": to_ids(dst, f"targets of {what}")}
        count = len(ends["src"])
        if len(ends["dst"]) != count:
            raise ValueError(f"{what} have {count} sources and {len(ends['dst'])} targets")
        lines = ["[[edges]]", f"files = \"{place}.npz\"", "src = \"src\"", "dst = \"dst\"", "edge_ids = true"]
        if name is not None:
            lines.append(f"type = {json.dumps(list(name))}")
            self.edge_types.append(name)
        if label:
            lines.append("role = \"label\"")
        if weight is not None:
            ends["weight"] = to_numpy(weight).reshape(-1).astype(np.float32)
            lines.append("weight = \"weight\"")
            features = {**features, "edge_weight": weight}
        self.arrays[f"{place}.npz"] = ends
        for number, (key, value) in enumerate(features.items()):
            if len(value) != count:
                raise ValueError(f"{key} of {what} has {len(value)} rows for {count} edges")
            lines.append(self._tensor(f"features.{json.dumps(key)}", f"{place}-{number}", value))
        self.edges.append("\n".join(lines))

    def _tensor(self, key: str, file: str, value: Any, dtype: str | None = None, further: str = "") -> str:
        if dtype is None:
            value, dtype = to_numpy_rows(value)
        self.arrays[f"{file}.npy"] = value
        return f"{key} = {{ files = \"{file}.npy\", dtype = \"{dtype}\"{further} }}"

    def write(self, out: str | os.PathLike, parts: int) -> Dataset:
        out = Path(out)
        if out.exists():
            raise FileExistsError(f"{out} exists already; remove it or choose another place")
        if not isinstance(parts, (int, np.integer)) or parts < 1:
            raise ValueError(f"parts is {parts!r}, expected a whole number, 1 or more")
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
            for name, value in self.arrays.items():
                path = Path(folder) / name
                np.savez(path, **value) if isinstance(value, dict) else np.save(path, value)
            (Path(folder) / "graph.toml").write_text("\n\n".join([*self.nodes, *self.edges]) + "\n")
            _graphmill.ingest(folder, out, int(parts))
        return open_dataset(out)


def to_numpy_rows(value: Any) -> tuple[np.ndarray, str]:
    """An array that a dataset can hold, and its element type there."""
    if is_tensor(value) and str(value.dtype) == "torch.bfloat16":
        return to_numpy(value.float()), "bf16"
    array = to_numpy(value)
    code = f"{array.dtype.kind}{array.dtype.itemsize}"
    if code in WIDENED:
        code = WIDENED[code]
        array = array.astype(f"<{code}")
    if code not in STORED:
        raise ValueError(f"an array is {array.dtype}, which a dataset cannot hold; there are: {', '.join(STORED.values())}")
    return np.ascontiguousarray(array), STORED[code]


def _features(name: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    return dict(given) if isinstance(given, Mapping) else {name: given}


def _edge_type(name: Any) -> EdgeType:
    if isinstance(name, (tuple, list)) and len(name) == 3 and all(isinstance(part, str) for part in name):
        return tuple(name)
    raise ValueError(f"{name!r} is not an edge type; write (source, relation, target)")
