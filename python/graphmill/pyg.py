"""torch_geometric's plug-in points: a feature store, a graph store and a sampler over a dataset.

With them torch_geometric's own ``NodeLoader`` and ``LinkLoader`` run against graphmill. This module needs torch_geometric;
:meth:`graphmill.Dataset.pyg_stores` and :meth:`graphmill.Dataset.pyg_sampler` import it when they are called.
"""

import json
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric import data as pyg
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NodeSamplerInput,
    SamplerOutput,
)

from graphmill import _arguments, loaders
from graphmill._convert import Array
from graphmill.dataset import Dataset, EdgeType


class FeatureStore(pyg.FeatureStore):
    """Features and labels of a dataset, by node type (or edge type) and name; labels are called ``y``."""

    def __init__(self, data: Dataset):
        super().__init__()
        self.__dict__["_data"] = data

    def _get_tensor(self, attr: pyg.TensorAttr) -> Tensor:
        name, type_ = attr.attr_name, attr.group_name
        ids = _ids(attr.index, self._get_tensor_size(attr)[0])
        if name == "y" and not isinstance(type_, tuple):
            return _tensor(self._data.labels(ids, type=type_))
        return _tensor(self._data.features(ids, name=name, type=type_), self._info(attr)[0])

    def _info(self, attr: pyg.TensorAttr) -> tuple[str, tuple[int, ...], int]:
        edges = isinstance(attr.group_name, tuple)
        one = self._data._edge(attr.group_name) if edges else self._data._node(attr.group_name)
        count = one["id_count"] if edges else one["count"]
        if attr.attr_name == "y" and not edges and one["label"] is not None:
            dtype, shape = one["label"]
            return dtype, tuple(shape), count
        for name, dtype, shape in one["features"]:
            if name == attr.attr_name:
                return dtype, tuple(shape), count
        known = [name for name, _, _ in one["features"]]
        raise ValueError(f"there is no feature {attr.attr_name!r}; there are: {', '.join(known) or 'none'}")

    def _get_tensor_size(self, attr: pyg.TensorAttr) -> tuple[int, ...]:
        _, shape, count = self._info(attr)
        return (count, *shape)

    def get_all_tensor_attrs(self) -> list[pyg.TensorAttr]:
        """The features and labels of all node types."""
        attrs: list[pyg.TensorAttr] = []
        for node in self._data._about["nodes"]:
            type_ = None if self._data.homogeneous else node["name"]
            names = [name for name, _, _ in node["features"]] + (["y"] if node["label"] is not None else [])
            attrs.extend(self._tensor_attr_cls(group_name=type_, attr_name=name) for name in names)
        return attrs

    def _put_tensor(self, tensor: Any, attr: pyg.TensorAttr) -> bool:
        raise TypeError("a dataset cannot be changed; make a new one with graphmill.from_pyg")

    def _remove_tensor(self, attr: pyg.TensorAttr) -> bool:
        raise TypeError("a dataset cannot be changed; make a new one with graphmill.from_pyg")


class GraphStore(pyg.GraphStore):
    """The edges of a dataset that samplers walk, by edge type."""

    def __init__(self, data: Dataset):
        super().__init__()
        self.__dict__["_data"] = data

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor]:
        found = self._data.edge_index(type=edge_attr.edge_type, layout=edge_attr.layout.value)
        first, second = (torch.from_numpy(np.ascontiguousarray(part)) for part in found)
        # A csc layout is handed over as rows and pointers of columns, in this order.
        return (second, first) if edge_attr.layout == EdgeLayout.CSC else (first, second)

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """The edge types, as sources and targets."""
        counts = self._data.num_nodes_dict
        return [
            EdgeAttr(
                edge_type=None if self._data.homogeneous else edge["name"],
                layout=EdgeLayout.COO,
                size=(counts[edge["name"][0]], counts[edge["name"][2]]),
            )
            for edge in self._data._about["edges"]
            if not edge["label"]
        ]

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise TypeError("a dataset cannot be changed; make a new one with graphmill.from_pyg")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise TypeError("a dataset cannot be changed; make a new one with graphmill.from_pyg")


class Sampler(BaseSampler):
    """Samples neighbours for torch_geometric's loaders. What is drawn follows torch's random state.

    Edges go from source to target under the names that the graph store has, also where they are walked ``out``, as in
    torch_geometric's own sampler that goes backward: its loaders leave out edge types that the store does not know.
    """

    def __init__(
        self,
        data: Dataset,
        num_neighbors: Any,
        *,
        replace: bool = False,
        weight_attr: str | None = None,
        direction: str | None = None,
    ):
        self._data = data
        given = {"replace": replace, "weight_attr": weight_attr, "direction": direction, "features": False, "labels": False}
        self._common = _arguments.common(given)
        self._expand = {"neighbors": loaders._steps(data, num_neighbors, self._common)}

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput | HeteroSamplerOutput:
        """Neighbours of nodes."""
        if index.time is not None:
            raise ValueError("temporal sampling is not there yet; leave input_time out")
        once, output = self._sample({"nodes": {"type": index.input_type}}, index.node.numpy())
        if len(once["seed"]) != once["batch_size"]:
            raise ValueError("a batch has a node twice, which torch_geometric's loader cannot be told; give each once")
        output.metadata = (index.input_id, None)
        return output

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: Any = None) -> SamplerOutput | HeteroSamplerOutput:
        """Neighbours of both ends of links, with negatives."""
        if index.time is not None:
            raise ValueError("temporal sampling is not there yet; leave edge_label_time out")
        negatives = loaders.NegativeSampling.cast(neg_sampling)
        task = {"links": {"type": index.input_type, "negatives": negatives and negatives._config()}}
        once, output = self._sample(task, (index.row.numpy(), index.col.numpy(), None))
        if "src_index" in once:
            targets = once["dst_neg_index"]
            targets = targets[:, 0] if negatives is not None and negatives.amount == 1 else targets
            output.metadata = (index.input_id, once["src_index"], once["dst_pos_index"], targets, None)
            return output
        label = index.label
        if negatives is not None:
            label = torch.ones(index.row.numel()) if label is None else label
            missing = once["edge_label_index"].size(1) - index.row.numel()
            label = torch.cat([label, label.new_zeros((missing, *label.shape[1:]))])
        output.metadata = (index.input_id, once["edge_label_index"], label, None)
        return output

    def _sample(self, task: dict[str, Any], seeds: Any) -> tuple[dict[Any, Any], SamplerOutput | HeteroSamplerOutput]:
        config = json.dumps(loaders._config(self._data, task, self._expand, self._common))
        seeds = tuple(_words(part) for part in seeds) if isinstance(seeds, tuple) else _words(seeds)
        count = len(seeds[0] if isinstance(seeds, tuple) else seeds)
        loader = self._data._native.loader(
            config, seeds, output="torch", positions=False, batch_size=max(count, 1), shuffle=False, drop_last=False, seed_order="global",
            threads=0, ordered=True, prefetch=1, rank=0, world_size=1, even=False,
        )  # fmt: skip
        # A draw depends on the seed and the epoch, so that each call is an epoch of its own.
        epoch = int(torch.randint(2**62, ()))
        once, nodes, edges = next(loader.epoch(epoch))
        if (self._common["direction"] or self._data.edge_dir) == "out":
            edges = {key: {**edge, "edge_index": edge["edge_index"].flip(0)} for key, edge in edges.items()}
        return once, _homogeneous(nodes, edges) if self._data.homogeneous else _heterogeneous(nodes, edges)


def _homogeneous(nodes: dict[str, dict[str, Any]], edges: dict[EdgeType, dict[str, Any]]) -> SamplerOutput:
    (node,) = nodes.values()
    none: dict[str, Any] = {"edge_index": torch.empty((2, 0), dtype=torch.long), "num_sampled_edges": []}
    edge = next(iter(edges.values()), none)
    row, col = edge["edge_index"]
    return SamplerOutput(
        node=node["n_id"],
        row=row,
        col=col,
        edge=edge.get("e_id"),
        num_sampled_nodes=node["num_sampled_nodes"],
        num_sampled_edges=edge["num_sampled_edges"],
    )


def _heterogeneous(
    nodes: dict[str, dict[str, Any]], edges: dict[EdgeType, dict[str, Any]]
) -> HeteroSamplerOutput:
    return HeteroSamplerOutput(
        node={key: value["n_id"] for key, value in nodes.items()},
        row={key: value["edge_index"][0] for key, value in edges.items()},
        col={key: value["edge_index"][1] for key, value in edges.items()},
        edge={key: value.get("e_id") for key, value in edges.items()},
        num_sampled_nodes={key: value["num_sampled_nodes"] for key, value in nodes.items()},
        num_sampled_edges={key: value["num_sampled_edges"] for key, value in edges.items()},
    )


def _words(array: Any) -> Any:
    return None if array is None else np.ascontiguousarray(array, dtype=np.int64)


def _ids(index: Any, count: int) -> Array | None:
    if index is None or (isinstance(index, slice) and index == slice(None)):
        return None
    if isinstance(index, slice):
        return np.arange(count)[index]
    return np.atleast_1d(np.asarray(index))


def _tensor(array: Array, dtype: str = "") -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "bf16" else tensor
