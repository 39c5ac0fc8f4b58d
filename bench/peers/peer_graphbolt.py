"""DGL GraphBolt: the two calls that its NeighborSampler makes for each hop, with 32-bit ids."""

import dgl
import dgl.graphbolt as gb
import numpy as np
import torch
import worker
from dgl.graphbolt.internal import unique_and_compact_csc_formats


class Rows:
    """A feature store that takes a third of the time that its own does."""

    def __init__(self, features):
        self.features = features

    def read(self, domain, type_name, feature_name, ids):
        return self.features.index_select(0, ids)


class GraphBolt:
    name = "GraphBolt"
    version = dgl.__version__
    distinct = True

    def __init__(self, graph):
        indptr, neighbors = (torch.from_numpy(ids.view("<i4")) for ids in (graph.indptr, graph.neighbors))
        self.graph = gb.fused_csc_sampling_graph(indptr, neighbors)
        self.features = torch.from_numpy(graph.features)

    def start(self, fanouts):
        self.fanouts = [torch.tensor([fanout]) for fanout in fanouts]

    def seeds(self, ids):
        return torch.from_numpy(ids).int()

    def sample(self, seeds):
        blocks, nodes = [], seeds
        for fanout in self.fanouts:
            drawn = self.graph.sample_neighbors(nodes, fanout)
            nodes, compact = unique_and_compact_csc_formats(drawn.sampled_csc, nodes)
            blocks.append(compact)
        return nodes, blocks

    def gather(self, seeds):
        batch = self.sample(seeds)
        # A third of the time that its own feature store takes.
        return batch, self.features.index_select(0, batch[0])

    def loader(self, batch_size, workers):
        ids = gb.ItemSet(torch.arange(self.graph.total_num_nodes, dtype=torch.int32), names="seed_nodes")
        pipe = gb.ItemSampler(ids, batch_size=batch_size, shuffle=True, drop_last=True)
        # It counts layers from the input, so the fanout of the seeds is its last.
        pipe = pipe.sample_neighbor(self.graph, self.fanouts[::-1])
        pipe = pipe.fetch_feature(Rows(self.features), node_feature_keys=["x"])
        return gb.DataLoader(pipe, num_workers=workers)

    def loaded(self, batch):
        blocks = [hop.sampled_csc for hop in reversed(batch.sampled_subgraphs)]
        return (batch.input_nodes, blocks), batch.node_features["x"]

    def nodes(self, batch):
        return batch[0].numpy()

    def num_edges(self, batch):
        return sum(len(block.indices) for block in batch[1])

    def hops(self, batch, num_seeds):
        # The nodes of a hop are a prefix of the nodes of the next.
        nodes, hops = self.nodes(batch).astype(np.int64), []
        for block in batch[1]:
            expanded = nodes[: len(block.indptr) - 1]
            target = np.repeat(expanded, np.diff(block.indptr.numpy()))
            hops.append(worker.Hop(expanded, nodes[block.indices.numpy()], target))
        return hops


if __name__ == "__main__":
    worker.main(GraphBolt)
