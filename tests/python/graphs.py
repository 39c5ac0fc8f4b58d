"""Random graphs and the ways to write them to files."""

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


@dataclass
class Graph:
    """A homogeneous graph with dense ids."""

    src: np.ndarray
    dst: np.ndarray
    time: np.ndarray
    weight: np.ndarray
    attr: np.ndarray
    x: np.ndarray
    label: np.ndarray

    @property
    def edges(self) -> dict[str, np.ndarray]:
        return {"src": self.src, "dst": self.dst, "t": self.time, "w": self.weight, "a": self.attr[:, 0], "b": self.attr[:, 1]}

    def shuffled(self, seed: int) -> "Graph":
        order = np.random.default_rng(seed).permutation(len(self.src))
        edges = (column[order] for column in (self.src, self.dst, self.time, self.weight, self.attr))
        return Graph(*edges, self.x, self.label)


def random_graph(nodes: int = 200, edges: int = 1500, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    return Graph(
        src=rng.integers(0, nodes, edges),
        dst=rng.integers(0, nodes, edges),
        time=rng.integers(-50, 50, edges),
        weight=rng.random(edges, dtype=np.float32),
        attr=rng.standard_normal((edges, 2), dtype=np.float32),
        x=rng.standard_normal((nodes, 5), dtype=np.float32),
        label=rng.integers(0, 4, nodes),
    )


def write_csv(path: Path, columns: dict[str, np.ndarray], header: bool = True) -> str:
    """Writes columns as CSV, compressed if the name says so."""
    opened = gzip.open if path.suffix == ".gz" else open
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened(path, "wt", newline="") as file:
        writer = csv.writer(file)
        if header:
            writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() if hasattr(column, "tolist") else column for column in columns.values())))
    return path.name


def write_rows(path: Path, rows) -> str:
    """Writes a matrix, or a list of numbers, as CSV without a header."""
    rows = np.asarray(rows)
    rows = rows.reshape(len(rows), -1)
    return write_csv(path, {str(place): rows[:, place] for place in range(rows.shape[1])}, header=False)


def write_parquet(path: Path, columns: dict[str, np.ndarray], **options) -> str:
    pq.write_table(pa.table(dict(columns)), path, **options)
    return path.name


def write_npy(path: Path, array: np.ndarray) -> str:
    np.save(path, array)
    return path.name


def sorted_pairs(pairs: np.ndarray) -> np.ndarray:
    pairs = np.asarray(pairs, np.int64)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
