"""Data-parallel training under torchrun, with ranks and seeds that do not divide."""

import json
import subprocess
import sys

import packages
import pytest

SCRIPT = """
import json, os, sys
import torch, graphmill
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
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
dist.destroy_process_group()
"""


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
