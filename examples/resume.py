"""Training that goes on after `kill -9`: the loader's state is saved with the model's, every few batches.

    python examples/resume.py --kill-after 75    # kills itself in the middle of an epoch, as `kill -9` would
    python examples/resume.py                    # goes on with the batch after the last that was saved

At the end it compares the batches trained on with those of a run that was never interrupted, byte by byte.
"""

import hashlib
import os
import shutil
import signal
from pathlib import Path

import torch
from common import accuracy, arguments, blocks, progress
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GraphSAGE

import graphmill


def main() -> None:
    parser = arguments(__doc__, epochs=3)
    parser.add_argument("--out", metavar="DIR", type=Path, default="resume-run", help="for the graph and what is saved")
    parser.add_argument("--every", metavar="N", type=int, default=10, help="batches from save to save (%(default)s)")
    parser.add_argument("--kill-after", metavar="N", type=int, help="batches after which this process kills itself")
    args = parser.parse_args()
    torch.manual_seed(0)
    graph, saved = args.out / "blocks", args.out / "saved.pt"
    data = graphmill.open(graph) if graph.exists() else blocks(graph, args.nodes)
    loader = load(data)
    model = GraphSAGE(data.num_features, 64, num_layers=2, out_channels=data.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    done, seen = 0, ""
    if saved.exists():
        state = torch.load(saved)
        loader.load_state_dict(state["loader"])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done, seen = state["done"], state["seen"]
        print(f"going on after batch {done}, in epoch {state['loader']['epoch'] + 1}", flush=True)
    for epoch in range(loader.state_dict()["epoch"], args.epochs):
        for batch in progress(loader, f"epoch {epoch + 1}", initial=done - epoch * len(loader), total=len(loader)):
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done, seen = done + 1, digest(seen, batch)
            if done % args.every == 0:
                state = {"loader": loader.state_dict(), "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                save({**state, "done": done, "seen": seen}, saved)
            if done == args.kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
    test = graphmill.NeighborLoader(data, [-1, -1], "test", batch_size=512)
    print(f"test accuracy {accuracy(model, test):.1%}")
    loader, expected = load(data), ""
    for epoch in range(args.epochs):
        for batch in progress(loader, f"epoch {epoch + 1} once more, without training"):
            expected = digest(expected, batch)
    if seen != expected:
        raise SystemExit(f"the {done} batches are not those of an uninterrupted run")
    print(f"the {done} batches are exactly those of an uninterrupted run")
    shutil.rmtree(args.out)


def load(data: graphmill.Dataset) -> graphmill.NeighborLoader:
    """The batches to train on."""
    return graphmill.NeighborLoader(data, [10, 5], "train", batch_size=128, shuffle=True, seed=7)


def digest(before: str, batch) -> str:
    """A name for all batches so far, and this one."""
    parts = (batch.n_id, batch.edge_index.contiguous(), batch.x)
    return hashlib.sha256(before.encode() + b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


def save(state: dict, path: Path) -> None:
    """Writes all of it or nothing, whenever the process ends."""
    beside = path.with_suffix(".new")
    torch.save(state, beside)
    os.replace(beside, path)


if __name__ == "__main__":
    main()
