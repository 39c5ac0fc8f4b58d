"""torch_geometric's NeighborLoader, sampling with torch-sparse."""

import warnings

import numpy as np
import torch
import torch_geometric
import torch_sparse
import worker
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.sampler import NodeSamplerInput

# That pyg-lib is missing; no package index has it.
warnings.filterwarnings("ignore", message="Using 'NeighborSampler' without a 'pyg-lib'")


class Pyg:
    name = "torch_geometric"
    version = f"{torch_geometric.__version__}, torch-sparse {torch_sparse.__version__}"
    distinct = True

    def __init__(self, graph):
        # torch-sparse knows 64-bit ids only.
        neighbors = torch.from_numpy(graph.neighbors.astype(np.int64))
        degrees = torch.from_numpy(np.diff(graph.indptr.astype(np.int64)))
        targets = torch.repeat_interleave(torch.arange(graph.num_nodes), degrees)
        self.data = Data(x=torch.from_numpy(graph.features), edge_index=torch.stack([neighbors, targets]))

    def start(self, fanouts):
        self.fanouts = fanouts
        self.called = NeighborLoader(self.data, fanouts, is_sorted=True, num_workers=0)

    def seeds(self, ids):
        return torch.from_numpy(ids)

    def sample(self, seeds):
        return self.called.node_sampler.sample_from_nodes(NodeSamplerInput(input_id=None, node=seeds))

    def gather(self, seeds):
        batch = self.called(seeds)
        return batch, batch.x

    def loader(self, batch_size, workers):
        options = {"batch_size": batch_size, "shuffle": True, "drop_last": True}
        workers = {"num_workers": workers, "persistent_workers": workers > 0}
        return NeighborLoader(self.data, self.fanouts, is_sorted=True, **options, **workers)

    def loaded(self, batch):
        return batch, batch.x

    def nodes(self, batch):
        return self._parts(batch)[0]

    def num_edges(self, batch):
        return len(self._parts(batch)[1])

    def hops(self, batch, num_seeds):
        return worker.hops_of_new_nodes(*self._parts(batch), num_seeds, len(self.fanouts))

    @staticmethod
    def _parts(batch):
        parts = (batch.n_id, *batch.edge_index) if isinstance(batch, Data) else (batch.node, batch.row, batch.col)
        return [part.numpy() for part in parts]


if __name__ == "__main__":
    worker.main(Pyg)
