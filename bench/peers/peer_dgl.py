"""DGL's classic NeighborSampler: sample_blocks on the CPU, with 32-bit ids.

It samples and builds the block in two calls, as it always does with one thread. Its fused call, which it takes with
more, is no faster with 64-bit ids and returns wrong blocks with 32-bit ones.
"""

import dgl
import torch
import worker


class Dgl:
    name = "DGL"
    version = dgl.__version__
    distinct = True

    def __init__(self, graph):
        indptr, neighbors = (torch.from_numpy(ids.view("<i4")) for ids in (graph.indptr, graph.neighbors))
        self.graph = dgl.graph(("csc", (indptr, neighbors, [])), num_nodes=graph.num_nodes, idtype=torch.int32)
        self.features = torch.from_numpy(graph.features)

    def start(self, fanouts):
        # It counts layers from the input, so the fanout of the seeds is its last.
        self.sampler = dgl.dataloading.NeighborSampler(fanouts[::-1], fused=False)

    def seeds(self, ids):
        return torch.from_numpy(ids).int()

    def sample(self, seeds):
        return self.sampler.sample_blocks(self.graph, seeds)

    def gather(self, seeds):
        batch = self.sample(seeds)
        return batch, self.features.index_select(0, batch[0])

    def loader(self, batch_size, workers):
        ids = torch.arange(self.graph.num_nodes(), dtype=torch.int32)
        options = {"batch_size": batch_size, "shuffle": True, "drop_last": True}
        workers = {"num_workers": workers, "persistent_workers": workers > 0}
        return dgl.dataloading.DataLoader(self.graph, ids, self.sampler, **options, **workers)

    def loaded(self, batch):
        return batch, self.features.index_select(0, batch[0])

    def nodes(self, batch):
        return batch[0].numpy()

    def num_edges(self, batch):
        return sum(block.num_edges() for block in batch[2])

    def hops(self, batch, num_seeds):
        hops = []
        for block in reversed(batch[2]):
            # Of the source nodes of a block, those of the hop before stand first.
            nodes = block.srcdata[dgl.NID].long().numpy()
            row, col = (ends.long().numpy() for ends in block.edges())
            hops.append(worker.Hop(nodes[: block.num_dst_nodes()], nodes[row], nodes[col]))
        return hops


if __name__ == "__main__":
    worker.main(Dgl)
