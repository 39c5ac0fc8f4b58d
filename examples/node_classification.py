"""Node classification: GraphSAGE on sampled neighbours, with the graph in this process or on storage servers.

    python examples/node_classification.py                            # a block model, made on the spot
    python examples/node_classification.py --data DIR                 # a dataset, or the folder of Cora's arrays
    python examples/node_classification.py --servers HOST:PORT,...    # the same, from servers
"""

import torch
from common import accuracy, arguments, dataset, dataset_flags, progress
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GraphSAGE

import graphmill


def main() -> None:
    parser = arguments(__doc__, epochs=3)
    dataset_flags(parser)
    args = parser.parse_args()
    torch.manual_seed(0)
    with dataset(args) as data:
        print(data)
        train = graphmill.NeighborLoader(data, [10, 5], "train", batch_size=128, shuffle=True)
        test = graphmill.NeighborLoader(data, [-1, -1], "test", batch_size=512)
        model = GraphSAGE(data.num_features, 64, num_layers=2, out_channels=data.num_classes, dropout=0.5)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        for epoch in range(args.epochs):
            model.train()
            for batch in progress(train, f"epoch {epoch + 1}"):
                out = model(batch.x.float(), batch.edge_index)[: batch.batch_size]
                loss = cross_entropy(out, batch.y[: batch.batch_size])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(f"test accuracy {accuracy(model, progress(test, 'test')):.1%}")


if __name__ == "__main__":
    main()
