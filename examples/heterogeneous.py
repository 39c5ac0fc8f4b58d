"""A heterogeneous graph: papers and authors, the field of a paper from what it cites and who wrote it.

    python examples/heterogeneous.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from common import arguments, progress
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GraphSAGE, to_hetero

import graphmill

WRITES, WRITTEN, CITES = ("author", "writes", "paper"), ("paper", "written_by", "author"), ("paper", "cites", "paper")
FIELDS = 6


def main() -> None:
    args = arguments(__doc__, epochs=3).parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="graphmill-example-") as folder:
        data = library(Path(folder, "library"), args.nodes)
        print(data)
        # Neighbours per hop may differ by edge type; a list is for all of them.
        neighbors = {CITES: [8, 4], WRITES: [4, 2], WRITTEN: [4, 4]}
        train = graphmill.NeighborLoader(data, neighbors, ("paper", "train"), batch_size=128, shuffle=True)
        test = graphmill.NeighborLoader(data, [-1, -1], ("paper", "test"), batch_size=512)
        model = to_hetero(GraphSAGE((-1, -1), 64, num_layers=2, out_channels=FIELDS), (data.node_types, data.edge_types))
        with torch.no_grad():  # the first batch tells the lazy layers their widths
            batch = next(iter(test))
            model(batch.x_dict, batch.edge_index_dict)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(args.epochs):
            for batch in progress(train, f"epoch {epoch + 1}"):
                paper = batch["paper"]
                out = model(batch.x_dict, batch.edge_index_dict)["paper"][: paper.batch_size]
                loss = cross_entropy(out, paper.y[: paper.batch_size])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        right = total = 0
        with torch.no_grad():
            for batch in progress(test, "test"):
                paper = batch["paper"]
                found = model(batch.x_dict, batch.edge_index_dict)["paper"][: paper.batch_size].argmax(dim=1)
                right += int((found == paper.y[: paper.batch_size]).sum())
                total += paper.batch_size
        print(f"test accuracy {right / total:.1%}")


def library(out: Path, papers: int) -> graphmill.Dataset:
    """Authors write in their field, and papers cite within theirs, most of the time; only papers' features tell something."""
    rng = np.random.default_rng(0)
    authors = papers // 2
    field = {"paper": rng.integers(FIELDS, size=papers), "author": rng.integers(FIELDS, size=authors)}
    members = {type: [np.flatnonzero(of == one) for one in range(FIELDS)] for type, of in field.items()}

    def mostly_alike(source: str, target: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        src, dst = rng.integers(len(field[source]), size=count), rng.integers(len(field[target]), size=count)
        alike = rng.random(count) < 0.6
        for one in range(FIELDS):
            where = np.flatnonzero(alike & (field[source][src] == one))
            dst[where] = rng.choice(members[target][one], size=len(where))
        return src, dst

    writes = mostly_alike("author", "paper", 3 * papers)
    edges = {WRITES: writes, WRITTEN: writes[::-1], CITES: mostly_alike("paper", "paper", 6 * papers)}
    words = np.eye(FIELDS, 24)[field["paper"]] + rng.standard_normal((papers, 24))
    where = rng.random(papers)
    return graphmill.from_edges(
        edges, out=out, num_nodes={"paper": papers, "author": authors}, y={"paper": field["paper"]},
        x={"paper": words.astype(np.float32), "author": rng.random((authors, 8), dtype=np.float32)},
        train={"paper": where < 0.6}, test={"paper": where >= 0.6},
    )  # fmt: skip


if __name__ == "__main__":
    main()
