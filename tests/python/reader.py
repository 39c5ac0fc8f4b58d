"""An independent reader of a dataset on disk, in numpy alone.

It follows docs/format.md and nothing else, so that page and the Rust code check each other. It reads everything into
memory and refuses whatever breaks a rule of the page; it is for tests and small graphs, not for speed.
"""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import xxhash

DTYPES = {
    "u8": "<u1", "u16": "<u2", "u32": "<u4", "u64": "<u8",
    "i8": "<i1", "i32": "<i4", "i64": "<i8",
    "f16": "<f2", "bf16": "<u2", "f32": "<f4", "f64": "<f8",
}  # fmt: skip
SPLITS = ("train", "val", "test")
NO_EDGE_ID = 2**64 - 1


class Damaged(Exception):
    """The dataset breaks a rule of docs/format.md."""


def check(condition, message: str):
    if not condition:
        raise Damaged(message)


@dataclass
class Book:
    """Who owns which id, and in which row."""

    owner: np.ndarray
    row: np.ndarray
    assigned: bool


@dataclass
class Nodes:
    """All nodes of a type in the order of their ids."""

    name: str
    count: int
    owner: np.ndarray
    features: dict[str, np.ndarray]
    label: np.ndarray | None
    weights: np.ndarray | None
    cumulative: np.ndarray | None
    timestamps: np.ndarray | None
    splits: dict[str, np.ndarray]
    originals: list | None


@dataclass
class Lists:
    """All neighbour lists of an edge type in one direction, in the order of the ids of their owners."""

    indptr: np.ndarray
    neighbors: np.ndarray
    edge_ids: np.ndarray | None
    weights: np.ndarray | None
    cumulative: np.ndarray | None
    alias: np.ndarray | None
    timestamps: np.ndarray | None

    @property
    def owners(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def of(self, node: int) -> np.ndarray:
        return self.neighbors[self.indptr[node] : self.indptr[node + 1]]


@dataclass
class Edges:
    """All edges of a type; the features of edge id `i` are in row `i`."""

    type: tuple[str, str, str]
    info: dict
    lists: dict[str, Lists]
    features: dict[str, np.ndarray]

    @cached_property
    def pairs(self) -> np.ndarray:
        """[count, 2] source and target, in the order of the primary lists."""
        direction = self.info["layouts"][0]
        lists = self.lists[direction]
        ends = (lists.neighbors, lists.owners) if direction == "in" else (lists.owners, lists.neighbors)
        return np.stack([end.astype(np.int64) for end in ends], axis=1)

    @property
    def primary(self) -> Lists:
        return self.lists[self.info["layouts"][0]]


class Dataset:
    """A dataset, checked and put together from its partitions."""

    def __init__(self, path):
        self.path = Path(path)
        self.manifest = read_manifest(self.path / "manifest.json")
        self.parts = self.manifest["parts"]
        self._used: set[str] = set()
        self.nodes = {info["name"]: self._nodes(info) for info in self.manifest["node_types"]}
        self.edges = {tuple(info["type"]): self._edges(info) for info in self.manifest["edge_types"]}
        self._check_order()
        listed = {f"book/{name}" for name in self.manifest["book_arrays"]}
        for number, part in enumerate(self.manifest["partitions"]):
            listed |= {f"part-{number:05d}/{name}" for name in part["arrays"]}
        check(listed == self._used, f"unexpected or missing arrays: {sorted(listed ^ self._used)}")
        on_disk = {str(file.relative_to(self.path)) for file in self.path.rglob("*") if file.is_file()}
        check(on_disk == listed | {"manifest.json"}, f"stray files: {sorted(on_disk - listed)}")
        check(self.manifest["fingerprint"] == self.fingerprint(), "the content does not match the fingerprint")

    @property
    def only_nodes(self) -> Nodes:
        (nodes,) = self.nodes.values()
        return nodes

    @property
    def only_edges(self) -> Edges:
        (edges,) = self.edges.values()
        return edges

    # Arrays

    def _array(self, folder: str, name: str, shape=(-1,)) -> np.ndarray:
        """One array, checked against its entry in the manifest; the dtype is the end of its name."""
        if folder == "book":
            entries = self.manifest["book_arrays"]
        else:
            entries = self.manifest["partitions"][int(folder[5:])]["arrays"]
        check(name in entries, f"{folder}/{name} is not in the manifest")
        content = (self.path / folder / name).read_bytes()
        check(len(content) == entries[name]["bytes"], f"{folder}/{name}: {len(content)} bytes")
        check(xxhash.xxh3_64_hexdigest(content) == entries[name]["xxh3"], f"{folder}/{name}: checksum")
        self._used.add(f"{folder}/{name}")
        array = np.frombuffer(content, DTYPES[name.rsplit(".", 1)[1]])
        if shape == (-1,):
            return array
        check(array.size == np.prod(shape, dtype=np.int64), f"{folder}/{name}: {array.size} values, not {shape}")
        return array.reshape(shape)

    def _book(self, info: dict, folder: str, count: int) -> Book:
        ids = np.arange(count)
        if info["kind"] == "range":
            bounds = np.array(info["bounds"], np.int64)
            check(len(bounds) == self.parts + 1 and bounds[0] == 0 and bounds[-1] == count, f"bounds of {folder}")
            check((np.diff(bounds) >= 0).all(), f"bounds of {folder} fall")
            owner = np.searchsorted(bounds, ids, side="right") - 1
            return Book(owner, ids - bounds[owner] if count else ids, assigned=False)
        owner_width = "u8" if self.parts <= 256 else "u16"
        owner = self._array("book", f"{folder}/owner.{owner_width}", (count,)).astype(np.int64)
        check((owner < self.parts).all(), f"an owner of {folder} is out of range")
        block = 256
        while block < 4 * self.parts:
            block *= 2
        blocks = -(-count // block)
        rank = self._array("book", f"{folder}/rank.{width(count)}", (blocks, self.parts)).astype(np.int64)
        row = np.empty(count, np.int64)
        for part in range(self.parts):
            mine = owner == part
            below = np.cumsum(mine) - mine
            check((rank[:, part] == below[::block]).all(), f"a rank of {folder} is wrong")
            row[mine] = below[mine]
        check(np.bincount(owner, minlength=self.parts).tolist() == info["rows"], f"rows of {folder}")
        return Book(owner, row, assigned=True)

    def _row_ids(self, book: Book, part: int, path: str, count: int) -> np.ndarray:
        owned = np.flatnonzero(book.owner == part)
        if book.assigned:
            stored = self._array(f"part-{part:05d}", f"{path}/ids.{width(count)}")
            check(np.array_equal(stored, owned), f"{path}/ids of partition {part} differ from the book")
        return owned

    def _tensors(self, rows: list[np.ndarray], path: str, name: str, shape: list[int], count: int) -> np.ndarray:
        """A per-row array of all partitions, in the order of ids."""
        whole = np.empty((count, *shape), DTYPES[name.rsplit(".", 1)[1]])
        for part, ids in enumerate(rows):
            whole[ids] = self._array(f"part-{part:05d}", f"{path}/{name}", (len(ids), *shape))
        return whole

    # Nodes

    def _nodes(self, info: dict) -> Nodes:
        path, count = f"nodes/{escape(info['name'])}", info["count"]
        book = self._book(info["book"], path, count)
        rows = [self._row_ids(book, part, path, count) for part in range(self.parts)]

        def tensors(name, shape):
            return self._tensors(rows, path, name, shape, count)

        features = {
            feature["name"]: tensors(f"feature.{escape(feature['name'])}.{feature['dtype']}", feature["shape"])
            for feature in info["features"]
        }
        label = None
        if described := info.get("label"):
            check(described["kind"] == "multi" or described["width"] == 1, "a single label has width 1")
            shape = [described["width"]] if described["kind"] == "multi" else []
            label = tensors(f"label.{described['dtype']}", shape)
        weights, cumulative = None, None
        if info["weights"]:
            weights = tensors("weights.f32", [])
            cumulative = self._array("book", f"{path}/cumulative.u64", (count,))
            check_sums(weights, cumulative, np.array([0, count]), info["name"])
        return Nodes(
            name=info["name"],
            count=count,
            owner=book.owner,
            features=features,
            label=label,
            weights=weights,
            cumulative=cumulative,
            timestamps=tensors("timestamp.i64", []) if info["timestamps"] else None,
            splits={split: self._split(split, size, rows, path, count) for split, size in info["splits"].items()},
            originals=self._originals(info["original_ids"], rows, path, count) if "original_ids" in info else None,
        )

    def _split(self, split: str, size: int, rows: list[np.ndarray], path: str, count: int) -> np.ndarray:
        check(split in SPLITS, f"unknown split {split}")
        pieces = []
        for part, ids in enumerate(rows):
            piece = self._array(f"part-{part:05d}", f"{path}/split.{split}.{width(count)}").astype(np.int64)
            check((np.diff(piece) > 0).all(), f"split {split} is not ascending")
            check(np.isin(piece, ids).all(), f"split {split} holds nodes of another partition")
            pieces.append(piece)
        whole = np.sort(np.concatenate(pieces))
        check(len(whole) == size, f"split {split} has {len(whole)} nodes, not {size}")
        return whole

    def _originals(self, kind: str, rows: list[np.ndarray], path: str, count: int) -> list:
        originals = [None] * count
        for part, ids in enumerate(rows):
            folder = f"part-{part:05d}"
            if kind == "int":
                keys = self._array(folder, f"{path}/original.i64", (len(ids),)).tolist()
            else:
                offsets = self._array(folder, f"{path}/original.offsets.u64", (len(ids) + 1,)).tolist()
                text = self._array(folder, f"{path}/original.utf8.u8").tobytes()
                check(offsets[0] == 0 and offsets[-1] == len(text), "offsets of original ids")
                keys = [text[start:end].decode() for start, end in zip(offsets, offsets[1:])]
            for node, key in zip(ids.tolist(), keys):
                originals[node] = key
        raw = originals if kind == "int" else [key.encode() for key in originals]
        check(all(a < b for a, b in zip(raw, raw[1:])), "original ids are not ascending")
        return originals

    # Edges

    def _edges(self, info: dict) -> Edges:
        src, relation, dst = info["type"]
        path = "edges/" + "/".join(escape(name) for name in info["type"])
        if info["role"] == "label":
            check("out" in info["layouts"], "label edges without `out` lists")
        check(info["edge_ids"] or not (info["weights"] or info["features"]), "weights or features without edge ids")
        check(info["edge_ids"] or info["id_count"] == 0, "an id count without edge ids")
        lists, holders = {}, None
        for direction in info["layouts"]:
            owners, others = (src, dst) if direction == "out" else (dst, src)
            lists[direction], lowest = self._lists(info, path, direction, self.nodes[owners], self.nodes[others])
            holders = lowest if holders is None else holders
        features = {}
        if info["features"]:
            book = self._book(info["book"], path, info["id_count"])
            check(np.array_equal(book.owner, holders), f"the book of {info['type']} does not follow its edges")
            rows = [self._row_ids(book, part, path, info["id_count"]) for part in range(self.parts)]
            features = {
                feature["name"]: self._tensors(
                    rows,
                    path,
                    f"feature.{escape(feature['name'])}.{feature['dtype']}",
                    feature["shape"],
                    info["id_count"],
                )
                for feature in info["features"]
            }
        edges = Edges(tuple(info["type"]), info, lists, features)
        check(len(edges.pairs) == info["count"], f"{len(edges.pairs)} edges, not {info['count']}")
        cut = np.count_nonzero(self.nodes[src].owner[edges.pairs[:, 0]] != self.nodes[dst].owner[edges.pairs[:, 1]])
        check(cut == info["cut"], f"{cut} cut edges, not {info['cut']}")
        if len(lists) == 2:
            check(np.array_equal(edge_table(lists["in"], False), edge_table(lists["out"], True)), "in and out differ")
        return edges

    def _lists(self, info: dict, path: str, direction: str, owners: Nodes, others: Nodes) -> tuple[Lists, np.ndarray]:
        """The lists of a direction, and for each edge id the lowest partition that has it."""
        degree = np.zeros(owners.count, np.int64)
        pieces = []
        lowest = np.full(info["id_count"], self.parts, np.int64) if info["edge_ids"] else None
        for part in range(self.parts):
            ids = np.flatnonzero(owners.owner == part)

            def column(name, part=part):
                return self._array(f"part-{part:05d}", f"{path}/{direction}.{name}")

            indptr = column(f"indptr.{width(info['count'] + 1)}").astype(np.int64)
            neighbors = column(f"neighbors.{width(others.count)}")
            check(len(indptr) == len(ids) + 1 and indptr[0] == 0 and indptr[-1] == len(neighbors), "ends of indptr")
            check((np.diff(indptr) >= 0).all(), "indptr falls")
            check((neighbors < others.count).all(), "a neighbour is out of range")
            degree[ids] = np.diff(indptr)
            edge_ids = column(f"edge_ids.{width(info['id_count'])}") if info["edge_ids"] else None
            weights = column("weights.f32") if info["weights"] else None
            cumulative = column("cumulative.u64") if info["weights"] else None
            alias = column("alias.u64") if info["weights"] else None
            timestamps = column("timestamps.i64") if info["timestamps"] else None
            columns = (edge_ids, weights, cumulative, alias, timestamps)
            for values in columns:
                check(values is None or len(values) == len(neighbors), "columns of different length")
            if weights is not None:
                check_sums(weights, cumulative, indptr, f"{info['type']} {direction}")
                check_alias(weights, alias, indptr, f"{info['type']} {direction}")
            if edge_ids is not None:
                check((edge_ids < info["id_count"]).all(), "an edge id is out of range")
                np.minimum.at(lowest, edge_ids, part)
            pieces.append((np.repeat(ids, np.diff(indptr)), neighbors, *columns))
        if lowest is not None:
            lowest[lowest == self.parts] = 0
        owner = np.concatenate([piece[0] for piece in pieces])
        order = np.argsort(owner, kind="stable")
        columns = [
            None if pieces[0][place] is None else np.concatenate([piece[place] for piece in pieces])[order]
            for place in range(1, 7)
        ]
        lists = Lists(np.concatenate([[0], np.cumsum(degree)]), *columns)
        zeros = np.zeros(len(order), np.int64)
        keys = [zeros if key is None else key for key in (lists.edge_ids, lists.neighbors, lists.timestamps)]
        sorted_order = np.lexsort((*keys, lists.owners))
        check(np.array_equal(sorted_order, np.arange(len(order))), f"a list of {info['type']} is not sorted")
        return lists, lowest

    def _check_order(self):
        for names in (
            [info["name"].encode() for info in self.manifest["node_types"]],
            [tuple(name.encode() for name in info["type"]) for info in self.manifest["edge_types"]],
            *(
                [feature["name"].encode() for feature in info["features"]]
                for info in self.manifest["node_types"] + self.manifest["edge_types"]
            ),
        ):
            check(all(a < b for a, b in zip(names, names[1:])), f"names are not in order: {names}")

    # Fingerprint

    def fingerprint(self) -> str:
        lines = ["graphmill-fingerprint 1", f"homogeneous {boolean(self.manifest['homogeneous'])}"]
        for info in self.manifest["node_types"]:
            lines += describe_nodes(info, self.nodes[info["name"]])
        for info in self.manifest["edge_types"]:
            lines += describe_edges(info, self.edges[tuple(info["type"])])
        text = "".join(line + "\n" for line in lines)
        return f"{xxhash.xxh3_128_intdigest(text.encode()):032x}"


def read_manifest(path: Path) -> dict:
    content = path.read_bytes()
    manifest = json.loads(content)
    check(manifest["format"] == "graphmill-dataset", "not a dataset")
    check(manifest["version"] == 1, f"version {manifest['version']}")
    check(list(manifest)[-1] == "checksum", "the checksum is not the last key")
    head, stated, tail = content.rpartition(manifest["checksum"].encode())
    found = xxhash.xxh3_64_hexdigest(head + b"0" * 16 + tail)
    check(len(stated) == 16 and stated.decode() == found, "the manifest's own checksum is wrong")
    return manifest


def describe_nodes(info: dict, nodes: Nodes) -> list[str]:
    ids = range(nodes.count)
    lines = [f"node {quoted(info['name'])} {info['count']}"]
    for feature in info["features"]:
        lines.append(describe_feature(feature, nodes.features[feature["name"]]))
    if label := info.get("label"):
        total = sum_rows(ids, rows_of(nodes.label))
        lines.append(f" label {label['kind']} {label['dtype']} {label['width']} {total}")
    if info["weights"]:
        lines.append(f" weights {sum_rows(ids, rows_of(nodes.weights))}")
    if info["timestamps"]:
        lines.append(f" timestamps {sum_rows(ids, rows_of(nodes.timestamps))}")
    for split in SPLITS:
        if split in info["splits"]:
            members = nodes.splits[split].tolist()
            lines.append(f" split {split} {info['splits'][split]} {sum_rows(members, [b''] * len(members))}")
    if kind := info.get("original_ids"):
        keys = [key.to_bytes(8, "little", signed=True) if kind == "int" else key.encode() for key in nodes.originals]
        lines.append(f" original {kind} {sum_rows(ids, keys)}")
    return lines


def describe_edges(info: dict, edges: Edges) -> list[str]:
    lists, pairs = edges.primary, edges.pairs
    item = np.zeros(len(pairs), np.dtype([("s", "<u8"), ("d", "<u8"), ("i", "<u8"), ("t", "<i8"), ("w", "<u4")]))
    item["s"], item["d"] = pairs[:, 0], pairs[:, 1]
    item["i"] = NO_EDGE_ID if lists.edge_ids is None else lists.edge_ids
    item["t"] = 0 if lists.timestamps is None else lists.timestamps
    item["w"] = 0 if lists.weights is None else lists.weights.view("<u4")
    total = sum(map(xxhash.xxh3_128_intdigest, rows_of(item)))
    src, relation, dst = map(quoted, info["type"])
    flags = f"{boolean(info['weights'])} {boolean(info['timestamps'])}"
    lines = [
        f"edge {src} {relation} {dst} {info['role']} {info['count']} {boolean(info['edge_ids'])} {info['id_count']} "
        f"{flags} {hexadecimal(total)}"
    ]
    return lines + [describe_feature(feature, edges.features[feature["name"]]) for feature in info["features"]]


def describe_feature(info: dict, rows: np.ndarray) -> str:
    shape = ",".join(map(str, info["shape"]))
    return f" feature {quoted(info['name'])} {info['dtype']} [{shape}] {sum_rows(range(len(rows)), rows_of(rows))}"


def sum_rows(ids, rows) -> str:
    digest, whole = xxhash.xxh3_128_intdigest, 0
    for item, content in zip(ids, rows, strict=True):
        whole += digest(item.to_bytes(8, "little") + digest(content).to_bytes(16, "little"))
    return hexadecimal(whole)


def rows_of(array: np.ndarray) -> list[bytes]:
    content, size = array.tobytes(), array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    return [content[row * size : (row + 1) * size] for row in range(len(array))]


def check_sums(weights: np.ndarray, table: np.ndarray, indptr: np.ndarray, name):
    """Checks the weights of some lists and the running sums of their integers."""
    check(np.isfinite(weights).all() and (weights >= 0).all(), f"a weight of {name} is not finite or negative")
    for start, end in zip(indptr[:-1], indptr[1:]):
        sums = np.cumsum(integer_weights(weights[start:end]))
        check(np.array_equal(sums, table[start:end]), f"the running sums of {name} are not those of its weights")


def check_alias(weights: np.ndarray, table: np.ndarray, indptr: np.ndarray, name):
    """Checks the alias tables of some lists."""
    for start, end in zip(indptr[:-1], indptr[1:]):
        entries = alias_table(integer_weights(weights[start:end]).tolist())
        check(entries == table[start:end].tolist(), f"the alias table of {name} is not that of its weights")


def alias_table(integers: list[int]) -> list[int]:
    n, total = len(integers), sum(integers)
    size = [integer * n for integer in integers]
    light = iter([place for place in range(n) if size[place] < total])
    heavy = iter([place for place in range(n) if size[place] >= total])
    threshold, other = [2**32 - 1] * n, list(range(n))
    i, j = next(light, None), next(heavy, None)
    while j is not None:
        if size[j] < total:
            cell, j = j, next(heavy)
        elif i is not None:
            cell, i = i, next(light, None)
        else:
            break
        threshold[cell], other[cell] = max(1, 2**32 * size[cell] // total), j
        size[j] += size[cell] - total
    return [(bool(integers[place]) * threshold[place] << 32) + other[place] for place in range(n)]


def integer_weights(weights: np.ndarray) -> np.ndarray:
    exact = weights.astype(np.float64)
    largest = float(exact.max(initial=0))
    # The fraction that frexp gives is below 1 and at least a half, so this is the least power of two above it.
    power = math.frexp(largest)[1]
    shift = 62 - len(weights).bit_length()
    whole = np.floor(np.ldexp(exact, shift - power)).astype(np.uint64)
    return np.where(exact == 0, np.uint64(0), np.maximum(whole, np.uint64(1)))


def edge_table(lists: Lists, outward: bool) -> np.ndarray:
    """All edges with all they carry, in a canonical order."""
    ends = (lists.owners, lists.neighbors) if outward else (lists.neighbors, lists.owners)
    weights = None if lists.weights is None else lists.weights.view(np.uint32)
    columns = [np.asarray(c, np.int64) for c in (*ends, lists.edge_ids, weights, lists.timestamps) if c is not None]
    table = np.stack(columns, axis=1)
    return table[np.lexsort(table.T[::-1])]


def width(count: int) -> str:
    return "u32" if count <= 2**32 else "u64"


def hexadecimal(number: int) -> str:
    return f"{number % 2**128:032x}"


def quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def boolean(value: bool) -> str:
    return "true" if value else "false"


def escape(name: str) -> str:
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in name.encode())
