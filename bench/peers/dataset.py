"""Reads the arrays that a sampler needs from a dataset on disk (docs/format.md), in numpy alone.

For the graph of this benchmark only: one partition, node type `node`, edge type `node:to:node`, lists of sources per
target (CSC).
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DTYPES = {"u32": "<u4", "u64": "<u8", "f32": "<f4"}


@dataclass
class Graph:
    """`neighbors[indptr[v]:indptr[v + 1]]` are the sources of the edges into `v`, ascending."""

    path: Path
    indptr: np.ndarray
    neighbors: np.ndarray
    features: np.ndarray

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.neighbors)


def load(path: Path) -> Graph:
    manifest = json.loads((path / "manifest.json").read_text())
    if manifest["version"] != 1 or manifest["parts"] != 1:
        found = f"version {manifest['version']}, {manifest['parts']} partitions"
        raise ValueError(f"reading {path}: expected version 1 and one partition, found {found}")
    (nodes,) = manifest["node_types"]
    (feature,) = nodes["features"]
    arrays = {name.rsplit(".", 1)[0]: name for name in manifest["partitions"][0]["arrays"]}

    def read(stem: str) -> np.ndarray:
        name = arrays[stem]
        return np.fromfile(path / "part-00000" / name, DTYPES[name.rsplit(".", 1)[1]])

    lists = "edges/node/to/node/in"
    features = read(f"nodes/node/feature.{feature['name']}").reshape(nodes["count"], *feature["shape"])
    return Graph(path, read(f"{lists}.indptr"), read(f"{lists}.neighbors"), features)
