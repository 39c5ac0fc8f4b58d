"""What a user's program looks like to a type checker; checked by test_package_types.py, and never run."""

from pathlib import Path

import numpy as np
import torch

import graphmill
from graphmill import rendezvous


def train(where: Path, servers: list[str]) -> float:
    made = graphmill.from_edges([0, 1], np.array([1, 2]), out=where, x=torch.eye(3), y=[0, 1, 0], train=range(2), parts=2)
    with graphmill.connect(servers, token=Path("token"), tls={"ca": "ca.pem"}, timeout=5) as data:
        assert data.fingerprint == made.fingerprint
        train_ids: np.ndarray[tuple[int, ...], np.dtype[np.int64]] = data.node_ids("train", rank=0, world_size=2)
        loader = graphmill.NeighborLoader(
            data, [10, 5], train_ids, batch_size=64, shuffle=True, transform=lambda batch: batch.to("cpu"), output="pyg"
        )
        loader.load_state_dict(loader.state_dict())
        total, count = 0.0, len(loader)
        for batch in loader:
            total += float(batch.y.sum())
        links = graphmill.LinkNeighborLoader(
            data, [5], data.edge_index(), neg_sampling=graphmill.NegativeSampling("triplet", 2, strict=True), seed=3
        )
        ranked = graphmill.PPRLoader(data, "train", alpha=0.2, max_ppr_nodes=10)
        anchors = graphmill.AnchorLinkLoader(data, [5], positive=("user", "buys", "item"), max_labels=3)
        among = graphmill.SubgraphLoader(data, range(10), num_threads=2, prefetch=4)
        loaders: list[graphmill.Loader] = [links, ranked, anchors, among]
        with loaders[0] as first:
            count += len(first)
        info: graphmill.FeatureInfo = data.node_features["x"]
        print(info.dtype, info.shape, data.num_nodes + data.num_edges, data.splits["train"])
    member = rendezvous.Rendezvous("127.0.0.1:1", "run", min_nodes=1, max_nodes=2)
    here = member.next_rendezvous()
    return total / count + here.rank / here.world_size
