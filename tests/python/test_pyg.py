"""Batches beside those of torch_geometric's loaders, as recorded in fixtures/pyg; its README says what the fields are.

Where nothing is left to chance, nodes and edges are the same in the same order. Ours differ on purpose in two ways: a
seed asked for twice is one node, and the ends of links stand in the order given, not of their ids.
"""

import hashlib
import json
import math

import numpy as np
import pytest
from conftest import REPOSITORY
from test_cora import CORA
from toys import TO, toy, toy_graph

FIXTURES = REPOSITORY / "tests" / "python" / "fixtures" / "pyg"


def recorded(name: str) -> dict:
    return json.loads((FIXTURES / f"{name}.json").read_text())


def cases(name: str) -> list:
    return [pytest.param(case, id=str(case["ask"])[:80]) for case in recorded(name)["cases"]]


@pytest.fixture(scope="module")
def karate():
    told = recorded("karate")
    return toy_graph(told["num_nodes"], list(zip(*told["edges"])))


@pytest.fixture(scope="module")
def cora():
    """Cora with its edges by target, then source: an edge's number is its place there."""
    told = recorded("cora")
    file = CORA / "edges.csv"
    if not file.is_file():
        pytest.skip(f"the Cora files are not at {CORA}; set GRAPHMILL_CORA to their folder to run this test")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == told["edges_csv_sha256"]
    rows = np.loadtxt(file, delimiter=",", skiprows=1, dtype=np.int64)
    return toy_graph(told["num_nodes"], rows[np.lexsort(rows.T)])


@pytest.fixture(scope="module")
def library():
    told = recorded("hetero")
    return toy(told["num_nodes"], {tuple(name.split(":")): list(zip(*edges)) for name, edges in told["edges"].items()})


def config_of(ask: dict) -> dict:
    further = ask.get("arguments", {})
    expand = "induced" if further.get("subgraph_type") == "induced" else "neighbors"
    fanouts = ask["num_neighbors"]
    if isinstance(fanouts, dict):
        fanouts = [{"type": name.split(":"), "fanouts": own} for name, own in fanouts.items()]
    options = {"fanouts": fanouts, "replace": further.get("replace", False)}
    return {"expand": {expand: options}, "direction": "in", "edge_ids": True}


def assert_same(graph, case: dict, batch: dict):
    """A homogeneous batch is the recorded one as far as that is not random."""
    nodes, (edges,) = batch["nodes"]["node"], batch["edges"]
    ask, hops = case["ask"], case.get("per_hop")
    if case["comparable"] == "exact":
        assert nodes["node"] == case["n_id"]
        assert [edges["row"], edges["col"]] == case["edge_index"]
        assert edges["edge"] == case["e_id"]
        if hops:
            assert nodes["num_sampled_nodes"] == hops["num_sampled_nodes"]
            assert edges["num_sampled_edges"] == hops["num_sampled_edges"]
    elif case["comparable"] == "sets":
        assert nodes["num_sampled_nodes"] == hops["num_sampled_nodes"]
        assert edges["num_sampled_edges"] == hops["num_sampled_edges"]
        assert per_hop(nodes["node"], hops["num_sampled_nodes"]) == per_hop(case["n_id"], hops["num_sampled_nodes"])
        mine, theirs = (
            [(ids[row], ids[col]) for row, col in zip(rows, cols)]
            for ids, (rows, cols) in ((nodes["node"], (edges["row"], edges["col"])), (case["n_id"], case["edge_index"]))
        )
        assert per_hop(mine, hops["num_sampled_edges"]) == per_hop(theirs, hops["num_sampled_edges"])
    else:
        random = next(hop for hop, fanout in enumerate(ask["num_neighbors"]) if fanout > 0)
        assert edges["num_sampled_edges"][: random + 1] == hops["num_sampled_edges"][: random + 1]
        assert nodes["num_sampled_nodes"][: random + 1] == hops["num_sampled_nodes"][: random + 1]
        replace = ask["arguments"].get("replace", False)
        theirs = (case["n_id"], *case["edge_index"], case["e_id"], hops)
        mine = (nodes["node"], edges["row"], edges["col"], edges["edge"], nodes | edges)
        for batch_of in (mine, theirs):
            assert_structure(graph, ask["num_neighbors"], replace, *batch_of)


def per_hop(items: list, counts: list[int]) -> list[list]:
    ends = np.cumsum(counts).tolist()
    return [sorted(items[end - count : end]) for count, end in zip(counts, ends)]


def assert_structure(graph, fanouts, replace: bool, ids, row, col, edge, counts):
    """What holds of every batch of random neighbours, theirs as ours."""
    pairs, degree = graph.edges[TO].pairs, np.diff(graph.edges[TO].lists["in"].indptr)
    assert len(set(ids)) == len(ids) == sum(counts["num_sampled_nodes"]) and col == sorted(col)
    assert [(ids[r], ids[c]) for r, c in zip(row, col)] == [tuple(pairs[e]) for e in edge]
    first_node = 0
    for hop, fanout in enumerate(fanouts):
        expanded = range(first_node, first_node + counts["num_sampled_nodes"][hop])
        for place in expanded:
            mine, whole = [e for e, c in zip(edge, col) if c == place], int(degree[ids[place]])
            wanted = whole if fanout == -1 else (fanout if whole else 0) if replace else min(fanout, whole)
            assert len(mine) == wanted and (replace or len(set(mine)) == wanted)
        assert counts["num_sampled_edges"][hop] == sum(c in expanded for c in col)
        first_node = expanded.stop


@pytest.mark.parametrize("case", cases("karate"))
def test_neighbours_are_those_of_neighbor_loader(sampler, karate, case):
    seeds = case["ask"]["seeds"]
    (batch,) = sampler.batches(karate, config_of(case["ask"]), seeds)
    if len(set(seeds)) == len(seeds):
        assert (batch["batch_size"], batch["seed"]) == (case["batch_size"], seeds)
        assert_same(karate, case, batch)
    else:
        nodes, (edges,) = batch["nodes"]["node"], batch["edges"]
        assert [nodes["node"][row] for row in batch["seed_index"]] == seeds == case["n_id"][: case["batch_size"]]
        assert nodes["node"] == list(dict.fromkeys(case["n_id"]))
        assert sorted(edges["edge"]) == sorted(set(case["e_id"]))


@pytest.mark.parametrize("case", cases("cora"))
def test_neighbours_in_cora_are_those_of_neighbor_loader(sampler, cora, case):
    (batch,) = sampler.batches(cora, config_of(case["ask"]), case["ask"]["seeds"])
    assert_same(cora, case, batch)


@pytest.mark.parametrize("case", cases("hetero"))
def test_neighbours_of_several_types_are_those_of_neighbor_loader(sampler, library, case):
    config = {**config_of(case["ask"]), "task": {"nodes": {"type": case["ask"]["type"]}}}
    (batch,) = sampler.batches(library, config, case["ask"]["seeds"])
    assert batch["batch_size"] == case["batch_size"]
    hops, edges = case["per_hop"], {":".join(edges["type"]): edges for edges in batch["edges"]}
    assert list(edges) == sorted(case["edges"]), "types with nothing sampled are there, and empty"
    exact = case["comparable"] == "exact"
    for name, theirs in case["edges"].items():
        mine = edges[name]
        assert mine["num_sampled_edges"][0] == hops["num_sampled_edges"][name][0]
        if exact:
            assert mine["num_sampled_edges"] == hops["num_sampled_edges"][name]
            assert [mine["row"], mine["col"], mine["edge"]] == [*theirs["edge_index"], theirs["e_id"]]
    for name, theirs in case["nodes"].items():
        mine = batch["nodes"].get(name, {"node": [], "num_sampled_nodes": [0] * 3})
        assert mine["num_sampled_nodes"][0] == hops["num_sampled_nodes"][name][0]
        if exact:
            assert mine["node"] == theirs["n_id"]
            assert mine["num_sampled_nodes"] == hops["num_sampled_nodes"][name]


def test_a_list_is_cut_as_neighbor_loader_cuts_it(sampler, karate):
    told = recorded("karate")["epoch"]
    config = {"expand": {"neighbors": {"fanouts": [-1]}}}
    for name, ids in (("ids", told["ids"]), ("none", list(range(34)))):
        made = sampler.batches(karate, config, ids, batch_size=told["batch_size"])
        assert [(batch["seed"], batch["batch_size"]) for batch in made] == [
            (theirs["seeds"], theirs["batch_size"]) for theirs in told["batches"][name]
        ]


@pytest.mark.parametrize("case", cases("links"))
def test_links_are_those_of_link_neighbor_loader(sampler, karate, case):
    ask, further = case["ask"], case["ask"]["arguments"]
    pairs = list(zip(*ask["edge_label_index"]))
    if further["edge_label"]:
        pairs = [(*pair, label) for pair, label in zip(pairs, further["edge_label"])]
    drawn = further["neg_sampling"]
    negatives = {drawn["mode"]: {"amount": drawn["amount"]}} if drawn else None
    (batch,) = sampler.batches(karate, {**config_of(ask), "task": {"links": {"negatives": negatives}}}, pairs)
    told, nodes, (edges,) = batch["metadata"], batch["nodes"]["node"], batch["edges"]

    assert batch["seed"] == case["input_id"]
    assert [nodes["node"][: nodes["num_sampled_nodes"][0]]] == [list(dict.fromkeys(seeds_of(batch, told)))]
    if case["comparable"] == "exact":
        hops = case["per_hop"]
        assert nodes["num_sampled_nodes"] == hops["num_sampled_nodes"]
        assert edges["num_sampled_edges"] == hops["num_sampled_edges"]
        assert per_hop(nodes["node"], hops["num_sampled_nodes"]) == per_hop(case["n_id"], hops["num_sampled_nodes"])
        assert per_hop(edges["edge"], hops["num_sampled_edges"]) == per_hop(case["e_id"], hops["num_sampled_edges"])

    count, amount = len(pairs), drawn["amount"] if drawn else 0
    if drawn and drawn["mode"] == "triplet":
        assert "edge_label_index" not in told and "edge_label_index" not in case
        for name in ("src_index", "dst_pos_index"):
            assert globally(told[name], nodes["node"]) == globally(case[name]["value"], case["n_id"])
        assert np.array(told["dst_neg_index"]).shape == (count, amount)
        assert case["dst_neg_index"]["shape"] == ([count, amount] if amount > 1 else [count])
    else:
        theirs = case["edge_label_index"]["value"]
        total = count + math.ceil(count * amount)
        assert [len(ends) for ends in told["edge_label_index"]] == [len(ends) for ends in theirs] == [total, total]
        for mine, other in zip(told["edge_label_index"], theirs):
            assert globally(mine[:count], nodes["node"]) == globally(other[:count], case["n_id"])
        if "edge_label" in case:
            assert told["edge_label"] == case["edge_label"]["value"]
        else:
            assert told["edge_label"] == [1] * count, "ours say 1 where theirs say nothing"


def globally(rows: list[int], ids: list[int]) -> list[int]:
    return [ids[row] for row in rows]


def seeds_of(batch: dict, told: dict) -> list[int]:
    """The ends of all links, in the order in which they become seeds."""
    nodes, count = batch["nodes"]["node"]["node"], batch["batch_size"]
    if "src_index" in told:
        rows = [*told["src_index"], *told["dst_pos_index"], *(row for rows in told["dst_neg_index"] for row in rows)]
    else:
        sources, targets = told["edge_label_index"]
        rows = sources[:count] + targets[:count] + sources[count:] + targets[count:]
    return [nodes[row] for row in rows]
