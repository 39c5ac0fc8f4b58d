"""Heterogeneous graphs: several types, odd names, label edges, all of it cut and put together again."""

import numpy as np
import pytest
from graphs import write_csv, write_npy
from reader import Dataset
from test_partition import assert_same_graph

USERS = [f"user {number}" for number in range(120)]
SKUS = [7 * number - 100 for number in range(60)]


@pytest.fixture
def shop(workshop):
    rng = np.random.default_rng(4)
    path = workshop.path
    write_csv(path / "users.csv", {"name": USERS, "age": rng.integers(0, 99, 120), "group": rng.integers(0, 3, 120)})
    write_csv(path / "items.csv", {"sku": SKUS})
    write_npy(path / "price.npy", rng.random((60, 2)))
    write_npy(path / "tags.npy", rng.integers(0, 2, (60, 5)).astype(np.uint8))

    def draw(names, count):
        return [names[place] for place in rng.integers(0, len(names), count)]

    write_csv(path / "views.csv", {"who": draw(USERS, 900), "what": draw(SKUS, 900), "at": rng.integers(0, 50, 900), "s": rng.random(900)})
    write_csv(path / "knows.csv", {"src": draw(USERS, 300), "dst": draw(USERS, 300), "since": rng.integers(0, 9, 300)})
    write_csv(path / "buys.csv", {"src": draw(USERS, 100), "dst": draw(SKUS, 100)})
    workshop.ingest(
        """
[[nodes]]
type = "Käufer/in"
id_type = "string"
ids = { files = "users.csv", column = "name" }
features."age (years)" = { files = "users.csv", columns = ["age"], dtype = "i32", key = "name" }
labels = { files = "users.csv", columns = ["group"] }
splits = { by = "anchor", edges = "Käufer/in:buys:item", train = 0.6, val = 0.2, test = 0.2 }

[[nodes]]
type = "item"
id_type = "int"
ids = { files = "items.csv", column = "sku" }
features.price = { files = "price.npy" }
features.tags = { files = "tags.npy" }
labels = { files = "tags.npy", kind = "multi" }

[[edges]]
type = ["Käufer/in", "views", "item"]
files = "views.csv"
src = "who"
dst = "what"
timestamp = "at"
features.strength = { columns = ["s"], dtype = "f64" }

[[edges]]
type = ["Käufer/in", "knows", "Käufer/in"]
files = "knows.csv"
undirected = true
duplicates = "drop"
features.since = { columns = ["since"], dtype = "i8" }

[[edges]]
type = ["Käufer/in", "buys", "item"]
files = "buys.csv"
""",
        "whole",
    )
    return workshop


def test_every_type_keeps_its_own(shop):
    whole = Dataset(shop.path / "whole")
    assert list(whole.nodes) == ["Käufer/in", "item"]
    users, items = whole.nodes["Käufer/in"], whole.nodes["item"]
    assert users.originals == sorted(USERS) and items.originals == SKUS
    assert items.features["price"].dtype == np.float64 and items.features["tags"].dtype == np.uint8
    assert np.array_equal(items.label, np.load(shop.path / "tags.npy"))
    roles = {relation: edges.info["role"] for (_, relation, _), edges in whole.edges.items()}
    assert roles == {"buys": "label", "knows": "message", "views": "message"}
    told = shop.inspect("whole")
    assert told["num_nodes"] == 180
    assert told["num_edges"] == sum(len(edges.pairs) for edges in whole.edges.values())


@pytest.mark.parametrize("method", ["range", "hash", "ldg", "file"])
def test_all_types_are_cut_and_put_together(shop, method):
    flags = []
    if method == "file":
        rng = np.random.default_rng(1)
        for name, count in (("Käufer/in", 120), ("item", 60)):
            write_npy(shop.path / f"{count}.npy", rng.integers(0, 3, count).astype(np.int32))
            flags += ["--assignment", f"{name}={count}.npy"]
    shop.run("partition", "whole", "--parts", 3, "--method", method, *flags, "--out", "cut", "--quiet")
    whole, cut = Dataset(shop.path / "whole"), Dataset(shop.path / "cut")
    assert_same_graph(whole, cut)
    shop.run("inspect", "cut", "--verify")
    shop.run("partition", "cut", "--parts", 1, "--method", "range", "--out", "again", "--quiet")
    assert_same_graph(whole, Dataset(shop.path / "again"))


def test_original_ids_are_asked_by_type(shop):
    done = shop.run("inspect", "whole", "--type", "Käufer/in", "--lookup", "user 7,user 119")
    names = sorted(USERS)
    assert done.stdout.split("\n")[:2] == [f"{name} -> {names.index(name)}" for name in ("user 7", "user 119")]
    done = shop.run("inspect", "whole", "--lookup", "7", expect=None)
    assert done.returncode != 0 and "item" in done.stderr, "a missing type is asked for"
