"""Our own NeighborLoader in the process that trains; its workers are threads."""

import graphmill
import torch_geometric
import worker


class Graphmill:
    name = "graphmill"
    version = f"{graphmill.__version__}, torch_geometric {torch_geometric.__version__}"
    distinct = True
    storage = "ram"

    def __init__(self, graph):
        self.data = graphmill.open(graph.path, storage=self.storage)

    def start(self, fanouts):
        self.fanouts = fanouts

    def loader(self, batch_size, workers):
        options = {"batch_size": batch_size, "shuffle": True, "drop_last": True, "num_threads": workers}
        return graphmill.NeighborLoader(self.data, self.fanouts, **options)

    def loaded(self, batch):
        return batch, batch.x

    def nodes(self, batch):
        return batch.n_id.numpy()

    def num_edges(self, batch):
        return batch.edge_index.shape[1]

    def hops(self, batch, num_seeds):
        row, col = (ends.numpy() for ends in batch.edge_index)
        return worker.hops_of_new_nodes(self.nodes(batch), row, col, num_seeds, len(self.fanouts))


class Mapped(Graphmill):
    name = "graphmill, mmap"
    storage = "mmap"


if __name__ == "__main__":
    worker.main(Graphmill, Mapped)
