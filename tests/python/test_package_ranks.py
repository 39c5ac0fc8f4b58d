"""Data-parallel training under torchrun, with ranks and seeds that do not divide."""

import json
import subprocess
import sys

import packages
import pytest

# Whatever holds on to the process group is gone before it is destroyed: otherwise its threads live on into the interpreter's end,
# and torch aborts when one of them lets go of a tensor there.
SCRIPT = """
import gc, json, os, sys
import torch, graphmill
import torch.distributed as dist

def train():
    data = graphmill.open(sys.argv[1]) if sys.argv[2] == "open" else graphmill.connect(sys.argv[2], timeout=30)
    loader = graphmill.NeighborLoader(data, [3, 2], "train", batch_size=16, shuffle=True)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(data.num_features, data.num_classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        seeds, repeated = [], 0
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch.x)[: batch.batch_size], batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            repeated += batch.repeated
            seeds += [] if batch.repeated else batch.n_id[: batch.batch_size].tolist()
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, (seeds, repeated, len(loader)))
        if dist.get_rank() == 0:
            print(json.dumps(everyone), flush=True)

torch.set_num_threads(1)
dist.init_process_group("gloo")
train()
gc.collect()
dist.destroy_process_group()
"""


# Anchors with their labels, and random nodes as negatives, a batch of each for a step.
IN_STEP = """
import gc, itertools, json, sys
import torch, graphmill
import torch.distributed as dist

def train():
    data = graphmill.connect(sys.argv[1], timeout=30)
    LIKES = ("author", "likes", "paper")
    anchors = graphmill.AnchorLinkLoader(data, [3, 2], "train", positive=LIKES, batch_size=7, shuffle=True)
    random = graphmill.NeighborLoader(data, [3, 2], "paper", batch_size=11, shuffle=True, seed=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 8))
    users = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    endless = itertools.chain.from_iterable(itertools.repeat(random))
    for epoch in range(2):
        seen, drawn = [], 0
        for batch, negatives in zip(anchors, endless):
            who, what = batch.y_positive
            known = users(batch["author"].x).detach()[who]
            good = (known * model(batch["paper"].x)[what]).sum(dim=1)
            bad = known @ model(negatives["paper"].x)[: negatives["paper"].batch_size].T
            loss = bad.exp().mean() - good.sum() / max(len(good), 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            size = batch["author"].batch_size
            seen += [] if batch.repeated else batch["author"].n_id[:size].tolist()
            pairs = zip(batch["author"].n_id[who].tolist(), batch["paper"].n_id[what].tolist())
            assert all(row < size for row in who.tolist()) and set(pairs) <= set(map(tuple, data.edge_index(type=LIKES).T.tolist()))
            drawn += negatives["paper"].batch_size
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, (seen, drawn, model.module.weight.sum().item()))
        if dist.get_rank() == 0:
            print(json.dumps(everyone), flush=True)
    data.close()

torch.set_num_threads(1)
dist.init_process_group("gloo")
train()
gc.collect()
dist.destroy_process_group()
"""


def test_two_ranks_train_on_anchors_and_random_negatives_in_step(tmp_path, binary):
    packages.heterogeneous(tmp_path / "h", parts=2)
    (tmp_path / "train.py").write_text(IN_STEP)
    with packages.serving(binary, tmp_path / "h", partitions=["0", "1"]) as servers:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += [tmp_path / "train.py", ",".join(server.address for server in servers)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    epochs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
    assert len(epochs) == 2
    for ranks in epochs:
        assert sorted(seed for seen, _, _ in ranks for seed in seen) == list(range(0, 80, 2))
        assert all(drawn >= 3 * 10 for _, drawn, _ in ranks)
        assert ranks[0][2] == ranks[1][2], "the same model everywhere"


@pytest.mark.parametrize("where", ["open", "connect"])
def test_three_ranks_see_every_seed_once_and_step_together(tmp_path, binary, where):
    packages.homogeneous(tmp_path / "g")
    (tmp_path / "train.py").write_text(SCRIPT)
    with packages.serving(binary, tmp_path / "g") as (server,):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
        address = "open" if where == "open" else server.address
        command += [tmp_path / "train.py", tmp_path / "g", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    epochs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
    assert len(epochs) == 2
    for ranks in epochs:
        assert sorted(seed for seeds, _, _ in ranks for seed in seeds) == list(range(0, 300, 2))
        assert [length for _, _, length in ranks] == [4, 4, 4]
        assert sum(repeated for _, repeated, _ in ranks) == 2
