"""Link prediction from anchors: which items a user will buy, from what users click on.

    python examples/link_prediction.py

Purchases and refusals are label edges: supervision that no sampler walks, so that nothing of the answer leaks into a batch. A
batch has anchor users, the items they bought and refused, and the neighbourhood of all of them.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from common import arguments, progress
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.nn import GraphSAGE, to_hetero

import graphmill

CLICKS, CLICKED = ("user", "clicks", "item"), ("item", "clicked_by", "user")
BUYS, REFUSES = ("user", "buys", "item"), ("user", "refuses", "item")


def main() -> None:
    args = arguments(__doc__, epochs=4, nodes=6000).parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="graphmill-example-") as folder:
        data = shop(Path(folder, "shop"), args.nodes)
        print(data)

        def anchors(split: str, **further) -> graphmill.AnchorLinkLoader:
            return graphmill.AnchorLinkLoader(
                data, [10, 5], split, positive=BUYS, negative=REFUSES, max_labels=5, batch_size=128, **further
            )

        train, test = anchors("train", shuffle=True), anchors("test")
        encoder = to_hetero(GraphSAGE((-1, -1), 64, num_layers=2, out_channels=32), (data.node_types, [CLICKS, CLICKED]))
        with torch.no_grad():  # the first batch tells the lazy layers their widths
            scores(encoder, next(iter(test)))
        optimizer = torch.optim.Adam(encoder.parameters(), lr=0.005)
        for epoch in range(args.epochs):
            for batch in progress(train, f"epoch {epoch + 1}"):
                bought, refused = scores(encoder, batch)
                wanted = torch.cat([torch.ones_like(bought), torch.zeros_like(refused)])
                loss = binary_cross_entropy_with_logits(torch.cat([bought, refused]), wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            told = [scores(encoder, batch) for batch in progress(test, "test")]
        bought, refused = (torch.cat(part) for part in zip(*told, strict=True))
        print(f"test AUC {area(bought, refused):.3f}: how often a purchase is scored above a refusal")


def scores(encoder: torch.nn.Module, batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The scores of what the anchors bought, and of what they refused."""
    z = encoder(batch.x_dict, batch.edge_index_dict)
    return tuple(
        (z["user"][users] * z["item"][items]).sum(dim=1) for users, items in (batch.y_positive, batch.y_negative)
    )


def area(above: torch.Tensor, below: torch.Tensor) -> float:
    """The area under the ROC curve: the chance that one of the first is above one of the second."""
    ranks = torch.cat([above, below]).argsort().argsort()[: len(above)].double() + 1
    return float((ranks.sum() - len(above) * (len(above) + 1) / 2) / (len(above) * len(below)))


def shop(out: Path, users: int) -> graphmill.Dataset:
    """Users have one of ten tastes. They click and buy mostly what is to their taste, and refuse anything."""
    rng = np.random.default_rng(0)
    items, tastes = users // 4, 10
    taste, kind = rng.integers(tastes, size=users), rng.integers(tastes, size=items)
    kinds = [np.flatnonzero(kind == one) for one in range(tastes)]

    def chosen(count: int, share: float) -> tuple[np.ndarray, np.ndarray]:
        who, what = rng.integers(users, size=count), rng.integers(items, size=count)
        liked = rng.random(count) < share
        for one in range(tastes):
            where = np.flatnonzero(liked & (taste[who] == one))
            what[where] = rng.choice(kinds[one], size=len(where))
        return who, what

    clicks = chosen(12 * users, 0.7)
    edges = {CLICKS: clicks, CLICKED: clicks[::-1], BUYS: chosen(3 * users, 0.95), REFUSES: chosen(3 * users, 0)}
    x = {
        "user": rng.random((users, 8), dtype=np.float32),
        "item": (np.eye(tastes, 16)[kind] + 0.5 * rng.standard_normal((items, 16))).astype(np.float32),
    }
    test = rng.random(users) < 0.3
    return graphmill.from_edges(
        edges, out=out, num_nodes={"user": users, "item": items}, x=x, train={"user": ~test}, test={"user": test},
        label_edges=[BUYS, REFUSES],
    )  # fmt: skip


if __name__ == "__main__":
    main()
