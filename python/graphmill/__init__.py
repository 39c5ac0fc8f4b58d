"""Loaders for graph neural networks: neighbour-sampled batches of a dataset here or on storage servers.

Open or connect, make a loader, iterate::

    data = graphmill.open("cora")
    loader = graphmill.NeighborLoader(data, num_neighbors=[10, 5], input_nodes="train", batch_size=64, shuffle=True)
    for batch in loader:
        ...

Batches are ``torch_geometric.data.Data`` / ``HeteroData`` where torch_geometric is installed, else :class:`Batch`.
"""

from graphmill import objects, rendezvous
from graphmill._graphmill import __version__
from graphmill.batch import Batch
from graphmill.dataset import AnchorLabels, Dataset, FeatureInfo, connect, open
from graphmill.loaders import (
    AnchorLinkLoader,
    LinkNeighborLoader,
    Loader,
    NeighborLoader,
    NegativeSampling,
    PPRLoader,
    SubgraphLoader,
)
from graphmill.making import from_edges, from_pyg

__all__ = [
    "AnchorLabels",
    "AnchorLinkLoader",
    "Batch",
    "Dataset",
    "FeatureInfo",
    "LinkNeighborLoader",
    "Loader",
    "NegativeSampling",
    "NeighborLoader",
    "PPRLoader",
    "SubgraphLoader",
    "__version__",
    "connect",
    "from_edges",
    "from_pyg",
    "objects",
    "open",
    "rendezvous",
]
