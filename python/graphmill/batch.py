"""From the arrays of a batch to what a training loop iterates over."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from graphmill._convert import need
from graphmill.dataset import EdgeType


Attributes = dict[str, Any]
Stores = dict[str | EdgeType, Attributes]


class Store:
    """The attributes of one node type or edge type of a :class:`Batch`."""

    def __init__(self, attributes: Attributes):
        self.__dict__.update(attributes)

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __repr__(self) -> str:
        return f"({', '.join(_shown(self.__dict__))})"


class Batch(Store):
    """A batch of arrays with the attribute names of torch_geometric's loaders.

    Of a heterogeneous dataset, ``batch["paper"]`` and ``batch["author", "writes", "paper"]`` have the attributes of a type.
    """

    def __init__(self, attributes: Attributes, stores: Stores | None = None):
        super().__init__(attributes)
        self._stores = {key: Store(value) for key, value in (stores or {}).items()}

    @property
    def node_types(self) -> list[str]:
        """The node types that have attributes of their own."""
        return [key for key in self._stores if isinstance(key, str)]

    @property
    def edge_types(self) -> list[EdgeType]:
        """The edge types that have attributes of their own."""
        return [key for key in self._stores if not isinstance(key, str)]

    def __getitem__(self, key: str | EdgeType) -> Any:
        if key in self._stores:
            return self._stores[key]
        if isinstance(key, str) and key in self.__dict__:
            return self.__dict__[key]
        raise KeyError(f"there is no {key!r} in this batch; there are: {[*self.keys(), *self._stores]}")

    def keys(self) -> Iterator[str]:
        """The names of the attributes that are of no type."""
        return (name for name in self.__dict__ if name != "_stores")

    def __repr__(self) -> str:
        parts = _shown({name: self.__dict__[name] for name in self.keys()})
        return f"Batch({', '.join([*parts, *(f'{key!r}={value!r}' for key, value in self._stores.items())])})"


def _shown(attributes: Attributes) -> Iterator[str]:
    for name, value in attributes.items():
        shape = getattr(value, "shape", None)
        yield f"{name}={value!r}" if shape is None else f"{name}={list(shape)}"


class Assembler:
    """Puts what a loader's batches consist of where torch_geometric has it."""

    def __init__(
        self,
        *,
        output: str,
        homogeneous: bool,
        task: str,
        seed_type: str | EdgeType | None,
        reverse: bool = False,
        evened: bool = False,
        link_labels: str | None = None,
        one_negative: bool = False,
        supervision: list[EdgeType] | None = None,
        pin_memory: bool = False,
        transform: Callable[[Any], Any] | None = None,
    ):
        self._homogeneous = homogeneous
        self._place = {"nodes": self._place_nodes, "links": self._place_links, "anchors": self._place_anchors}[task]
        self._seed_type = seed_type
        self._reverse = reverse and not homogeneous
        self._evened = evened
        self._link_labels = link_labels
        self._one_negative = one_negative
        self._supervision = supervision or []
        self._torch = output != "numpy"
        self._pin = pin_memory
        self._transform = transform
        self._pyg = _pyg(need("torch_geometric", "output=\"pyg\"").data) if output == "pyg" else None

    def __call__(self, parts: tuple[Any, Any, Any]) -> Any:
        once, nodes, edges = parts
        top: Attributes = {}
        stores: Stores | None = None
        if self._homogeneous:
            (top,) = nodes.values()
            for attributes in edges.values():
                top.update(attributes)
            if "x" not in top:
                top["num_nodes"] = len(top["n_id"])
        else:
            if self._reverse:
                edges = {reversed_type(key) if key[1] != "ppr" else key: value for key, value in edges.items()}
            stores = {**nodes, **edges}
            for attributes in nodes.values():
                if "x" not in attributes:
                    attributes["num_nodes"] = len(attributes["n_id"])
        self._place(once, top, stores)
        if self._evened:
            top["repeated"] = once["repeated"]
        if "negatives_missing" in once:
            top["negatives_missing"] = once["negatives_missing"]
        if self._pin:
            _pin(top)
            for attributes in (stores or {}).values():
                _pin(attributes)
        if self._pyg is not None:
            batch = self._pyg(top, stores)
        else:
            batch = Batch({**top, "epoch": once["epoch"], "g": once["g"], "repeated": once["repeated"]}, stores)
        return batch if self._transform is None else self._transform(batch)

    def _at(self, key: Any, top: Attributes, stores: Stores | None) -> Attributes:
        return top if stores is None else stores.setdefault(key, {})

    def _place_nodes(self, once: dict[Any, Any], top: Attributes, stores: Stores | None) -> None:
        seeds = self._at(self._seed_type, top, stores)
        seeds["input_id"] = once["positions"] if "positions" in once else once["seed"]
        seeds["batch_size"] = once["batch_size"]
        if "seed_index" in once:
            seeds["seed_index"] = once["seed_index"]

    def _place_anchors(self, once: dict[Any, Any], top: Attributes, stores: Stores | None) -> None:
        self._place_nodes(once, top, stores)
        positive = {edge_type: once[place, False] for place, edge_type in enumerate(self._supervision)}
        negative = {
            edge_type: once[place, True] for place, edge_type in enumerate(self._supervision) if (place, True) in once
        }
        single = len(self._supervision) == 1
        top["y_positive"] = next(iter(positive.values())) if single else positive
        if negative:
            top["y_negative"] = next(iter(negative.values())) if single else negative

    def _place_links(self, once: dict[Any, Any], top: Attributes, stores: Stores | None) -> None:
        links = self._at(self._seed_type, top, stores)
        links["input_id"] = once["seed"]
        if "src_index" in once:
            source, target = (self._seed_type[0], self._seed_type[2]) if self._seed_type else (None, None)
            self._at(source, top, stores)["src_index"] = once["src_index"]
            targets = self._at(target, top, stores)
            targets["dst_pos_index"] = once["dst_pos_index"]
            targets["dst_neg_index"] = once["dst_neg_index"][:, 0] if self._one_negative else once["dst_neg_index"]
            return
        links["edge_label_index"] = once["edge_label_index"]
        if self._link_labels is not None:
            links["edge_label"] = self._as(once["edge_label"], self._link_labels)

    def _as(self, array: Any, dtype: str) -> Any:
        if self._torch:
            return array.to(getattr(need("torch", "edge_label"), dtype))
        return array.astype("float32" if dtype == "bfloat16" else dtype, copy=False)


def reversed_type(edge_type: EdgeType) -> EdgeType:
    """What an edge type is called in batches where it is walked from source to target."""
    source, relation, target = edge_type
    return target, f"rev_{relation}", source


def _pin(attributes: Attributes) -> None:
    for name, value in attributes.items():
        if hasattr(value, "pin_memory"):
            attributes[name] = value.pin_memory()
        elif isinstance(value, dict):
            _pin(value)


def _pyg(module: Any) -> Callable[[Attributes, Stores | None], Any]:
    """Makes torch_geometric's own objects. Their stores are filled at once: one attribute after the other, each looked up in
    what is cached, takes several times as long as all the rest. So does the constructor of the commonest of them: what it sets
    is copied from one that it made."""
    pattern = module.Data()
    data_type, store_type = module.Data, type(pattern._store)
    of_data, of_store = dict(vars(pattern)), dict(vars(pattern._store))

    def make(top: Attributes, stores: Stores | None) -> Any:
        if stores is None:
            data, store = object.__new__(data_type), object.__new__(store_type)
            data.__dict__.update(of_data, _store=store)
            store.__dict__.update(of_store, _mapping=top, _parent=weakref.ref(data))
            return data
        data = module.HeteroData()
        data._global_store._mapping.update(top)
        for key, attributes in stores.items():
            store = data.get_node_store(key) if isinstance(key, str) else data.get_edge_store(*key)
            store._mapping.update(attributes)
        return data

    return make
