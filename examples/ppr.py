"""Personalised PageRank instead of hops: features of a node, and of the nodes most important to it, averaged by importance.

    python examples/ppr.py                            # a block model, made on the spot
    python examples/ppr.py --data DIR                 # a dataset, or the folder of Cora's arrays
    python examples/ppr.py --servers HOST:PORT,...    # the same, from servers
"""

import torch
from common import arguments, dataset, dataset_flags, progress
from torch.nn.functional import cross_entropy

import graphmill


def main() -> None:
    parser = arguments(__doc__, epochs=3)
    dataset_flags(parser)
    args = parser.parse_args()
    torch.manual_seed(0)
    with dataset(args) as data:
        print(data)
        ppr = {"alpha": 0.25, "eps": 1e-3, "max_ppr_nodes": 32}
        train = graphmill.PPRLoader(data, "train", **ppr, batch_size=128, shuffle=True)
        test = graphmill.PPRLoader(data, "test", **ppr, batch_size=512)
        model = torch.nn.Sequential(
            torch.nn.Linear(2 * data.num_features, 64), torch.nn.ReLU(), torch.nn.Dropout(0.5),
            torch.nn.Linear(64, data.num_classes),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        for epoch in range(args.epochs):
            model.train()
            for batch in progress(train, f"epoch {epoch + 1}"):
                loss = cross_entropy(model(features(batch)), batch.y[: batch.batch_size])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        model.eval()
        right = total = 0
        with torch.no_grad():
            for batch in progress(test, "test"):
                right += int((model(features(batch)).argmax(dim=1) == batch.y[: batch.batch_size]).sum())
                total += batch.batch_size
        print(f"test accuracy {right / total:.1%}")


def features(batch) -> torch.Tensor:
    """For each seed its own features, and the mean of the others' with the highest PageRank, weighted by it."""
    x = batch.x.float()
    seeds, nodes = batch.ppr_index
    weight = batch.ppr_score.float() * (nodes != seeds)
    total = x.new_zeros(batch.batch_size).index_add(0, seeds, weight).clamp(min=1e-9)
    others = x.new_zeros(batch.batch_size, x.size(1)).index_add(0, seeds, x[nodes] * (weight / total[seeds]).unsqueeze(1))
    return torch.cat([x[: batch.batch_size], others], dim=1)


if __name__ == "__main__":
    main()
